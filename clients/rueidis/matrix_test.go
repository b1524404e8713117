package rueidisnode

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/internal/faults"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/rig"
	"github.com/lockstrategies/locks/strategy"
)

var whole = flag.Bool("all", false, "play all rows of docs/faults.md, not only some")

// rows are those in which it is the client that matters: answers are lost, late or refused, and
// connections end.
var rows = []string{
	"restart, append-only file",
	"server frozen for a moment",
	"server frozen past the TTL",
	"thaw with a request in the socket",
	"SCRIPT FLUSH",
	"primary turned into a replica",
	"acquire: request lost",
	"acquire: reply lost",
	"acquire: request late",
	"acquire: reply late",
	"extend: reply lost",
	"release: reply lost, and repeated when another holds it",
	"half-open connection",
	"connections reset",
	"CLIENT KILL, again and again",
	"acquire cancelled",
}

// orderless are those that turn on the order: without it an acquire may come after its undo.
var orderless = []string{
	"thaw with a request in the socket",
	"acquire: reply lost",
	"acquire: request late",
	"half-open connection",
	"acquire cancelled",
}

// owning is a node that closes its client.
type owning struct {
	*Node
	client rueidis.Client
}

func (o owning) Close() error {
	err := o.Node.Close()
	o.client.Close()
	return err
}

// dial makes a contender's node: its network is the link.
func dial(l *rig.Link) (strategy.Node, error) {
	o, err := rueidis.ParseURL(l.URL())
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(small(o))
	if client == nil {
		return nil, err
	}
	n, err := New(client)
	if err != nil {
		return nil, err
	}
	return owning{n, client}, nil
}

// dialOrderless makes one whose server forbids what order needs.
func dialOrderless(l *rig.Link) (strategy.Node, error) {
	n, err := dial(l)
	if err == nil {
		n.(owning).unordered.Store(true)
	}
	return n, err
}

// TestFaults plays rows of docs/faults.md with contenders on rueidis, and holds them to the
// verdicts there; with -all every row and every variant.
func TestFaults(t *testing.T) { play(t, dial, rows, *whole) }

// TestFaultsWithoutOrder says what the missing order costs: none of the verdicts.
func TestFaultsWithoutOrder(t *testing.T) { play(t, dialOrderless, orderless, false) }

// play plays rows on the strategies, or all rows on all variants.
func play(t *testing.T, dial func(*rig.Link) (strategy.Node, error), rows []string, all bool) {
	for _, name := range rows {
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
		if strings.HasPrefix(f.Name, "holder paused") || f.Name == "pool exhausted" {
			continue // in a process of its own, on redigo; of redigo's pool
		}
		if !all && !slices.Contains(rows, f.Name) {
			continue
		}
		for _, c := range faults.Columns() {
			cell, told := f.Cell(c)
			if cell.Derived || !told || !all && c.Of != "" {
				continue
			}
			t.Run(f.Name+"/"+c.Name, func(t *testing.T) {
				t.Parallel()
				redistest.Skip(t, theatre.Ready(t.Context(), f, c), "what becomes of "+c.Name+" in this row")
				out := theatre.See(t.Context(), f, c, cell.Verdict)
				if errors.Is(out.Err, redistest.ErrImpossible) {
					redistest.Skip(t, out.Err, "what becomes of "+c.Name+" in this row")
				}
				if out.Err != nil || out.Verdict != cell.Verdict {
					t.Errorf("%v, want %v: %s\n%v", out, cell.Verdict, cell.Reason, out.History)
				}
			})
		}
	}
}
