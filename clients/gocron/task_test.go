// Tests that a task learns of the loss of its lock, and runs only with one. Time is virtual.
package gocronlocks_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/strategy"
)

// failures are the errors with which jobs end.
func failures() (<-chan error, gocron.JobOption) {
	failed := make(chan error, 10)
	return failed, gocron.WithEventListeners(
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err }),
		gocron.AfterJobRuns(func(uuid.UUID, string) { failed <- nil }))
}

// A loss ends the job's context, and the job has failed even if it returns nil.
func TestLoss(t *testing.T) {
	stopped := errors.New("stopped")
	for name, returns := range map[string]error{"nil": nil, "an error": stopped} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *conformance.Memory) {
				l := newLocker(t, open(t, server), gocronlocks.Options{})
				failed, listen := failures()
				start(t, func(s gocron.Scheduler) {
					add(t, s, everyMinute(), l.Task(func(ctx context.Context, lease strategy.Lease) error {
						if _, ok := lease.Fence(); !ok {
							t.Error("the lease has no fence")
						}
						server.Evict(ctx, "lock:{report}")
						<-ctx.Done()
						if cause := context.Cause(ctx); !errors.Is(cause, strategy.ErrLost) {
							t.Errorf("the context ends with %v, want ErrLost", cause)
						}
						return returns
					}), gocron.WithName("report"), listen)
				}, gocron.WithDistributedLocker(l))
				if err := <-failed; !errors.Is(err, strategy.ErrLost) || returns != nil && !errors.Is(err, returns) {
					t.Errorf("the job ends with %v, want ErrLost and %v", err, returns)
				}
			})
		})
	}
}

// A job that ends well is no failure, also if it has released its lock.
func TestNoLoss(t *testing.T) {
	for name, release := range map[string]bool{"held": false, "released": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *conformance.Memory) {
				l := newLocker(t, open(t, server), gocronlocks.Options{})
				failed, listen := failures()
				start(t, func(s gocron.Scheduler) {
					add(t, s, everyMinute(), l.Task(func(ctx context.Context, lease strategy.Lease) error {
						if release {
							return lease.Release(ctx)
						}
						return nil
					}), gocron.WithName("report"), listen)
				}, gocron.WithDistributedLocker(l))
				if err := <-failed; err != nil {
					t.Errorf("the job ends with %v, want nil", err)
				}
			})
		})
	}
}

// A task without its Locker, or without the leader's term, does nothing.
func TestTaskWithoutLock(t *testing.T) {
	nothing := func(context.Context, strategy.Lease) error { t.Error("the job runs"); return nil }
	for name, tt := range map[string]struct {
		task func(t *testing.T, server *conformance.Memory) gocron.Task
		want string
	}{
		"no Locker": {func(t *testing.T, server *conformance.Memory) gocron.Task {
			return newLocker(t, open(t, server), gocronlocks.Options{}).Task(nothing)
		}, "gocron.WithDistributedLocker"},
		"not the leader": {func(t *testing.T, server *conformance.Memory) gocron.Task {
			if _, err := election.New(open(t, server), "leader").Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			e := gocronlocks.NewElector(election.New(open(t, server), "leader"))
			t.Cleanup(e.Close)
			return e.Task(nothing)
		}, "does not lead yet"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *conformance.Memory) {
				failed, listen := failures()
				task := tt.task(t, server)
				start(t, func(s gocron.Scheduler) { add(t, s, everyMinute(), task, listen) })
				if err := <-failed; err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("the job ends with %v, want %q", err, tt.want)
				}
			})
		})
	}
}

// A run that gocron does not start, because a listener says no, leaves no lock.
func TestNotStarted(t *testing.T) {
	bubble(t, func(t *testing.T, server *conformance.Memory) {
		l := newLocker(t, open(t, server), gocronlocks.Options{})
		failed, listen := failures()
		var job gocron.Job
		start(t, func(s gocron.Scheduler) {
			job = add(t, s, everyMinute(), l.Task(func(context.Context, strategy.Lease) error { return nil }), gocron.WithName("report"), listen,
				gocron.WithEventListeners(gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error { return errors.New("not now") })))
		}, gocron.WithDistributedLocker(l))
		if err := job.RunNow(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := l.Lock(t.Context(), "report"); err != nil {
			t.Errorf("Lock after a run that was not started = %v", err)
		}
		select {
		case err := <-failed:
			t.Errorf("the job ended with %v, want that it was not started", err)
		default:
		}
	})
}
