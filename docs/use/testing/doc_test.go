package invoices

// That docs/use/testing.md quotes its code from files that are compiled.

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
)

// TestDocQuotes: each block of code in docs/use/testing.md stands in a file that is compiled.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../testing.md")
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"testing/invoices.go", "testing/invoices_test.go"} {
		if from[want] == 0 {
			t.Errorf("nothing is quoted from %s", want)
		}
	}
}
