package faults

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
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
		return "the holder held, rivals waited, and the next contender got the lock at once (one who is cut off himself, and gives up, does not count)"
	case Unavailable:
		return "somebody who could have had the lock had to wait for the end of the fault, or of a TTL"
	case Detected:
		return "a holder lost the lock, and learned it before it did harm: by its own clock, by the servers, or by the store"
	case Violated:
		return "two held it at once and believed so, what is a stranger's was deleted, a write was lost, or nobody ever got the lock again"
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
	"memory": `A server that has forgotten a lock grants it again. The first holder learns of it when it next renews:
with KeepAlive, a second or two after the server is back.
On one server nothing else remembers. On several the restart guard keeps one that may have
forgotten from voting, until every lock that it may have granted has lapsed.`,
	"fail-over": `A replica that takes over knows what has reached it, and replication does not wait. The
variants that are acknowledged wait for the one replica that they are given. Where more can
take over than are waited for, one that has not heard of the lock may be, and grants it.`,
	"server": `A server that is down, frozen, full or forbidden grants nothing. That is safe: the question
is who has to wait, what the error says, and what is left behind.`,
	"network": `A client without an answer does not know what became of its request. It must be taken
neither for granted nor for refused, and be undone in an order in which the undo cannot
come first.`,
	"client": `Holders die, wait for ever, are paused, and come too late; and a lock whose release is
two steps can change hands between them.`,
	"clock": `A TTL is counted by the server's clock, a deadline by the holder's monotonic one; only
setnxgetset compares the wall clocks of its contenders.`,
	"misuse": `Users do this to a lock who have the right to.`,
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

//go:embed faults.md.tmpl
var page string

// Markdown is docs/learn/faults.md.
func Markdown() string {
	t := template.Must(template.New("faults.md").Funcs(template.FuncMap{
		"columns": Columns, "groups": Groups, "join": strings.Join, "strategies": Strategies, "verdicts": Verdicts,
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
