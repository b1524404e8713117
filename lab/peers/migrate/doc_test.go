package migrate

// That docs/use/migrating.md quotes its code from code_test.go, which is compiled.

import (
	"os"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/quotes"
)

// TestDocQuotes holds docs/use/migrating.md to code_test.go, which is compiled.
func TestDocQuotes(t *testing.T) {
	from, err := quotes.Check("../../../docs/use/migrating.md")
	if err != nil {
		t.Error(err)
	}
	const source = "code_test.go"
	code, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := from["../../lab/peers/migrate/"+source], strings.Count(string(code), "\nfunc "); got != want {
		t.Errorf("%d blocks of code, want %d: what is compiled is quoted", got, want)
	}
}
