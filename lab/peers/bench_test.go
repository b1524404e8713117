package main

// The bench on a server inside of this process: what it counts is right, how long it takes says nothing.

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestMain lets the test binary be a child, too.
func TestMain(m *testing.M) {
	if asChild() {
		return
	}
	os.Exit(m.Run())
}

func embedded(t *testing.T) *bench {
	farm, err := redistest.Open(t.Context(), redistest.Want{Kind: redistest.Embedded})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := farm.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := farm.Start(t.Context(), redistest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{farm: farm, one: s, random: rand.New(rand.NewPCG(1, 1)), reps: 1, progress: io.Discard}
}

// TestFlags: -only chooses scenarios by name or by the beginning of their names, and what there is not is refused.
func TestFlags(t *testing.T) {
	for _, c := range []struct{ args, want, err string }{
		{"-only solo,growth-nodes", "solo growth-nodes-1 growth-nodes-3 growth-nodes-5 growth-nodes-7 growth-nodes-9", ""},
		{"-before HEAD -only readers", "readers-90 readers-50 readers-58", ""},
		{"-only nope", "", `no scenario is called "nope"`},
		{"-who nobody", "", `no contestant is called "nobody"`},
		{"-reps 0", "", "-reps must be at least 1"},
		{"more", "", "more"},
	} {
		f, err := parse(strings.Fields(c.args))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("parse(%s): %v, want %q", c.args, err, c.err)
			}
			continue
		}
		var got []string
		for _, s := range f.scenarios {
			got = append(got, s.name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("parse(%s) chooses %q, want %s", c.args, got, c.want)
		}
	}
}

// TestScenarios: names and titles are unique, contestants are known, and the earlier build plays ours, and no others.
func TestScenarios(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range byBoth(scenarios()) {
		if seen[s.name] || seen[s.title] || (s.measure == nil) == (s.job == nil) {
			t.Errorf("%s: its name or title is another's, or it is not measured in one way", s.name)
		}
		seen[s.name], seen[s.title] = true, true
		for _, who := range s.who {
			if !known(who) {
				t.Fatalf("%s: there is no contestant %q", s.name, who)
			}
			if !strings.HasSuffix(who, atBefore) && slices.Contains(s.who, who+atBefore) != (kindOf(who) == ours) {
				t.Errorf("%s: it does not take as many builds of %s as it should", s.name, who)
			}
		}
	}
}

