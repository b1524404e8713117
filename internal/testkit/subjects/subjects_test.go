// The list of variants is well formed.
package subjects

import (
	"strings"
	"testing"
)

// TestVariants: names serve as arguments, as names of tests, and as heads of tables.
func TestVariants(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range All() {
		if seen[v.Name] {
			t.Errorf("two variants are called %s", v.Name)
		}
		seen[v.Name] = true
		rest, ok := strings.CutPrefix(v.Name, v.Package)
		if v.Package == "" || !ok || rest != "" && (rest[0] != '-' || len(rest) == 1) {
			t.Errorf("the name %q, want its package %q, and perhaps -something", v.Name, v.Package)
		}
		if strings.ContainsAny(v.Name, " /,") {
			t.Errorf("the name %q has a space, a slash or a comma", v.Name)
		}
		if v.Summary == "" || strings.ContainsAny(v.Summary, "\n") || strings.HasSuffix(v.Summary, ".") {
			t.Errorf("%s: Summary = %q, want half a sentence", v.Name, v.Summary)
		}
		if v.Servers < 1 || v.Dead < 0 {
			t.Errorf("%s: Servers = %d, Dead = %d, want 1 or more, and 0 or more", v.Name, v.Servers, v.Dead)
		}
		if v.On == nil {
			t.Errorf("%s: On = nil", v.Name)
		}
		for property, reason := range v.Except {
			if reason == "" {
				t.Errorf("%s: Except[%s] gives no reason", v.Name, property)
			}
		}
	}
	if len(Compared()) == 0 {
		t.Error("all variants are Aside: there is nothing to compare")
	}
}
