// Package compare holds strategies against each other on the same Redis: what each
// guarantees, as the conformance suite sees it, what it costs, and how fast it is.
// It measures and prints nothing; cmd/lab does that.
//
// # How it is measured
//
// Guarantees are trials of the suite, held in this run. A trial for which the machine was too slow is
// held again, alone. The connections count the requests and their round trips.
// A strategy on several servers takes the first of them, and all counts are of
// them together. Of a lock in another store nobody counts requests, and trials that need a
// hook into them are left to its own tests. For timings the strategies take turns, so that a
// machine that is slower for a while is slower for all; the time that one caller needs is taken
// call by call next to a PING, and divided by it. A second series of PINGs, divided by the
// first, shows the noise. A rate is the median of several rounds.
package compare

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// Contenders is how many contend for one lock, in the measurements of that.
var Contenders = []int{1, 8, 64}

// rounds is how often the strategies take turns.
const rounds = 3

// Config says what is compared, and how.
type Config struct {
	Servers  []*redistest.Server // what takes more of them is left out
	Kind     redistest.Kind      // of the servers
	Choice   string              // which servers they are, and why
	Variants []subjects.Variant
	Stores   []Store // have the last columns
	Version  string  // of this module

	// Each is how long one measurement of one strategy takes. 0: none is taken, only
	// the guarantees are looked at.
	Each time.Duration

	titles []string // of the guarantees that are judged; nil: all

	// check holds a trial: conformance.Check, but in tests.
	check func(context.Context, conformance.Subject, conformance.Property) conformance.Result

	// Progress, if set, hears what part of the whole is done, and what is next. It must be fast,
	// and is called by one goroutine at a time.
	Progress func(part float64, next string)
}

// A Store is a lock that is not on Redis: how the suite opens it, and what it is.
type Store struct {
	conformance.Subject
	Summary string // in half a sentence
}

// A contestant is one column.
type contestant struct {
	name, summary string
	servers       []*redistest.Server // none: it is not on Redis
	variant       subjects.Variant    // on these servers
	subject       conformance.Subject
}

func (c Config) contestants() (all []contestant) {
	for _, v := range c.Variants {
		servers := c.Servers[:v.Servers]
		all = append(all, contestant{v.Name, v.Summary, servers, v, v.Subject(servers)})
	}
	for _, s := range c.Stores {
		all = append(all, contestant{name: s.Name, summary: s.Summary, subject: s.Subject})
	}
	return all
}

// opener opens strategies as one process would, on connections that m counts, until end. nil: nobody counts.
func (c contestant) opener(m *Meter) (open func(strategy.Options) (strategy.Strategy, error), end func()) {
	if m == nil || len(c.servers) == 0 {
		return c.subject.Open, func() {}
	}
	pools, end := m.Pools(c.servers)
	return func(o strategy.Options) (strategy.Strategy, error) { return c.variant.New(pools, o) }, end
}

// trialCost is about what a trial adds to the whole, side by side with others. It
// serves for progress alone.
const trialCost = 30 * time.Millisecond

// A step is one part of the work.
type step struct {
	doing string
	about time.Duration
	run   func(ctx context.Context, tell func(part float64, doing string)) error
}

// Run compares. For trials that take several processes it runs this program again, whose main
// calls subjects.Child first. When ctx ends, the report has what is known by then, is marked as
// interrupted, and the error is ctx's cause. Any other error means that the server failed; a
// measurement that fails is not an error but in the report.
func Run(ctx context.Context, c Config) (*Report, error) {
	c.check = conformance.Check
	var leftOut []LeftOut
	c.Variants = slices.DeleteFunc(slices.Clone(c.Variants), func(v subjects.Variant) bool {
		if v.Servers > len(c.Servers) {
			leftOut = append(leftOut, LeftOut{Name: v.Name, Servers: v.Servers})
			return true
		}
		return false
	})
	r := &Report{
		Version: c.Version,
		Began:   time.Now().UTC().Truncate(time.Millisecond),
		Redis:   RedisOf(c.Servers, c.Kind, c.Choice),
		Machine: Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()},
		LeftOut: leftOut,
	}
	for _, t := range c.contestants() {
		r.Strategies = append(r.Strategies, Column{Name: t.name, Summary: t.summary, Servers: len(t.servers)})
	}
	began := time.Now()
	err := pingAll(ctx, c.Servers)
	if err == nil {
		err = Bootstrapped(ctx, c.Variants, c.Servers, func() error { return work(ctx, c, r) })
	}
	r.Took = MillisOf(time.Since(began))
	if ctx.Err() != nil {
		r.Interrupted = true
		err = context.Cause(ctx)
	}
	if err == nil && c.Each > 0 {
		r.Advice = advise(r.Strategies)
	}
	return r, err
}

// Bootstrapped runs work on servers that vote, and leaves them as they were.
func Bootstrapped(ctx context.Context, variants []subjects.Variant, servers []*redistest.Server, work func() error) error {
	told, err := subjects.Bootstrap(ctx, variants, servers)
	if err == nil {
		err = work()
	}
	limit, cancel := afterwards(ctx)
	defer cancel()
	if e := subjects.UndoBootstrap(limit, told); e != nil {
		return errors.Join(err, e)
	}
	return err
}

