// The lines that articles on locks get wrong, each convicted by the suite; the right ones pass the same
// trials. docs/learn/sources.md has them in a table. Time is fake.
package sources

import (
	"os"
	"regexp"
	"testing"
	"testing/synctest"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// judge holds a trial of one property.
func judge(t *testing.T, property string, l lines) (result conformance.Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := &redis{values: map[string]string{}}
		gated := func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return engine.New(stampLock{redis: server, lines: l, gate: g}, o)
		}
		subject := conformance.Subject{
			Name: "stamp",
			Open: func(o strategy.Options) (strategy.Strategy, error) {
				return gated(o, func(_ string, send func()) { send() })
			},
			OpenGated: gated,
		}
		for _, p := range conformance.Properties() {
			if p.Name == property {
				result = conformance.Check(t.Context(), subject, p)
			}
		}
	})
	return result
}

func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			if r := judge(t, m.property, right); r.Status != conformance.Kept {
				t.Errorf("the right lines: %v", r)
			}
			wrong := right
			m.make(&wrong)
			if r := judge(t, m.property, wrong); r.Status != conformance.Broken {
				t.Errorf("the wrong line: %v", r)
			}
		})
	}
}

// TestDoc: docs/learn/sources.md has a row for each mistake, with the property that shows it.
func TestDoc(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../sources.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		if !regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(m.name) + ` \|.*\(` + "`" + m.property + "`" + `\) \|$`).Match(page) {
			t.Errorf("docs/learn/sources.md has no row for %q with %s", m.name, m.property)
		}
	}
}
