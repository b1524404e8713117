// That docs/use/idempotency.md quotes its code from files that are compiled.
package idempotency_test

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
)

// TestDocQuotes: each block of code in docs/use/idempotency.md stands in a file that is compiled.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../idempotency.md")
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"example_test.go", "idempotency.go", "refusal.go"} {
		if from["idempotency/"+want] == 0 {
			t.Errorf("nothing is quoted from %s", want)
		}
	}
}
