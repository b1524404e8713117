package gocronlocks

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
)

// ErrNoTick is why a run is refused that no tick explains: one of RunNow, or one that gocron starts so late that later
// runs have taken its tick from the schedule. See [Locker.KeyPerTick].
var ErrNoTick = errors.New("no tick is due")

// A run counts as a tick that is still to come if this is due within a minute, and within an eighth of the interval: a
// clock that has been set back a little is behind the timer.
const (
	early     = time.Minute
	earlyPart = 8
)

// KeyPerTick makes each tick of s's jobs run once, however the clocks of the instances differ: a run takes a lock that
// has the scheduled time in its name, and nobody releases that lock. Call it before s.Start. It does no I/O.
//
// keep is how long the servers keep the lock of a tick: longer than clocks differ, and than a run may start late. There
// are keep/interval keys for each job. Whole milliseconds, 10 ms to 24 h; redlock allows its MaxTTL
// at most.
//
// It needs jobs with names of their own, whose schedules are the same on all instances: of gocron.CronJob, DailyJob,
// WeeklyJob and MonthlyJob, all in the same location (gocron.WithLocation), and of DurationJob with
// WithStartDateTimePast. Other jobs have ticks of their own on each instance, and need [Options].AtLeast instead. Jobs of
// gocron.DurationRandomJob are refused. So is a run that has no tick ([ErrNoTick]).
func (l *Locker) KeyPerTick(s gocron.Scheduler, keep time.Duration) error {
	ticks, err := marks(l.locks, keep)
	if err != nil {
		return fmt.Errorf("gocronlocks: KeyPerTick keeps a key for %v: allowed is each TTL of these locks: %w", keep, err)
	}
	l.ticks, l.scheduler = ticks, s
	return nil
}

// tick returns the time for which the run that begins now is scheduled.
func (l *Locker) tick(name string) (time.Time, error) {
	var job gocron.Job
	for _, j := range l.scheduler.Jobs() {
		if j.Name() != name {
			continue
		}
		if job != nil {
			return time.Time{}, errors.New("KeyPerTick: two jobs have this name: give each a name of its own with gocron.WithName")
		}
		job = j
	}
	switch {
	case job == nil:
		return time.Time{}, errors.New("KeyPerTick: its scheduler has no such job, or is shut down: give KeyPerTick the scheduler that has this Locker")
	case job.Schedule().JobType() == gocron.DurationRandomJobType:
		return time.Time{}, errors.New("KeyPerTick: no two instances share the ticks of a DurationRandomJob: use a Locker with AtLeast alone")
	}
	tick, err := due(job, l.now())
	if err != nil {
		return time.Time{}, fmt.Errorf("KeyPerTick: %w", err)
	}
	if tick.IsZero() { // without its key it might be the second run of a tick
		return time.Time{}, ErrNoTick
	}
	return tick, nil
}

// due returns the last time until now for which the job is scheduled, or the next one if that comes soon.
// The times of earlier runs that gocron skipped may come before it.
func due(job gocron.Job, now time.Time) (last time.Time, err error) {
	for n := 2; ; n *= 2 {
		times, err := job.NextRuns(n)
		if err != nil {
			return time.Time{}, err
		}
		for _, t := range times {
			switch {
			case t.IsZero(): // the last time of a OneTimeJob came before
				return last, nil
			case t.After(now):
				ahead := t.Sub(now)
				if ahead <= early && (last.IsZero() || ahead <= t.Sub(last)/earlyPart) {
					return t, nil
				}
				return last, nil
			}
			last = t
		}
		if len(times) < n {
			return last, nil
		}
	}
}
