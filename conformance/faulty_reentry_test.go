// Faults of locks that their owner may acquire again: see TestMutants.
package conformance

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// first reports whether token is the first hold of key, and whether there are others.
func first(p memory.Gated, key, token string) (first, several bool) {
	p.Change(key, func(l *memory.Lock) { first, several = l.Holds[0].Token == token, len(l.Holds) > 1 })
	return first, several
}

// onAcquire makes f change what an Acquire was given.
func onAcquire(f func(p memory.Gated, c driver.Claim, g driver.Grant, err error) (driver.Grant, error)) func(*testing.T) moves {
	return always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
		g, err := p.Acquire(ctx, c)
		return f(p, c, g, err)
	}})
}

// onRelease makes f decide what a Release does.
func onRelease(f func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error) func(*testing.T) moves {
	return always(moves{release: f})
}

// reentryMutants are faults of locks that their owner may acquire again.
var reentryMutants = reentrantly([]mutant{
	{
		name: "fence rises on re-entry", killed: []string{"ReentryFence"},
		moves: onAcquire(func(p memory.Gated, c driver.Claim, g driver.Grant, err error) (driver.Grant, error) {
			if first, _ := first(p, c.Key, c.Token); !first && err == nil {
				g.Fence++ // Redisson
			}
			return g, err
		}),
	},
	{
		name: "fence is the owner's for ever", killed: []string{"ReentryFence"},
		moves: func(*testing.T) moves {
			var fences sync.Map
			return moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				g, err := p.Acquire(ctx, c)
				if err == nil {
					f, _ := fences.LoadOrStore(c.Owner, g.Fence)
					g.Fence = f.(uint64)
				}
				return g, err
			}}
		},
	},
	{
		name: "any name gets in", killed: []string{"ReentryByOwner", "ReentryAfterLoss"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if c.Owner != c.Token {
				p.Change(c.Key, func(l *memory.Lock) { c.Owner = l.Owner })
			}
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "holder is called by its token", killed: []string{"ReentryByOwner"},
		moves: onAcquire(func(p memory.Gated, c driver.Claim, g driver.Grant, err error) (driver.Grant, error) {
			var held *strategy.HeldError
			if errors.As(err, &held) {
				held.Holder = p.At(c.Key)
			}
			return g, err
		}),
	},
	{
		name: "all who have no name are one", killed: []string{"ReentryUnnamed"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			if c.Owner == c.Token {
				c.Owner = "nobody"
			}
			return p.Acquire(ctx, c)
		}}),
	},
	{
		name: "counts holders, not holds", killed: []string{"ReentryCount"},
		moves: always(moves{inspect: func(p memory.Gated, ctx context.Context, c driver.Claim) (strategy.Info, error) {
			info, err := p.Inspect(ctx, c)
			info.Holds = min(info.Holds, 1)
			return info, err
		}}),
	},
	{
		name: "inner release frees", killed: []string{"Reentry", "ReentryLastRelease", "ReentryByContext", "ReentryRenewal", "ReentryWakes"},
		moves: onRelease(func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			first, several := first(p, c.Key, c.Token)
			err := p.Finish(ctx, op, c)
			if !first && several {
				p.Evict(ctx, c.Key)
			}
			return err
		}),
	},
	{
		name: "outer release ends inner", killed: []string{"ReentryLastRelease", "ReentryRenewal"},
		moves: onRelease(func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			first, several := first(p, c.Key, c.Token)
			err := p.Finish(ctx, op, c)
			if first && several {
				p.Evict(ctx, c.Key)
			}
			return err
		}),
	},
	{
		name: "retry of a release ends another hold", killed: []string{"ReentryReleaseOnce"},
		moves: onRelease(func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) (err error) {
			p.Gate("HINCRBY -1", func() {
				p.Change(c.Key, func(l *memory.Lock) {
					if l.Owner == c.Owner && l.Hold(c.Token) == nil {
						c.Token = l.Holds[0].Token
					}
				})
				err = p.Server.Finish(ctx, op, c)
			})
			return err
		}),
	},
	{
		name: "retry of an acquire counts twice", killed: []string{"ReentryReleaseOnce"},
		moves: always(moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (g driver.Grant, err error) {
			p.Gate("HINCRBY", func() {
				sent := c
				p.Change(c.Key, func(l *memory.Lock) {
					if l.Hold(c.Token) != nil {
						sent.Token += "'"
					}
				})
				g, err = p.Server.Acquire(ctx, sent)
			})
			return g, err
		}}),
	},
	{
		name: "re-entry sets the TTL of all", killed: []string{"ReentryOwnTTL"},
		moves: onAcquire(func(p memory.Gated, c driver.Claim, g driver.Grant, err error) (driver.Grant, error) {
			if err == nil {
				p.Count(c.Key, time.Now().Add(c.TTL))
			}
			return g, err
		}),
	},
	{
		name: "inner release resets the TTL to its own", killed: []string{"ReentryOwnTTL"},
		moves: onRelease(func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			err := p.Finish(ctx, op, c)
			if err == nil {
				p.Count(c.Key, time.Now().Add(c.TTL))
			}
			return err
		}),
	},
	{
		name: "watchdog stops at inner release", killed: []string{"ReentryRenewal"},
		moves: func(*testing.T) moves {
			var stopped sync.Map
			return moves{
				extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					if _, yes := stopped.Load(c.Key + c.Owner); yes {
						return driver.Grant{}, nil
					}
					return p.Extend(ctx, c)
				},
				release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
					stopped.Store(c.Key+c.Owner, true)
					return p.Finish(ctx, op, c)
				},
			}
		},
	},
	{
		name: "renewal is the owner's, and so the dead are kept alive", killed: []string{"ReentryDeadHold"},
		moves: always(moves{extend: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
			g, err := p.Extend(ctx, c)
			if err == nil {
				p.Count(c.Key, time.Now().Add(c.TTL))
			}
			return g, err
		}}),
	},
	{
		name: "tells of inner releases", killed: []string{"ReentryWakes"},
		moves: onRelease(func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			err := p.Finish(ctx, op, c)
			p.Tell(c.Key, driver.Notification{Holder: c.Owner})
			return err
		}),
	},
	{
		name: "an operator ends one hold", killed: []string{"ReentryForce"},
		moves: onRelease(func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			if op == memory.OpForceRelease {
				op = memory.OpRelease
			}
			return p.Finish(ctx, op, c)
		}),
	},
	{
		name: "an operator ends a later tenure", killed: []string{"ReentryForce"},
		moves: onRelease(func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
			if op == memory.OpForceRelease {
				p.Change(c.Key, func(l *memory.Lock) { c.Grant.Fence = l.Fence })
			}
			return p.Finish(ctx, op, c)
		}),
	},
	{
		name: "who adopts one hold takes all", killed: []string{"ReentryAdopt"},
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			g, err := p.Adopt(ctx, c, from)
			if err == nil {
				p.Change(c.Key, func(l *memory.Lock) { l.Owner = c.Owner })
				g.Owner = c.Owner
			}
			return g, err
		}}),
	},
	{
		name: "who adopts the only hold stays a guest", killed: []string{"ReentryAdopt"},
		moves: always(moves{adopt: func(p memory.Gated, ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
			var owner string
			p.Change(c.Key, func(l *memory.Lock) { owner = l.Owner })
			g, err := p.Adopt(ctx, c, from)
			if err == nil {
				p.Change(c.Key, func(l *memory.Lock) { l.Owner = owner })
				g.Owner = owner
			}
			return g, err
		}}),
	},
})

// reentrantly makes the mutants' server grant owners their lock again.
func reentrantly(ms []mutant) []mutant {
	for i := range ms {
		ms[i].reenters = true
	}
	return ms
}
