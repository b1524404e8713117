package goredis

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/internal/faults"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/rig"
	"github.com/lockstrategies/locks/strategy"
)

var whole = flag.Bool("all", false, "play all rows of docs/faults.md, not only some")

// dial makes a contender's node: its network is the link.
func dial(l *rig.Link) (strategy.Node, error) {
	o, err := redis.ParseURL(l.URL())
	if err != nil {
		return nil, err
	}
	o.ContextTimeoutEnabled = true
	return owned(redis.NewClient(o))
}

// some are rows in which the client is what matters: answers are lost, late or refused, and
// connections end.
var some = []string{
	"restart, append-only file",
	"server frozen past the TTL",
	"thaw with a request in the socket",
	"SCRIPT FLUSH",
	"acquire: reply lost",
	"acquire: request late",
	"acquire: reply late",
	"release: reply lost, and repeated when another holds it",
	"half-open connection",
	"connections reset",
	"server hears, and cannot answer",
	"acquire cancelled",
}

// elsewhere are the verdicts that are not the matrix': by row and column.
var elsewhere = map[string]map[string]faults.Verdict{
	// Before A's first request go the round trips of a greeting. So of five extensions that
	// cannot get through, the last ends when the lease has lapsed, and not just before.
	"slow network": {"setnxgetset-watch": faults.Detected},
}

// TestFaults plays rows of docs/faults.md with contenders on go-redis, and holds them to the
// verdicts there, but for those elsewhere.
func TestFaults(t *testing.T) {
	for _, name := range some {
		if !slices.ContainsFunc(faults.All(), func(f faults.Fault) bool { return f.Name == name }) {
			t.Errorf("no row is called %q", name)
		}
	}
	theatre := faults.Open(redistest.ForTests(t))
	theatre.Dial = dial
	t.Cleanup(func() {
		if err := theatre.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range faults.All() {
		if strings.HasPrefix(f.Name, "holder paused") || f.Name == "pool exhausted" { // on another client
			continue
		}
		if !*whole && !slices.Contains(some, f.Name) {
			continue
		}
		for _, c := range faults.Columns() {
			cell, told := f.Cell(c)
			if cell.Derived || !told || !*whole && c.Of != "" {
				continue
			}
			want, other := elsewhere[f.Name][c.Name]
			if !other {
				want = cell.Verdict
			}
			t.Run(f.Name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				redistest.Skip(t, theatre.Ready(t.Context(), f, c), "what becomes of "+c.Name+" in this row")
				if out := theatre.See(t.Context(), f, c, want); out.Err != nil || out.Verdict != want {
					t.Errorf("%v, want %v: %s\n%v", out, want, cell.Reason, out.History)
				} else {
					t.Logf("%v\n%v", out, out.History)
				}
			})
		}
	}
}
