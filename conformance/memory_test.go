// The suite on the server in memory: it keeps all properties, as a lock that its owner may acquire again and as one
// that is not re-entrant, as a semaphore, and as a lock to read and to write. Time is fake: each trial runs in a bubble.
package conformance

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// subjectOn is a server in memory as the suite sees it.
func subjectOn(m *memory.Server, name string) Subject {
	s := Subject{
		Name:  name,
		Evict: m.Evict,
		BreakWatches: func(context.Context, string) error {
			m.BreakWatches()
			return nil
		},
		Forge:     m.Forge,
		Spoil:     m.Spoil,
		Leftovers: m.Leftovers,
		Reentrant: m.Reentrant,
		Fenced:    true,
		Fair:      true,
	}
	s.speaks(func(g Gate) driver.Protocol { return m.Gated(g) })
	onGround(sluggish{})(&s)
	return s
}

// speaks has contenders lock by that protocol, on which their clocks have no effect.
func (s *Subject) speaks(protocol func(Gate) driver.Protocol) {
	s.opens(func(o strategy.Options, g Gate) (strategy.Strategy, error) { return engine.New(protocol(g), o) })
}

func (s *Subject) opens(gated func(strategy.Options, Gate) (strategy.Strategy, error)) {
	s.OpenGated = gated
	s.Open = func(o strategy.Options) (strategy.Strategy, error) { return gated(o, open) }
	s.OpenSkewed = func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) { return gated(o, open) }
}

// semaphoresOn is a server in memory of semaphores as the suite sees it.
func semaphoresOn(m *memory.Server, name string) Subject {
	s := subjectOn(m, name)
	s.opens(func(o strategy.Options, g Gate) (strategy.Strategy, error) {
		return memory.NewSemaphore(m.Shares(g, 1), o)
	})
	s.OpenPermits = m.Semaphore
	return s
}

// readWritersOn is one of locks to read and to write as the suite sees it.
func readWritersOn(m *memory.Server, name string) Subject {
	s := subjectOn(m, name)
	s.opens(func(o strategy.Options, g Gate) (strategy.Strategy, error) {
		return memory.NewReadWriter(m.Shares(g, 0), o)
	})
	s.OpenRW = m.ReadWriter
	return s
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
	checkInBubbles(t, func() Subject { return subjectOn(&memory.Server{}, "memory") })
	checkInBubbles(t, func() Subject { return subjectOn(&memory.Server{Reentrant: true}, "reentrant") })
	checkInBubbles(t, func() Subject { return semaphoresOn(&memory.Server{}, "semaphore") })
	checkInBubbles(t, func() Subject { return readWritersOn(&memory.Server{}, "read-write") })
}
