// Package gocronlocks runs each job of [gocron] v2 on one of many instances: its Locker and its Elector, with the locks
// of this module.
//
//	locker, err := gocronlocks.NewLocker(locks, gocronlocks.Options{AtLeast: 30 * time.Second})
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//	err = locker.KeyPerTick(s, time.Hour)
//	_, err = s.NewJob(gocron.CronJob("0 3 * * *", false), locker.Task(nightly), gocron.WithName("nightly"))
//
// A lock that is released when its job ends excludes overlap, not a second run: an instance whose clock is a little
// behind finds the lock free again. So a [Locker] has up to three locks for a run:
//   - The hold, with the job's name. It is renewed while the job runs, and released when the job ends. If the instance
//     dies, it lapses with the TTL of the strategy. So runs do not overlap.
//   - With [Options].AtLeast a mark, "NAME/at-least". It lapses that long after the start of the run, whatever has become of
//     the job, the instance and the hold.
//   - With [Locker.KeyPerTick] a mark "NAME@TIME", where TIME is when the run was due. So no tick runs twice.
//
// A run needs all of them. If one is held, the instance does not run the job, and keeps none. The marks exist before the
// job starts. So an instance that dies in a run has used the tick up: no other runs it again.
//
// An [Elector] is for schedulers of which one runs all jobs.
package gocronlocks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockstrategies/locks/strategy"
)

// Options say what a [Locker] keeps after a job has ended.
type Options struct {
	// AtLeast is for how long after the start of a job no instance starts a job of that name again. It counts for all
	// jobs of the Locker: make another one for jobs with another interval. It covers clocks that
	// differ by less. If the interval of the job, less the difference of the clocks, is shorter, ticks are skipped. Whole
	// milliseconds, 10 ms to 24 h; default 0: none.
	AtLeast time.Duration
	// Now is the clock that the scheduler has by gocron.WithClock. Default time.Now.
	Now func() time.Time
}

// A Locker is a [gocron.Locker] for gocron.WithDistributedLocker or gocron.WithDistributedJobLocker. All instances must
// give a job the same name (gocron.WithName), and use the same Options. It is safe for concurrent use.
type Locker struct {
	locks     strategy.Strategy
	now       func() time.Time
	atLeast   strategy.Strategy // nil: no mark
	ticks     strategy.Strategy // nil: no key per tick
	scheduler gocron.Scheduler  // has the ticks
	runs      sync.Map          // *run by the context of its job
}

// NewLocker returns a Locker with the locks of a strategy. It does no I/O. With neither AtLeast nor
// [Locker.KeyPerTick] it excludes overlap alone. The caller closes the strategy, after the
// scheduler has been shut down.
func NewLocker(locks strategy.Strategy, o Options) (*Locker, error) {
	l := &Locker{locks: locks, now: o.Now}
	if l.now == nil {
		l.now = time.Now
	}
	if o.AtLeast != 0 {
		var err error
		if l.atLeast, err = marks(locks, o.AtLeast); err != nil {
			return nil, fmt.Errorf("gocronlocks: Options.AtLeast is %v: allowed are 0 (none) and each TTL of these locks: %w", o.AtLeast, err)
		}
	}
	return l, nil
}

// marks are locks that nobody renews or releases: they lapse after that time.
func marks(locks strategy.Strategy, keep time.Duration) (strategy.Strategy, error) {
	if keep <= 0 {
		return nil, errors.New("allowed is more than 0")
	}
	// There is a mark for each run, and nobody compares the fences of marks. So the servers keep these for the shortest time.
	return locks.With(func(o *strategy.Options) {
		o.TTL, o.FenceTTL, o.MaxHold = keep, 2*keep, 0
		o.OpTimeout = 0 // the runs' may be longer than this TTL
		if o.Label == "" {
			o.Label = strategy.ThisProcess("").String()
		}
	})
}

// Lock is called by gocron before a run. It does not wait. [strategy.ErrHeld] means: another instance runs the job, or
// has run it. gocron reports the error to the listeners of gocron.AfterLockError, and does not run the job. After any
// error the instance does not have the hold. If it lost a mark meanwhile, another mark may stay until it lapses. The errors
// are those of [strategy.Lock.TryAcquire], [ErrNoTick], and those of a job that can have no ticks.
func (l *Locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	if name == unnamed {
		return nil, errors.New("gocronlocks: a job of Task has no name, so all of them would share one lock: give each job a name of its own with gocron.WithName")
	}
	r, what := &run{of: l, ctx: ctx}, fmt.Sprintf("job %q", name)
	var needed []strategy.Lock
	if l.ticks != nil {
		var err error
		if r.tick, err = l.tick(name); err != nil {
			return nil, fmt.Errorf("gocronlocks: %s: %w", what, err)
		}
		tick := r.tick.UTC().Format(time.RFC3339Nano)
		what += ", tick " + tick
		needed = append(needed, l.ticks.NewLock(name+"@"+tick))
	}
	if l.atLeast != nil {
		needed = append(needed, l.atLeast.NewLock(name+"/at-least"))
	}
	// A re-entrant lock would let the job in again if the job's context named an owner.
	hold, err := acquire(strategy.WithOwner(ctx, ""), needed, l.locks.NewLock(name))
	if err != nil {
		return nil, fmt.Errorf("gocronlocks: %s: %w", what, err)
	}
	r.hold = hold
	l.runs.Store(ctx, r)
	return r, nil
}

// acquire gets the marks and the hold, or nothing. The marks come first: an instance that is late finds them held, and
// does not take the hold from the instance that runs the next tick.
func acquire(ctx context.Context, marks []strategy.Lock, hold strategy.Lock) (_ strategy.Lease, err error) {
	var got []strategy.Lease
	defer func() {
		if err != nil {
			for _, lease := range got {
				lease.Release(ctx) //nolint:errcheck // the engine repeats it in the background
			}
		}
	}()
	for _, l := range append(marks, hold) {
		lease, err := l.TryAcquire(ctx)
		if err != nil {
			return nil, err
		}
		got = append(got, lease)
	}
	held, marked := got[len(marks)], got[:len(marks)]
	if err := held.KeepAlive(0); err != nil {
		return nil, err
	}
	for _, mark := range marked {
		if _, err := mark.Detach(); err != nil { // lost meanwhile: another instance may have it
			return nil, err
		}
	}
	return held, nil
}

// A run is the gocron.Lock of one run of a job.
type run struct {
	of   *Locker
	ctx  context.Context // the job's
	hold strategy.Lease
	tick time.Time // zero: no KeyPerTick
}

// Unlock is called by gocron when the job has ended.
func (r *run) Unlock(ctx context.Context) error {
	r.of.runs.CompareAndDelete(r.ctx, r)
	return r.hold.Release(ctx)
}
