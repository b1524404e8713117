// The plays of the matrix on real servers: each cell has the verdict that the table says, and each
// verdict that a lock keeps has a planted mistake that the same play convicts. Without -all a few
// decisive cells are played; "make faults" plays all.
package faults

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	steered "github.com/lockstrategies/locks/lab/contender"
)

// atOnce is how many plays go on at a time: most of their time they wait.
const atOnce = 10

func TestMain(m *testing.M) {
	if steered.Child(Players()...) {
		return
	}
	flag.Parse()
	flag.Set("test.parallel", fmt.Sprint(atOnce))
	redistest.Main(m)
}

var whole = flag.Bool("all", false, "play every row on every strategy and variant, not only a few decisive cells")

// What is played without -all: one strategy on one server and one on five, and a row for each way
// in which a holder, a server or a network fails them. Each row lasts about a second.
var (
	briefColumns = []string{"fairqueue", "redlock"}
	briefRows    = []string{
		"FLUSHALL",
		"restart, append-only file",
		"acquire: request lost",
		"acquire: reply late",
		"release: reply lost, and repeated when another holds it",
		"holder paused, and the store looks at fences",
		"waiter gives up",
	}
)

// plays reports whether a cell is played in this run.
func plays(f Fault, c Column) bool {
	return *whole || slices.Contains(briefColumns, c.Name) && slices.Contains(briefRows, f.Name)
}

func TestPlays(t *testing.T) {
	theatre := open(t)
	t.Run("Cells", func(t *testing.T) { cells(t, theatre) })
	t.Run("Turned", func(t *testing.T) { turned(t, theatre) })
	t.Run("Harmless", func(t *testing.T) { harmless(t, theatre) })
}

// each plays the cells of this run, some of them, next to each other.
func each(t *testing.T, theatre *Theatre, some func(f Fault, c Column) bool, play func(t *testing.T, f Fault, c Column)) {
	for _, f := range All() {
		for _, c := range Columns() {
			if plays(f, c) && some(f, c) {
				t.Run(f.Name+"/"+c.Name, func(t *testing.T) {
					t.Parallel()
					ready(t, theatre, f, c)
					play(t, f, c)
				})
			}
		}
	}
}

// cells plays rows on columns, and holds each to the verdict in its cell. A variant without a
// cell of its own is held to its strategy's.
func cells(t *testing.T, theatre *Theatre) {
	played := func(f Fault, c Column) bool { want, _ := f.Cell(c); return !want.Derived }
	each(t, theatre, played, func(t *testing.T, f Fault, c Column) {
		want, _ := f.Cell(c)
		out := theatre.See(t.Context(), f, c, want.Verdict)
		for _, before := range out.Before {
			t.Logf("it was first: %s", before)
		}
		if out.Err != nil || out.Verdict != want.Verdict {
			t.Errorf("%v, want %v: %s\n%v", out, want.Verdict, want.Reason, out.History())
		} else {
			t.Logf("%v\n%v", out, out.History())
		}
	})
}

// turned: each cell that is kept would not be by a lock that makes one of the mistakes
// that its row names, and one that is detected would be violated. So the play can fail.
func turned(t *testing.T, theatre *Theatre) {
	convicted := func(f Fault, c Column) bool {
		cell := f.Cells[c.Name]
		return !cell.Derived && (cell.Verdict == Kept || cell.Verdict == Detected && len(f.Turned) > 0 && f.Cells[c.Of].Verdict != Kept)
	}
	each(t, theatre, convicted, func(t *testing.T, f Fault, c Column) {
		by, out, acquitted := theatre.Convict(t.Context(), f, c, f.Cells[c.Name].Verdict)
		if by == nil {
			t.Fatalf("no mistake is convicted:\n%s", strings.Join(acquitted, "\n"))
		}
		t.Logf("a lock that %s: %v\n%v", by.Name, out, out.History())
	})
}

