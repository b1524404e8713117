// Tests the recipes for schedules in docs/use/leaders.md: a scheduler of asynq runs in the process that leads, and in no other;
// one machine does the work of a tick. Time is virtual.
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

// tick does the work of one tick, on one of all machines. The lock is that tick's alone.
func tick(ctx context.Context, lock strategy.Lock, work func(context.Context) error) error {
	return strategy.DoWithin(ctx, lock, 0, func(ctx context.Context, lease strategy.Lease) error {
		if err := work(ctx); err != nil {
			return err // DoWithin releases the lock: another machine may try
		}
		err := lease.Extend(ctx)        // for a whole TTL, in which no machine works again
		_, failed := lease.Detach()     // DoWithin does not release it
		return errors.Join(err, failed) // the work is done
	})
}

func TestTick(t *testing.T) {
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		const name = "nightly/2026-11-27"
		a, b := of("a").NewLock(name), of("b").NewLock(name)
		broken, runs := errors.New("broken"), 0
		fails := func(context.Context) error { return broken }
		works := func(context.Context) error {
			time.Sleep(3 * ttl)
			runs++
			return nil
		}
		if err := tick(t.Context(), a, fails); !errors.Is(err, broken) {
			t.Errorf("tick = %v, want why the work failed", err)
		}
		if err := tick(t.Context(), b, works); err != nil || runs != 1 {
			t.Errorf("tick after the other machine has failed = %v, %d runs, want one run", err, runs)
		}
		time.Sleep(ttl - ttl/10)
		if err := tick(t.Context(), a, works); !errors.Is(err, strategy.ErrHeld) || runs != 1 {
			t.Errorf("tick after the work = %v, %d runs, want ErrHeld and one run", err, runs)
		}
		time.Sleep(ttl / 5)
		if err := tick(t.Context(), a, works); err != nil || runs != 2 {
			t.Errorf("tick a TTL later = %v, %d runs, want that the lock is free", err, runs)
		}
	})
}
