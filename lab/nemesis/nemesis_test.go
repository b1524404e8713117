package nemesis_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/rig"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/nemesis"
)

var (
	seedFlag = flag.Uint64("seed", 0, "what decides which faults happen; 0: the time of day")
	forFlag  = flag.Duration("for", 20*time.Second, "how long each strategy is tried, in rounds of a minute at most")
)

func TestMain(m *testing.M) {
	if contender.Child(variants()...) {
		os.Exit(int(exitCode.Load()))
	}
	flag.Set("test.parallel", "3") // each has five processes and as many servers; -parallel says otherwise
	redistest.Main(m)
}

// variants are all that a contender may be told to be.
func variants() []subjects.Variant {
	all := subjects.All()
	for _, p := range planted() {
		all = append(all, p.Variant)
	}
	return append(all, endsBadly())
}

// tried are the strategies as they are meant to be used.
func tried() []subjects.Variant {
	var all []subjects.Variant
	for _, v := range subjects.All() {
		if v.Name == v.Package || v.Name == "redlock-fenced" {
			all = append(all, v)
		}
	}
	return all
}

// round is the most that is judged at once.
const round = time.Minute

// TestNemesis: while servers, networks and processes break in all ways that a strategy
// claims to survive, it does nothing that it is not known for.
func TestNemesis(t *testing.T) {
	total := *forFlag
	if testing.Short() {
		total = min(total, 2*nemesis.Calm)
	}
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	for _, v := range tried() {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			r := borrow(t, v.Servers)
			acquired, faults, declared, busy, rounds := 0, 0, 0, 0, 0
			planned := int((total + round - 1) / round)
			for seed := seed; rounds < planned || demanded() && busy == rounds && rounds < patience*planned; seed++ {
				left := total - time.Duration(rounds%planned)*round
				c := nemesis.Config{Variant: v, Seed: seed, For: max(min(left, round), nemesis.Calm+time.Second)}
				report := run(t, r, c)
				tell(t, report)
				if len(report.Found) > 0 {
					keep(t, report)
					t.Fatalf("%d violations; for the same faults again: go test -C lab ./nemesis -run '%s$' -seed %d -for %v",
						len(report.Found), t.Name(), c.Seed, c.For)
				}
				rounds++
				sum := report.Summary()
				switch slow := report.Slow(); {
				case sum.Acquired >= enough:
				case slow > c.For/10:
					busy++
				default:
					t.Errorf("%d acquisitions in %v: too few to prove anything, want %d", sum.Acquired, c.For, enough)
				}
				acquired += sum.Acquired
				declared += len(report.Declared)
				for _, n := range sum.Faults {
					faults += n
				}
			}
			t.Logf("in all %v, from seed %d on: %d acquisitions, %d faults, %d violations that are declared, none that is not; the machine was too busy in %d rounds of %d",
				total, seed, acquired, faults, declared, busy, rounds)
			unproven := fmt.Sprintf("NOT PROVEN: that %s survives faults: the machine was too busy with other things, in %d rounds of %d", v.Name, busy, rounds)
			switch proof(demanded(), busy, rounds) {
			case skipped:
				t.Skip(unproven)
			case failed:
				t.Error(unproven)
			}
		})
	}
}

// demanded tells whether a kind of server is, as in CI: where nobody sees what was skipped.
func demanded() bool { return os.Getenv("REDIS_KIND") != "" }

// patience is how many times as long as planned a machine that is slow is tried, where a
// skip would not be seen.
const patience = 3

// An outcome is what a test without a finding comes to.
type outcome int

const (
	passed outcome = iota
	skipped
	failed
)

// proof is the outcome of rounds in some of which the machine was too busy to prove
// anything. Where that is seen, half of them have to prove something; where not, one: what
// a round that was busy may have hidden, another has shown.
func proof(demanded bool, busy, rounds int) outcome {
	switch {
	case demanded && busy == rounds:
		return failed
	case !demanded && 2*busy > rounds:
		return skipped
	}
	return passed
}

