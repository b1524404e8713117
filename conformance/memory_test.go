// The suite on Memory: it keeps all properties, as a lock that lets its owner in again and as one
// that does not. Time is fake: each trial runs in a bubble.
package conformance

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// subject is a Memory as the suite sees it.
func (m *Memory) subject(name string) Subject {
	open := func(o strategy.Options) (strategy.Strategy, error) { return engine.New(m, o) }
	return Subject{
		Name:      name,
		Open:      open,
		OpenGated: func(o strategy.Options, g Gate) (strategy.Strategy, error) { return engine.New(m.Gated(g), o) },
		OpenSkewed: func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) {
			return open(o) // a contender's clock is of no account
		},
		Evict: m.Evict,
		BreakWatches: func(context.Context, string) error {
			m.BreakWatches()
			return nil
		},
		Spoil:     m.Spoil,
		Leftovers: m.Leftovers,
		Reentrant: m.Reentrant,
		Fenced:    true,
		Fair:      true,
	}
}

// checkInBubbles checks all properties, each in a bubble and on a subject of its own.
func checkInBubbles(t *testing.T, subject func() Subject) {
	t.Helper()
	t.Run(subject().Name, func(t *testing.T) {
		for _, p := range Properties() {
			t.Run(p.Name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if r := Check(t.Context(), subject(), p); r.Status == Broken {
						t.Error(r)
					}
				})
			})
		}
	})
}

func TestMemory(t *testing.T) {
	checkInBubbles(t, func() Subject { return (&Memory{}).subject("memory") })
	checkInBubbles(t, func() Subject { return (&Memory{Reentrant: true}).subject("reentrant") })
}
