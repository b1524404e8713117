// Each fault alone: what contenders get meanwhile, for the table in docs/use/stores.md.
package stores

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/nemesis"
)

// TestFaultsAlone: whatever breaks, nobody gets a lock that another holds; and the page names all faults.
func TestFaultsAlone(t *testing.T) {
	page, err := os.ReadFile("../../docs/use/stores.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stores {
		for _, fault := range s.Faults {
			if !strings.Contains(string(page), "\n| "+fault+" |") {
				t.Errorf("docs/use/stores.md has no row of %q", fault)
			}
		}
	}
	if *forFlag == 0 {
		t.Skip("without -for, TestNemesis plays all faults at once")
	}
	for _, s := range stores {
		t.Run(s.Variant.Name, func(t *testing.T) {
			t.Parallel()
			g := s.ground(t)
			for _, fault := range s.Faults {
				c := s.Config
				c.Seed, c.Faults = max(*seedFlag, 1), []string{fault}
				c.For = 12*time.Second + max(c.Calm, nemesis.Calm)
				r, err := nemesis.Run(t.Context(), g, c)
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range r.Found {
					t.Errorf("%s: %v", fault, v)
				}
				t.Logf("| %s | %s |", fault, meanwhile(r.Ops))
			}
		})
	}
}

// meanwhile says how many locks were granted while something was broken, of 100 that are while nothing is.
func meanwhile(ops []history.Op) string {
	var faults []history.Op
	var end time.Duration
	for _, op := range ops {
		if op.Kind == history.KindFault && op.Value != nemesis.Slow {
			faults = append(faults, op)
		}
		end = max(end, op.Start) // one that was killed never ends
	}
	broken := func(at time.Duration) bool {
		return slices.ContainsFunc(faults, func(f history.Op) bool { return f.Start <= at && at < f.End })
	}
	var granted, passed [2]float64 // while nothing is broken, while something is
	const step = time.Millisecond
	which := func(at time.Duration) int {
		if broken(at) {
			return 1
		}
		return 0
	}
	for at := time.Duration(0); at < end; at += step {
		passed[which(at)]++
	}
	for _, op := range ops {
		if op.Kind == history.KindAcquire && op.Result == history.OK {
			granted[which(op.End)]++
		}
	}
	if passed[1] < 500 || granted[0] == 0 { // half a second
		return "it is over at once"
	}
	return fmt.Sprintf("%.0f %%", 100*granted[1]/passed[1]*passed[0]/granted[0])
}
