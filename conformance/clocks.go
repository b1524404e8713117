package conformance

import (
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// skew is more than any TTL in a trial, and not more than a wrong time zone.
const skew = time.Hour

func clocks() []Property {
	return inGroup("clocks",
		scripted("ClockAhead", "A contender whose clock is an hour ahead is refused like any other while the lock is held.", func(t *trial) {
			a, b := t.contender("A", ample), t.skewed("B", ample, skew)
			h := a.try().want(nil, "the lock is free")
			t.rec.add("B's clock is %v ahead", skew)
			b.try().want(strategy.ErrHeld, "A holds the lock, whatever time it is")
			h.extend().want(nil, "A holds the lock")
			h.release().want(nil, "A holds the lock")
			b.try().want(nil, "A has released")
		}),
		scripted("ClockBehind", "The lock of a holder whose clock is an hour behind is as good as any other.", func(t *trial) {
			a, b := t.skewed("A", ample, -skew), t.contender("B", ample)
			t.rec.add("A's clock is %v behind", skew)
			h := a.try().want(nil, "the lock is free")
			b.try().want(strategy.ErrHeld, "A holds the lock, whatever time it is")
			h.extend().want(nil, "A holds the lock")
			b.try().want(strategy.ErrHeld, "A holds the lock, whatever time it is")
			h.release().want(nil, "A holds the lock")
			b.try().want(nil, "A has released")
		}),
	)
}
