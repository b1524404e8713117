// The module's strategies in simulations, which break all that they claim to survive.
package simulate_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/ledger"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/nemesis"
	"github.com/lockstrategies/locks/lab/simulate"
)

var (
	allFlag   = flag.Bool("all", false, "all strategies and all planted mistakes, not only a few")
	slipsFlag = flag.Bool("slips", false, "plays slips in the sources, too: see TestSlips")
	forFlag   = flag.Duration("for", 0, "for how long simulations are played, of all strategies, one seed after the other; 0: one round of each")
	mostFlag  = flag.Int("rounds", 0, "how many rounds are played; 0: one of each strategy, and with -for as many as fit in")
	seedFlag  = flag.Uint64("seed", 0, "the first seed; 0: with -for the time of day, else 1")
	nearFlag  = flag.Duration("shrink", time.Minute, "for how long faults are looked for that a failure does not need")
	onlyFlag  = flag.String("only", "", "the one strategy that is played; empty: all")
)

// round makes a round of a seed. One of -for is longer, so that more happens between the start and the calm. Of four seeds two
// have a TTL of 10 s, as users have, and all takes ten times as long; and in two few stay long, so that a lock goes from hand to hand.
func round(c nemesis.Config, seed uint64) nemesis.Config {
	c.Seed, c.For, c.Calm, c.Think = seed, 8*time.Second, nemesis.Calm, 3*time.Millisecond
	if *forFlag > 0 {
		c.For = 25 * time.Second
	}
	if c.Variant.Servers > 1 {
		c.Think = slower // each acquisition takes that much more to simulate
	}
	if seed/2%2 == 1 {
		c.TTL, c.For, c.Calm, c.Think = 10*time.Second, 10*c.For, 4*c.Calm, 10*c.Think
	}
	if seed%2 == 0 {
		c.Overstay = 1200
	}
	c.For += c.Calm
	return c
}

// slower is how long locks on several servers are held.
const slower = 10 * time.Millisecond

// few are what is played without -all: a lock on one server, and one on three.
var few = []string{"fairqueue", "redlock-3"}

// play plays a round, and judges it by the history and by the events. left is what is left with the servers.
func play(t *testing.T, c nemesis.Config) (r *nemesis.Report, left []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var events ledger.Ledger
		g := &simulate.Ground{Observe: events.Observe}
		var err error
		r, err = nemesis.Run(t.Context(), g, c)
		left = g.Left
		if err != nil {
			t.Fatalf("%s, seed %d: %v", c.Variant.Name, c.Seed, err)
		}
		r.Found = append(r.Found, g.Late...)
		if err := events.Err(); err != nil {
			t.Errorf("%s, seed %d: events: %v", c.Variant.Name, c.Seed, err)
		}
		if n := events.Held() + events.Asking(); n != 0 {
			t.Errorf("%s, seed %d: by the events %d calls and leases have not ended", c.Variant.Name, c.Seed, n)
		}
	})
	return r, left
}

// A tally is what all rounds came to.
type tally struct {
	mu       sync.Mutex
	rounds   int
	acquired int
	faults   map[string]int
	virtual  time.Duration
	declared map[string]int
}

func (t *tally) add(r *nemesis.Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds++
	t.acquired += r.Acquired()
	t.virtual += r.For
	for _, op := range r.Ops {
		if op.Kind == history.KindFault {
			t.faults[op.Value]++
		}
	}
	for why, n := range r.Declared {
		t.declared[r.Variant.Name+": "+why] += n
	}
}

func (t *tally) String() string {
	all := 0
	for _, n := range t.faults {
		all += n
	}
	said := fmt.Sprintf("%d rounds, %d acquisitions, %d faults, in a virtual time of %v", t.rounds, t.acquired, all, t.virtual)
	for _, counts := range []map[string]int{t.faults, t.declared} {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			said += fmt.Sprintf("\n%8d  %s", counts[what], what)
		}
	}
	return said
}

