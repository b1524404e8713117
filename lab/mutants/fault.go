package mutants

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A Fault is an operator, and what it breaks: the smallest part of the function that the operator can
// break and that contains the words At.
type Fault struct {
	Op   Op
	At   string
	Nth  int    // of several such parts; 0: there is one
	With string // of Instead: what takes its place
}

// An Op is a way to break a function.
type Op string

const (
	Skip    Op = "skip"    // a statement is not executed
	Never   Op = "never"   // a condition, or one operand of it, is false
	Always  Op = "always"  // the same is true
	Swap    Op = "swap"    // a comparison or a function becomes its neighbour; see neighbours; in Go
	Omit    Op = "omit"    // an option of a command is not sent, with its value, if it has one
	Instead Op = "instead" // an argument, a condition, a call, or a value that is assigned or returned, is another
)

func skip(at string) Fault          { return Fault{Op: Skip, At: at} }
func never(at string) Fault         { return Fault{Op: Never, At: at} }
func always(at string) Fault        { return Fault{Op: Always, At: at} }
func swap(at string) Fault          { return Fault{Op: Swap, At: at} }
func omit(at string) Fault          { return Fault{Op: Omit, At: at} }
func instead(at, with string) Fault { return Fault{Op: Instead, At: at, With: with} }

// nth is f at the nth of several places.
func (f Fault) nth(n int) Fault {
	f.Nth = n
	return f
}

func (f Fault) String() string {
	s := string(f.Op) + " " + oneLine(f.At)
	if f.Nth > 0 {
		s += fmt.Sprintf(" #%d", f.Nth)
	}
	if f.With != "" {
		s += " → " + oneLine(f.With)
	}
	return s
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// neighbours is what Swap makes of an operator, or of a function's name.
var neighbours = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
	"min": "max", "max": "min", "Before": "After", "After": "Before", "MinFunc": "MaxFunc",
}

// A place is a part of a source that an operator can break, and what it becomes.
type place struct {
	start, end int
	broken     string
}

// Apply returns the source with the fault.
func (m Mutant) Apply(source string) (string, error) {
	f := m.Fault
	places, err := m.places(source)
	if err != nil {
		return "", err
	}
	places = innermost(slices.DeleteFunc(places, func(p place) bool { return !strings.Contains(source[p.start:p.end], f.At) }))
	if want := max(f.Nth, 1); len(places) < want || f.Nth == 0 && len(places) > 1 {
		list := fmt.Sprintf("%d places, want one, or which:", len(places))
		for _, p := range places {
			list += "\n\t" + source[p.start:p.end]
		}
		return "", errors.New(list)
	}
	p := places[max(f.Nth, 1)-1]
	return source[:p.start] + p.broken + source[p.end:], nil
}

// innermost leaves out the places that contain others, and sorts the rest.
func innermost(places []place) (rest []place) {
	for _, p := range places {
		if !slices.ContainsFunc(places, func(q place) bool {
			return q != p && p.start <= q.start && q.end <= p.end && q.end-q.start < p.end-p.start
		}) {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b place) int { return a.start - b.start })
	return slices.Compact(rest)
}

// places are what the operator could break.
func (m Mutant) places(source string) ([]place, error) {
	switch {
	case m.Fault.Op == Omit:
		return omitPlaces(source, m.Fault.At), nil
	case filepath.Ext(m.File) == ".lua":
		return luaPlaces(source, m.Func, m.Fault)
	default:
		return goPlaces(source, m.Func, m.Fault)
	}
}

// omitPlaces are where an option stands, with the comma before it, in either language.
func omitPlaces(source, option string) (places []place) {
	for from := 0; ; {
		i := strings.Index(source[from:], option)
		if i < 0 {
			return places
		}
		start, end := from+i, from+i+len(option)
		places = append(places, place{strings.LastIndexByte(source[:start], ','), end, ""})
		from = end
	}
}
