package faults

import (
	"fmt"
	"slices"
	"strings"
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
		return "nobody noticed"
	case Unavailable:
		return "somebody who could have had the lock had to wait for the end of the fault, or of a TTL"
	case Detected:
		return "a holder lost the lock, and was told before it did harm: by its own clock, by the servers, or by the store"
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
	"memory": `A server that has forgotten a lock grants it again, and nobody tells the first holder.
On one server nothing else remembers. On several the restart guard keeps one that may have
forgotten from voting, until every lock that it may have granted has lapsed.`,
	"fail-over": `A replica that takes over knows what has reached it, and replication does not wait. The
variants that are acknowledged do.`,
	"server": `A server that is down, frozen, full or forbidden grants nothing. That is safe: the question
is who has to wait, what the error says, and what is left behind.`,
	"network": `Whoever is not answered does not know what became of his request. It must be taken
neither for granted nor for refused, and be undone in an order in which the undo cannot
come first.`,
	"client": `Holders die, wait for ever, stand still, and come too late; and a lock whose release is
two steps can change hands between them.`,
	"clock": `A TTL is counted by the server's clock, a deadline by the holder's monotonic one; only
setnxgetset compares the wall clocks of its contenders.`,
	"misuse": `What those do to a lock who may.`,
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

// Markdown is docs/faults.md.
func Markdown() string {
	var b strings.Builder
	strategies := Strategies()
	b.WriteString(`# What each lock does when things break

Each cell is a verdict that a test has seen on real servers, with a real fault at the
named point of the protocol. ` + "`go run ./cmd/locks faults`" + ` prints them,
` + "`go run ./cmd/locks faults --play power loss`" + ` plays those rows before your eyes, and
` + "`go test ./internal/faults`" + ` plays all that is told here. This page is written from the
table, and a test holds it to that. Where there is nothing to break, no play is needed: the
reason says that the cell is not played, and from what it follows.

| | |
|---|---|
`)
	for _, v := range Verdicts() {
		fmt.Fprintf(&b, "| %s %v | %s |\n", v.Mark(), v, v.Meaning())
	}
	b.WriteString(`
Each ✗ was seen to happen. For each ✓ that is played there is a lock with a mistake that
locks in the field make (it trusts one server, it undoes nothing, …), and the same play
convicts it: so the play can fail. Of several verdicts on one play the worst counts.

A and B are rivals: A holds the lock, and B asks for it while A believes in it. C asks when
A has let go, and ought to get the lock at once. In the end everything is mended, and
somebody must get it.

Verdicts are on the lock, except in the rows on a holder that is paused: no lock can stop a
holder that has looked, is paused, and then writes, so these look at what is stored (see
[fencing](fencing.md)).

On several servers the holder has only as many votes as it needs, and the fault strikes
one that it cannot do without: the worst case. On one server it strikes that one. More of
what the words mean is in the [README](../README.md#words); for how it is done see
[design](design.md#faults-and-histories).

A variant is a strategy with an option. It is told in the rows where that makes a
difference, and is played there each time; elsewhere the strategy's own verdict stands for
it, to which ` + "`make faults`" + ` holds it: that plays every variant in every row.

Those that are acknowledged are given a replica, which after a restart has found its server
again before anything else happens. Those that are synced are given an append-only file,
which is synced before each answer unless the row says every second; and they are played
on a server that has WAITAOF: on Redis 8.0, where the others are played on an older one.

| | |
|---|---|
`)
	for _, c := range Columns() {
		if c.Of != "" {
			fmt.Fprintf(&b, "| %s | %s |\n", c.Name, c.Summary)
		}
	}
	b.WriteString("\n")
	for _, g := range Groups() {
		fmt.Fprintf(&b, "## %s\n\n%s\n\n|", g.Title, g.About)
		for _, c := range strategies {
			fmt.Fprintf(&b, " | %s", c.Name)
		}
		b.WriteString(" |\n|---|" + strings.Repeat(":-:|", len(strategies)) + "\n")
		for _, f := range g.Faults {
			fmt.Fprintf(&b, "| %s", f.Name)
			for _, c := range strategies {
				fmt.Fprintf(&b, " | %s", f.Cells[c.Name].Verdict.Mark())
			}
			b.WriteString(" |\n")
		}
		b.WriteString("\n")
		for _, f := range g.Faults {
			fmt.Fprintf(&b, "**%s.** %s\n\n", f.Name, f.Story)
			for _, x := range f.Findings() {
				fmt.Fprintf(&b, "- %s %s: %s.\n", x.Verdict.Mark(), strings.Join(x.Columns, ", "), x.Reason)
			}
			b.WriteString("\n")
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// String is the verdict, and what it rests on.
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
