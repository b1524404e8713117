// Faults of locks that their owner may acquire again: see TestMutants.
package conformance

import (
	"errors"
	"sync"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// first reports whether the claim's token is the first hold of its key, and whether there are others.
func (m *move) first() (first, several bool) {
	m.Change(m.c.Key, func(l *memory.Lock) { first, several = l.Holds[0].Token == m.c.Token, len(l.Holds) > 1 })
	return first, several
}

// countAll makes the server count the claim's TTL for all holds, when the move is made.
func countAll(m *move) {
	if m.err == nil {
		m.count()
	}
}

// releasing frees the lock with a hold that is the first of several, or that is not.
func releasing(outer bool) faults {
	return onEnd(func(m *move) error {
		first, several := m.first()
		err := m.right()
		if first == outer && several {
			m.Evict(m.ctx, m.c.Key)
		}
		return err
	})
}

// reentryMutants are faults of locks that their owner may acquire again.
var reentryMutants = []mutant{
	owned("fence rises on re-entry", "ReentryFence", after(acquire, func(m *move) {
		if first, _ := m.first(); !first && m.err == nil {
			m.grant.Fence++ // Redisson
		}
	})),
	ownedOf("fence is the owner's for ever", "ReentryFence", func() faults {
		var fences sync.Map
		return after(acquire, func(m *move) {
			if m.err == nil {
				f, _ := fences.LoadOrStore(m.c.Owner, m.grant.Fence)
				m.grant.Fence = f.(uint64)
			}
		})
	}),
	owned("any name gets in", "ReentryByOwner ReentryAfterLoss", before(acquire, func(m *move) {
		if m.c.Owner != m.c.Token {
			m.Change(m.c.Key, func(l *memory.Lock) { m.c.Owner = l.Owner })
		}
	})),
	owned("holder is called by its token", "ReentryByOwner", after(acquire, func(m *move) {
		var held *strategy.HeldError
		if errors.As(m.err, &held) {
			held.Holder = m.holder()
		}
	})),
	owned("all who have no name are one", "ReentryUnnamed", before(acquire, func(m *move) {
		if m.c.Owner == m.c.Token {
			m.c.Owner = "nobody"
		}
	})),
	owned("counts holders, not holds", "ReentryCount", after(inspect, func(m *move) {
		m.info.Holds = min(m.info.Holds, 1)
	})),
	owned("inner release frees", "Reentry ReentryLastRelease ReentryByContext ReentryRenewal ReentryWakes", releasing(false)),
	owned("outer release ends inner", "ReentryLastRelease ReentryRenewal", releasing(true)),
	owned("retry of a release ends another hold", "ReentryReleaseOnce", onEnd(func(m *move) (err error) {
		m.Gate("HINCRBY -1", func() {
			m.Change(m.c.Key, func(l *memory.Lock) {
				if l.Owner == m.c.Owner && l.Hold(m.c.Token) == nil {
					m.c.Token = l.Holds[0].Token
				}
			})
			err = m.Server.Finish(m.ctx, m.op, m.c)
		})
		return err
	})),
	owned("retry of an acquire counts twice", "ReentryReleaseOnce", on(acquire, func(m *move) (g driver.Grant, err error) {
		m.Gate("HINCRBY", func() {
			sent := m.c
			m.Change(m.c.Key, func(l *memory.Lock) {
				if l.Hold(m.c.Token) != nil {
					sent.Token += "'"
				}
			})
			g, err = m.Server.Acquire(m.ctx, sent)
		})
		return g, err
	})),
	owned("re-entry sets the TTL of all", "ReentryOwnTTL", after(acquire, countAll)),
	owned("inner release resets the TTL to its own", "ReentryOwnTTL", afterEach(countAll, ends...)),
	owned("renewal is the owner's, and so the dead are kept alive", "ReentryDeadHold", after(extend, countAll)),
	ownedOf("watchdog stops at inner release", "ReentryRenewal", func() faults {
		var stopped sync.Map
		return on(extend, func(m *move) (driver.Grant, error) {
			if _, yes := stopped.Load(m.c.Key + m.c.Owner); yes {
				return driver.Grant{}, nil
			}
			return m.rightly()
		}).and(beforeEach(func(m *move) {
			stopped.Store(m.c.Key+m.c.Owner, true)
		}, ends...))
	}),
	owned("tells of inner releases", "ReentryWakes", afterEach(func(m *move) {
		m.Tell(m.c.Key, driver.Notification{Holder: m.c.Owner})
	}, ends...)),
	owned("an operator ends one hold", "ReentryForce", before(memory.OpForceRelease, func(m *move) {
		m.op = memory.OpRelease
	})),
	owned("an operator ends a later tenure", "ReentryForce", before(memory.OpForceRelease, func(m *move) {
		m.Change(m.c.Key, func(l *memory.Lock) { m.c.Grant.Fence = l.Fence })
	})),
	owned("who adopts one hold takes all", "ReentryAdopt", adoptedBy(func(c driver.Claim, _ string) string { return c.Owner })),
	owned("who adopts the only hold stays a guest", "ReentryAdopt", adoptedBy(func(_ driver.Claim, before string) string { return before })),
}

// adoptedBy has who says own the lock after an adoption. before owned it.
func adoptedBy(who func(c driver.Claim, before string) string) faults {
	return on(adopt, func(m *move) (driver.Grant, error) {
		var owner string
		m.Change(m.c.Key, func(l *memory.Lock) { owner = who(m.c, l.Owner) })
		g, err := m.rightly()
		if err == nil {
			m.Change(m.c.Key, func(l *memory.Lock) { l.Owner = owner })
			g.Owner = owner
		}
		return g, err
	})
}
