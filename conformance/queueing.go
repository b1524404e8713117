package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// queues starts the contender's Acquire, and returns when the servers' queue has n claims. The trial
// ends without a verdict if one of the holders lapses meanwhile.
func (c *contender) queues(n int, holders ...*hold) *pending {
	p := c.start().settles()
	c.t.eventually(fmt.Sprintf("%d claims queue", n), func() bool {
		for _, h := range holders {
			c.t.unlessLapsed(h)
		}
		ended := isClosed(p.done)
		queue, known := c.queue()
		return !known || len(queue) >= n || ended
	})
	return p
}

// queue returns the tokens in the servers' queue, unless nobody can know.
func (c *contender) queue() (tokens []string, known bool) {
	info, err := c.s.Inspect(c.t.ctx, c.lock.Name())
	if errors.Is(err, strategy.ErrUnsupported) {
		return nil, false
	}
	if err != nil {
		c.t.brokef("Inspect: %w", err)
	}
	return info.Queue, true
}

// unlessGrantIsLate ends the trial without a verdict if a direct grant made at that time may have been
// heard of too late.
func (t *trial) unlessGrantIsLate(made time.Time) {
	if time.Since(made) > driver.SuccessorTTL(ample.TTL)/2 {
		t.tooSlow("the first in the queue did not take up its direct grant in time")
	}
}

// servedAfter lets two waiters queue, the second one for that long, and demands that they get the lock by
// the places that they have.
func (t *trial) servedAfter(pause time.Duration, suffix string) {
	name := t.name + suffix
	a, b, c := t.contender("A", t.patient()).on(name), t.contender("B", t.patient()).on(name), t.contender("C", t.patient()).on(name)
	h := a.try().want(nil, "the lock is free")
	first := b.queues(1)
	second := c.queues(2)
	queue := a.inspect().Queue
	if len(queue) != 2 {
		t.failf("Inspect() = queue %q, want B's token and C's", queue)
	}
	t.sleep(pause)
	released := time.Now()
	h.release().want(nil, "A holds the lock")
	inOrder(t, first.done, released, second)
	k := first.k.want(nil, "it is its turn")
	t.unlessGrantIsLate(released)
	if k.lease.Token() != queue[0] {
		t.failf("B has the lock by the token %q, want that by which it queued, %q: it has lost its place", k.lease.Token(), queue[0])
	}
	k.release().want(nil, "B holds the lock")
	second.wait("B has released").want(nil, "it is its turn")
}

// inOrder waits until served says that the first in the queue has the lock. It comes before the later ones, though all
// wait for the release.
func inOrder[T any](t *trial, served <-chan T, released time.Time, later ...*pending) (got T) {
	t.eventually("the lock goes to the first in the queue", func() bool {
		overtook := slices.IndexFunc(later, func(p *pending) bool { return isClosed(p.done) })
		select {
		case got = <-served: // a contender that overtook may have had it from the first
			return true
		default:
		}
		if overtook >= 0 {
			t.unlessGrantIsLate(released)
			k := later[overtook].k
			t.failf("%s = %w before its turn, want those first who came first", k.text, orNil{k.err})
		}
		return false
	})
	return got
}

