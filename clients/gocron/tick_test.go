// Tests that each tick runs once on several instances whose clocks differ, which tick a run is, and which jobs have
// none. Time is virtual.
package gocronlocks_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // for machines that have no time zones

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A diary notes the minutes for which runs were scheduled; none: -1.
type diary struct {
	mu      sync.Mutex
	began   time.Time
	minutes []int
}

func (d *diary) write(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	minute := -1
	if tick, ok := gocronlocks.Tick(ctx); ok {
		minute = int(tick.Sub(d.began) / time.Minute)
	}
	d.minutes = append(d.minutes, minute)
}

func (d *diary) read() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.minutes)
}

// Three instances have clocks that differ, and time zones that share their minutes alone. The hold alone lets each of
// them run each tick. AtLeast, or a key per tick, lets one.
func TestEachTickOnce(t *testing.T) {
	const ticks = 200
	zones := []*time.Location{time.UTC}
	for _, name := range []string{"Asia/Kathmandu", "America/St_Johns"} { // each minute of UTC is one there
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	for name, tt := range map[string]struct {
		apart   time.Duration
		atLeast time.Duration
		perTick time.Duration
		want    int // runs of each tick
	}{
		"the hold alone":                {5 * time.Second, 0, 0, 3},
		"AtLeast":                       {5 * time.Second, 30 * time.Second, 0, 1},
		"AtLeast, of clocks too far":    {20 * time.Second, 10 * time.Second, 0, 3},
		"a key per tick":                {20 * time.Second, 0, time.Hour, 1},
		"a key per tick, of far clocks": {10 * time.Minute, 0, time.Hour, 1},
		"both":                          {5 * time.Second, 30 * time.Second, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				notes := diary{began: time.Now()}
				for i := range 3 {
					clock := wrongBy(time.Duration(i-1) * tt.apart)
					l := newLocker(t, open(t, server), gocronlocks.Options{AtLeast: tt.atLeast, Now: clock.Now})
					start(t, func(s gocron.Scheduler) {
						if tt.perTick > 0 {
							if err := l.KeyPerTick(s, tt.perTick); err != nil {
								t.Fatal(err)
							}
						}
						add(t, s, everyMinute(), l.Task(func(ctx context.Context, _ strategy.Lease) error {
							notes.write(ctx)
							return nil
						}), gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartDateTime(notes.began.Add(30*time.Minute).In(zones[i]))))
					}, gocron.WithDistributedLocker(l), gocron.WithClock(clock), gocron.WithLocation(zones[i]))
				}
				time.Sleep((30+ticks)*time.Minute + tt.apart - time.Second) // the slowest clock is not at the next tick
				minutes := notes.read()
				if tt.perTick == 0 {
					if n := len(minutes); n < (ticks-1)*tt.want || n > (ticks+1)*tt.want {
						t.Errorf("the job ran %d times for %d ticks, want %d for each", n, ticks, tt.want)
					}
					if slices.ContainsFunc(minutes, func(minute int) bool { return minute != -1 }) {
						t.Errorf("the runs are of the minutes %v, want that none has a tick", minutes)
					}
					return
				}
				slices.Sort(minutes)
				for i, minute := range minutes {
					if minute != 30+i {
						t.Fatalf("the runs are of the minutes %v, want each once from the 30th on", minutes)
					}
				}
				if n := len(minutes); n < ticks {
					t.Errorf("the job ran %d times, want %d or more", n, ticks)
				}
			})
		})
	}
}

// one starts one instance with both marks, a job that notes its runs and takes some time, and another job. behind is
// how far its clock has been set back since its timer was started; if it is negative, the scheduler's clock is ahead by that.
func one(t *testing.T, server *lockstest.Memory, behind time.Duration, when gocron.JobDefinition, takes time.Duration, options ...gocron.JobOption) (gocron.Job, *diary) {
	t.Helper()
	notes := &diary{began: time.Now()}
	o, clock := gocronlocks.Options{AtLeast: time.Second}, wrongBy(max(-behind, 0))
	if behind != 0 {
		o.Now = wrongBy(-behind).Now
	}
	l := newLocker(t, open(t, server), o)
	var job gocron.Job
	start(t, func(s gocron.Scheduler) {
		if err := l.KeyPerTick(s, time.Hour); err != nil {
			t.Fatal(err)
		}
		job = add(t, s, when, l.Task(func(ctx context.Context, _ strategy.Lease) error {
			notes.write(ctx)
			time.Sleep(takes)
			return nil
		}), append(options, gocron.WithName("report"))...)
		add(t, s, everyMinute(), gocron.NewTask(func() {}), gocron.WithName("other"))
	}, gocron.WithDistributedLocker(l), gocron.WithClock(clock))
	return job, notes
}

// RunNow takes the next tick if that is due within a minute, and is refused otherwise.
func TestRunNow(t *testing.T) {
	for name, tt := range map[string]struct {
		at     time.Duration
		want   []int
		noTick bool // RunNow is refused; otherwise the tick is
	}{
		"long before":     {30 * time.Minute, []int{60}, true},
		"a minute before": {59 * time.Minute, []int{60}, false},
		"just after":      {60*time.Minute + 30*time.Second, []int{60}, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				refused := make(chan error, 10)
				job, notes := one(t, server, 0, gocron.CronJob("0 * * * *", false), 0, gocron.WithEventListeners(
					gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err })))
				time.Sleep(tt.at)
				if err := job.RunNow(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(90*time.Minute - tt.at)
				minutes := notes.read()
				if !slices.Equal(minutes, tt.want) {
					t.Errorf("the runs are of the minutes %v, want %v", minutes, tt.want)
				}
				if err := <-refused; tt.noTick && !errors.Is(err, gocronlocks.ErrNoTick) ||
					!tt.noTick && (heldBy(err) == "" || !strings.Contains(err.Error(), `job "report", tick 2000-01-01T01:00:00Z: `)) {
					t.Errorf("the other run is refused by %v, want ErrNoTick (%v), or that its tick is held", err, tt.noTick)
				}
			})
		})
	}
}

