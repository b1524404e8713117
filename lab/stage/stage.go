// Package stage is where stories are played on real servers: the plays of the fault matrix and
// the acts of the lessons.
package stage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/redlock"
)

// A Story is played once. It is safe for concurrent use.
type Story struct {
	mu  sync.Mutex
	err error
}

// Play begins to tell the story, on a goroutine of its own. over is closed when the story has
// returned, has panicked, or has called Cannot.
func (s *Story) Play(tell func()) (over <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				s.Fail(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			}
		}()
		tell()
	}()
	return done
}

// Cannot ends the goroutine of the story that calls it: the story cannot be played to its end.
func (s *Story) Cannot(format string, args ...any) {
	s.Fail(fmt.Errorf(format, args...))
	runtime.Goexit()
}

// Must is Cannot, with these words before the error, if there is one.
func (s *Story) Must(err error, format string, args ...any) {
	if err != nil {
		s.Cannot(format+": %w", append(args, err)...)
	}
}

// Fail notes why the story cannot be played to its end. The first reason counts.
func (s *Story) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// Err is why the story cannot be played to its end; nil: it can.
func (s *Story) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Rigs lends rigs to stories, and takes them back as good as new: starting servers for each
// story would take longer than the stories. The zero value is ready, and safe for concurrent use.
type Rigs struct {
	mu   sync.Mutex
	idle map[need][]*rig.Rig
	all  map[*rig.Rig]need
}

// A need is what a rig is chosen by.
type need struct {
	farm    *redistest.Farm
	servers int
}

// Borrow lends a rig of so many servers of the farm.
func (r *Rigs) Borrow(ctx context.Context, farm *redistest.Farm, servers int) (*rig.Rig, error) {
	h := need{farm, servers}
	r.mu.Lock()
	if rest := r.idle[h]; len(rest) > 0 {
		defer r.mu.Unlock()
		r.idle[h] = rest[:len(rest)-1]
		return rest[len(rest)-1], nil
	}
	r.mu.Unlock()
	lent, err := rig.Open(ctx, farm, servers, redistest.Config{})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all, r.idle = map[*rig.Rig]need{}, map[need][]*rig.Rig{}
	}
	r.all[lent] = h
	return lent, nil
}

// GiveBack resets a rig for the next story, whatever has become of ctx. One that does not
// recover is not lent again.
func (r *Rigs) GiveBack(ctx context.Context, lent *rig.Rig) error {
	if err := lent.Reset(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(fmt.Errorf("the servers do not recover: %w", err), lent.Close())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.all[lent]
	r.idle[h] = append(r.idle[h], lent)
	return nil
}

// Bootstrap lets the servers of a rig, which are known to be new, vote at once.
func Bootstrap(ctx context.Context, r *rig.Rig) error {
	var pools []*redis.Pool
	for _, n := range r.Nodes {
		pools = append(pools, n.Server().Pool())
	}
	return locktest.OnNodes(pools, func(nodes []driver.Node) error { return redlock.Bootstrap(ctx, nodes) })
}

// Close ends all servers that were started.
func (r *Rigs) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var err error
	for lent := range r.all {
		err = errors.Join(err, lent.Close())
	}
	return err
}
