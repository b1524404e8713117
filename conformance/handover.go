package conformance

import (
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func handingOver() []Property {
	return inGroup("handing over",
		scripted("Detach",
			"Detaching ends the lease here and leaves the lock with the servers: nobody else gets it, and nothing is lost.",
			func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				h := a.try().want(nil, "the lock is free")
				lost := h.lease.Lost()
				if token := h.detach(); token != h.lease.Token() {
					t.failf("A.Detach() gave the token %q, want the lease's, %q", token, h.lease.Token())
				}
				b.try().want(strategy.ErrHeld, "the servers keep the lock")
				h.err().want(strategy.ErrReleased, "A has detached")
				h.release().want(strategy.ErrReleased, "A has detached")
				b.try().want(strategy.ErrHeld, "that release was none")
				select {
				case <-lost:
					t.failf("A.Lost() is closed, want open: A has detached the lock itself")
				default:
				}
				b.adopt(h.lease.Token()).want(nil, "A has detached").release().want(nil, "B has adopted the lock")
			}),
		scripted("Adopt",
			"The caller that gets the token of a detached lock takes the lock over, renewed, and it is never free in between.",
			func(t *trial) {
				a, b, c := t.contender("A", t.brief()), t.contender("B", ample), t.contender("C", ample)
				h := a.try().want(nil, "the lock is free")
				token := h.detach()
				k := b.adopt(token)
				if k.err != nil && !time.Now().Before(h.lease.Deadline()) {
					t.tooSlow("B did not come to adopt in time")
				}
				adopted := k.want(nil, "A has detached")
				t.sleep(time.Until(h.asked.Add(t.ttl + t.ttl/2))) // past A's TTL
				c.try().want(strategy.ErrHeld, "B has adopted the lock, with a TTL of its own")
				adopted.extend().want(nil, "B holds the lock")
				adopted.release().want(nil, "B holds the lock")
				c.try().want(nil, "B has released")
			}),
		scripted("AdoptOnlyHeld",
			"A token that does not hold the lock any more cannot be adopted, and the lock stays what it is: held by another, or free.",
			func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				token := a.try().want(nil, "the lock is free").detach()
				t.evict(t.name)
				b.adopt(token).want(strategy.ErrLost, "nobody holds the lock")
				h := b.try().want(nil, "nobody holds the lock, and adopting did not bring it back")
				c.adopt(token).want(strategy.ErrLost, "B holds the lock")
				c.try().want(strategy.ErrHeld, "B holds the lock")
				h.release().want(nil, "B holds the lock")
			}),
		scripted("AdoptOnce",
			"A token can be adopted once: a caller that brings it again, and the lease that it was taken from, learn that it is lost.",
			func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				token := a.try().want(nil, "the lock is free").detach()
				h := b.adopt(token).want(nil, "A has detached")
				c.adopt(token).want(strategy.ErrLost, "B has adopted the lock")
				h.extend().want(nil, "B holds the lock")
				k := c.adopt(h.lease.Token()).want(nil, "C brings the token that holds")
				h.extend().want(strategy.ErrLost, "C has adopted the lock")
				k.release().want(nil, "C holds the lock")
			}),
		scripted("AdoptionWakes",
			"Where the servers announce releases, a waiter that came before an adoption is notified of the adopter's release.",
			func(t *trial) {
				a, b, c := t.contender("A", t.listening()), t.contender("B", t.listening()), t.contender("C", ample)
				h := a.try().want(nil, "the lock is free")
				waiter := b.start().settles()
				adopted := c.adopt(h.detach()).want(nil, "A has detached")
				adopted.release().want(nil, "C has adopted the lock")
				waiter.wait("C has released").want(nil, "C has released")
			}),
		scripted("Inspect", "Inspect shows who holds a lock, its label, since when, and for how long at most, and changes nothing.", func(t *trial) {
			o := ample
			o.Label = "host 7, shelf 3"
			a, b := t.contender("A", o), t.contender("B", ample)
			if info := b.inspect(); info.Held || info.Token != "" {
				t.failf("Inspect() of a free lock = %+v, want not held", info)
			}
			asked := time.Now().Truncate(time.Millisecond) // which is all that a token tells
			h := a.try().want(nil, "the lock is free")
			info := b.inspect()
			if !info.Held || info.Token != h.lease.Token() {
				t.failf("Inspect() = held %v, by %q, want by A: %q", info.Held, info.Token, h.lease.Token())
			}
			if info.Name != t.name || info.Key != strategy.DefaultKey(t.name) || info.Label != o.Label {
				t.failf("Inspect() = name %q, key %q, label %q, want %q, %q, %q", info.Name, info.Key, info.Label, t.name, strategy.DefaultKey(t.name), o.Label)
			}
			if since := info.Since; since.Before(asked) || since.After(time.Now()) {
				t.failf("Inspect() = since %v, want between %v, when A asked, and now", since, asked)
			}
			if info.TTL <= 0 || info.TTL > o.TTL {
				t.failf("Inspect() = TTL %v, want more than 0 and %v at most", info.TTL, o.TTL)
			}
			if fence, ok := h.lease.Fence(); ok && info.Fence != fence {
				t.failf("Inspect() = fence %d, want A's: %d", info.Fence, fence)
			}
			b.try().want(strategy.ErrHeld, "A holds the lock, inspected or not")
			h.extend().want(nil, "A holds the lock")
			h.release().want(nil, "A holds the lock")
			if info := b.inspect(); info.Held || info.Token != "" {
				t.failf("Inspect() after the release = %+v, want not held", info)
			}
		}),
	)
}

func (c *contender) adopt(token string) call {
	k := c.do("Adopt()", func() (strategy.Lease, error) { return c.s.Adopt(c.t.ctx, c.lock.Name(), token) })
	c.t.needs(!matches(k.err, strategy.ErrUnsupported), "the protocol's Adopt is that of driver.Unsupported")
	return k
}
