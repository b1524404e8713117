package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func ownership() []Property {
	return inGroup("ownership",
		scripted("ReleaseOnlyOwn",
			"A release that comes after the lock went to somebody else leaves it there, also between its requests.",
			func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				inside := func(_ int, _, release func()) bool { release(); return false } // nobody can look between requests
				if t.OpenGated != nil {
					a = t.gated("A", ample)
					inside = func(k int, look, release func()) bool { return t.inside(a, k, look, release) }
				}
				for k, more := 1, true; more; k++ {
					name := fmt.Sprintf("%s/%d", t.name, k)
					late, successor := a.on(name).takenOverBy(b.on(name))
					var midway call
					more = inside(k, func() { midway = c.on(name).try() }, func() { late.release() }) // what it says is ReleaseAfterLoss's concern
					if more {
						midway.want(strategy.ErrHeld, "B holds the lock: A must not take it away, not even for a moment")
					}
					c.on(name).try().want(strategy.ErrHeld, "B holds the lock: A must not release it")
					successor.release().want(nil, "B holds the lock")
				}
			}),
		scripted("ReleaseAfterLoss", "The release of a lock that was lost says ErrLost, whether somebody else has it or nobody.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			late, successor := a.takenOverBy(b)
			late.release().want(strategy.ErrLost, "B holds the lock")
			successor.release().want(nil, "B holds the lock")
			lost := a.try().want(nil, "B has released")
			t.evict(t.name)
			lost.release().want(strategy.ErrLost, "nobody holds the lock")
		}),
		scripted("ReleaseAtomic",
			"A release leaves the lock to a successor also if that comes between any two requests of the release.",
			func(t *trial) {
				c := t.contender("C", ample)
				t.handOverInside((*hold).release, func(_ call, successor *hold) {
					c.on(successor.lease.Name()).try().want(strategy.ErrHeld, "B holds the lock: A must not release it")
				})
			}),
		scripted("ReleaseOnce", "Releasing a second time says ErrReleased and does nothing.", func(t *trial) {
			a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
			first := a.try().want(nil, "the lock is free")
			first.release().want(nil, "A holds the lock")
			first.release().want(strategy.ErrReleased, "it was released")
			b.try().want(nil, "A has released")
			first.release().want(strategy.ErrReleased, "it was released")
			first.extend().want(strategy.ErrReleased, "it was released")
			c.try().want(strategy.ErrHeld, "B holds the lock")
		}),
		scripted("ReleaseAnywhere", "A lock is its lease's, not a goroutine's: any goroutine may release it.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			var acquired, released call
			var other sync.WaitGroup
			other.Go(func() { acquired = a.try() })
			other.Wait()
			h := acquired.want(nil, "the lock is free")
			other.Go(func() { released = h.release() })
			other.Wait()
			released.want(nil, "A holds the lock")
			b.try().want(nil, "A has released")
		}),
		scripted("ReleaseDetached",
			"A release takes effect also when its context was cancelled: a request that was given up must not keep its lock.",
			func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				cancelled, cancel := context.WithCancel(t.ctx)
				cancel()
				h.do("Release(cancelled context)", func() error { return h.lease.Release(cancelled) }).want(nil, "A holds the lock")
				b.try().want(nil, "A has released")
			}),
		scripted("TokensUnique", "No two acquisitions have the same token.", func(t *trial) {
			a, b := t.contender("A", ample), t.contender("B", ample)
			seen := map[string]bool{}
			for range 20 {
				for _, c := range []*contender{a, b} {
					h := c.try().want(nil, "the lock is free")
					if token := h.lease.Token(); token == "" || seen[token] {
						t.failf("%s's token is %q, want one that nobody had before", c.who, token)
					} else {
						seen[token] = true
					}
					h.release().want(nil, c.who+" holds the lock")
				}
			}
		}),
		scripted("ExtendOnlyOwn", "Extending a lock that went to somebody else says ErrLost and leaves it there.", func(t *trial) {
			a, b, c := t.contender("A", ample), t.contender("B", shorter), t.contender("C", ample)
			late, successor := a.takenOverBy(b)
			late.extend().want(strategy.ErrLost, "B holds the lock")
			late.err().want(strategy.ErrLost, "a loss stays")
			c.try().want(strategy.ErrHeld, "B holds the lock")
			successor.extend().want(nil, "B holds the lock")
		}),
		scripted("ExtendAtomic", "An extension is refused also if the lock changes hands between any two requests of it.", func(t *trial) {
			t.handOverInside((*hold).extend, func(extended call, successor *hold) {
				extended.want(strategy.ErrLost, "B holds the lock")
				successor.extend().want(nil, "B holds the lock")
			})
		}),
		scripted("ForceRelease",
			"An operator frees a lock from the holder that the operator saw, and from no other; that holder's own release then says ErrLost.",
			func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				first := a.try().want(nil, "the lock is free")
				seen := c.inspect()
				c.force(seen).want(nil, "A holds the lock")
				second := b.try().want(nil, "A's lock was taken away")
				c.force(seen).want(strategy.ErrLost, "A does not hold the lock any more")
				c.try().want(strategy.ErrHeld, "B holds the lock, and nobody forced B")
				first.release().want(strategy.ErrLost, "A's lock was taken away")
				second.release().want(nil, "B holds the lock")
			}),
	)
}

