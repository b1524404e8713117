package main

// Two builds in one run: which of them plays whom, and what the table says of both.

import (
	"math"
	"os"
	"testing"
)

// TestBefore: another program plays the contestants of before, and only these.
func TestBefore(t *testing.T) {
	b := embedded(t)
	b.quick = true
	for program, fails := range map[string]float64{os.Args[0]: 0, "/nowhere": 1} {
		b.program = program
		o, err := b.play(t.Context(), narrowed("permits-64-1ms", both("semaphore-1"), nil))
		if err != nil {
			t.Fatal(err)
		}
		now, before := o.got[entry{"semaphore-1", 0}][0], o.got[entry{"semaphore-1@before", 0}][0]
		if now["most"] != 1 || before[failed] != fails || fails == 0 && before["most"] != 1 {
			t.Errorf("before is played by %s: %v and %v, want 1 holder at most, and failed: %v", program, now, before, fails)
		}
	}
	if _, err := build(t.Context(), "no-such-commit", t.TempDir()); err == nil {
		t.Error("build of a commit that is not there: no error")
	}
}

// TestComparison: each build is divided by its own base, and "better" knows the direction.
func TestComparison(t *testing.T) {
	o := &outcome{
		scenario: scenario{
			title: "Some", who: both("rwlock", "fairqueue"), columns: []column{{"÷", "acq/s", over("fairqueue")}, {"µs", "µs", nil}},
			aims: []aim{{"rwlock", "÷", true, 3}, {"rwlock", "µs", false, 4}, {"rwlock", "µs", false, whatever}},
		},
		reps: 1,
		got: map[entry][]values{
			{"rwlock", 0}: {{"acq/s": 80, "µs": 5}}, {"rwlock@before", 0}: {{"acq/s": 30, "µs": 10}},
			{"fairqueue", 0}: {{"acq/s": 20}}, {"fairqueue@before", 0}: {{"acq/s": 15}},
		},
	}
	want := `| | aim | before | after | met | better by |
|---|---|--:|--:|---|--:|
| Some | rwlock: ÷ ≥ 3.00 | 2.00 | 4.00 | yes | 2.00 |
| Some | rwlock: µs ≤ 4.00 | 10.0 | 5.00 | no | 2.00 |
| Some | rwlock: µs | 10.0 | 5.00 | – | 2.00 |

Better by is after ÷ before where more is better, before ÷ after elsewhere, by repetition: above 1, after is better.
`
	if got := comparison([]*outcome{o}); got != want {
		t.Errorf("comparison is\n%s\nwant\n%s", got, want)
	}
}

// TestMode: who reads, and how often.
func TestMode(t *testing.T) {
	for _, c := range []struct {
		job
		reads float64
	}{{job{}, 0}, {job{Write: 10}, 0.9}, {job{Write: 10, Lot: true}, 0.9}, {job{Only: 6}, 58. / 64}} {
		reads := 0
		for i := range 64 {
			for n := range 1000 {
				reads += c.mode(i, i+n)
			}
		}
		if got := float64(reads) / 64_000; math.Abs(got-c.reads) > 0.01 { // by lot: 8 standard deviations
			t.Errorf("%+v: %.3f of the acquisitions are to read, want %.3f", c.job, got, c.reads)
		}
	}
}

// TestDrain: the slowest waits for no less than the median, and each drain is counted.
func TestDrain(t *testing.T) {
	v, err := measureDrain(8, 3)(t.Context(), embedded(t), "setnxpx", 0)
	if err != nil || !(v["max/p50"] >= 1 && v["µs/waiter"] > 0 && v["requests/acq"] >= 1./8) {
		t.Errorf("three drains of 8 waiters: %v, %v", v, err)
	}
}
