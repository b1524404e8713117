// Faults of locks that mind clocks, or lose races for an expired lock badly: see TestMutants.
package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// clockMutants are locks that mind their contenders' clocks, or lose races for an
// expired lock badly, as those did that came before SET NX PX.
var clockMutants = []mutant{
	{
		name: "lets the contender's clock say what has expired", killed: []string{"ClockAhead"},
		claims: skewedBy(func(ahead time.Duration) moves {
			return moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				if !time.Now().Add(ahead).Before(p.Until(c.Key)) {
					p.Evict(ctx, c.Key)
				}
				return p.Acquire(ctx, c)
			}}
		}),
	},
	{
		name: "lets the holder's clock say when it expires", killed: []string{"ClockBehind"},
		claims: skewedBy(func(ahead time.Duration) moves {
			return moves{acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				g, err := p.Acquire(ctx, c)
				if err == nil {
					p.Count(c.Key, time.Now().Add(ahead+c.TTL))
				}
				return g, err
			}}
		}),
	},
	{
		name: "sees it expired, then overwrites", killed: []string{"TakeOverRace"},
		moves: lookThen(func(p memory.Gated, c driver.Claim) (driver.Grant, error) {
			return p.Set(c, time.Now().Add(c.TTL)), nil
		}),
	},
	{
		name: "sees it expired, then swaps", killed: []string{"LoserChangesNothing"},
		moves: lookThen(func(p memory.Gated, c driver.Claim) (driver.Grant, error) {
			old := p.At(c.Key)
			g := p.Set(c, time.Now().Add(c.TTL)) // GETSET
			if old != "" {
				return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: old}
			}
			return g, nil
		}),
	},
	{
		name: "takes what is gone for held, having swapped", killed: []string{"NoGhost"},
		moves: func(t *testing.T) moves {
			var released sync.Map // by key
			return moves{
				acquire: func(p memory.Gated, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					released.Delete(c.Key)
					return lookThen(func(p memory.Gated, c driver.Claim) (driver.Grant, error) {
						g := p.Set(c, time.Now().Add(c.TTL))
						if _, ok := released.Load(c.Key); ok {
							return driver.Grant{}, &strategy.HeldError{Name: c.Name}
						}
						return g, nil
					})(t).acquire(p, ctx, c)
				},
				release: func(p memory.Gated, ctx context.Context, op memory.Op, c driver.Claim) error {
					released.Store(c.Key, true)
					return p.Finish(ctx, op, c)
				},
			}
		},
	},
}

// lookThen makes an acquire that looks whether the lock is free, and takes it in a
// second request.
func lookThen(take func(p memory.Gated, c driver.Claim) (driver.Grant, error)) func(*testing.T) moves {
	return always(moves{acquire: func(p memory.Gated, _ context.Context, c driver.Claim) (g driver.Grant, err error) {
		var holder string
		p.Gate("GET", func() { holder = p.At(c.Key) })
		if holder != "" {
			return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: holder}
		}
		p.Gate("SET", func() { g, err = take(p, c) })
		return g, err
	}})
}

// skewedBy makes a lock whose moves depend on its contenders' clocks.
func skewedBy(f func(ahead time.Duration) moves) func(*Subject) {
	return func(s *Subject) {
		m := &memory.Server{}
		s.OpenSkewed = func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
			return engine.New(faulty{memory.Gated{Server: m, Gate: open}, f(ahead)}, o)
		}
		s.Open = func(o strategy.Options) (strategy.Strategy, error) { return s.OpenSkewed(o, 0) }
	}
}
