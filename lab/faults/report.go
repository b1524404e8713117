package faults

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
	"text/template"
)

// Mark is the verdict in one character.
func (v Verdict) Mark() string {
	switch v {
	case Kept:
		return "✓"
	case Unavailable:
		return "○"
	case Detected:
		return "◐"
	case Violated:
		return "✗"
	}
	return "?"
}

// Meaning is what the verdict says of a lock, for those who read the table.
func (v Verdict) Meaning() string {
	switch v {
	case Kept:
		return "the holder kept the lock, rivals waited, and the next contender got it at once (a contender that was itself cut off and gave up does not count)"
	case Unavailable:
		return "a contender that could have had the lock had to wait until the fault or a TTL ended"
	case Detected:
		return "a holder lost the lock, and learned that before it did harm: from its own clock, from the servers, or from the store"
	case Violated:
		return "two held the lock at once and believed so, somebody else's lock or data was deleted, a write was lost, or nobody ever got the lock again"
	}
	return ""
}

// Verdicts are all that there are, the best first.
func Verdicts() []Verdict { return []Verdict{Kept, Unavailable, Detected, Violated} }

// Strategies are the columns that are no variants.
func Strategies() []Column {
	return slices.DeleteFunc(Columns(), func(c Column) bool { return c.Of != "" })
}

// A Group is the rows of one kind.
type Group struct {
	Title  string
	About  string // what these faults have in common
	Faults []Fault
}

// abouts introduce the groups.
var abouts = map[string]string{
	"memory": `A server that has forgotten a lock grants it again. The first holder learns of that at its next renewal: with KeepAlive, a
second or two after the server is back. On several servers the restart guard keeps one that may have forgotten locks from voting,
until these have lapsed. With appendfsync everysec, a server whose disk is slow may answer up to two seconds before it writes.`,
	"fail-over": `A replica that takes over knows what has reached it, and replication does not wait. The variants -acknowledged wait for the
one replica that they are given. If more replicas can take over, one that has not heard of the lock may do so, and grants it.`,
	"server": `A server that is down, frozen, full or forbidden grants nothing. That is safe. The rows say who has to wait, what the error
says, and what is left behind.`,
	"network": `A client without an answer does not know what became of its request. It must take the request neither for granted nor for
refused, and it must undo the request in such an order that the undo cannot arrive first.`,
	"client": `Holders die, wait for ever, are paused, and come too late. A lock whose release is two steps can change hands between them.`,
	"clock": `The server's clock counts a TTL, and the holder's monotonic clock counts a deadline. Only setnxgetset compares the wall clocks
of its contenders.`,
	"misuse": `Somebody who has the right to do so ends a lock that another holds.`,
}

// Groups are the rows by their kind, in the order of the table.
func Groups() (groups []Group) {
	for _, f := range All() {
		if n := len(groups); n == 0 || groups[n-1].Title != f.Group {
			groups = append(groups, Group{Title: f.Group, About: abouts[f.Group]})
		}
		g := &groups[len(groups)-1]
		g.Faults = append(g.Faults, f)
	}
	return groups
}

// A Finding is a verdict with its reason, and the columns that share both.
type Finding struct {
	Columns []string
	Cell
}

// Findings are a row's cells, those that say the same together.
func (f Fault) Findings() (all []Finding) {
	for _, c := range Columns() {
		cell, ok := f.Cells[c.Name]
		if !ok {
			continue
		}
		if i := slices.IndexFunc(all, func(x Finding) bool { return x.Cell == cell }); i >= 0 {
			all[i].Columns = append(all[i].Columns, c.Name)
		} else {
			all = append(all, Finding{[]string{c.Name}, cell})
		}
	}
	return all
}

// heads are the columns of the page: strategies whose verdicts are equal in every row share one.
var heads = sync.OnceValue(func() (all [][]Column) {
	rows := All()
	same := func(a, b Column) bool {
		return !slices.ContainsFunc(rows, func(f Fault) bool { return f.Cells[a.Name].Verdict != f.Cells[b.Name].Verdict })
	}
	for _, c := range Strategies() {
		if i := slices.IndexFunc(all, func(h []Column) bool { return same(h[0], c) }); i >= 0 {
			all[i] = append(all[i], c)
		} else {
			all = append(all, []Column{c})
		}
	}
	return all
})

// An Option is the variants that differ by the same thing, and the strategies that have it.
type Option struct {
	Name, Summary string
	Of            []string
}

// options are the variants that some row tells.
var options = sync.OnceValue(func() (all []Option) {
	rows := All()
	for _, c := range Columns() {
		if c.Of == "" || !slices.ContainsFunc(rows, func(f Fault) bool { _, told := f.Cells[c.Name]; return told }) {
			continue
		}
		name := strings.TrimPrefix(c.Name, c.Of)
		if i := slices.IndexFunc(all, func(o Option) bool { return o.Name == name }); i >= 0 {
			all[i].Of = append(all[i].Of, c.Of)
		} else {
			all = append(all, Option{name, c.Summary, []string{c.Of}})
		}
	}
	return all
})

// Unanimous reports whether every lock keeps what it promises: then the page gives no reasons.
func (f Fault) Unanimous() bool {
	for _, cell := range f.Cells {
		if cell.Verdict != Kept {
			return false
		}
	}
	return true
}

// Who names the columns in few words: most strategies by those that are missing, and variants by their option.
func (x Finding) Who() string {
	var in, out, names []string
	for _, c := range Strategies() {
		if slices.Contains(x.Columns, c.Name) {
			in = append(in, c.Name)
		} else {
			out = append(out, c.Name)
		}
	}
	switch {
	case len(out) == 0:
		names = []string{"all"}
	case len(out)+1 < len(in):
		names = []string{"all but " + strings.Join(out, ", ")}
	default:
		names = in
	}
	for _, o := range options() {
		var some []string
		for _, of := range o.Of {
			if name := of + o.Name; slices.Contains(x.Columns, name) {
				some = append(some, name)
			}
		}
		if len(some) == len(o.Of) {
			some = []string{o.Name}
		}
		names = append(names, some...)
	}
	return strings.Join(names, ", ")
}

//go:embed faults.md.tmpl
var page string

// Markdown is docs/learn/faults.md.
func Markdown() string {
	t := template.Must(template.New("faults.md").Funcs(template.FuncMap{
		"groups": Groups, "heads": heads, "join": strings.Join, "options": options, "verdicts": Verdicts,
	}).Parse(page))
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		panic(err) // the page is part of the program, and a test writes it
	}
	return b.String()
}

// String is the verdict, and what it depends on.
func (o Outcome) String() string {
	if o.Err != nil {
		seen := ""
		if len(o.Saw) > 0 {
			seen = fmt.Sprintf(" (but %v: %s)", o.Verdict, strings.Join(o.Saw, "; "))
		}
		return fmt.Sprintf("no verdict: %v%s", o.Err, seen)
	}
	if len(o.Saw) == 0 {
		return o.Verdict.String()
	}
	return fmt.Sprintf("%v: %s", o.Verdict, strings.Join(o.Saw, "; "))
}
