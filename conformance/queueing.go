package conformance

import (
	"strings"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

func queueing() []Property {
	const group = "waiting"
	return []Property{
		{
			Name: "NoBarging", Group: group, Scripted: true,
			Clause: "Who comes anew does not overtake those who wait, though the lock is free because its holder's TTL is over, if the lock says that it is fair.",
			check: func(t *trial) {
				t.needs(t.Fair, "the lock does not claim to be fair")
				a, b, c := t.contender("A", ample), t.gated("B", ample), t.contender("C", ample)
				a.try().want(nil, "the lock is free")
				waiter := b.start().settles()
				t.evict(t.name)
				c.try().want(strategy.ErrHeld, "B waits, and it is B's turn")
				waiter.wait("A's lock has expired").want(nil, "it is its turn").release().want(nil, "B holds the lock")
				c.try().want(nil, "nobody waits any more").release().want(nil, "C holds the lock")
			},
		},
		{
			Name: "WhoQueues", Group: group, Scripted: true,
			Clause: "Inspect tells who waits in the servers' queue, in the order in which it is their turn, if the lock says that it is fair.",
			check: func(t *trial) {
				t.needs(t.Fair, "the lock does not claim to be fair")
				o := ample
				o.Label = "B"
				a, b, c := t.contender("A", ample), t.gated("B", o), t.gated("C", ample)
				h := a.try().want(nil, "the lock is free")
				if info := a.inspect(); info.Queue != nil {
					t.failf("Inspect() = queue %q, want none: nobody waits", info.Queue)
				}
				first := b.start().settles()
				second := c.start().settles()
				queue := a.inspect().Queue
				if len(queue) != 2 || !strings.HasSuffix(queue[0], ":B") || strings.HasSuffix(queue[1], ":B") {
					t.failf("Inspect() = queue %q, want a token of B's, whose label is B, and one of C's", queue)
				}
				h.release().want(nil, "A holds the lock")
				k := first.wait("A has released").want(nil, "it is its turn")
				if info := a.inspect(); info.Token != queue[0] || len(info.Queue) != 1 || info.Queue[0] != queue[1] {
					t.failf("Inspect() = token %q, queue %q, want what B and C queued with: %q", info.Token, info.Queue, queue)
				}
				k.release().want(nil, "B holds the lock")
				second.wait("B has released").want(nil, "it is its turn").release().want(nil, "C holds the lock")
			},
		},
		{
			Name: "DeadHeir", Group: group, Scripted: true,
			Clause: "A waiter that is cut off from the servers as its turn comes costs those behind it a short claim, and not a TTL, if the lock says that it is fair.",
			check: func(t *trial) {
				t.needs(t.Fair, "the lock does not claim to be fair")
				a, b, c := t.contender("A", t.patient()), t.gated("B", t.patient()), t.contender("C", t.patient())
				h := a.try().want(nil, "the lock is free")
				b.start().settles()
				next := c.start().settles()
				thaw := make(chan struct{})
				defer close(thaw)
				b.requests.each(func(_ int, send func()) {
					<-thaw // which nobody waits for
					send()
				})
				t.rec.add("B is cut off from the servers")
				h.release().want(nil, "A holds the lock")
				limit := driver.SuccessorTTL(a.o.TTL) + t.patience
				select {
				case <-next.done:
				case <-t.late(limit):
					t.failf("C.Acquire() has not returned %v after the release, want the lock: B, before it, is dead", limit)
				}
				next.k.want(nil, "B is dead").release().want(nil, "C holds the lock")
			},
		},
		{
			Name: "HandedOn", Group: group, Scripted: true,
			Clause: "Whoever gets the lock from another contender of its process has a token of its own, and a fence, if there are any, greater than all before.",
			check: func(t *trial) {
				a, b, c := t.contender("A", ample), t.contender("B", ample), t.contender("C", ample)
				h := a.try().want(nil, "the lock is free")
				const n = 20
				queue := newQueue(b, n)
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
				limit := t.late(t.patience)
				for i := range n {
					select {
					case got := <-queue.calls: // in the order in which they held it
						look(got.k.want(nil, "its turn comes").lease)
					case <-limit:
						t.failf("after %v %d waiters have had the lock, want all %d", t.patience, i, n)
					}
				}
				queue.all.Wait()
				look(c.try().want(nil, "all have released").lease)
			},
		},
	}
}
