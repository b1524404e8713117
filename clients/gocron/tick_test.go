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

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A diary notes the minutes for which runs were scheduled; none: -1.
type diary struct {
	mu      sync.Mutex
	began   time.Time
	minutes []int
}

// write returns how many runs there were.
func (d *diary) write(ctx context.Context) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	minute := -1
	if tick, ok := gocronlocks.Tick(ctx); ok {
		minute = int(tick.Sub(d.began) / time.Minute)
	}
	d.minutes = append(d.minutes, minute)
	return len(d.minutes)
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
		redistest.Must(t, err)
		zones = append(zones, zone)
	}
	for name, tt := range map[string]struct {
		apart   time.Duration
		atLeast time.Duration
		perTick time.Duration
		dies    bool // an instance, in a run
		want    int  // runs of each tick
	}{
		"the hold alone":                {5 * time.Second, 0, 0, false, 3},
		"AtLeast":                       {5 * time.Second, 30 * time.Second, 0, false, 1},
		"AtLeast, of clocks too far":    {20 * time.Second, 10 * time.Second, 0, false, 3},
		"a key per tick":                {20 * time.Second, 0, time.Hour, true, 1},
		"a key per tick, of far clocks": {10 * time.Minute, 0, time.Hour, false, 1},
		"both":                          {5 * time.Second, 30 * time.Second, time.Hour, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				notes := diary{began: time.Now()}
				for i := range 3 {
					clock := wrongBy(time.Duration(i-1) * tt.apart)
					locks := open(t, server)
					l := newLocker(t, locks, gocronlocks.Options{AtLeast: tt.atLeast, Now: clock.Now})
					start(t, func(s gocron.Scheduler) {
						if tt.perTick > 0 {
							redistest.Must(t, l.KeyPerTick(s, tt.perTick))
						}
						add(t, s, everyMinute(), l.Task(func(ctx context.Context, _ strategy.Lease) error {
							if notes.write(ctx) == ticks/2 && tt.dies {
								locks.Close()
							}
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
		redistest.Must(t, l.KeyPerTick(s, time.Hour))
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
		noTick bool // RunNow is refused; otherwise the tick is
	}{
		"long before":     {30 * time.Minute, true},
		"a minute before": {59 * time.Minute, false},
		"just after":      {60*time.Minute + 30*time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				refused, listen := refusals()
				job, notes := one(t, server, 0, gocron.CronJob("0 * * * *", false), 0, listen)
				time.Sleep(tt.at)
				redistest.Must(t, job.RunNow())
				time.Sleep(90*time.Minute - tt.at)
				if minutes := notes.read(); !slices.Equal(minutes, []int{60}) {
					t.Errorf("the runs are of the minutes %v, want 60", minutes)
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
// those of the scheduler's clock. A one-time job has one tick.
func TestSkippedTicks(t *testing.T) {
	singleton := []gocron.JobOption{gocron.WithSingletonMode(gocron.LimitModeReschedule)}
	once := func() gocron.JobDefinition {
		return gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(time.Now().Add(5 * time.Minute)))
	}
	for name, tt := range map[string]struct {
		behind  time.Duration
		when    func() gocron.JobDefinition
		options []gocron.JobOption
		want    []int
	}{
		"several at a time":               {0, everyMinute, nil, []int{1, 11, 21}},
		"singleton":                       {0, everyMinute, singleton, []int{1, 11, 21}},
		"singleton, the clock was behind": {time.Minute / 8, everyMinute, singleton, []int{1, 11, 21}},
		"the clock is ahead":              {-20 * time.Minute, everyMinute, nil, []int{21, 31, 41}},
		"a one-time job":                  {0, once, nil, []int{5}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				_, notes := one(t, server, tt.behind, tt.when(), 9*time.Minute+30*time.Second, tt.options...)
				time.Sleep(30*time.Minute + 45*time.Second)
				if minutes := notes.read(); !slices.Equal(minutes, tt.want) {
					t.Errorf("the runs are of the minutes %v, want %v", minutes, tt.want)
				}
			})
		})
	}
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
	for _, tt := range []struct {
		plan plan
		want error
	}{
		{plan{times: []time.Time{time.Unix(0, 0)}}, nil},
		{plan{}, gocronlocks.ErrNoTick},
		{plan{err: gocron.ErrJobNotFound}, gocron.ErrJobNotFound},
	} {
		bubble(t, func(t *testing.T, server *lockstest.Memory) {
			p := tt.plan
			start(t, func(s gocron.Scheduler) {
				p.Job = add(t, s, everyMinute(), gocron.NewTask(func() {}), gocron.WithName("report"))
			})
			l := newLocker(t, open(t, server), gocronlocks.Options{})
			redistest.Must(t, l.KeyPerTick(p, time.Hour))
			if err := l.KeyPerTick(nil, -time.Hour); err == nil { // changes nothing
				t.Fatal("KeyPerTick for less than 0 is not refused")
			}
			run, err := l.Lock(t.Context(), "report")
			if !errors.Is(err, tt.want) {
				t.Errorf("Lock = %v, want %v", err, tt.want)
			}
			if run != nil {
				redistest.Must(t, run.Unlock(t.Context()))
				p.times[0] = p.times[0].Add(time.Second / 2)
				lock(t, l) // of a tick half a second later
			}
		})
	}
}

// A job whose ticks nobody knows does not run, and the error says why.
func TestNoTicks(t *testing.T) {
	for want, tt := range map[string]struct {
		when  func() gocron.JobDefinition
		names []gocron.JobOption
	}{
		"DurationRandomJob":       {func() gocron.JobDefinition { return gocron.DurationRandomJob(time.Minute, time.Hour) }, []gocron.JobOption{gocron.WithName("a")}},
		"two jobs have this name": {everyMinute, []gocron.JobOption{gocron.WithName("a"), gocron.WithName("a")}},
		"has no name":             {everyMinute, []gocron.JobOption{gocron.WithTags("a")}},
		"no such job":             {everyMinute, nil},
	} {
		t.Run(want, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				l := newLocker(t, open(t, server), gocronlocks.Options{})
				refused, listen := refusals()
				runs := func(context.Context, strategy.Lease) error { t.Error("the job runs"); return nil }
				start(t, func(s gocron.Scheduler) {
					redistest.Must(t, l.KeyPerTick(s, time.Hour))
					for _, option := range tt.names {
						add(t, s, tt.when(), l.Task(runs), option, listen)
					}
				}, gocron.WithDistributedLocker(l))
				var err error
				if tt.names == nil {
					_, err = l.Lock(t.Context(), "a")
				} else {
					err = <-refused
				}
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("a run is refused by %v, want %q", err, want)
				}
				if left, err := server.Leftovers(t.Context(), "lock:{a}"); err != nil || len(left) > 0 {
					t.Errorf("the server keeps %q (%v), want nothing", left, err)
				}
			})
		})
	}
}