// harmless: a mistake that convicts a lock in a play does it no harm where nothing
// breaks. So it was the fault that was convicted. Where no lock can make anything worse,
// the play has only a blunt mistake to show that it looks at all.
func harmless(t *testing.T, theatre *Theatre) {
	quiet := Fault{Name: "nothing breaks", play: func(s *Stage) {
		a := s.holder("A")
		a.insist()
		s.follow(a)
	}}
	seen := map[string]bool{}
	for _, f := range All() {
		for _, c := range Columns() {
			for _, sloppy := range f.Turned {
				name, calm := sloppy.Name+"/"+c.Name, quiet
				if f.calm != nil {
					name, calm.play = f.Name+"/"+name, f.calm
				}
				if cell, told := f.Cells[c.Name]; !plays(f, c) || !told || cell.Derived || seen[name] || sloppy.blunt {
					continue
				}
				seen[name] = true
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ready(t, theatre, f, c)
					out := theatre.until(t.Context(), calm, c, &sloppy, func(out Outcome) bool { return out.Err == nil && out.Verdict == Kept })
					if out.Err != nil || out.Verdict != Kept {
						t.Errorf("%v, want %v\n%v", out, Kept, out.History())
					}
				})
			}
		}
	}
}

// TestTable: the table is complete, and tells each thing once.
func TestTable(t *testing.T) {
	columns, faults := Columns(), All()
	for _, name := range briefColumns {
		if !slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name }) {
			t.Errorf("make test plays on %q: there is no such column", name)
		}
	}
	for _, name := range briefRows {
		if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Name == name }) {
			t.Errorf("make test plays %q: there is no such row", name)
		}
	}
	if len(faults) < 30 {
		t.Errorf("%d rows, want 30 or more", len(faults))
	}
	seen := map[string]bool{}
	for _, f := range faults {
		if seen[f.Name] {
			t.Errorf("two rows are called %q", f.Name)
		}
		seen[f.Name] = true
		if f.Story == "" || (f.play == nil) == (f.held == nil) {
			t.Errorf("%s: no story, or no play", f.Name)
		}
		if kept := !slices.ContainsFunc(Strategies(), func(c Column) bool { return f.Cells[c.Name].Verdict != Kept }); kept != (f.Prevent == "") {
			t.Errorf("%s: kept through by all: %v; to prevent it: %q, want the opposite", f.Name, kept, f.Prevent)
		}
		for name := range f.Cells {
			if !slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name }) {
				t.Errorf("%s: a cell for %q: there is no such column", f.Name, name)
			}
		}
		for _, c := range columns {
			cell, told := f.Cells[c.Name]
			switch of, differs := f.Cells[c.Of]; {
			case !told && c.Of == "":
				t.Errorf("%s: no cell for %s", f.Name, c.Name)
			case told && (cell.Reason == "" || cell.Verdict < Kept || cell.Verdict > Violated):
				t.Errorf("%s: %s has no verdict, or no reason", f.Name, c.Name)
			case told && differs && cell == of:
				t.Errorf("%s: the page has %s, though it does not differ from %s", f.Name, c.Name, c.Of)
			}
			if cell.Verdict == Kept && !cell.Derived && len(f.Turned) == 0 {
				t.Errorf("%s: %s keeps it, and no mistake is named that would not", f.Name, c.Name)
			}
		}
	}
}

// TestDoc holds docs/learn/faults.md to the table.
func TestDoc(t *testing.T) {
	const name = "../../docs/learn/faults.md"
	want := Markdown()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("docs/learn/faults.md is not what the table says (%v). Write it again: go test -C lab ./faults -run TestDoc -update", err)
	}
}

var update = flag.Bool("update", false, "write docs/learn/faults.md again")

func open(t *testing.T) *Theatre {
	t.Helper()
	theatre := Open(redistest.ForTests(t))
	t.Cleanup(func() {
		if err := theatre.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := theatre.rigs.Borrow(t.Context(), theatre.farm, 1)
	redistest.Skip(t, err, "what locks do when things break")
	if err := theatre.rigs.GiveBack(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return theatre
}

// ready skips a test whose servers are not available next to the others.
func ready(t *testing.T, theatre *Theatre, f Fault, c Column) {
	t.Helper()
	redistest.Skip(t, theatre.Ready(t.Context(), f, c), "what "+c.Name+" does when things break")
}
