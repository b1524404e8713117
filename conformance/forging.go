package conformance

import (
	"math"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

func forging() []Property {
	return inGroup("waiting",
		scripted("ForgedGrant",
			"A message alone, from anybody and with any words, makes nobody a holder next to another for longer than a direct grant lasts; and no waiter loses its turn by it.",
			func(t *trial) {
				t.needsForge()
				t.relies(driver.SuccessorTTL(ample.TTL) / 2)
				t.forgedNextTo(t.contender("A", ample), t.contender("B", ample), "the lock is free")
				if t.OpenPermits != nil {
					name := t.name + "/permits"
					a, b := t.sharer("A", 3, ample).on(name), t.sharer("B", 3, ample).on(name)
					t.forgedNextTo(a.wanting(2), b.wanting(2), "three permits are free")
				}
				if t.OpenRW != nil {
					name := t.name + "/read"
					t.forgedNextTo(t.writer("A", ample).on(name), t.reader("B", ample).on(name), "the lock is free")
				}
			}),
		scripted("ForgedDelay", "No message lets a waiter sleep for longer than the servers have said, or its own TTL.", func(t *trial) {
			t.needsForge()
			a, b := t.contender("A", t.brief()), t.contender("B", t.brief())
			h := a.try().want(nil, "the lock is free")
			waiter := b.start().settles()
			t.forge(b.lock.Name(), driver.Notification{Next: contract.MaxTTL})
			t.forge(b.lock.Name(), driver.Notification{Next: time.Millisecond}) // if it believes that, it asks
			t.sleep(t.ttl / 20)
			h.detach()
			died := time.Now()
			for most := 3 * t.ttl; !isClosed(waiter.done); t.sleep(t.ttl / 10) {
				if time.Since(died) > most {
					t.failf("B.Acquire() has not returned %v after the holder died, want the TTL of A or B, %v", most, t.ttl)
				}
				t.forge(b.lock.Name(), driver.Notification{Next: contract.MaxTTL})
				t.forge(b.lock.Name(), driver.Notification{Token: "somebody", Grant: driver.Grant{TTL: contract.MaxTTL}})
			}
			waiter.wait("A's lock has expired").want(nil, "A's lock has expired")
		}),
	)
}

// needsForge skips the trial if nobody hears messages.
func (t *trial) needsForge() {
	t.needs(t.Forge != nil, "Subject.Forge is nil")
	t.contender("a listener", t.listening())
}

// forge sends a message to those who listen for the lock.
func (t *trial) forge(name string, n driver.Notification) {
	if err := t.Forge(t.ctx, strategy.DefaultKey(name), n); err != nil {
		t.brokef("Subject.Forge: %w", err)
	}
}

// forgedNextTo lets b wait for what a holds, again and again, while messages come that the servers have not sent. In the end
// a releases it.
func (t *trial) forgedNextTo(a, b *contender, why string) {
	h := a.try().want(nil, why)
	direct := driver.SuccessorTTL(ample.TTL)
	for _, of := range []string{"the waiter", "the holder", "nobody"} {
		for what, n := range t.forged() {
			waiter := b.start().settles()
			token := map[string]string{"the holder": h.lease.Token(), "nobody": "somebody else"}[of]
			queue, _ := a.queue()
			if of == "the waiter" {
				if len(queue) == 0 {
					waiter.givesUp()
					continue // nobody queues
				}
				token = queue[len(queue)-1]
			}
			if n.Next == 0 && n.Grant == (driver.Grant{}) {
				n.Holder = token
			} else if n.Next == 0 {
				n.Token = token
			}
			t.rec.add("a message of %s: %s", of, what)
			t.forge(b.lock.Name(), n)
			t.sleep(t.ttl / 20)
			if !isClosed(waiter.done) {
				waiter.givesUp()
			}
			if <-waiter.done; waiter.k.err != nil {
				waiter.k.want(strategy.ErrHeld, "A holds the lock")
				continue
			}
			got := waiter.k.hold
			got.lease.KeepAlive(0) //nolint:errcheck // it may be lost already
			await(t, got.lease.Lost(), direct+direct/2, "B holds next to A for %v and longer, by a message, want %v at most", direct+direct/2, direct)
			got.err().want(strategy.ErrLost, "A holds the lock")
		}
	}
	h.extend().want(nil, "A holds the lock")
	waiter := b.start().settles()
	if queue, _ := a.queue(); len(queue) > 0 {
		t.eventually("B's place is the only one in the queue", func() bool {
			queue, _ = a.queue()
			return len(queue) == 1
		})
	}
	for range 10 {
		t.forge(b.lock.Name(), driver.Notification{Token: "somebody else", Grant: driver.Grant{Fences: 1, TTL: time.Second}})
	}
	released := time.Now()
	h.release().want(nil, "A holds the lock")
	got := waiter.wait("A has released").want(nil, "A has released")
	t.unlessGrantIsLate(released)
	got.release().want(nil, "B holds the lock")
}

// forged are messages that nobody who may only publish should gain by, without a token, and what each says. One without
// anything says that a holder has released.
func (t *trial) forged() map[string]driver.Notification {
	grant := driver.Grant{Fences: 1, TTL: time.Second}
	with := func(change func(g *driver.Grant)) driver.Notification {
		g := grant
		change(&g)
		return driver.Notification{Grant: g}
	}
	return map[string]driver.Notification{
		"a grant":                  with(func(*driver.Grant) {}),
		"a grant for a day":        with(func(g *driver.Grant) { g.TTL, g.Fences, g.Holds = contract.MaxTTL, driver.MaxFences, driver.MaxFences }),
		"a grant of the future":    with(func(g *driver.Grant) { g.ServerTime = time.Hour }),
		"a grant of the past":      with(func(g *driver.Grant) { g.ServerTime = -time.Hour }),
		"a grant with a fence":     with(func(g *driver.Grant) { g.Fence = math.MaxInt64 }),
		"a release":                {},
		"that another is next":     {Next: contract.MaxTTL},
		"that the next is at once": {Next: time.Millisecond},
	}
}
