package main

// The statistics: medians and their intervals, ratios, quantiles, fairness and crossings.

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestSummarize(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		values         []float64
		center, lo, hi float64
		cover          float64
	}{
		{[]float64{3}, 3, 3, 3, 0},
		{[]float64{5, 1, 3}, 3, 1, 5, 0.75},
		{[]float64{5, nan, 1, 3}, 3, 1, 5, 0.75},
		{[]float64{4, 2, 1, 3}, 2.5, 1, 4, 0.875},
		{[]float64{5, 1, 4, 2, 3}, 3, 1, 5, 0.9375},
		{[]float64{inf, 1, inf}, inf, 1, inf, 0.75},
		{[]float64{inf, inf}, inf, inf, inf, 0.5},
	} {
		s := summarize(c.values)
		if s.center != c.center || s.lo != c.lo || s.hi != c.hi || s.cover != c.cover {
			t.Errorf("summarize(%v) = %+v, want %v [%v, %v], cover %v", c.values, s, c.center, c.lo, c.hi, c.cover)
		}
	}
	if s := summarize([]float64{nan}); !math.IsNaN(s.center) || s.n != 0 {
		t.Errorf("summarize(NaN) = %+v, want nothing", s)
	}
}

// TestCover draws samples whose median is known: as many intervals as they say must cover it.
func TestCover(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{2, 3, 5, 6, 9, 15} {
		const trials = 4000
		covered, cover := 0, 0.0
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = math.Exp(random.NormFloat64()) // of median 1, and skewed
			}
			s := summarize(values)
			cover = s.cover
			if s.lo <= 1 && 1 <= s.hi {
				covered++
			}
		}
		got := float64(covered) / trials
		if math.Abs(got-cover) > 0.03 {
			t.Errorf("%d values: %.3f of the intervals cover the median, want %.3f, as they say", n, got, cover)
		}
		if n >= 6 && cover < confidence {
			t.Errorf("%d values: cover = %v, want %v or more", n, cover, confidence)
		}
	}
}

func TestPaired(t *testing.T) {
	got := paired([]float64{2, 9, 8, 1}, []float64{1, 3, math.NaN(), 0})
	if got[0] != 2 || got[1] != 3 || !math.IsNaN(got[2]) || !math.IsNaN(got[3]) {
		t.Errorf("paired = %v, want 2, 3, nothing, nothing", got)
	}
}

func TestQuantile(t *testing.T) {
	v := make([]int, 100)
	for i := range v {
		v[i] = (i * 37) % 100 // all from 0 to 99
	}
	for q, want := range map[float64]int{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := quantile(slices.Clone(v), q); got != want {
			t.Errorf("quantile(%v) = %v, want %v", q, got, want)
		}
	}
	if got := quantile([]int(nil), 0.5); got != 0 {
		t.Errorf("quantile of nothing = %v, want 0", got)
	}
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		counts       []int
		jain, spread float64
	}{
		{[]int{7, 7, 7, 7}, 1, 1},
		{[]int{1, 0, 0, 0}, 0.25, math.Inf(1)},
		{[]int{3, 1}, 0.8, 3},
	} {
		if j, s := jain(c.counts), spread(c.counts); j != c.jain || s != c.spread {
			t.Errorf("%v: Jain %v, max/min %v, want %v, %v", c.counts, j, s, c.jain, c.spread)
		}
	}
	if j, s := jain([]int{0, 0}), spread([]int{0, 0}); !math.IsNaN(j) || !math.IsNaN(s) {
		t.Errorf("nobody got anything: Jain %v, max/min %v, want neither", j, s)
	}
}

func TestCrossings(t *testing.T) {
	us := func(from, to int) hold {
		return hold{time.Duration(from) * time.Microsecond, time.Duration(to) * time.Microsecond}
	}
	a := []hold{us(60, 70), us(0, 10), us(15, 25)} // in no order
	b := []hold{us(32, 42), us(69, 80)}
	gaps, overlaps := crossings([][]hold{a, b})
	if want := []float64{7, 18, -1}; !slices.Equal(gaps, want) {
		t.Errorf("gaps = %v, want %v: the hand-off from 10 to 15 stays in its process", gaps, want)
	}
	if overlaps != 1 {
		t.Errorf("overlaps = %d, want 1: at 69 the lock was held until 70", overlaps)
	}
	if gaps, overlaps := crossings([][]hold{nil, nil}); gaps != nil || overlaps != 0 {
		t.Errorf("no holds: %v, %d, want none", gaps, overlaps)
	}
}

func TestContention(t *testing.T) {
	v := contention([]report{
		{Counts: []int{3, 1}, Requests: 8, Commands: 20, Values: map[string]float64{"acq/s": 4, "p99-ms": 2}},
		{Counts: []int{2, 2}, Requests: 4, Commands: 28, Values: map[string]float64{"acq/s": 4, "p99-ms": 5}},
	})
	for unit, want := range map[string]float64{"acq/s": 8, "p99-ms": 5, "max/min": 3, "jain": 64. / 72, "requests/acq": 1.5, "commands/acq": 3} {
		if v[unit] != want {
			t.Errorf("%s = %v, want %v", unit, v[unit], want)
		}
	}
	if v := contention([]report{{Counts: []int{1}}, {Stuck: true}}); v[stuck] != 1 || len(v) != 1 {
		t.Errorf("one process is stuck: %v, want no more than that", v)
	}
}

func TestNumber(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1.00", 0.5: "0.50", 0.0123: "0.012", 12.34: "12.3", 99.96: "100", 1234.4: "1\u202f234", 1234567: "1\u202f234\u202f567", math.Inf(1): "∞",
	} {
		if got := number(f); got != want {
			t.Errorf("number(%v) = %q, want %q", f, got, want)
		}
	}
	if got := number(math.NaN()); got != "–" {
		t.Errorf("number(NaN) = %q, want –", got)
	}
}
