// What the tests of gocronlocks begin with: instances on a lock server in memory, with virtual time and wrong clocks.
package gocronlocks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const ttl = 10 * time.Second

// bubble runs a test where time is virtual, on a server in memory. No test needs six hours: one that waits for ever
// fails soon, because the jobs let time go on.
func bubble(t *testing.T, test func(t *testing.T, server *lockstest.Memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		tooLong := time.AfterFunc(6*time.Hour, func() { panic(t.Name() + " does not end") })
		t.Cleanup(func() { tooLong.Stop() })
		var server lockstest.Memory
		test(t, &server)
	})
}

// open is the strategy of an instance.
func open(t *testing.T, server *lockstest.Memory) strategy.Strategy {
	t.Helper()
	locks, err := engine.New(server, strategy.Options{TTL: ttl})
	redistest.Must(t, err)
	t.Cleanup(func() { locks.Close() })
	return locks
}

func newLocker(t *testing.T, locks strategy.Strategy, o gocronlocks.Options) *gocronlocks.Locker {
	t.Helper()
	l, err := gocronlocks.NewLocker(locks, o)
	redistest.Must(t, err)
	return l
}

// start starts the scheduler of an instance, with its jobs.
func start(t *testing.T, jobs func(s gocron.Scheduler), options ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(append([]gocron.SchedulerOption{gocron.WithLocation(time.UTC)}, options...)...)
	redistest.Must(t, err)
	t.Cleanup(func() {
		for _, job := range s.Jobs() {
			s.RemoveJob(job.ID()) //nolint:errcheck // it may have had its last run
		}
		time.Sleep(15 * time.Minute) // the jobs that run end; while Shutdown waits for them no virtual time passes
		if err := s.Shutdown(); err != nil {
			t.Errorf("Shutdown = %v", err)
		}
	})
	jobs(s)
	s.Start()
	return s
}

// add adds a job that runs when the schedule says so.
func add(t *testing.T, s gocron.Scheduler, when gocron.JobDefinition, task gocron.Task, options ...gocron.JobOption) gocron.Job {
	t.Helper()
	job, err := s.NewJob(when, task, options...)
	redistest.Must(t, err)
	return job
}

// A body is what a job does.
type body = func(context.Context, strategy.Lease) error

func nothing(context.Context, strategy.Lease) error { return nil }

// failures are the errors with which jobs end.
func failures() (<-chan error, gocron.JobOption) {
	failed := make(chan error, 10)
	return failed, gocron.WithEventListeners(
		gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { failed <- err }),
		gocron.AfterJobRuns(func(uuid.UUID, string) { failed <- nil }))
}

// before is called when a run has its locks, and before it begins.
func before(fn func()) gocron.JobOption {
	return gocron.WithEventListeners(gocron.BeforeJobRuns(func(uuid.UUID, string) { fn() }))
}

// refusals are why runs do not begin.
func refusals() (<-chan error, gocron.JobOption) {
	refused := make(chan error, 10)
	return refused, gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err }))
}

// scheduled starts an instance whose job, report, is due each minute. ended gets the errors with which runs end.
func scheduled(t *testing.T, server *lockstest.Memory, fn body, options ...gocron.JobOption) (l *gocronlocks.Locker, job gocron.Job, ended <-chan error) {
	t.Helper()
	l = newLocker(t, open(t, server), gocronlocks.Options{})
	ended, listen := failures()
	start(t, func(s gocron.Scheduler) {
		job = add(t, s, everyMinute(), l.Task(fn), append(options, gocron.WithName("report"), listen)...)
	}, gocron.WithDistributedLocker(l))
	return l, job, ended
}

// lead starts an instance with an Elector, whose job is due each minute.
func lead(t *testing.T, e *gocronlocks.Elector, fn body, options ...gocron.JobOption) (ended <-chan error) {
	t.Helper()
	ended, listen := failures()
	start(t, func(s gocron.Scheduler) { add(t, s, everyMinute(), e.Task(fn), append(options, listen)...) }, gocron.WithDistributedElector(e))
	return ended
}

// lock asks for the lock of a run as gocron does, for the job report.
func lock(t *testing.T, l *gocronlocks.Locker) gocron.Lock {
	t.Helper()
	run, err := l.Lock(t.Context(), "report")
	redistest.Must(t, err)
	return run
}

// everyMinute is a definition for one job: gocron keeps the job's state in it.
func everyMinute() gocron.JobDefinition { return gocron.CronJob("* * * * *", false) }

// A skewed clock is wrong by some time.
type skewed struct {
	clockwork.Clock
	by time.Duration
}

func (c skewed) Now() time.Time { return c.Clock.Now().Add(c.by) }

func wrongBy(d time.Duration) clockwork.Clock { return skewed{clockwork.NewRealClock(), d} }