// TestInterleave: children of all libraries come in turns, and each sends two requests for a pair, as far as it is idle otherwise.
func TestInterleave(t *testing.T) {
	o, err := embedded(t).play(t.Context(), scenario{
		name: "solo", who: []string{"raw", "pool", "redsync", "bsm", "fairqueue"}, turns: 3,
		job: func(_ *bench, who string) job {
			return job{Work: "solo", Who: who, N: 1, TTL: ttl, For: 10 * time.Millisecond}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range o.who {
		turns := o.series(who, "requests/pair")
		if len(turns) != 3 {
			t.Errorf("%s: %d turns, want 3", who, len(turns))
		}
		for turn, n := range turns {
			if !(n >= 2 && n < 2.1) || who == "raw" && n != 2 {
				t.Errorf("%s, turn %d: %v requests for a pair, want 2", who, turn, n)
			}
		}
	}
}

// TestFailures: a child that cannot work says why, and does not spoil what others have measured.
func TestFailures(t *testing.T) {
	b := embedded(t)
	jobs := []job{
		{Work: "solo", Who: "raw", N: 1, TTL: ttl, For: time.Millisecond, Turns: 2},
		{Work: "solo", Who: "nobody"},
		{Work: "nothing", Who: "raw"},
	}
	b.prepare(jobs)
	reports, errs := interleave(t.Context(), jobs, b.random)
	if errs[0] != nil || len(reports[0].Each) != 2 {
		t.Errorf("raw: %d turns, %v, want 2", len(reports[0].Each), errs[0])
	}
	for i, want := range map[int]string{1: "nobody", 2: "nothing"} {
		if errs[i] == nil || !strings.Contains(errs[i].Error(), want) {
			t.Errorf("job %d: %v, want an error that names %s", i, errs[i], want)
		}
	}
	if _, err := together(t.Context(), jobs[1:2], nil); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("together: %v, want an error that names nobody", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := together(ctx, jobs[:1], nil); err != context.Canceled {
		t.Errorf("together, cancelled: %v, want %v", err, context.Canceled)
	}
}

// TestFloors: one whose lock is another's, or is taken away, is no floor.
func TestFloors(t *testing.T) {
	b := embedded(t)
	for _, who := range []string{"raw", "pool"} {
		s := &seat{job: job{Who: who, URLs: []string{b.one.URL()}, N: 1, TTL: ttl, Keys: "floors"}}
		var err error
		if s.admin, err = redis.DialURL(s.URLs[0]); err != nil {
			t.Fatal(err)
		}
		defer s.admin.Close()
		c, err := s.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := c.mutex(s.name(0))(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.mutex(s.name(0))(t.Context()); !errors.Is(err, errNotThere) {
			t.Errorf("%s: acquire where another holds the lock: %v, want %v", who, err, errNotThere)
		}
		if _, err := s.admin.Do("DEL", "lock:{"+s.name(0)+"}"); err != nil {
			t.Fatal(err)
		}
		if err := h.Release(t.Context()); !errors.Is(err, errNotThere) {
			t.Errorf("%s: release of a lock that is gone: %v, want %v", who, err, errNotThere)
		}
	}
}

// TestSharing: without -who all take part, and no lock admits more than it may.
func TestSharing(t *testing.T) {
	f, err := parse([]string{"-quick"})
	if err != nil {
		t.Fatal(err)
	}
	b := embedded(t)
	b.quick, b.who = f.quick, f.who
	for _, s := range sharing() {
		o, err := b.play(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		for _, who := range s.who {
			v := o.got[who][0]
			most := map[string]float64{"semaphore": permits, "semaphore-poll": permits, "sleep": permits, "fairqueue": 1, "rwlock": 64, "rwlock-poll": 64}[who]
			if n := v["most"]; !(n >= 1 && n <= most) || v["overlaps"] != 0 {
				t.Errorf("%s, %s: %v, want 1 to %v holders, and no overlaps", s.name, who, v, most)
			}
		}
	}
}

// TestPresence: an overlap is a holder next to a writer; it does not matter which of them came first.
func TestPresence(t *testing.T) {
	var p presence
	p.enter(false)
	p.enter(false)
	if p.overlaps != 0 || p.most != 2 {
		t.Errorf("two readers: %d overlaps, %d at most, want 0 and 2", p.overlaps, p.most)
	}
	p.enter(true)
	p.leave(false, true, time.Second)
	p.leave(false, false, time.Second)
	p.enter(false)
	if p.overlaps != 2 || p.held != time.Second {
		t.Errorf("a writer next to readers, a reader next to it: %d overlaps, held for %v, want 2 and a second", p.overlaps, p.held)
	}
}

// TestBefore: another program plays the contestants of before, and only these.
func TestBefore(t *testing.T) {
	b := embedded(t)
	b.quick = true
	for program, fails := range map[string]float64{os.Args[0]: 0, "/nowhere": 1} {
		b.program = program
		o, err := b.play(t.Context(), byBoth([]scenario{{name: "permits", who: []string{"semaphore-1"}, measure: measureSharing(job{})}})[0])
		if err != nil {
			t.Fatal(err)
		}
		now, before := o.got["semaphore-1"][0], o.got["semaphore-1@before"][0]
		if now["most"] != 1 || before[failed] != fails || fails == 0 && before["most"] != 1 {
			t.Errorf("before is played by %s: %v and %v, want 1 holder at most, and failed: %v", program, now, before, fails)
		}
	}
	if _, err := build(t.Context(), "no-such-commit", t.TempDir()); err == nil {
		t.Error("build of a commit that is not there: no error")
	}
}

// some is an outcome of two builds.
func some() *outcome {
	return &outcome{
		scenario: byBoth([]scenario{{
			title: "Some", about: "About.", who: []string{"rwlock", "fairqueue"},
			columns: []column{{"÷", "acq/s", over("fairqueue")}, {"µs", "µs", nil}},
		}})[0],
		got: map[string][]values{
			"rwlock": {{"acq/s": 80, "µs": 5}, {"acq/s": 120, "µs": 7}}, "rwlock@before": {{"acq/s": 20, "µs": 10}, {"acq/s": 30, "µs": 14}},
			"fairqueue": {{"acq/s": 20}, {"acq/s": 30}}, "fairqueue@before": {{"acq/s": 10}, {stuck: 1}},
		},
	}
}

// TestComparison: both builds are compared by what was measured in the same repetition.
func TestComparison(t *testing.T) {
	want := `| | | before | after | after ÷ before |
|---|---|--:|--:|--:|
| Some | rwlock: acq/s | 25.0 [20.0, 30.0] | 100 [80.0, 120] | 4.00 [4.00, 4.00] |
| Some | fairqueue: acq/s | 10.0 | 25.0 [20.0, 30.0] | 2.00 |
`
	if got := comparison([]*outcome{some()}); got != want {
		t.Errorf("comparison is\n%s\nwant\n%s", got, want)
	}
}

// TestStats: summaries, quantiles, shares, and hand-offs between processes.
func TestStats(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, "–"}, {[]float64{nan}, "–"}, {[]float64{1234.5}, "1234"}, {[]float64{3, nan, 1}, "2.00 [1.00, 3.00]"},
		{[]float64{inf, inf, 1}, "∞ [1.00, ∞]"}, {[]float64{0.05, 0, 0.05}, "0.05 [0, 0.05]"},
		{[]float64{9, 1, 2, 3, 4, 5, 6, 7, 8, 10}, "5.50 [2.00, 9.00]"},
	} {
		if got := summarize(c.values).String(); got != c.want {
			t.Errorf("the summary of %v is %s, want %s", c.values, got, c.want)
		}
	}
	if q := quantile([]int{4, 2, 3, 1}, 0.99); q != 4 || quantile([]int(nil), 0.5) != 0 {
		t.Errorf("the 0.99-quantile is %v, want 4; that of nothing 0", q)
	}
	if j, s := jain([]int{3, 0, 0}), spread([]int{4, 2}); math.Abs(j-1./3) > 1e-9 || s != 2 || !math.IsInf(spread([]int{1, 0}), 1) {
		t.Errorf("jain is %v, want 1/3; the spread %v, want 2, and endless if one got nothing", j, s)
	}
	us := func(n int) time.Duration { return time.Duration(n) * time.Microsecond }
	gaps, overlaps := crossings([][]hold{{{us(0), us(10)}, {us(40), us(50)}, {us(60), us(70)}}, {{us(15), us(30)}, {us(69), us(80)}}})
	if !slices.Equal(gaps, []float64{5, 10, -1}) || overlaps != 1 {
		t.Errorf("crossings are %v with %d overlaps, want 5, 10 and -1 µs, and one", gaps, overlaps)
	}
}