// gocron skips ticks while the job runs. The run after them is of its own tick, and not of one that was skipped. Ticks are
// those of the scheduler's clock.
func TestSkippedTicks(t *testing.T) {
	singleton := []gocron.JobOption{gocron.WithSingletonMode(gocron.LimitModeReschedule)}
	for name, tt := range map[string]struct {
		behind  time.Duration
		options []gocron.JobOption
	}{
		"several at a time":               {0, nil},
		"singleton":                       {0, singleton},
		"singleton, the clock was behind": {time.Minute / 8, singleton},
		"the clock is ahead":              {-20 * time.Minute, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				_, notes := one(t, server, tt.behind, everyMinute(), 9*time.Minute+30*time.Second, tt.options...)
				time.Sleep(30*time.Minute + 45*time.Second)
				minutes, ahead := notes.read(), max(0, int(-tt.behind/time.Minute))
				if want := []int{ahead + 1, ahead + 11, ahead + 21}; !slices.Equal(minutes, want) {
					t.Errorf("the runs are of the minutes %v, want %v", minutes, want)
				}
			})
		})
	}
}

// A one-time job has one tick.
func TestOneTime(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		_, notes := one(t, server, 0, gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(time.Now().Add(5*time.Minute))), 0)
		time.Sleep(time.Hour)
		minutes := notes.read()
		if want := []int{5}; !slices.Equal(minutes, want) {
			t.Errorf("the runs are of the minutes %v, want %v", minutes, want)
		}
	})
}

// A plan is a scheduler and its only job, whose ticks are the times.
type plan struct {
	gocron.Scheduler
	gocron.Job // a real one: it has the name and the kind
	times      []time.Time
	err        error
}

func (p plan) Jobs() []gocron.Job { return []gocron.Job{p} }

func (p plan) NextRuns(n int) ([]time.Time, error) { return p.times[:min(n, len(p.times))], p.err }

// The last tick of a job that ends counts. A job without a tick, and one that is removed meanwhile, is refused.
func TestLastTick(t *testing.T) {
	for name, tt := range map[string]struct {
		plan plan
		want error
	}{
		"the last":     {plan{times: []time.Time{time.Unix(0, 0)}}, nil},
		"none is left": {plan{}, gocronlocks.ErrNoTick},
		"removed":      {plan{err: gocron.ErrJobNotFound}, gocron.ErrJobNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				p := tt.plan
				start(t, func(s gocron.Scheduler) {
					p.Job = add(t, s, everyMinute(), gocron.NewTask(func() {}), gocron.WithName("report"))
				})
				l := newLocker(t, open(t, server), gocronlocks.Options{})
				if err := l.KeyPerTick(p, time.Hour); err != nil {
					t.Fatal(err)
				}
				if err := l.KeyPerTick(nil, -time.Hour); err == nil { // changes nothing
					t.Fatal("KeyPerTick for less than 0 is not refused")
				}
				run, err := l.Lock(t.Context(), "report")
				if !errors.Is(err, tt.want) {
					t.Errorf("Lock = %v, want %v", err, tt.want)
				}
				if run == nil {
					return
				}
				if err := run.Unlock(t.Context()); err != nil {
					t.Fatal(err)
				}
				p.times[0] = p.times[0].Add(time.Second / 2)
				if _, err := l.Lock(t.Context(), "report"); err != nil {
					t.Errorf("Lock of a tick half a second later = %v", err)
				}
			})
		})
	}
}

// A job whose ticks nobody knows does not run, and the error says why.
func TestNoTicks(t *testing.T) {
	nothing := func(context.Context, strategy.Lease) error { return errors.New("the job runs") }
	for name, tt := range map[string]struct {
		when  func() gocron.JobDefinition
		names []gocron.JobOption
		want  string
	}{
		"random":         {func() gocron.JobDefinition { return gocron.DurationRandomJob(time.Minute, time.Hour) }, []gocron.JobOption{gocron.WithName("a")}, "DurationRandomJob"},
		"the same name":  {everyMinute, []gocron.JobOption{gocron.WithName("a"), gocron.WithName("a")}, "two jobs have this name"},
		"no name":        {everyMinute, []gocron.JobOption{gocron.WithTags("a")}, "has no name"},
		"another locker": {everyMinute, nil, "no such job"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				l := newLocker(t, open(t, server), gocronlocks.Options{})
				refused := make(chan error, 10)
				start(t, func(s gocron.Scheduler) {
					if err := l.KeyPerTick(s, time.Hour); err != nil {
						t.Fatal(err)
					}
					for _, option := range tt.names {
						add(t, s, tt.when(), l.Task(nothing), option, gocron.WithEventListeners(
							gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err }),
							gocron.AfterJobRunsWithError(func(_ uuid.UUID, _ string, err error) { t.Error(err) })))
					}
				}, gocron.WithDistributedLocker(l))
				if tt.names == nil {
					_, err := l.Lock(t.Context(), "a")
					refused <- err
				}
				if err := <-refused; err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("AfterLockError gets %v, want %q", err, tt.want)
				}
				if left, err := server.Leftovers(t.Context(), "lock:{a}"); err != nil || len(left) > 0 {
					t.Errorf("the server keeps %q (%v), want nothing", left, err)
				}
			})
		})
	}
}
