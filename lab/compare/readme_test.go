// The table of guarantees in docs/use/guarantees.md is what is seen, and the README shows some of its cells.
package compare

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

var update = flag.Bool("update", false, "write the guarantees of docs/use/guarantees.md again")

// TestGuarantees compares the table of docs/use/guarantees.md with what is seen. It is left to "make
// more": each strategy's own suite is held to what it is known for.
func TestGuarantees(t *testing.T) {
	c := Config{Servers: exclusive(t, subjects.Most(subjects.Compared())), Kind: redistest.Docker, Variants: subjects.Compared()}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	const name, begin, end = "../../docs/use/guarantees.md", "<!-- guarantees -->\n", "<!-- /guarantees -->"
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q around its guarantees", name, begin, end)
	}
	want := Markdown(r.Strategies)
	if *update {
		if err := os.WriteFile(name, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("docs/use/guarantees.md has\n%s\nwant what was seen:\n%s\nWrite it again: go test -C lab ./compare -run TestGuarantees -update", table, want)
	}
}

// TestReadmeGuarantees: each cell of the README's short table is one of docs/use/guarantees.md.
func TestReadmeGuarantees(t *testing.T) {
	all, some := cells(t, "../../docs/use/guarantees.md"), cells(t, "../../README.md")
	if len(some) < 8 {
		t.Fatalf("the README shows %d guarantees, want 8 or more", len(some))
	}
	for title, row := range some {
		for strategy, mark := range row {
			if want := all[title][strategy]; mark != want {
				t.Errorf("README: %s, %s: %q, want %q as in docs/use/guarantees.md", title, strategy, mark, want)
			}
		}
	}
}

// cells reads the table of guarantees in a page: by title and strategy.
func cells(t *testing.T, name string) map[string]map[string]string {
	t.Helper()
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "| | setnxgetset")
	table, _, ok2 := strings.Cut(rest, "\n\n")
	if !ok || !ok2 {
		t.Fatalf("%s has no table of guarantees", name)
	}
	lines := strings.Split("| | setnxgetset"+table, "\n")
	head := strings.Split(lines[0], " | ")[1:]
	rows := map[string]map[string]string{}
	for _, line := range lines[2:] {
		title, marks, ok := strings.Cut(strings.Trim(line, "| "), " | ")
		if !ok {
			continue // the end of the table
		}
		rows[title] = map[string]string{}
		for i, mark := range strings.Split(marks, " | ") {
			rows[title][strings.Trim(head[i], "| ")] = mark
		}
	}
	return rows
}
