package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A mutant is one fault in one place of a source.
type mutant struct {
	id       int
	file     string // from the repository's root
	fn       string // such as (*line).successor; empty in Lua, outside of functions
	op       string // drop, negate, bound, swap, omit
	text     string // what is faulty, on one line
	nth      int    // of several that are otherwise the same
	line     int
	from, to int // the lines of its function; in Lua of the file

	script string // the whole faulty Lua; empty for Go

	end outcome // no fate: not judged
}

// name outlives edits elsewhere: it has no line number.
func (m *mutant) name() string {
	s := strings.TrimSpace(m.file+" "+m.fn) + ": " + m.op + " " + m.text
	if m.nth > 1 {
		s += fmt.Sprintf(" #%d", m.nth)
	}
	return s
}

func number(mutants []*mutant) {
	seen := map[string]int{}
	for i, m := range mutants {
		m.id, m.nth = i+1, 0
		key := m.name()
		seen[key]++
		m.nth = seen[key]
	}
}

// oneLine shortens what takes several lines.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 90 {
		return string(r[:60]) + " … " + string(r[len(r)-25:])
	}
	return s
}

// An edit puts text before and after a part of a source, or in its place.
type edit struct {
	start, end  int
	open, close string
	instead     bool    // open takes the place of the part
	m           *mutant // who needs it; nil: all
}

// splice returns the source with the edits. Of two edits that begin or end at the same place the one
// that comes first in the list is the outer one. spans are where the parts end up.
func splice(source string, edits []edit) (out string, spans []edit) {
	type point struct {
		at, rank, nth int
		text          string
		skip          int
	}
	var points []point
	for i, e := range edits {
		if e.instead {
			points = append(points, point{e.start, 3, i, e.open, e.end - e.start})
			continue
		}
		size := e.end - e.start
		points = append(points, point{e.start, 2, -size*len(edits)*2 + i, e.open, 0}, point{e.end, 0, size*len(edits)*2 - i, e.close, 0})
	}
	slices.SortStableFunc(points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.rank, b.rank), cmp.Compare(a.nth, b.nth))
	})
	var b strings.Builder
	moved := make(map[int]int) // where an offset of the source is in the result, before what is put there
	at := 0
	for _, p := range points {
		b.WriteString(source[at:max(at, p.at)])
		if _, ok := moved[p.at]; !ok {
			moved[p.at] = b.Len()
		}
		b.WriteString(p.text)
		at = max(at, p.at) + p.skip
	}
	b.WriteString(source[at:])
	for _, e := range edits {
		if e.m != nil && !e.instead {
			spans = append(spans, edit{start: moved[e.start], end: moved[e.end], m: e.m})
		}
	}
	return b.String(), spans
}
