// The tables of the report: each cell leads somewhere that exists.
package report

import (
	"slices"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
)

// TestLessonsNamed: the lessons to which the tables lead are given, and what they show is in the tables.
func TestLessonsNamed(t *testing.T) {
	var properties, rows []string
	for _, p := range conformance.Properties() {
		properties = append(properties, p.Name)
	}
	for _, f := range faults.All() {
		rows = append(rows, f.Name)
	}
	for what, table := range map[string]struct {
		leads map[string]string
		names []string
	}{"a property": {taughtBy, properties}, "a fault": {shownBy, rows}} {
		for name, lesson := range table.leads {
			if !slices.Contains(table.names, name) {
				t.Errorf("%q is not %s", name, what)
			}
			if _, err := lessons.Find(lesson); err != nil {
				t.Errorf("%s leads to no lesson: %v", name, err)
			}
		}
	}
}