// TestSimulate: whatever breaks of what a strategy claims to survive, it does nothing that it is not known for. In all rounds
// together each kind of fault strikes.
func TestSimulate(t *testing.T) {
	var all []nemesis.Config
	for _, c := range nemesis.Strategies() {
		if _, blind := c.Variant.Except["ReleaseOnlyOwn"]; blind {
			continue // it survives no lease that is late
		}
		c.Faults, c.Dense = nemesis.Simulated(c.Variant), 2
		all = append(all, c)
	}
	all = slices.DeleteFunc(all, func(c nemesis.Config) bool {
		switch name := c.Variant.Name; {
		case *onlyFlag != "":
			return name != *onlyFlag
		case *allFlag || *forFlag > 0:
			return false
		default:
			return !slices.Contains(few, name)
		}
	})
	if len(all) == 0 {
		t.Fatalf("-only %s: there is no such strategy", *onlyFlag)
	}
	seed := *seedFlag
	if seed == 0 {
		seed = 1
		if *forFlag > 0 {
			seed = uint64(time.Now().UnixNano())
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // each script makes a Lua
	began, sum := time.Now(), tally{faults: map[string]int{}, declared: map[string]int{}}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				over := n >= len(all) && time.Since(began) > *forFlag
				if *mostFlag > 0 {
					over = n >= *mostFlag
				}
				if over || t.Failed() {
					return
				}
				c := round(all[n%len(all)], seed+uint64(n)) // or the same would break in all strategies
				t.Run(fmt.Sprintf("%s/%d", c.Variant.Name, c.Seed), func(t *testing.T) { sum.add(judged(t, c)) })
			}
		})
	}
	workers.Wait()
	t.Log(&sum)
	if t.Failed() || sum.rounds < 10 {
		return
	}
	for _, c := range all {
		for _, f := range c.Faults {
			if sum.faults[f] == 0 {
				t.Errorf("%s never struck", f)
			}
		}
	}
}

// judged is play, of a round in which nothing may be found. After a violation it looks for faults that can be left out.
func judged(t *testing.T, c nemesis.Config) *nemesis.Report {
	r, left := play(t, c)
	if len(left) > 0 {
		t.Errorf("%s, seed %d: left behind: %q", c.Variant.Name, c.Seed, left)
	}
	if len(r.Found) == 0 {
		return r
	}
	t.Errorf("%v\nfor the same faults again: go test -C lab ./simulate -run '^TestSimulate$' -only %s -seed %d", r, c.Variant.Name, c.Seed)
	property, patience := r.Found[0].Property, time.Now().Add(*nearFlag)
	plan, err := nemesis.Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	c.Plan = nemesis.Shrink(plan, func(less []nemesis.Track) bool {
		c.Plan = less
		for range 3 { // a seed does not decide everything
			if time.Now().After(patience) {
				return false
			}
			if again, _ := play(t, c); violates(again, property) {
				r = again
				return true
			}
		}
		return false
	})
	var needed []string
	for _, track := range c.Plan {
		for _, s := range track {
			needed = append(needed, s.String())
		}
	}
	t.Logf("of the faults these are enough: %s", cmp.Or(strings.Join(needed, "; "), "none"))
	keep(t, r)
	return r
}

func violates(r *nemesis.Report, property string) bool {
	return slices.ContainsFunc(r.Found, func(v history.Violation) bool { return v.Property == property })
}

// keep puts a picture of what was found where it outlives the test.
func keep(t *testing.T, r *nemesis.Report) {
	t.Helper()
	file := filepath.Join(os.TempDir(), fmt.Sprintf("locks-simulate-%s-%d.txt", r.Variant.Name, r.Seed))
	if err := os.WriteFile(file, []byte(r.Picture()), 0o644); err != nil {
		t.Error(err)
	}
	t.Logf("see %s", file)
}
