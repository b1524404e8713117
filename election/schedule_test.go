// Tests the recipe for asynq in docs/use/leaders.md: a scheduler runs in the process that leads, and in no other. Time is virtual.
package election_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A scheduler is an *asynq.Scheduler or an *asynq.PeriodicTaskManager.
type scheduler interface {
	Start() error
	Shutdown()
}

// lead runs a scheduler in each term of this process.
func lead(ctx context.Context, e *election.Election, newScheduler func() (scheduler, error)) error {
	return e.Lead(ctx, func(ctx context.Context, _ strategy.Lease) error {
		s, err := newScheduler() // registers the tasks; a scheduler that was shut down cannot start again
		if err != nil {
			return err
		}
		if err := s.Start(); err != nil {
			return err
		}
		defer s.Shutdown()
		<-ctx.Done() // the term is over
		return nil
	})
}

// running counts the schedulers that run, and those that were started.
type running struct{ now, ever atomic.Int32 }

func (r *running) Start() error { r.now.Add(1); r.ever.Add(1); return nil }
func (r *running) Shutdown()    { r.now.Add(-1) }

func TestScheduler(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
		var r running
		ctx, stop := context.WithCancel(t.Context())
		for _, label := range []string{"a", "b"} {
			e := election.New(of(label), "leader")
			go lead(ctx, e, func() (scheduler, error) { return &r, nil }) //nolint:errcheck // it ends with ctx
		}
		look := func(when string, now, ever int32) {
			t.Helper()
			time.Sleep(3 * ttl)
			if r.now.Load() != now || r.ever.Load() != ever {
				t.Errorf("%s %d schedulers run, of %d that were started, want %d of %d", when, r.now.Load(), r.ever.Load(), now, ever)
			}
		}
		look("while one leads,", 1, 1)
		evict(server)
		look("after a loss", 1, 2)
		stop()
		look("at the end", 0, 2)
	})
}
