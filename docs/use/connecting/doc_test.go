package connecting

// That docs/use/connecting.md and docs/use/errors.md quote their code from files that are compiled.

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
)

// TestDocQuotes: what the pages say is code stands in a file that is compiled.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"../connecting.md", "../errors.md"} {
		from, err := quotes.Check(page)
		if err != nil {
			t.Error(err)
		}
		if from["connecting/service/main.go"] == 0 {
			t.Errorf("%s quotes nothing from connecting/service/main.go", page)
		}
	}
}