// RedisOf are the servers. choice says which they are, and why.
func RedisOf(servers []*redistest.Server, kind redistest.Kind, choice string) Redis {
	r := Redis{Choice: choice, Kind: string(kind), Addr: servers[0].Addr(), Comparable: kind != redistest.Embedded}
	var versions []string // each once
	for _, s := range servers {
		if v := s.Version(); !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
		if len(servers) > 1 {
			r.Addrs = append(r.Addrs, s.Addr())
		}
	}
	r.Version = strings.Join(versions, ", ")
	return r
}

// pingAll asks whether there are servers at all: a table of nothing but failures would
// say the same less clearly.
func pingAll(ctx context.Context, servers []*redistest.Server) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return each(ctx, servers, func(conn redis.Conn) error {
		_, err := redis.DoContext(conn, ctx, "PING")
		return err
	})
}

func work(ctx context.Context, c Config, r *Report) error {
	steps := []step{judging(c, r)}
	if c.Each > 0 {
		t := timing{each: c.Each, rounds: rounds}
		r.Method = Method{
			Each: MillisOf(t.each), WarmUp: MillisOf(t.warmUp()), Rounds: t.rounds,
			Hold: MillisOf(hold), Contenders: slices.Clone(Contenders),
		}
		steps = slices.Concat(steps, costing(c, r), []step{solo(c, r, t)}, handingOff(c, r, t), contending(c, r, t))
	}
	var total, done time.Duration
	for _, s := range steps {
		total += s.about
	}
	for _, s := range steps {
		tell := func(part float64, doing string) {
			if c.Progress != nil {
				c.Progress((float64(done)+part*float64(s.about))/float64(total), doing)
			}
		}
		tell(0, s.doing)
		runtime.GC() // what earlier steps left is not this one's to clear away
		if err := s.run(ctx, tell); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done += s.about
	}
	return nil
}

func judging(c Config, r *Report) step {
	trials := 0
	for _, g := range groups {
		trials += len(g.properties)
	}
	return step{
		doing: "guarantees",
		about: time.Duration(trials*len(r.Strategies)) * trialCost,
		run: func(ctx context.Context, tell func(float64, string)) error {
			rows, err := judge(ctx, c, func(done, all int) {
				tell(float64(done)/float64(all), fmt.Sprintf("guarantees: trial %d of %d", done, all))
			})
			for i := range rows {
				r.Strategies[i].Guarantees = rows[i]
			}
			return err
		},
	}
}

// note keeps a measurement's failure, unless it is ctx's end.
func (s *Column) note(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil && !s.failed(what) {
		s.Failures = append(s.Failures, Failure{Measurement: what, Error: err.Error()})
	}
}

func costing(c Config, r *Report) []step {
	var steps []step
	for i, t := range c.contestants() {
		if len(t.servers) == 0 {
			continue // nobody counts its requests
		}
		steps = append(steps, step{
			doing: t.name + ": counting requests",
			about: time.Second,
			run: func(ctx context.Context, _ func(float64, string)) error {
				var err error
				r.Strategies[i].Cost, err = cost(ctx, t)
				r.Strategies[i].note(ctx, MeasuringCost, err)
				return nil
			},
		})
	}
	return steps
}

func solo(c Config, r *Report, t timing) step {
	d := t.each * time.Duration(len(r.Strategies))
	return step{
		doing: "one caller: PING and each strategy in turn",
		about: d + d/10,
		run: func(ctx context.Context, _ func(float64, string)) error {
			ping, solos, errs, err := soloists(ctx, c.Servers, c.contestants(), d)
			if err != nil {
				return err
			}
			r.Ping = ping
			for i := range solos {
				r.Strategies[i].Solo = solos[i]
				r.Strategies[i].note(ctx, MeasuringSolo, errs[i])
			}
			return nil
		},
	}
}

// A measurement is taken in rounds.
type measurement interface {
	round(ctx context.Context, warm, d time.Duration) error
	finish(s *Column, ping *Ping) error // puts the result into the column
}

// inTurns are the steps in which the strategies take turns, so many rounds each.
func inTurns(c Config, r *Report, t timing, what, doing string, of func(contestant) measurement) (steps []step) {
	contestants := c.contestants()
	var all []measurement
	for _, one := range contestants {
		all = append(all, of(one))
	}
	for round := range t.rounds {
		for i, one := range contestants {
			steps = append(steps, step{
				doing: one.name + ": " + doing,
				about: t.warmUp() + t.round(),
				run: func(ctx context.Context, _ func(float64, string)) error {
					s := &r.Strategies[i]
					if s.failed(what) {
						return nil
					}
					err := all[i].round(ctx, t.warmUp(), t.round())
					if err == nil && round == t.rounds-1 {
						err = all[i].finish(s, r.Ping)
					}
					s.note(ctx, what, err)
					return nil
				},
			})
		}
	}
	return steps
}

func handingOff(c Config, r *Report, t timing) []step {
	return inTurns(c, r, t, MeasuringHandOff, "hand-off from process to process", func(one contestant) measurement {
		return &handOffs{of: one, h: histogram()}
	})
}

func contending(c Config, r *Report, t timing) (steps []step) {
	for _, n := range Contenders {
		steps = append(steps, inTurns(c, r, t, MeasuringContention, fmt.Sprintf("%d contending", n), func(one contestant) measurement {
			return &contention{of: one, got: make([]int64, n)}
		})...)
	}
	return steps
}
