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
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A loss ends the job's context, and the job has failed even if it returns nil. A job that ends well is no failure, also if it
// has released its lock. If the hold is lost between the grant and the job, the job does not run.
func TestLoss(t *testing.T) {
	stopped, lost := errors.New("stopped"), strategy.ErrLost
	loses := func(t *testing.T, server *lockstest.Memory, returns error) body {
		return func(ctx context.Context, lease strategy.Lease) error {
			if _, ok := lease.Fence(); !ok {
				t.Error("the lease has no fence")
			}
			server.Evict(ctx, "lock:{report}")
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, lost) {
				t.Errorf("the context ends with %v, want ErrLost", cause)
			}
			return returns
		}
	}
	for name, tt := range map[string]struct {
		job  func(t *testing.T, server *lockstest.Memory) body
		want []error
	}{
		"lost":               {func(t *testing.T, server *lockstest.Memory) body { return loses(t, server, nil) }, []error{lost}},
		"lost, and an error": {func(t *testing.T, server *lockstest.Memory) body { return loses(t, server, stopped) }, []error{lost, stopped}},
		"held":               {func(*testing.T, *lockstest.Memory) body { return nothing }, nil},
		"released": {func(*testing.T, *lockstest.Memory) body {
			return func(ctx context.Context, lease strategy.Lease) error { return lease.Release(ctx) }
		}, nil},
		"lost before it runs": {func(t *testing.T, _ *lockstest.Memory) body {
			return func(context.Context, strategy.Lease) error { t.Error("the job runs"); return nil }
		}, []error{lost}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				_, _, ended := scheduled(t, server, tt.job(t, server), before(func() {
					if name == "lost before it runs" {
						server.Evict(context.Background(), "lock:{report}")
						time.Sleep(ttl)
					}
				}))
				err := <-ended
				for _, want := range tt.want {
					if !errors.Is(err, want) {
						t.Errorf("the job ends with %v, want %v", err, tt.want)
					}
				}
				if tt.want == nil && err != nil {
					t.Errorf("the job ends with %v, want nil", err)
				}
			})
		})
	}
}

// Two runs of a job in one instance, of which the first has lost its lock: each has a lease of its own, and the end of the
// first does not touch the second, which has not begun.
func TestRunsAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		var locked atomic.Int32
		l, _, ended := scheduled(t, server, func(ctx context.Context, lease strategy.Lease) error {
			if lease.Err() != nil {
				t.Errorf("a run begins with a lease that has ended: %v", lease.Err())
			}
			if locked.Load() == 1 {
				server.Evict(ctx, "lock:{report}")
				time.Sleep(90 * time.Second)
			}
			return nil
		}, before(func() {
			if locked.Add(1) == 2 {
				time.Sleep(40 * time.Second) // the first run ends before this one begins
			}
		}))
		if first, second := <-ended, <-ended; !errors.Is(first, strategy.ErrLost) || second != nil {
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
		var locked, running atomic.Int32
		_, job, ended := scheduled(t, server, func(context.Context, strategy.Lease) error {
			if n := running.Add(1); n > 1 {
				t.Errorf("%d runs at a time", n)
			}
			defer running.Add(-1)
			time.Sleep(90 * time.Second)
			return nil
		}, before(func() {
			if locked.Add(1) == 1 {
				server.Evict(context.Background(), "lock:{report}")
				time.Sleep(80 * time.Second)
			}
		}))
		time.Sleep(80 * time.Second)
		redistest.Must(t, job.RunNow())
		if first, second := <-ended, <-ended; first == nil || second != nil {
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
				redistest.Must(t, s.RemoveJob(job.ID()))
				if err := <-cause; !errors.Is(err, context.Canceled) || errors.Is(err, strategy.ErrLost) {
					t.Errorf("the context ends with %v, want that the job has ended", err)
				}
			})
		})
	}
}

// A task without its Locker, or without the leader's term, does nothing.
func TestTaskWithoutLock(t *testing.T) {
	for _, want := range []string{"gocron.WithDistributedLocker", "does not lead yet"} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				runs := func(context.Context, strategy.Lease) error { t.Error("the job runs"); return nil }
				task := newLocker(t, open(t, server), gocronlocks.Options{}).Task(runs)
				if want == "does not lead yet" {
					_, err := election.New(open(t, server), "leader").Campaign(t.Context())
					redistest.Must(t, err)
					e := gocronlocks.NewElector(election.New(open(t, server), "leader"))
					t.Cleanup(e.Close)
					task = e.Task(runs)
				}
				ended, listen := failures()
				start(t, func(s gocron.Scheduler) { add(t, s, everyMinute(), task, listen) })
				if err := <-ended; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the job ends with %v, want %q", err, want)
				}
			})
		})
	}
}

// A run that gocron does not start, because a listener says no, leaves no lock.
func TestNotStarted(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		l, job, ended := scheduled(t, server, nothing, gocron.WithEventListeners(
			gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(uuid.UUID, string) error { return errors.New("not now") })))
		redistest.Must(t, job.RunNow())
		time.Sleep(time.Second)
		lock(t, l)
		if len(ended) > 0 {
			t.Errorf("the job ended with %v, want that it was not started", <-ended)
		}
	})
}
