// Tests the recipe for asynq in docs/use/leaders.md: a scheduler runs in the process that leads, and in no other. Time is virtual.
package election_test

import (
	"context"
	"errors"
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

func (r *running) Start() error {
	if r.now.Add(1) > 1 {
		return errors.New("two schedulers run")
	}
	r.ever.Add(1)
	return nil
}

func (r *running) Shutdown() { r.now.Add(-1) }

func TestScheduler(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
		var r running
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		for _, label := range []string{"a", "b"} {
			e := election.New(of(label), "scheduler")
			go func() { ended <- lead(ctx, e, func() (scheduler, error) { return &r, nil }) }()
		}
		time.Sleep(3 * ttl)
		if now, ever := r.now.Load(), r.ever.Load(); now != 1 || ever != 1 {
			t.Errorf("%d schedulers run of %d, want one that has run all the time", now, ever)
		}
		server.Evict(ctx, "lock:{scheduler}")
		time.Sleep(3 * ttl)
		if now, ever := r.now.Load(), r.ever.Load(); now != 1 || ever != 2 {
			t.Errorf("after a loss %d schedulers run of %d, want the second", now, ever)
		}
		stop()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("lead = %v, want the end of its context", err)
			}
		}
		if now := r.now.Load(); now != 0 {
			t.Errorf("%d schedulers run at the end", now)
		}
	})
}

// A scheduler that cannot be made or started ends the candidate, who is no leader then.
func TestSchedulerFails(t *testing.T) {
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		broken := errors.New("broken")
		e := election.New(of("a"), "scheduler")
		if err := lead(t.Context(), e, func() (scheduler, error) { return nil, broken }); !errors.Is(err, broken) {
			t.Errorf("lead = %v, want why there is no scheduler", err)
		}
		if info, err := e.Leader(t.Context()); err != nil || info.Held {
			t.Errorf("Leader = %+v, %v, want nobody", info, err)
		}
	})
}
