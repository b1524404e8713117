// The lines that articles on locks get wrong, each convicted by the suite; the right ones pass the same
// trials. And docs/learn/sources.md quotes these lines as they are here. Time is fake.
package sources

import (
	"testing"
	"testing/synctest"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/quotes"
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

// TestDocQuotes holds the lines in docs/learn/sources.md to those that are compiled.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../sources.md")
	if err != nil {
		t.Error(err)
	}
	if n, want := from["sources/stamp.go"], 2; n != want {
		t.Errorf("docs/learn/sources.md quotes %d pieces of stamp.go, want %d: the wrong lines and the right ones", n, want)
	}
}