func queueing() []Property {
	return inGroup("waiting",
		scripted("NoBarging",
			"A newcomer does not overtake waiters, though the lock is free because its holder's TTL is over, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				a, b, c := t.contender("A", ample), t.gated("B", ample), t.contender("C", ample)
				a.try().want(nil, "the lock is free")
				waiter := b.queues(1)
				t.evict(t.name)
				c.try().want(strategy.ErrHeld, "B waits, and it is B's turn")
				waiter.wait("A's lock has expired").want(nil, "it is its turn").release().want(nil, "B holds the lock")
				c.try().want(nil, "nobody waits any more").release().want(nil, "C holds the lock")
			}),
		scripted("WhoQueues",
			"Inspect shows the waiters in the servers' queue, in the order of their turns, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				o := ample
				o.Label = "B"
				a, b, c := t.contender("A", ample), t.gated("B", o), t.gated("C", ample)
				h := a.try().want(nil, "the lock is free")
				if info := a.inspect(); info.Queue != nil {
					t.failf("Inspect() = queue %q, want none: nobody waits", info.Queue)
				}
				first := b.queues(1)
				second := c.queues(2)
				queue := a.inspect().Queue
				if len(queue) != 2 || !strings.HasSuffix(queue[0], ":B") || strings.HasSuffix(queue[1], ":B") {
					t.failf("Inspect() = queue %q, want a token of B's, whose label is B, and one of C's", queue)
				}
				released := time.Now()
				h.release().want(nil, "A holds the lock")
				inOrder(t, first.done, released, second)
				k := first.k.want(nil, "it is its turn")
				if info := a.inspect(); info.Token != queue[0] || len(info.Queue) != 1 || info.Queue[0] != queue[1] {
					t.unlessGrantIsLate(released)
					t.failf("Inspect() = token %q, queue %q, want what B and C queued with: %q", info.Token, info.Queue, queue)
				}
				k.release().want(nil, "B holds the lock")
				second.wait("B has released").want(nil, "it is its turn").release().want(nil, "C holds the lock")
			}),
		scripted("AskingAgain",
			"A waiter that asks again, because the holder's TTL should be over, keeps its place, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				o := t.patient()
				o.Label = "B"
				a, b, c := t.contender("A", t.brief()), t.gated("B", o), t.gated("C", t.patient())
				d := t.contender("D", ample) // looks
				h := a.try().want(nil, "the lock is free")
				h.keepAlive(0)
				b.queues(1, h)
				c.queues(2, h)
				defer c.holdUp().melt()
				asked := b.requests()
				t.eventually("B asks again, and has the answer", func() bool {
					t.unlessLapsed(h)
					return b.requests() > asked+1
				})
				queue := d.inspect().Queue
				if t.unlessLapsed(h); len(queue) != 2 || !strings.HasSuffix(queue[0], ":B") {
					t.failf("Inspect() = queue %q, want a token of B's, whose label is B, and one of C's: B came first", queue)
				}
			}),
		scripted("PassKeepsPlaces",
			"A waiter whose process passes the lock on to another process gets it back when that releases it, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				a, b, c := t.contender("A", t.patient()), t.contender("B", t.patient()), t.contender("C", t.patient())
				h := a.try().want(nil, "the lock is free")
				line := newQueue(a, 2, 20*time.Millisecond) // for so long that the first does not hand over to the second
				other := b.queues(2)
				released := time.Now()
				h.release().want(nil, "A holds the lock")
				inOrder(t, line.calls, released, other).k.want(nil, "it is its turn")
				k := other.wait("A's first waiter has released").want(nil, "it is its turn")
				select {
				case <-line.calls:
					t.unlessGrantIsLate(released)
					t.failf("A's second waiter has had the lock before B, want those first who came first")
				default:
				}
				last := c.queues(2) // behind A's second waiter
				released = time.Now()
				k.release().want(nil, "B holds the lock")
				inOrder(t, line.calls, released, last)
				last.wait("all others have released").want(nil, "it is its turn")
			}),
		scripted("LongQueue",
			"Waiters are served in turn also after they have queued for longer than a direct grant lasts, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				direct := driver.SuccessorTTL(t.patient().TTL)
				// With the pauses before, B has queued for a little more than that. So the engine compares clocks.
				t.servedAfter(direct-t.ttl/3, "/1")
				// After 1.2 times that it asks for what it has been granted, and clocks do not matter.
				t.servedAfter(direct*3/2, "/2")
			}),
		alone(scripted("UnsubscribedWaiter",
			"A waiter whose subscription has ended is passed over: the lock goes at once to the next who listens, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				t.needs(t.BreakWatches != nil, "Subject.BreakWatches is nil")
				a, b, c := t.contender("A", t.patient()), t.gated("B", t.patient()), t.gated("C", t.patient())
				h := a.try().want(nil, "the lock is free")
				b.queues(1)
				next := c.queues(2)
				queue := a.inspect().Queue
				if len(queue) != 2 {
					t.failf("Inspect() = queue %q, want B's token and C's", queue)
				}
				defer b.holdUp().melt() // so it does not listen again
				t.breakWatches()
				c.settle()
				h.release().want(nil, "A holds the lock")
				if info := a.inspect(); info.Token == queue[0] {
					t.failf("Inspect() = token %q, B's, want C's: B does not listen", info.Token)
				}
				next.wait("A has released, and B does not listen").want(nil, "it is its turn")
			})),
		scripted("DeadSuccessor",
			"A waiter that is cut off from the servers as its turn comes costs those behind it a short claim, and not a TTL, if the lock says that it is fair.",
			func(t *trial) {
				t.needs(t.Fair, "Subject.Fair is false")
				a, b, c := t.contender("A", t.patient()), t.gated("B", t.patient()), t.contender("C", t.patient())
				h := a.try().want(nil, "the lock is free")
				b.queues(1)
				next := c.queues(2)
				defer b.holdUp().melt()
				h.release().want(nil, "A holds the lock")
				limit := driver.SuccessorTTL(a.o.TTL) + t.patience
				await(t, next.done, limit, "C.Acquire() has not returned %v after the release, want the lock: B, before it, is dead", limit)
				next.k.want(nil, "B is dead").release().want(nil, "C holds the lock")
			}),
		scripted("HandedOn",
			"A contender that gets the lock from another one of its process has a token of its own, and a fence, if there are any, greater than all before.",
			func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				h := a.try().want(nil, "the lock is free")
				const n = 20
				queue := newQueue(b, n, 0)
				h.release().want(nil, "A holds the lock")
				tokens, last := map[string]bool{h.lease.Token(): true}, uint64(0)
				look := func(l strategy.Lease) {
					if tokens[l.Token()] || l.Owner() != l.Token() {
						t.failf("Token() = %q, Owner() = %q, want one of its own", l.Token(), l.Owner())
					}
					tokens[l.Token()] = true
					fence, ok := l.Fence()
					if t.Fenced && (!ok || fence <= last) {
						t.failf("Fence() = %d, %v, want more than %d, that of the hold before", fence, ok, last)
					}
					last = fence
				}
				for i := range n { // in the order in which they held it
					got := await(t, queue.calls, t.patience, "after %v %d waiters have had the lock, want all %d", t.patience, i, n)
					look(got.k.want(nil, "its turn comes").lease)
				}
				queue.all.Wait()
				look(c.try().want(nil, "all have released").lease)
			}),
	)
}
