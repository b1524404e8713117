// The table of guarantees in the README is what is seen.
package compare

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
)

var update = flag.Bool("update", false, "write the README's guarantees anew")

// TestReadmeGuarantees holds the README's table of guarantees to what is seen. It is left to "make
// more": each strategy's own suite is held to what it is known for.
func TestReadmeGuarantees(t *testing.T) {
	c := Config{Servers: own(t, subjects.Most(subjects.Compared())), Kind: redistest.Docker, Variants: subjects.Compared()}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	const name, begin, end = "../../README.md", "<!-- guarantees -->\n", "<!-- /guarantees -->"
	readme, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(readme), begin)
	table, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("README.md has no %q and %q around its guarantees", begin, end)
	}
	want := Markdown(r.Strategies)
	if *update {
		if err := os.WriteFile(name, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if table != want {
		t.Errorf("README.md's guarantees are\n%s\nwant what was seen:\n%s\nWrite them again: go test -C lab ./compare -run TestReadmeGuarantees -update", table, want)
	}
}
