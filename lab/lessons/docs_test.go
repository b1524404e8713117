// Tests that docs/learn/evolution.md and docs/use/choosing.md name lessons that exist.
package lessons_test

import (
	"os"
	"regexp"
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

// TestLinks: each lesson names the rows of the articles that name it, and a file that is there.
func TestLinks(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/learn/articles.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lessons.All() {
		var rows []string
		for _, m := range regexp.MustCompile(`(?m)^\| (\d+\.\d+) \|.*$`).FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[0], "(evolution.md#"+strconv.Itoa(l.Number)+")") {
				rows = append(rows, m[1])
			}
		}
		if want := strings.Join(rows, ", "); l.Articles() != want {
			t.Errorf("lesson %d names the rows %q, want %q", l.Number, l.Articles(), want)
		}
		if f, err := os.Stat("../../" + l.Right()); err != nil || f.IsDir() {
			t.Errorf("lesson %d: there is no file %q: %v", l.Number, l.Right(), err)
		}
	}
}

// TestChoosingPage: each lesson that the page links exists, and is the one that the link leads to.
func TestChoosingPage(t *testing.T) {
	t.Parallel()
	links := regexp.MustCompile(`\[([^]]*)\]\(\.\./learn/evolution\.md#(\d+)\)`).FindAllStringSubmatch(page(t, "use/choosing.md"), -1)
	if len(links) < 12 {
		t.Errorf("the page links %d lessons, want 12 and more: the test has lost its sight", len(links))
	}
	for _, m := range links {
		l, err := lessons.Find(m[2])
		if err != nil {
			t.Errorf("%s: %v", m[0], err)
		} else if strings.ToLower(m[1]) != "lesson "+strconv.Itoa(l.Number) {
			t.Errorf("%s leads to lesson %d", m[0], l.Number)
		}
	}
}

// TestNumbers: a page that says how many lessons or faults there are is right.
func TestNumbers(t *testing.T) {
	t.Parallel()
	want := map[string]int{"lessons": len(lessons.All()), "faults": len(faults.All())}
	found := map[string]bool{}
	for _, name := range []string{"../README.md", "../CHANGELOG.md", "README.md", "learn/evolution.md", "learn/faults.md"} {
		for _, m := range regexp.MustCompile(`(\d+) (lessons|faults)\b`).FindAllStringSubmatch(page(t, name), -1) {
			found[m[2]] = true
			if m[1] != strconv.Itoa(want[m[2]]) {
				t.Errorf("%s says %s, want %d", name, m[0], want[m[2]])
			}
		}
	}
	if len(found) != len(want) {
		t.Errorf("pages give numbers of %v, want of lessons and of faults: the test has lost its sight", found)
	}
}
