// Strategies under random faults on real servers: they keep what they promise. "make test" plays two strategies for seconds,
// with one seed; "make soak" plays all of them. Simulations show that they do not survive the rest, see lab/simulate.
package nemesis_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/nemesis"
	"github.com/lockstrategies/locks/lab/stage"
)

var (
	seedFlag = flag.Uint64("seed", 0, "what decides which faults happen; 0: with -for the time of day, else 1")
	forFlag  = flag.Duration("for", 0, "how long each strategy is tried, in rounds of a minute at most; 0: two strategies, for seconds")
)

func TestMain(m *testing.M) {
	if contender.Child(variants()...) {
		return
	}
	flag.Set("test.parallel", "3") // each has five processes and as many servers; -parallel says otherwise
	redistest.Main(m)
}

// variants are all that a contender may be.
func variants() (all []subjects.Variant) {
	for _, c := range nemesis.Strategies() {
		all = append(all, c.Variant)
	}
	return all
}

// soaks reports whether this is more than the short part that "make test" runs.
func soaks() bool { return *forFlag > 0 }

// brief is how long the short part breaks things, the calm at the end included.
const brief = nemesis.Calm + 3*time.Second

// tried are the strategies as they are meant to be used; for the short part one on one server
// and one on five.
func tried() (all []nemesis.Config) {
	for _, c := range nemesis.Strategies() {
		if v := c.Variant; soaks() && (v.Name == v.Package || v.Name == "redlock-fenced" || c.Permits > 0 || c.ReadWrite) || v.Name == "fairqueue" || v.Name == "redlock" {
			all = append(all, c)
		}
	}
	return all
}

// round is the most that is judged at once.
const round = time.Minute

// TestNemesis: while servers, networks and processes break in all ways that a strategy
// claims to survive, it does nothing that it is not known for. A round in which the machine
// was too slow is played again, with the next seed.
func TestNemesis(t *testing.T) {
	total, seed := *forFlag, *seedFlag
	switch {
	case soaks() && seed == 0:
		seed = uint64(time.Now().UnixNano())
	case !soaks():
		total, seed = brief, max(seed, 1)
	}
	for _, c := range tried() {
		t.Run(c.Variant.Name, func(t *testing.T) {
			t.Parallel()
			r := borrow(t, c.Variant)
			busy := 0
			planned := int((total + round - 1) / round)
			for rounds, seed := 0, seed; rounds < planned; seed++ {
				left := total - time.Duration(rounds)*round
				c.Seed, c.For = seed, max(min(left, round), nemesis.Calm+time.Second)
				report := run(t, r, c)
				t.Log(report)
				switch few := report.Acquired() < enough; {
				case tooSlow(report) && (few || len(report.Found) > 0) && onlyLate(report):
					if busy++; busy > busyRounds*planned {
						t.Skipf("INCONCLUSIVE: that %s survives faults: this machine was too slow in %d rounds of %d", c.Variant.Name, busy, busy+rounds)
					}
					continue
				case len(report.Found) > 0:
					keep(t, report)
					t.Fatalf("%d violations; for the same faults again: go test -C lab ./nemesis -run '%s$' -seed %d -for %v",
						len(report.Found), t.Name(), c.Seed, c.For)
				case few:
					t.Errorf("%d acquisitions in %v: too few to prove anything, want %d", report.Acquired(), c.For, enough)
				}
				rounds++
			}
		})
	}
}

// tooSlow reports whether the machine kept whole servers and processes waiting for a tenth of a
// round. Then what the round did not show proves nothing, nor does what came late.
func tooSlow(r *nemesis.Report) bool { return r.Slow() > r.For/10 }

// onlyLate reports whether nothing worse was found than that somebody waited for too long.
func onlyLate(r *nemesis.Report) bool {
	return !slices.ContainsFunc(r.Found, func(v history.Violation) bool { return v.Property != "DeadlockFree" })
}

// busyRounds is how many rounds a machine may be too slow for, for each that counts.
const busyRounds = 3

// enough is what even a machine that does much else at the same time comes to.
const enough = 50

// run is nemesis.Run, which must not come to grief itself.
func run(t *testing.T, r *rig.Rig, c nemesis.Config) *nemesis.Report {
	t.Helper()
	report, err := nemesis.Run(t.Context(), nemesis.OnRig(r), c)
	if err != nil {
		t.Fatalf("seed %d: %v", c.Seed, err)
	}
	return report
}

// keep puts the history, and a picture of it, where they outlive the test.
func keep(t *testing.T, report *nemesis.Report) {
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

// rigs are lent to tests: starting servers takes longer than resetting them. They end with the farm.
var rigs stage.Rigs

func borrow(t *testing.T, v subjects.Variant) *rig.Rig {
	t.Helper()
	r, err := rigs.Borrow(t.Context(), v.Farm(t), v.Servers)
	redistest.Skip(t, err, "what faults do to "+t.Name())
	t.Cleanup(func() {
		if err := rigs.GiveBack(context.Background(), r); err != nil {
			t.Error(err)
		}
	})
	return r
}
