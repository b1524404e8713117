// Strategies under random faults on real servers: they keep what they promise. "make test" plays two strategies for seconds,
// with one seed; "make soak" plays all of them. Simulations show that they do not survive the rest, see lab/simulate.
package nemesis_test

import (
	"context"
	"flag"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/contender"
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
			c.Seed = seed
			nemesis.Soak(t, nemesis.OnRig(borrow(t, c.Variant)), c, total, "go test -C lab ./nemesis")
		})
	}
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
