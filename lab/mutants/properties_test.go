package mutants

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/conformance"
)

// TestProperties: each property that conformance leaves to the sources convicts a mutant of
// theirs, and mutants are convicted by properties that exist.
func TestProperties(t *testing.T) {
	list, err := os.ReadFile("../../conformance/testdata/shown-by-sources.txt")
	if err != nil {
		t.Fatal(err)
	}
	var properties, killers []string
	for _, p := range conformance.Properties() {
		properties = append(properties, p.Name)
	}
	for _, m := range All() {
		if !m.Judge.Own {
			killers = append(killers, m.Properties()...)
		}
	}
	for _, name := range strings.Fields(string(list)) {
		if !slices.Contains(killers, name) {
			t.Errorf("%s convicts no mutant: add a fault that it finds, or delete it", name)
		}
	}
	for _, name := range slices.Concat(strings.Fields(string(list)), killers) {
		if !slices.Contains(properties, name) {
			t.Errorf("there is no property %s", name)
		}
	}
}