// goOn tells whether a search that has found nothing yet goes on, and if not, its outcome.
func goOn(demanded bool, searched, slow time.Duration) (bool, outcome) {
	busy := slow > searched/10
	switch {
	case searched < searchLimit, demanded && busy && searched < patience*searchLimit:
		return true, 0
	case busy && !demanded:
		return false, skipped
	}
	return false, failed
}

// TestProof: nothing that was to be proven is skipped where nobody sees that it was.
func TestProof(t *testing.T) {
	for _, c := range []struct {
		demanded     bool
		busy, rounds int
		want         outcome
	}{
		{false, 0, 1, passed}, {false, 1, 1, skipped}, {false, 2, 4, passed}, {false, 3, 4, skipped},
		{true, 0, 1, passed}, {true, 1, 1, failed}, {true, 3, 4, passed}, {true, 4, 4, failed},
	} {
		if got := proof(c.demanded, c.busy, c.rounds); got != c.want {
			t.Errorf("proof(%v, %d, %d) = %d, want %d", c.demanded, c.busy, c.rounds, got, c.want)
		}
	}
	const s = time.Second
	for _, c := range []struct {
		demanded       bool
		searched, slow time.Duration
		on             bool
		want           outcome
	}{
		{false, 59 * s, 0, true, 0}, {false, 60 * s, 0, false, failed}, {false, 60 * s, 7 * s, false, skipped},
		{true, 59 * s, 0, true, 0}, {true, 60 * s, 0, false, failed}, {true, 60 * s, 7 * s, true, 0},
		{true, 179 * s, 18 * s, true, 0}, {true, 180 * s, 100 * s, false, failed},
	} {
		if on, got := goOn(c.demanded, c.searched, c.slow); on != c.on || got != c.want {
			t.Errorf("goOn(%v, %v, %v) = %v, %d, want %v, %d", c.demanded, c.searched, c.slow, on, got, c.on, c.want)
		}
	}
}

// enough is what even a machine that does much else at the same time comes to.
const enough = 50

// run is nemesis.Run, which must not come to grief itself.
func run(t *testing.T, r *rig.Rig, c nemesis.Config) *nemesis.Report {
	t.Helper()
	report, err := nemesis.Run(t.Context(), r, c)
	if err != nil {
		t.Fatalf("seed %d: %v", c.Seed, err)
	}
	return report
}

func tell(t *testing.T, report *nemesis.Report) {
	t.Helper()
	var b strings.Builder
	report.Write(&b)
	t.Log(b.String())
}

// keep puts the history, and a picture of it, where they outlive the test.
func keep(t *testing.T, report *nemesis.Report) {
	t.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("locks-nemesis-%s-%d-", report.Variant.Name, report.Seed))
	if err != nil {
		t.Error(err)
		return
	}
	for name, write := range map[string]func(io.Writer) error{
		"history.jsonl": func(w io.Writer) error { return history.Write(w, report.Ops) },
		"picture.html":  report.Picture,
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err == nil {
			err = errors.Join(write(f), f.Close())
		}
		if err != nil {
			t.Error(err)
			continue
		}
		t.Logf("see %s", f.Name())
	}
}

// idle are rigs that no test uses at the moment. They end with the farm.
var (
	idleMu sync.Mutex
	idle   = map[int][]*rig.Rig{}
)

// borrow lends a rig to a test: starting servers takes longer than resetting them.
func borrow(t *testing.T, servers int) *rig.Rig {
	t.Helper()
	idleMu.Lock()
	var r *rig.Rig
	if free := idle[servers]; len(free) > 0 {
		r, idle[servers] = free[0], free[1:]
	}
	idleMu.Unlock()
	if r == nil {
		var err error
		r, err = rig.Open(t.Context(), redistest.ForTests(t), servers, redistest.Config{})
		redistest.Skip(t, err, "what faults do to "+t.Name())
	}
	t.Cleanup(func() {
		idleMu.Lock()
		defer idleMu.Unlock()
		idle[servers] = append(idle[servers], r)
	})
	return r
}
