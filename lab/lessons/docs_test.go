// Tests that docs/learn/evolution.md and docs/use/choosing.md name the lessons that exist, and the verdicts of the matrix.
package lessons_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
)

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), " ") // a phrase may go on in the next line
}

// TestEvolutionPage: the page tells every lesson, in order, each with its command.
func TestEvolutionPage(t *testing.T) {
	t.Parallel()
	text := page(t, "learn/evolution.md")
	last := -1
	for _, l := range lessons.All() {
		n := strconv.Itoa(l.Number)
		at, command := strings.Index(text, `<a id="`+n+`"></a>**`+n+`. `), strings.Index(text, "`lab lesson "+n+"`")
		if at <= last || command < at {
			t.Errorf("lesson %d, %q, is not in its place, with its command", l.Number, l.Name)
		}
		last = command
	}
	for _, m := range regexp.MustCompile(`lab lesson (\d+)`).FindAllStringSubmatch(text, -1) {
		if _, err := lessons.Find(m[1]); err != nil {
			t.Error(err)
		}
	}
}

// TestChoosingPage: each branch's lesson exists, and each verdict on a fault is the matrix's.
func TestChoosingPage(t *testing.T) {
	t.Parallel()
	text := page(t, "use/choosing.md")
	named := regexp.MustCompile(`\[[Ll]esson (\d+)\]\(\.\./learn/evolution\.md#(\d+)\)`).FindAllStringSubmatch(text, -1)
	for _, m := range named {
		if _, err := lessons.Find(m[1]); err != nil || m[1] != m[2] {
			t.Errorf("%s: there is no such lesson, or it leads to another (%v)", m[0], err)
		}
	}
	verdicts := regexp.MustCompile(`fault "([^"]+)": ((?:[✓○◐✗] [a-z-]+(?:, )?)+)`).FindAllStringSubmatch(text, -1)
	said := 0
	for _, m := range verdicts {
		i := slices.IndexFunc(faults.All(), func(f faults.Fault) bool { return f.Name == m[1] })
		if i < 0 {
			t.Errorf("the matrix has no row %q", m[1])
			continue
		}
		for _, s := range strings.Split(strings.TrimSuffix(m[2], ", "), ", ") {
			mark, name, _ := strings.Cut(s, " ")
			c := slices.IndexFunc(faults.Columns(), func(c faults.Column) bool { return c.Name == name })
			if c < 0 {
				t.Errorf("%q: there is no %q", m[0], name)
				continue
			}
			if cell, _ := faults.All()[i].Cell(faults.Columns()[c]); cell.Verdict.Mark() != mark {
				t.Errorf("%q: the matrix says %s %s", m[0], cell.Verdict.Mark(), name)
			}
			said++
		}
	}
	if all := strings.Count(text, `fault "`); len(named) < 12 || said < 20 || len(verdicts) != all {
		t.Errorf("%d lessons and %d verdicts are held to what they say, and %d of %d faults: the test has lost its sight", len(named), said, len(verdicts), all)
	}
}