// handOverInside plays A's move on a lock that it holds, once for each request that
// the move waits for: just before that request, the lock goes from A to B. Then it
// checks.
func (t *trial) handOverInside(move func(*hold) call, check func(moved call, successor *hold)) {
	t.needs(t.Evict != nil, "Subject.Evict is nil")
	a, b := t.gated("A", ample), t.contender("B", shorter)
	for k := 1; ; k++ {
		name := fmt.Sprintf("%s/%d", t.name, k)
		held := a.on(name).try().want(nil, "the lock is free")
		var evicted error
		var moved, successor call
		inside := t.inside(a, k, func() {
			t.rec.add("the lock is taken from its holder, as by expiry")
			evicted = t.Evict(t.ctx, strategy.DefaultKey(name))
			successor = b.on(name).try()
		}, func() { moved = move(held) })
		if evicted != nil {
			t.brokef("Subject.Evict: %w", evicted)
		}
		if inside && errors.Is(moved.err, strategy.ErrUnknown) {
			t.tooSlow(moved.text + " = " + moved.err.Error()) // a straggler of A's may still be on its way
		}
		if !inside { // the move waits for fewer requests than that
			moved.want(nil, "A holds the lock")
			return
		}
		check(moved, successor.want(nil, "nobody holds the lock any more"))
	}
}

// inside has step called just before the k-th of the requests that a's move waits for,
// and reports whether there are so many.
//
// A move may make its requests side by side, to several servers. They pass one at a
// time, so that those before have been answered, and those after have not been sent. It
// may also be over before all are answered: a request that comes then does not come inside it. The
// trial sees by the move's end whether it waits for a request.
func (t *trial) inside(a *contender, k int, step, move func()) (reached bool) {
	var mu sync.Mutex // guards what follows
	passed, ended := 0, false
	over := make(chan struct{})
	overdue := false // it was over without the k-th request, and only later than expected
	t.relies(t.ttl / 8)
	a.each(func(_ int, send func()) {
		mu.Lock()
		defer mu.Unlock()
		if passed++; !ended && passed == k && (k == 1 || !within(over, t.ttl)) {
			reached = true
			step()
			overdue = k > 1 && within(over, t.ttl/8)
		}
		send()
	})
	move()
	close(over)
	a.each(nil)
	mu.Lock() // what has begun inside the move is brought to its end
	defer mu.Unlock()
	ended = true // a request of a trial that was called off may still come
	if overdue {
		t.tooSlow("the end of a call that did not wait for this request")
	}
	return reached
}

func within(ch <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ch:
		return true
	case <-timer.C:
		return false
	}
}

func (c *contender) force(seen strategy.Info) call {
	return c.do("ForceRelease(A's)", func() (strategy.Lease, error) { return nil, c.s.ForceRelease(c.t.ctx, seen) })
}

func (c *contender) inspect() strategy.Info {
	var info strategy.Info
	k := c.do("Inspect()", func() (_ strategy.Lease, err error) {
		info, err = c.s.Inspect(c.t.ctx, c.lock.Name())
		return nil, err
	})
	c.t.needs(!matches(k.err, strategy.ErrUnsupported), "the protocol's Inspect is that of driver.Unsupported")
	k.want(nil, "it reads and changes nothing")
	return info
}
