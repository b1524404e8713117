package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
)

// guarantees is the table of what each strategy keeps, and what was seen where one does not.
type guarantees struct {
	Strategies []compare.Column
	Rows       []guarantee
	Notes      compare.Notes
	Legend     []compare.Rating
}

type guarantee struct {
	Title  string
	Cells  []cell
	Lesson *Lesson // that shows what happens without it; nil: none on this page
}

// A cell is a mark; Note is the number of what was seen, or 0.
type cell struct {
	compare.Rating
	Note int
}

func newGuarantees(r *compare.Report, page []Lesson) guarantees {
	g := guarantees{Strategies: r.Strategies}
	if len(r.Strategies) == 0 {
		return g
	}
	seen := map[compare.Rating]bool{}
	for i, first := range r.Strategies[0].Guarantees { // by rows, so that notes are numbered as they are read
		row := guarantee{Title: first.Title}
		for _, p := range first.Properties {
			if l := lessonNamed(page, taughtBy[p.Name]); row.Lesson == nil {
				row.Lesson = l
			}
		}
		for _, s := range r.Strategies {
			c := cell{}
			if i < len(s.Guarantees) {
				c.Rating = s.Guarantees[i].Verdict
				if c.Rating == compare.Weak || c.Rating == compare.Failed {
					c.Note = g.Notes.Number(s.Guarantees[i], s.Name)
				}
			}
			seen[c.Rating] = true
			row.Cells = append(row.Cells, c)
		}
		g.Rows = append(g.Rows, row)
	}
	g.Legend = slices.DeleteFunc(compare.Verdicts(), func(v compare.Rating) bool { return !seen[v] })
	return g
}

// A number is the best that was measured of something, and by whom.
type number struct{ What, Value, Name string }

// numbers are the best of each measurement, of the strategies that showed no weakness.
func numbers(r *compare.Report) (all []number) {
	solo, hand, most := math.Inf(1), math.Inf(1), 0.0
	var best [3]number
	for _, s := range r.Strategies {
		if !s.Proven() {
			continue
		}
		if s.Solo != nil && s.Solo.P50 < solo {
			solo = s.Solo.P50
			best[0] = number{"one caller takes and releases a lock in", compare.Micros(solo), s.Name}
		}
		if s.HandOff != nil && s.HandOff.P50 < hand {
			hand = s.HandOff.P50
			best[1] = number{"a lock goes from one process to the next in", compare.Micros(hand), s.Name}
		}
		if n := len(s.Contention); n > 0 && s.Contention[n-1].PerSecond > most { // where most contend
			most = s.Contention[n-1].PerSecond
			best[2] = number{fmt.Sprintf("locks granted per second, with %d contenders", s.Contention[n-1].Contenders), compare.Rate(most), s.Name}
		}
	}
	return slices.DeleteFunc(best[:], func(n number) bool { return n.Value == "" })
}

// A speed is a table of what was timed; the first cell of a row is the strategy.
type speed struct {
	compare.Timing
	ID   string
	Rows [][]string
}

// speeds are the tables that have a row.
func speeds(r *compare.Report) (all []speed) {
	for _, t := range r.Timings() {
		one := speed{Timing: t, ID: slug(t.Of)}
		for _, s := range r.Strategies {
			if cells := t.Cells(s); cells != nil {
				one.Rows = append(one.Rows, append([]string{s.Name}, cells...))
			}
		}
		if len(one.Rows) > 0 {
			all = append(all, one)
		}
	}
	return all
}

// A cost is what each call of a strategy sends.
type cost struct{ Name, Acquire, Release, Refused, Left string }

func costs(r *compare.Report) (all []cost) {
	for _, s := range r.Strategies {
		if s.Cost == nil {
			continue
		}
		c := cost{Name: s.Name, Acquire: s.Cost.Acquire.Words(s.Servers), Release: s.Cost.Release.Words(s.Servers), Refused: s.Cost.HeldTry.Words(s.Servers), Left: "not counted"}
		if s.Cost.KeysLeft != nil {
			c.Left = strconv.Itoa(*s.Cost.KeysLeft)
		}
		all = append(all, c)
	}
	return all
}

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

// lessonNamed is the lesson of this name, or nil.
func lessonNamed(page []Lesson, name string) *Lesson {
	if i := slices.IndexFunc(page, func(l Lesson) bool { return l.Name == name }); i >= 0 {
		return &page[i]
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

// slug makes words an identifier.
func slug(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "-")
}
