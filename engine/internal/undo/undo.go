// Package undo repeats the release of a claim whose end nobody knows, until the servers confirm it.
package undo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/strategy"
)

// A Retrier undoes claims in the background.
type Retrier struct {
	Group *lifecycle.Group

	mu     sync.Mutex
	turns  map[string]*turn // by the claim's key
	failed error
}

// A turn lets one undo of a key at a time ask again. If all of them asked a slow server, it would answer
// none in time, and all would ask again.
type turn struct {
	taken chan struct{} // has room for one
	users int           // undos under way
}

// Undo releases c, again and again, until p confirms, or until one TTL has passed since an acquire
// could have taken effect last: then the key is gone by itself. Close of the group cuts it to one last
// try.
func (r *Retrier) Undo(p driver.Protocol, c driver.Claim, opTimeout time.Duration) {
	c.Undo = true
	r.Group.Go(func() {
		taken := r.join(c.Key)
		defer r.leave(c.Key)
		began := time.Now()
		until := began.Add(c.TTL)
		if due := c.Due.Add(c.TTL); due.After(until) {
			until = due
		}
		for last, inTurn := false, false; ; {
			c.Due = time.Now().Add(opTimeout)
			err := p.Release(context.Background(), c) // Remains(nil) is an error: go on
			if inTurn {
				<-taken
				inTurn = false
			}
			now := time.Now()
			answered := errors.Is(err, strategy.ErrRefused) || errors.Is(err, driver.ErrAcquireMayArrive)
			_, remains := driver.Unmark(err)
			if !answered && (remains || c.Grant.IsZero() && !c.Force) {
				// A paused server may execute the acquire when it goes on, and only then does its TTL
				// begin. So may one of several servers, although the others have granted the lock.
				until = now.Add(min(c.TTL, strategy.MaxTTL-now.Sub(began)))
			}
			if err == nil || !now.Before(until) {
				return
			}
			if last {
				r.fail(c, err)
				return
			}
			select {
			case <-time.After(min(pause(opTimeout, now.Sub(began), answered), until.Sub(now))):
			case <-r.Group.Closing():
				last = true
			}
			select {
			case taken <- struct{}{}:
				inTurn = true
			case <-r.Group.Closing():
				last = true
			}
		}
	})
}

// pause is short against the operation time-out, so that a server that goes on keeps no ghost for
// longer than that. It grows with the time that has passed, because a server may be gone for good. It
// grows faster when the server has answered: then only a late request can arrive.
func pause(opTimeout, passed time.Duration, answered bool) time.Duration {
	if answered {
		return max(opTimeout/4, 5*time.Millisecond, passed/4)
	}
	return max(opTimeout/4, 5*time.Millisecond, passed/16)
}

// join counts one more undo of the key, and returns its turn: an undo fills taken before it asks again, and empties it
// after the answer.
func (r *Retrier) join(key string) (taken chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.turns[key]
	if t == nil {
		if r.turns == nil {
			r.turns = map[string]*turn{}
		}
		t = &turn{taken: make(chan struct{}, 1)}
		r.turns[key] = t
	}
	t.users++
	return t.taken
}

func (r *Retrier) leave(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turns[key].users--; r.turns[key].users == 0 {
		delete(r.turns, key)
	}
}

func (r *Retrier) fail(c driver.Claim, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = errors.Join(r.failed, fmt.Errorf("lock %q: token %q may hold it until its TTL ends: %w", c.Name, strategy.ShortToken(c.Token), err))
}

// Err returns what could not be undone before the group was closed. Call it after that.
func (r *Retrier) Err() error { return r.failed }
