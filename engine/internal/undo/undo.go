// Package undo ends a claim whose end nobody knows: it asks again until the servers confirm it.
package undo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// A Retrier undoes claims in the background.
type Retrier struct {
	Group *lifecycle.Group

	mu       sync.Mutex
	limiters map[string]*limiter // by the claim's key
}

// A limiter makes the undos of a key ask again one at a time. If all of them asked a slow server, it would answer
// none in time, and all would ask again.
type limiter struct {
	taken chan struct{} // has room for one
	users int           // undos under way
}

// Undo asks p to undo c, again and again, until p confirms, or until one TTL has passed since an acquire
// could have taken effect last: then the key has expired. Close of the group cuts it to one last
// try. If that does not succeed either, failed is called, with how long the undo was tried, and why it failed.
func (r *Retrier) Undo(p driver.Protocol, c driver.Claim, opTimeout time.Duration, failed func(c driver.Claim, elapsed time.Duration, err error)) {
	r.Group.Go(func() {
		taken := r.join(c.Key)
		defer r.leave(c.Key)
		began := time.Now()
		until := began.Add(c.TTL)
		if due := c.Due.Add(c.TTL); due.After(until) {
			until = due
		}
		for last, asking := false, false; ; {
			c.Due = time.Now().Add(opTimeout)
			err := p.Undo(context.Background(), c)
			if asking {
				<-taken
				asking = false
			}
			now := time.Now()
			answered := errors.Is(err, strategy.ErrRefused) || errors.Is(err, driver.ErrAcquireMayArrive)
			if !answered && (c.Grant.IsZero() || c.Grant.Partial) {
				// A paused server may execute the acquire when it goes on, and only then does its TTL
				// begin. So may one of several servers, although the others have granted the lock.
				until = now.Add(min(c.TTL, contract.MaxTTL-now.Sub(began)))
			}
			if err == nil || !now.Before(until) {
				return
			}
			if last {
				failed(c, now.Sub(began), err)
				return
			}
			select {
			case <-time.After(min(pause(opTimeout, now.Sub(began), answered), until.Sub(now))):
			case <-r.Group.Closing():
				last = true
			}
			select {
			case taken <- struct{}{}:
				asking = true
			case <-r.Group.Closing():
				last = true
			}
		}
	})
}

// pause is short against the operation time-out, so that a server that goes on keeps no ghost for
// longer than that. It grows with the time that has passed, because a server may never come back. It
// grows faster when the server has answered: then only a late request can arrive.
func pause(opTimeout, passed time.Duration, answered bool) time.Duration {
	if answered {
		return max(opTimeout/4, 5*time.Millisecond, passed/4)
	}
	return max(opTimeout/4, 5*time.Millisecond, passed/16)
}

// join counts one more undo of the key, and returns what limits it: an undo fills taken before it asks again, and
// empties it after the answer.
func (r *Retrier) join(key string) (taken chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.limiters[key]
	if t == nil {
		if r.limiters == nil {
			r.limiters = map[string]*limiter{}
		}
		t = &limiter{taken: make(chan struct{}, 1)}
		r.limiters[key] = t
	}
	t.users++
	return t.taken
}

func (r *Retrier) leave(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.limiters[key].users--; r.limiters[key].users == 0 {
		delete(r.limiters, key)
	}
}
