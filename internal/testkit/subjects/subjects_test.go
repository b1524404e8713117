// The list of variants is well formed.
package subjects

import (
	"strings"
	"testing"
)

// TestVariants: names serve as arguments, as names of tests, and as heads of tables. Every variant has its set of rights.
func TestVariants(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range All() {
		if seen[v.Name] || strings.ContainsAny(v.Name, " /,") || v.Name != v.Package && !strings.HasPrefix(v.Name, v.Package+"-") {
			t.Errorf("the name %q, want one of its own, that begins with %q, without a space, a slash or a comma", v.Name, v.Package)
		}
		seen[v.Name] = true
		if v.Summary == "" || strings.ContainsAny(v.Summary, "\n") || strings.HasSuffix(v.Summary, ".") {
			t.Errorf("%s: Summary = %q, want half a sentence", v.Name, v.Summary)
		}
		if _, err := RightsOf(v.Name); err != nil {
			t.Error(err)
		}
	}
}
