package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

const (
	// LeaveEvery is how often the connections to a replica are left for new ones: a server that stays a replica must not
	// be stormed.
	LeaveEvery = time.Second

	// WaryFor is for how long after a request got no answer the connections at rest are not relied on, and Patience how
	// long one has then to show that it lives.
	WaryFor  = 15 * time.Second
	Patience = 50 * time.Millisecond
)

// A Silence is when a request got no answer last: what has silenced its connection, has perhaps silenced all of its
// age. The zero value is never.
type Silence struct{ at atomic.Pointer[time.Time] }

// Note notes that a request got no answer.
func (s *Silence) Note() {
	now := time.Now()
	s.at.Store(&now)
}

// Since reports whether a request got no answer at that time, or after it.
func (s *Silence) Since(at time.Time) bool {
	last := s.at.Load()
	return last != nil && !last.Before(at)
}

// Recent reports whether that was a short while ago.
func (s *Silence) Recent() bool {
	last := s.at.Load()
	return last != nil && time.Since(*last) < WaryFor
}

// Returns counts how often a connection for requests was made in the place of one that was lost, or led to a
// replica. The zero value counts none. It is guarded by its owner's lock.
type Returns struct {
	Count uint64

	lost bool      // the last connection was lost, or led to a replica
	left time.Time // when a replica was left last
}

// Lost notes that the connection has to be replaced.
func (r *Returns) Lost() { r.lost = true }

// Leave notes that the connection led to a replica, and reports whether that is to be left now: see LeaveEvery.
func (r *Returns) Leave() bool {
	if time.Since(r.left) < LeaveEvery {
		return false
	}
	r.left, r.lost = time.Now(), true
	return true
}

// Made notes that there is a connection.
func (r *Returns) Made() {
	if r.lost {
		r.Count++
	}
	r.lost = false
}

// A Gate lets calls in until it is closed, and knows when the last has gone.
type Gate struct {
	mu    sync.Mutex
	calls sync.WaitGroup
	life  context.Context
	end   context.CancelCauseFunc
}

// NewGate makes an open one.
func NewGate() *Gate {
	g := &Gate{}
	g.life, g.end = context.WithCancelCause(context.Background())
	return g
}

// Enter lets a call in, which says Leave when it is over, unless the gate is closed.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.IsClosed() {
		return false
	}
	g.calls.Add(1)
	return true
}

// Leave ends a call.
func (g *Gate) Leave() { g.calls.Done() }

// Close lets no call in.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end(strategy.ErrClosed)
}

// Life ends when the gate is closed.
func (g *Gate) Life() context.Context { return g.life }

// IsClosed reports whether Close was called.
func (g *Gate) IsClosed() bool { return g.life.Err() != nil }

// Wait waits for the calls that are in.
func (g *Gate) Wait() { g.calls.Wait() }

// Settled reads the answer to the PING before a session: it shows that the server can do nothing more of what
// had no answer, because it comes after those answers, or from a connection that has killed theirs. A refusal is an
// answer, too. Any other failure is returned without its kind, as nothing of the session was sent.
func Settled(err error) error {
	var failed *strategy.ServerError
	if errors.As(err, &failed) && failed.Kind != strategy.ErrRefused {
		return failed.Err
	}
	return nil
}
