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
	if err != nil || from["testing/invoices.go"] == 0 || from["testing/invoices_test.go"] == 0 {
		t.Errorf("the page quotes %v, want invoices.go and its test: %v", from, err)
	}
}
