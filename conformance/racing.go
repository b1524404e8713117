package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func racing() []Property {
	return inGroup("racing",
		scripted("TakeOverRace",
			"If another takes an expired lock before a try or just before any of its requests, that try is refused.",
			func(t *trial) {
				t.quickerInside((*contender).try, func(_ *contender, late, _ call) {
					late.want(strategy.ErrHeld, "B was quicker, and holds the lock")
				})
			}),
		scripted("LoserChangesNothing",
			"The second contender for an expired lock changes nothing: the first extends and releases it as if there had been no other.",
			func(t *trial) {
				t.quickerInside((*contender).try, func(_ *contender, _, quicker call) {
					quicker.hold.extend().want(nil, "B holds the lock, and A came second")
					quicker.hold.release().want(nil, "B holds the lock, and A came second")
				})
			}),
		scripted("NoGhost",
			"If another takes an expired lock and releases it before a try or just before any of its requests, that try has the lock afterwards, or nobody has.",
			func(t *trial) {
				comeAndGo := func(b *contender) call {
					k := b.try()
					if k.err == nil {
						k = k.hold.release()
					}
					return k
				}
				t.quickerInside(comeAndGo, func(b *contender, late, _ call) {
					if late.err == nil {
						late.hold.release().want(nil, "A holds the lock")
					}
					b.eventually("B has released, and A was refused or has released, too")
				})
			}),
	)
}

// quickerInside plays tries of A for a lock that a dead holder has left to expire, in
// which B is quicker: first before the try, then just before each request that the
// try makes. If B's move succeeds, it checks. It need not: where the try asks several
// servers at once, A may be the quicker one.
func (t *trial) quickerInside(move func(b *contender) call, check func(b *contender, late, quicker call)) {
	dead, a, b := t.contender("D", t.brief()), t.gated("A", ample), t.contender("B", ample)
	for k := 0; ; k++ {
		name := fmt.Sprintf("%s/%d", t.name, k)
		a, b := a.on(name), b.on(name)
		left := dead.on(name).try().want(nil, "the lock is free")
		left.detach() // as if it had died
		b.seesExpire(left)

		reached := true
		var late, quicker call
		if k == 0 {
			quicker = move(b)
			quicker.want(nil, "D's lock has expired, and A has not asked yet")
			late = a.try()
		} else {
			reached = t.inside(a, k, func() { quicker = move(b) }, func() { late = a.try() })
		}
		switch {
		case !reached: // the try waits for fewer requests than that
			late.want(nil, "D's lock has expired")
			return
		case quicker.err == nil:
			check(b, late, quicker)
		case late.err == nil: // A had it already
			late.hold.release().want(nil, "A holds the lock")
		}
	}
}

// seesExpire waits until the lock that its holder has left to expire has done so,
// without asking for it.
func (c *contender) seesExpire(left *hold) {
	t := c.t
	t.sleep(time.Until(left.got.Add(t.ttl)))
	t.eventually(left.c.who+"'s lock expires", func() bool {
		info, err := c.s.Inspect(t.ctx, left.lease.Name())
		switch {
		case errors.Is(err, strategy.ErrUnsupported):
			t.sleep(t.ttl / 2) // ample for servers that are no longer than that behind
			return true
		case errors.Is(err, strategy.ErrNoQuorum): // at some servers it has expired already
			return false
		case err != nil:
			t.brokef("Inspect: %w", err)
		}
		return !info.Held
	})
	t.rec.add("%s's lock has expired", left.c.who)
}
