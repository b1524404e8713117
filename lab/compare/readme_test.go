package compare

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the README's guarantees anew")

// holdReadme holds the README's table of guarantees to what was seen in this run.
func holdReadme(t *testing.T, r *Report) {
	t.Helper()
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
		t.Errorf("README.md's guarantees are\n%s\nwant what was seen:\n%s\nWrite them anew: go test -C lab ./compare -run TestRun -update", table, want)
	}
}
