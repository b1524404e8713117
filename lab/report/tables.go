package report

import (
	"slices"
	"strings"
	"unicode"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
)

// matrix is the rows of faults of one kind.
type matrix struct {
	faults.Group
	Strategies []faults.Column
	Rows       []fault
}

type fault struct {
	faults.Fault
	ID    string
	Cells []faults.Cell
	Why   []faults.Finding

	Lesson *Lesson // that shows it; nil: none on this page
}

func lessonNamed(page []Lesson, name string) *Lesson {
	if i := slices.IndexFunc(page, func(l Lesson) bool { return l.Name == name }); i >= 0 {
		return &page[i]
	}
	return nil
}

// lessonOf is the lesson on this page that shows what happens without a guarantee, or nil.
func lessonOf(of []compare.Property, page []Lesson) *Lesson {
	for _, p := range of {
		if l := lessonNamed(page, taughtBy[p.Name]); l != nil {
			return l
		}
	}
	return nil
}

// taughtBy is the lesson that shows what happens without a property of the suite.
var taughtBy = map[string]string{
	"Exclusive":           "setnx",
	"Expires":             "expire",
	"TakeOverRace":        "take-over",
	"LoserChangesNothing": "getset",
	"ClockAhead":          "clock",
	"ReleaseOnlyOwn":      "fixed-value",
	"ReleaseAtomic":       "compare-delete",
	"MinorityDown":        "quorum",
	"EvenSplit":           "split-votes",
	"WokenByNotification": "herd",
	"FairAcrossProcesses": "herd",
	"KeptAlive":           "watchdog",
	"FenceRises":          "fence",
	"Reentry":             "reentrant",
	"ReentryLastRelease":  "reentrant",
}

// shownBy is the lesson that shows a fault.
var shownBy = map[string]string{
	"restart, nothing persisted":                   "power-loss",
	"power loss, fsync every second":               "power-loss",
	"power loss, fsync always":                     "power-loss",
	"fail-over, write replicated":                  "fail-over",
	"fail-over, write not replicated":              "fail-over",
	"fail-over, old primary goes on":               "fail-over",
	"minority down":                                "quorum",
	"majority down":                                "quorum",
	"acquire: request late":                        "late-grant",
	"two ask at once":                              "split-votes",
	"re-entry: reply lost":                         "reentrant",
	"holder dies":                                  "setnx",
	"renewal fails to run":                         "watchdog",
	"renewal outlives the work":                    "watchdog",
	"expiry within the release":                    "compare-delete",
	"release after another has it":                 "fixed-value",
	"holder paused, looks before it writes":        "fence",
	"holder paused between look and write":         "fence",
	"holder paused, and the store looks at fences": "fence",
	"too few replicas (min-replicas-to-write)":     "wait-zero",
	"server's clock jumps ahead":                   "fast-clock",
	"server's clock jumps back":                    "clock-back",
	"contender's clock ahead":                      "clock",
	"holder's clock behind":                        "clock",
}

func newMatrix(g faults.Group, page []Lesson) matrix {
	m := matrix{Group: g, Strategies: faults.Strategies()}
	for _, f := range g.Faults {
		row := fault{Fault: f, ID: slug(f.Group + " " + f.Name), Why: f.Findings()}
		for _, s := range m.Strategies {
			row.Cells = append(row.Cells, f.Cells[s.Name])
		}
		row.Lesson = lessonNamed(page, shownBy[f.Name])
		m.Rows = append(m.Rows, row)
	}
	return m
}

// kinds are the verdicts as classes of the style.
var kinds = map[faults.Verdict]string{
	faults.Kept: "kept", faults.Unavailable: "waits", faults.Detected: "told", faults.Violated: "weak",
}

func slug(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "-")
}
