package nemesis

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockstrategies/locks/lab/history"
)

const (
	// round is the most that is judged at once.
	round = time.Minute
	// busyRounds is how many rounds a machine may be too slow for, for each that counts.
	busyRounds = 3
	// enough is what even a machine that does much else at the same time comes to.
	enough = 50
)

// Soak plays one round after the other, for total in all, and fails the test if a lock does what it is not known for. Config has
// the first seed, and each round the next one. A round in which the machine was too slow is played again. The words play are
// the command by which the test is run.
func Soak(t testing.TB, g Ground, c Config, total time.Duration, play string) {
	t.Helper()
	c = c.filled()
	busy := 0
	planned := int((total + round - 1) / round)
	for rounds := 0; rounds < planned; c.Seed++ {
		left := total - time.Duration(rounds)*round
		c.For = max(min(left, round), c.Calm+time.Second)
		report, err := Run(t.Context(), g, c)
		if err != nil {
			t.Fatalf("seed %d: %v", c.Seed, err)
		}
		t.Log(report)
		switch few := report.Acquired() < enough; {
		case tooSlow(report) && (few || len(report.Found) > 0) && onlyLate(report):
			if busy++; busy > busyRounds*planned {
				t.Skipf("INCONCLUSIVE: that %s survives faults: this machine was too slow in %d rounds of %d", c.Variant.Name, busy, busy+rounds)
			}
			continue
		case len(report.Found) > 0:
			keep(t, report)
			t.Fatalf("%d violations; for the same faults again: %s -run '%s$' -seed %d -for %v",
				len(report.Found), play, t.Name(), c.Seed, c.For)
		case few:
			t.Errorf("%d acquisitions in %v: too few to prove anything, want %d", report.Acquired(), c.For, enough)
		}
		rounds++
	}
}

// tooSlow reports whether the machine kept whole servers and processes waiting for a tenth of a
// round. Then what the round did not show proves nothing, nor does what came late.
func tooSlow(r *Report) bool { return r.Slow() > r.For/10 }

// onlyLate reports whether nothing worse was found than that somebody waited for too long.
func onlyLate(r *Report) bool {
	return !slices.ContainsFunc(r.Found, func(v history.Violation) bool { return v.Property != "DeadlockFree" })
}

// keep puts the history, and a picture of it, where they outlive the test.
func keep(t testing.TB, report *Report) {
	t.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("locks-nemesis-%s-%d-", report.Variant.Name, report.Seed))
	var ops bytes.Buffer
	err = errors.Join(err, history.Write(&ops, report.Ops),
		os.WriteFile(filepath.Join(dir, "history.jsonl"), ops.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, "picture.txt"), []byte(report.Picture()), 0o644))
	if err != nil {
		t.Error(err)
	}
	t.Logf("see %s", dir)
}
