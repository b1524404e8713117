// Faults of locks that mind clocks, or lose races for an expired lock badly: see TestMutants.
package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// clockMutants are locks that mind their contenders' clocks, or lose races for an
// expired lock badly, as those did that came before SET NX PX.
var clockMutants = []mutant{
	{
		name: "lets the contender's clock say what has expired", killed: []string{"ClockAhead"},
		claims: skewedBy(func(ahead time.Duration) moves {
			return moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				if !time.Now().Add(ahead).Before(p.until(c.Key)) {
					p.Evict(ctx, c.Key)
				}
				return p.Acquire(ctx, c)
			}}
		}),
	},
	{
		name: "lets the holder's clock say when it expires", killed: []string{"ClockBehind"},
		claims: skewedBy(func(ahead time.Duration) moves {
			return moves{acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
				g, err := p.Acquire(ctx, c)
				if err == nil {
					p.counts(c.Key, time.Now().Add(ahead+c.TTL))
				}
				return g, err
			}}
		}),
	},
	{
		name: "sees it expired, then overwrites", killed: []string{"TakeOverRace"},
		moves: lookThen(func(p gatedMemory, c driver.Claim) (driver.Grant, error) {
			return p.set(c, time.Now().Add(c.TTL)), nil
		}),
	},
	{
		name: "sees it expired, then swaps", killed: []string{"LoserChangesNothing"},
		moves: lookThen(func(p gatedMemory, c driver.Claim) (driver.Grant, error) {
			old := p.at(c.Key)
			g := p.set(c, time.Now().Add(c.TTL)) // GETSET
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
				acquire: func(p gatedMemory, ctx context.Context, c driver.Claim) (driver.Grant, error) {
					released.Delete(c.Key)
					return lookThen(func(p gatedMemory, c driver.Claim) (driver.Grant, error) {
						g := p.set(c, time.Now().Add(c.TTL))
						if _, ok := released.Load(c.Key); ok {
							return driver.Grant{}, &strategy.HeldError{Name: c.Name}
						}
						return g, nil
					})(t).acquire(p, ctx, c)
				},
				release: func(p gatedMemory, ctx context.Context, c driver.Claim) error {
					released.Store(c.Key, true)
					return p.Release(ctx, c)
				},
			}
		},
	},
}

// lookThen makes an acquire that looks whether the lock is free, and takes it in a
// second request.
func lookThen(take func(p gatedMemory, c driver.Claim) (driver.Grant, error)) func(*testing.T) moves {
	return always(moves{acquire: func(p gatedMemory, _ context.Context, c driver.Claim) (g driver.Grant, err error) {
		var holder string
		p.gate("GET", func() { holder = p.at(c.Key) })
		if holder != "" {
			return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: holder}
		}
		p.gate("SET", func() { g, err = take(p, c) })
		return g, err
	}})
}

// skewedBy makes a lock whose moves depend on its contenders' clocks.
func skewedBy(f func(ahead time.Duration) moves) func(*Subject) {
	return func(s *Subject) {
		m := &Memory{}
		s.OpenSkewed = func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
			return engine.New(faulty{gatedMemory{m, func(_ string, send func()) { send() }}, f(ahead)}, o)
		}
		s.Open = func(o strategy.Options) (strategy.Strategy, error) { return s.OpenSkewed(o, 0) }
	}
}
