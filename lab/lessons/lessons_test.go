package lessons

// Tests what the lessons come to when nobody watches their steps, and what each has to show.

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/flashsale"
)

func TestMain(m *testing.M) {
	if flashsale.Child(subjects.All()...) { // this binary is one of the processes of a sale
		return
	}
	redistest.Main(m)
}

// shown are the verdicts that the acts of each lesson come to, in order: what is computed
// from the servers and the history is held here, and nowhere else.
var shown = map[string][]string{}

// TestPace gives a lesson whose steps nobody watches, as a report does: it comes to what it comes to
// step by step. TestSteps gives the others.
func TestPace(t *testing.T) {
	sc := Open(redistest.ForTests(t))
	t.Cleanup(func() { sc.Close() })
	for _, name := range []string{"compare-delete", "herd", "permits"} { // one without and one with a timed act; and one where one hold of several ends
		t.Run(name, func(t *testing.T) {
			l, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := sc.Perform(t.Context(), l)
			if err != nil {
				redistest.Skip(t, err, "what the lesson shows")
			}
			holds(t, l, r)
		})
	}
}

// holds compares the verdicts of a lesson with what it has to show.
func holds(t *testing.T, l Lesson, r Result) {
	t.Helper()
	var got []string
	for _, a := range r.Acts {
		var verdicts []string
		for _, v := range a.Verdicts {
			verdicts = append(verdicts, v.Promise+": "+v.String())
		}
		slices.Sort(verdicts)
		got = append(got, strings.Join(verdicts, "; "))
		for _, x := range a.Listings {
			for line := range strings.Lines(x.Source) {
				if n := len(strings.TrimSuffix(line, "\n")); n > 76 { // and four before it
					t.Errorf("%s: a line has %d columns: %s", x.Name, n, line)
				}
			}
		}
		if os.Getenv("LESSONS_SHOW") != "" {
			t.Log("\n"+a.Title+"\n"+a.Diagram(100, func(_ Style, s string) string { return s })+"\n"+a.Summary(), a.Tables)
		}
	}
	want := slices.Clone(shown[l.Name])
	for i := range want {
		parts := strings.Split(want[i], "; ")
		slices.Sort(parts)
		want[i] = strings.Join(parts, "; ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("the acts come to\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
