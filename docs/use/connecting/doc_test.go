package connecting

// That docs/use/connecting.md quotes its code from files that are compiled.

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
)

// TestDocQuotes: what docs/use/connecting.md says is code stands in a file that is compiled.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../connecting.md")
	if err != nil {
		t.Error(err)
	}
	for _, want := range []string{"connecting/connecting.go", "connecting/example_test.go", "connecting/service/main.go"} {
		if from[want] == 0 {
			t.Errorf("nothing is quoted from %s", want)
		}
	}
}
