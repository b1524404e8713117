// Every strategy is known to the suite, and its own test runs the suite.
package layout

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

// TestEveryStrategyIsJudged: a folder that nobody compares, or whose own test leaves
// the suite out, would be a strategy of which nothing is known.
func TestEveryStrategyIsJudged(t *testing.T) {
	all := strategies(t)
	listed := map[string]bool{}
	for _, v := range subjects.All() {
		listed[v.Package] = true
		if all[v.Package] == nil {
			t.Errorf("subjects.All() has %s of package %q, which is not there", v.Name, v.Package)
		}
	}
	for name, files := range all {
		if !listed[name] {
			t.Errorf("strategy %s is missing from subjects.All()", name)
		}
		text := ""
		for _, f := range files {
			text += read(t, filepath.Join(root, f.path))
		}
		for _, want := range []string{`New\(`, `On\(`, `TestConformance\(t \*testing\.T\) \{[^}]*\bsubjects\.Run\(t, "` + name + `"`} {
			if !regexp.MustCompile(`\nfunc ` + want).MatchString(text) {
				t.Errorf("strategy %s has no func %s", name, want)
			}
		}
	}
}
