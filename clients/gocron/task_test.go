// Tests that a task learns of the loss of its lock, and runs only with one. Time is virtual.
package gocronlocks_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/lockstest"
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
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
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
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
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

// A hold that is lost between the grant and the job: the job does not run.
func TestLossBeforeTheJob(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		l := newLocker(t, open(t, server), gocronlocks.Options{})
		failed, listen := failures()
		start(t, func(s gocron.Scheduler) {
			add(t, s, everyMinute(), l.Task(func(context.Context, strategy.Lease) error { t.Error("the job runs"); return nil }),
				gocron.WithName("report"), listen, gocron.WithEventListeners(gocron.BeforeJobRuns(func(uuid.UUID, string) {
					server.Evict(context.Background(), "lock:{report}")
					time.Sleep(ttl)
				})))
		}, gocron.WithDistributedLocker(l))
		if err := <-failed; !errors.Is(err, strategy.ErrLost) {
			t.Errorf("the job ends with %v, want ErrLost", err)
		}
	})
}

// Two runs of a job in one instance, of which the first has lost its lock: each has a lease of its own, and the end of the
// first does not touch the second, which has not begun.
func TestRunsAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		l := newLocker(t, open(t, server), gocronlocks.Options{})
		failed, listen := failures()
		var locked atomic.Int32
		start(t, func(s gocron.Scheduler) {
			add(t, s, everyMinute(), l.Task(func(ctx context.Context, lease strategy.Lease) error {
				if lease.Err() != nil {
					t.Errorf("a run begins with a lease that has ended: %v", lease.Err())
				}
				if locked.Load() == 1 {
					server.Evict(ctx, "lock:{report}")
					time.Sleep(90 * time.Second)
				}
				return nil
			}), gocron.WithName("report"), listen, gocron.WithEventListeners(gocron.BeforeJobRuns(func(uuid.UUID, string) {
				if locked.Add(1) == 2 {
					time.Sleep(40 * time.Second) // the first run ends before this one begins
				}
			})))
		}, gocron.WithDistributedLocker(l))
		if first, second := <-failed, <-failed; !errors.Is(first, strategy.ErrLost) || second != nil {
			t.Errorf("the runs end with %v and %v, want ErrLost and nil", first, second)
		}
		if n := l.Runs(); n > 0 {
			t.Errorf("the Locker remembers %d runs that have begun", n)
		}
	})
}

// A run that loses its lock before it begins, and begins while the next one runs, does not run with the next one's lease.
func TestRunBeginsInTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		l := newLocker(t, open(t, server), gocronlocks.Options{})
		failed, listen := failures()
		var locked, running atomic.Int32
		var job gocron.Job
		start(t, func(s gocron.Scheduler) {
			job = add(t, s, everyMinute(), l.Task(func(context.Context, strategy.Lease) error {
				if n := running.Add(1); n > 1 {
					t.Errorf("%d runs at a time", n)
				}
				defer running.Add(-1)
				time.Sleep(90 * time.Second)
				return nil
			}), gocron.WithName("report"), listen, gocron.WithEventListeners(gocron.BeforeJobRuns(func(uuid.UUID, string) {
				if locked.Add(1) == 1 {
					server.Evict(context.Background(), "lock:{report}")
					time.Sleep(80 * time.Second)
				}
			})))
		}, gocron.WithDistributedLocker(l))
		time.Sleep(80 * time.Second)
		if err := job.RunNow(); err != nil {
			t.Fatal(err)
		}
		if first, second := <-failed, <-failed; first == nil || second != nil {
			t.Errorf("the runs end with %v and %v, want that the first is refused, and nil", first, second)
		}
	})
}

// The end of the job ends the context of its task, which has the values of the job's.
func TestEndOfJobEndsTheTask(t *testing.T) {
	type key struct{}
	for _, how := range []string{"Locker", "Elector"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				began, cause := make(chan any), make(chan error, 1)
				fn := func(ctx context.Context, _ strategy.Lease) error {
					began <- ctx.Value(key{})
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute):
					}
					cause <- context.Cause(ctx)
					return nil
				}
				l := newLocker(t, open(t, server), gocronlocks.Options{})
				task, option := l.Task(fn), gocron.WithDistributedLocker(l)
				if how == "Elector" {
					e := gocronlocks.NewElector(election.New(open(t, server), "leader"))
					defer e.Close()
					task, option = e.Task(fn), gocron.WithDistributedElector(e)
				}
				var job gocron.Job
				s := start(t, func(s gocron.Scheduler) {
					job = add(t, s, everyMinute(), task, gocron.WithName("report"), gocron.WithContext(context.WithValue(t.Context(), key{}, "value")))
				}, option)
				if value := <-began; value != "value" {
					t.Errorf("the context has the value %v, want that of the job's", value)
				}
				if err := s.RemoveJob(job.ID()); err != nil {
					t.Errorf("RemoveJob = %v", err)
				}
				if err := <-cause; !errors.Is(err, context.Canceled) || errors.Is(err, strategy.ErrLost) {
					t.Errorf("the context ends with %v, want that the job has ended", err)
				}
			})
		})
	}
}

// A task without its Locker, or without the leader's term, does nothing.
func TestTaskWithoutLock(t *testing.T) {
	nothing := func(context.Context, strategy.Lease) error { t.Error("the job runs"); return nil }
	for name, tt := range map[string]struct {
		task func(t *testing.T, server *lockstest.Memory) gocron.Task
		want string
	}{
		"no Locker": {func(t *testing.T, server *lockstest.Memory) gocron.Task {
			return newLocker(t, open(t, server), gocronlocks.Options{}).Task(nothing)
		}, "gocron.WithDistributedLocker"},
		"not the leader": {func(t *testing.T, server *lockstest.Memory) gocron.Task {
			if _, err := election.New(open(t, server), "leader").Campaign(t.Context()); err != nil {
				t.Fatal(err)
			}
			e := gocronlocks.NewElector(election.New(open(t, server), "leader"))
			t.Cleanup(e.Close)
			return e.Task(nothing)
		}, "does not lead yet"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
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
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
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
