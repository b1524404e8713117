package main

// The children that measure: they take turns, report, and fail without spoiling what others have measured.

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestMain lets the test binary be a child, too.
func TestMain(m *testing.M) {
	if asChild() {
		return
	}
	os.Exit(m.Run())
}

// embedded is a bench on a server inside of this process: what it counts is right, how long
// it takes says nothing.
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
	return &bench{farm: farm, one: s, mine: true, random: rand.New(rand.NewPCG(1, 1)), reps: 1, progress: io.Discard, lines: newBenchWriter(io.Discard, machine{}, 1)}
}

// TestInterleave: children of three libraries come in turns and report each of these.
func TestInterleave(t *testing.T) {
	b := embedded(t)
	o, err := b.play(t.Context(), scenario{
		name: "solo", who: []string{"raw", "redsync", "bsm", "fairqueue"}, turns: 3,
		job: func(_ *bench, who string) job {
			return job{Work: "solo", Who: who, N: 1, TTL: ttl, For: 10 * time.Millisecond}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range o.who {
		for turn, n := range o.series(who, 0, "requests/pair") {
			if !(n >= 2 && n < 2.1) { // on the way of some there are other requests, now and then
				t.Errorf("%s, turn %d: %v requests for a pair, want 2", who, turn, n)
			}
		}
	}
	for _, n := range o.series("raw", 0, "requests/pair") {
		if n != 2 {
			t.Errorf("raw: %v requests for a pair, want 2", n)
		}
	}
}

// TestFailures: a child that cannot work says why, one that dies is noticed, and neither
// spoils what others have measured.
func TestFailures(t *testing.T) {
	b := embedded(t)
	jobs := []job{
		{Work: "solo", Who: "raw", N: 1, TTL: ttl, For: time.Millisecond, Turns: 2},
		{Work: "solo", Who: "nobody"},
		{Work: "nothing", Who: "raw"},
		{Work: "solo", Who: "raw", TTL: ttl, Turns: 1, Trace: "/nowhere/at/all"},
	}
	b.prepare(jobs)
	jobs[3].Trace = "/nowhere/at/all"
	reports, errs := interleave(t.Context(), jobs, b.random)
	if errs[0] != nil || len(reports[0].Each) != 2 {
		t.Errorf("raw: %d turns, %v, want 2", len(reports[0].Each), errs[0])
	}
	for i, want := range map[int]string{1: "nobody", 2: "nothing", 3: "/nowhere"} {
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
