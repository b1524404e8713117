// Every strategy is known to the suite, and its own test runs the suite.
package layout

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

// TestEveryStrategyIsJudged: a folder that nobody compares, or whose own test leaves
// the suite out, would be a strategy of which nothing is known.
func TestEveryStrategyIsJudged(t *testing.T) {
	all := strategies(packages(t, root))
	if len(all) == 0 {
		t.Fatal("no strategies were found")
	}
	listed := map[string]bool{}
	for _, v := range subjects.All() {
		listed[v.Package] = true
		if _, ok := all[v.Package]; !ok {
			t.Errorf("subjects.All() has %s of package %q, which is not there", v.Name, v.Package)
		}
	}
	for name, p := range all {
		if !listed[name] {
			t.Errorf("strategy %s is missing from subjects.All()", name)
		}
		sources, tests := texts(t, p.Dir, p.GoFiles), texts(t, p.Dir, slices.Concat(p.TestGoFiles, p.XTestGoFiles))
		for _, want := range []string{"New", "On"} {
			if !strings.Contains(sources, "\nfunc "+want+"(") {
				t.Errorf("strategy %s has no func %s", name, want)
			}
		}
		runsSuite := regexp.MustCompile(`\nfunc TestConformance\(t \*testing\.T\) \{[^}]*\bsubjects\.Run\(t, "` + name + `"`)
		if !runsSuite.MatchString(tests) {
			t.Errorf("strategy %s has no test that is func TestConformance(t *testing.T) { subjects.Run(t, %q) }", name, name)
		}
	}
}

// texts are the files of a folder, one after the other.
func texts(t *testing.T, dir string, files []string) (all string) {
	t.Helper()
	for _, name := range files {
		all += read(t, filepath.Join(dir, name))
	}
	return all
}
