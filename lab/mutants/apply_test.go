package mutants

import (
	"os"
	"testing"
)

// TestApply: each fault has its place in the sources of today, and each has a name of its own.
func TestApply(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		if names[m.Name()] {
			t.Errorf("%s: there is another of this name", m.Name())
		}
		names[m.Name()] = true
		source, err := os.ReadFile("../../" + m.File)
		if err != nil {
			t.Error(err)
			continue
		}
		if broken, err := m.Apply(string(source)); err != nil {
			t.Errorf("%s: %v", m.Name(), err)
		} else if broken == string(source) {
			t.Errorf("%s: changes nothing", m.Name())
		}
	}
}
