// Tests that each exercise has one mistake, which the suite convicts by the property that it is about, and that its
// solution passes all that is played.
package exercises

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/lab/lessons"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// judged is a verdict that a slow machine has not left open.
func judged(t *testing.T, e Exercise, l quorum) Judgement {
	t.Helper()
	v, err := e.judge(t.Context(), redistest.ForTests(t), l)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.Results {
		switch {
		case r.Status == conformance.Skipped && strings.HasPrefix(r.Reason, "INCONCLUSIVE"):
			t.Skipf("NOT PROVEN: exercise %d: %s: %s", e.Number, r.Property.Name, r.Reason)
		case r.Status == conformance.Skipped:
			t.Errorf("%s was not played: %s", r.Property.Name, r.Reason)
		}
	}
	return v
}

func TestExercises(t *testing.T) {
	for _, e := range All() {
		t.Run(fmt.Sprint(e.Number), func(t *testing.T) {
			t.Parallel()
			v := judged(t, e, e.lock)
			var broken []string
			for _, r := range v.Results {
				if r.Status == conformance.Broken {
					broken = append(broken, r.Property.Name)
				}
			}
			if !slices.Equal(broken, e.breaks) {
				t.Errorf("the mistake breaks %q, want %q\n%v", broken, e.breaks, v.Results)
			}
			plain := func(_ diagram.Style, s string) string { return s }
			if v.Solved() || !strings.Contains(v.Broken.Diagram(200, plain), "✗ VIOLATED: "+e.breaks[0]+": ") {
				t.Errorf("solved: %v, and the diagram does not end with %s: %+v", v.Solved(), e.breaks[0], v.Broken)
			}
			if e.reentry && v.Broken != nil && v.Broken.Events[0].Text != "A and B have one owner" {
				t.Errorf("it does not say who has one owner: %+v", v.Broken.Events)
			}
			v = judged(t, e, e.solution)
			if !v.Solved() || v.Broken != nil {
				t.Errorf("the solution: %v", v.Results)
			}
			if len(v.Results) != len(e.plays) {
				t.Errorf("of %q the suite knows %d", e.plays, len(v.Results))
			}
		})
	}
}

// TestAdvice: a half fix gets the hint and the lesson of the exercise whose mistake it is.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		exercise int
		broken   string
		advice   int
	}{{1, "Expires", 1}, {1, "NoDeadlock", 2}, {4, "ReleaseOnlyOwn", 4}, {4, "ReleaseAtomic", 6}} {
		want := All()[row.advice-1]
		hint, lesson := All()[row.exercise-1].Advice(Judgement{Broken: &lessons.Trace{Title: row.broken}})
		if hint != want.Hint || lesson != want.Lesson || !slices.Contains(want.breaks[:1], row.broken) {
			t.Errorf("exercise %d breaks %s: lesson %d, %q", row.exercise, row.broken, lesson, hint)
		}
	}
}

// TestPage: docs/learn/exercises.md has a row for each exercise, with its lesson and the promise that is broken.
func TestPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/learn/exercises.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range All() {
		row := fmt.Sprintf(`(?m)^\| %d\. %s \| \[lesson %[3]d\]\(evolution\.md#%[3]d\) \| .* \| `+"`%[4]s`"+` \|$`, e.Number, regexp.QuoteMeta(e.Title), e.Lesson, e.breaks[0])
		if !regexp.MustCompile(row).Match(page) {
			t.Errorf("docs/learn/exercises.md has no row %s", row)
		}
		for _, file := range []string{e.File, e.Right} {
			if _, err := os.Stat("../../" + file); err != nil {
				t.Error(err)
			}
		}
	}
}
