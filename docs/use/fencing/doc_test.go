package fencing

// That docs/use/fencing.md and docs/use/idempotency.md quote their code from files that are compiled.

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
)

// TestDocQuotes: a block of code in these pages stands, line by line, in the file that the page names.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	for page, sources := range map[string][]string{
		"fencing.md":     {"example_test.go", "sql.go"},
		"idempotency.md": {"idempotency.go"},
	} {
		from, err := quotes.Check("../" + page)
		for _, want := range sources {
			if err != nil || from["fencing/"+want] == 0 {
				t.Errorf("%s quotes %v, want %s: %v", page, from, want, err)
			}
		}
	}
}
