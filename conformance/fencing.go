package conformance

import (
	"fmt"
	"sync"
)

func fencing() []Property {
	return inGroup("fencing",
		scripted("FenceRises",
			"Every hold has a greater fence than all holds before it, however those ended; or no hold has one, if the lock cannot issue unique, rising ones.",
			func(t *trial) {
				a, b := t.contender("A", ample), t.contender("B", ample)
				var last uint64
				next := func(h *hold, after string) {
					fence, ok := h.lease.Fence()
					switch {
					case !t.Fenced && ok:
						t.failf("%s.Fence() = %d, want none: the lock does not claim to issue fences", h.c.who, fence)
					case t.Fenced && (!ok || fence <= last):
						t.failf("%s.Fence() = %d, %v, want more than %d: it comes after %s", h.c.who, fence, ok, last, after)
					}
					last = fence
				}
				first := a.try().want(nil, "the lock is free")
				next(first, "nothing")
				b.try() // refused: it uses up none that matters
				first.release().want(nil, "A holds the lock")
				second := b.try().want(nil, "A has released")
				next(second, "a release")
				if t.Evict != nil {
					t.evict(t.name)
					third := a.try().want(nil, "B's lock was taken away")
					next(third, "an expiry")
					third.detach()
					next(b.adopt(third.lease.Token()).want(nil, "A has detached"), "a detach: who took over must not be outdone by who gave up")
				}
			}),
		scripted("FenceKept", "A hold keeps its fence for life: renewal does not change it, nor does the loss of the lock.", func(t *trial) {
			t.needs(t.Fenced, "Subject.Fenced is false")
			a := t.contender("A", t.brief())
			h := a.try().want(nil, "the lock is free")
			first, _ := h.lease.Fence()
			same := func(after string) {
				if got, ok := h.lease.Fence(); got != first || !ok {
					t.failf("A.Fence() after %s = %d, %v, want %d as before", after, got, ok, first)
				}
			}
			h.extend().want(nil, "A holds the lock")
			same("Extend")
			h.keepAlive(0)
			t.untilRenewed(h)
			same("a renewal")
			if t.Evict != nil {
				h.release().want(nil, "A holds the lock")
				h = a.try().want(nil, "A has released")
				first, _ = h.lease.Fence()
				t.evict(t.name)
				h.keepAlive(0)
				h.waitLost("the lock was taken away")
				same("the loss")
			}
		}),
		byChance("FenceOrders", "However many contend at once, fences have the order in which the lock was held.", func(t *trial) {
			t.needs(t.Fenced, "Subject.Fenced is false")
			var mu sync.Mutex
			var last uint64
			t.compete(t.contender, 6, func(h *hold) error {
				mu.Lock()
				defer mu.Unlock()
				fence, ok := h.lease.Fence()
				if !ok || fence <= last {
					return fmt.Errorf("Fence() = %d, %v, want more than %d, that of the hold before", fence, ok, last)
				}
				last = fence
				return nil
			})
		}),
	)
}
