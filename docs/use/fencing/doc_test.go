package fencing

// That docs/use/fencing.md quotes its code from files that are compiled.

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
)

// TestDocQuotes holds docs/use/fencing.md to the sources: what a block of code there says
// comes from a file, stands in that file, line by line.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../fencing.md")
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"fencing.go", "example_test.go", "sql.go", "touch.lua", "http.go", "memory.go"} {
		if from["fencing/"+want] == 0 {
			t.Errorf("nothing is quoted from %s", want)
		}
	}
}
