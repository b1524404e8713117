// The suite on Memory: it keeps all properties, as a lock that lets its owner in again and as one
// that does not, as a semaphore, and as a lock to read and to write. Time is fake: each trial runs in a
// bubble. And it tests what Memory refuses, and what Advance does to holds.
package conformance

import (
	"context"
	"strings"
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

// semaphores is a Memory of semaphores as the suite sees it.
func (m *Memory) semaphores(name string) Subject {
	s := m.several(name, func(o strategy.Options, g Gate) (strategy.Strategy, error) { return newSemaphore(m.shares(g, 1), o) })
	s.OpenPermits = m.Semaphore
	return s
}

// readWriters is a Memory of locks to read and to write as the suite sees it.
func (m *Memory) readWriters(name string) Subject {
	s := m.several(name, func(o strategy.Options, g Gate) (strategy.Strategy, error) { return newReadWriter(m.shares(g, 0), o) })
	s.OpenRW = m.ReadWriter
	return s
}

// several is a Memory of locks that several may hold, which open opens.
func (m *Memory) several(name string, gated func(strategy.Options, Gate) (strategy.Strategy, error)) Subject {
	s := m.subject(name)
	s.OpenGated = gated
	s.Open = func(o strategy.Options) (strategy.Strategy, error) { return gated(o, open) }
	s.OpenSkewed = func(o strategy.Options, _ time.Duration) (strategy.Strategy, error) { return s.Open(o) }
	s.EachQueues = true
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
	checkInBubbles(t, func() Subject { return (&Memory{}).subject("memory") })
	checkInBubbles(t, func() Subject { return (&Memory{Reentrant: true}).subject("reentrant") })
	checkInBubbles(t, func() Subject { return (&Memory{}).semaphores("semaphore") })
	checkInBubbles(t, func() Subject { return (&Memory{}).readWriters("read-write") })
}

// TestMemoryRefuses: what makes no sense is refused with what is allowed, or with what the options lack.
func TestMemoryRefuses(t *testing.T) {
	var m Memory
	bad := strategy.Options{TTL: -time.Second}
	_, noPermits := m.Semaphore(0, strategy.Options{})
	_, badSemaphore := m.Semaphore(1, bad)
	_, badReadWriter := m.ReadWriter(bad)
	s, err := m.Semaphore(1, strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rw, err := m.ReadWriter(strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rw.Close()
	_, badWith := s.With(bad)
	_, badWithRW := rw.With(bad)
	_, tooHeavy := s.NewWeightedLock("lock", 1001).TryAcquire(t.Context())
	for what, err := range map[string]error{
		"a semaphore of no permits": noPermits, "a semaphore with a bad TTL": badSemaphore, "a read-write lock with a bad TTL": badReadWriter,
		"With of a semaphore": badWith, "With of a read-write lock": badWithRW,
		"SetPermits to less than none": s.SetPermits(t.Context(), "lock", -1), "more permits than a claim may have": tooHeavy,
	} {
		if err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s = %v, want an error that says what is allowed", what, err)
		}
	}
}

// TestAdvance: the server's clock ends holds earlier, and later if it is set back. Later grants have their
// whole TTL.
func TestAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Memory
		s := opened(t, &m, strategy.Options{TTL: 10 * time.Second})
		left := func() time.Duration {
			info, err := s.Inspect(t.Context(), "lock")
			if err != nil {
				t.Fatal(err)
			}
			return info.TTL
		}
		for range 2 {
			lease, err := s.NewLock("lock").TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m.Advance(7 * time.Second)
			m.Advance(-time.Second)
			if got, want := left(), 4*time.Second; got != want {
				t.Errorf("the TTL is %v, want %v", got, want)
			}
			m.Advance(4 * time.Second)
			if got := left(); got != 0 || lease.Err() != nil {
				t.Errorf("the TTL is %v, the holder has %v, want 0, nil: it does not know", got, lease.Err())
			}
		}
	})
}
