// Package report writes what ran on somebody's Redis as one HTML page that needs nothing
// else: the lessons with their diagrams, the guarantees, the faults, and how fast the locks
// are. It runs nothing; cmd/lab does that.
package report

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/lab/play"
)

// A Report is what the page tells. Empty parts are left out.
type Report struct {
	Version string    // of this module
	Choice  string    // which Redis, and why
	Command string    // by which it was made
	Made    time.Time // when it began
	Took    time.Duration

	// Imitation: it was no real Redis, so times mean nothing.
	Imitation bool

	Lessons    []Lesson
	Comparison *compare.Report
	Uncompared string // why there is no comparison
	Faults     []faults.Group

	Play string // where the page of lab play is, seen from this one; empty: there is none
}

// A Lesson is what came of one, as far as it was given.
type Lesson struct {
	lessons.Result
	Why string // it was not given, or not to its end; empty: it was
}

// Diagrams says how to read those of lessons.
const Diagrams = "Double line ║: believes it holds the lock. Dotted: paused (┇: and still believes it). ─: a command; ╌: a message, or a reply that " +
	"comes later; ┼ ╫: it crosses a line. ━: a promise breaks. EVALSHA and EVAL: a script's name stands for its hash, or its text. " +
	"In parentheses: a look from outside. Time in ms."

// InWords says how to read what scripts of this module are asked in lessons.
const InWords = "A script's name without EVALSHA: what it is asked, and answers, in words (--json: as it was sent)."

//go:embed page.html.tmpl
var page string

//go:embed style.css
var style string

var tmpl = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":   func() template.CSS { return template.CSS(style) },
	"join":  func(s []string) string { return strings.Join(s, ", ") },
	"lines": func(s string) int { return strings.Count(strings.TrimSpace(s), "\n") + 1 },
	"diagram": func(t lessons.Trace) string {
		return t.Diagram(96, func(_ diagram.Style, s string) string { return s })
	},
	"diagrams": func() string { return Diagrams + " " + InWords },
	"inc":      func(i int) int { return i + 1 },
	"kind":     func(v faults.Verdict) string { return kinds[v] },
	"lesson":   lessonOf,
	"slug":     slug,
	"matrix":   newMatrix,
	"verdicts": faults.Verdicts,
	"sentence": compare.Sentence,
	"time":     func(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04 UTC") },
	"in":       func(page string, s play.Scene) template.URL { return template.URL(page + "#" + s.Hash()) },
	"scenes": func(lesson string) []play.Scene {
		return slices.DeleteFunc(play.Scenes(), func(s play.Scene) bool { return s.Lesson != lesson })
	},
	"round": func(d time.Duration) time.Duration { return d.Round(time.Second) },
}).Parse(page))

// Write writes the page.
func Write(w io.Writer, r Report) error { return tmpl.Execute(w, r) }

// Redis is the version that ran, as far as anything has run.
func (r Report) Redis() string {
	if r.Comparison != nil && r.Comparison.Redis.Version != "" {
		return r.Comparison.Redis.Version
	}
	for _, l := range r.Lessons {
		if l.Redis != "" {
			return l.Redis
		}
	}
	return ""
}
