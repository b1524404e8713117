// Package faults is the matrix of what each lock does when things break: one row for
// each fault, one column for each strategy, and in each cell a verdict, which a test has
// seen on real servers. A cell that says "violated" has been seen to be; one that says
// "kept" has a [Sloppy] lock that the same play convicts.
//
// A row is a short play on a [Stage]: contenders, and what breaks under them at which
// point of the protocol. It is written once, and played by every column. On several
// servers the holder has only as many votes as it needs, and the fault strikes one that
// it cannot do without: the worst case.
package faults

import (
	"maps"
	"slices"
)

// A Verdict is what became of a lock under a fault. Of several the worst counts.
type Verdict int

const (
	// Kept: nobody noticed. The holder held, rivals waited, and the next contender got
	// the lock at once.
	Kept Verdict = iota + 1
	// Unavailable but safe: somebody who could have had the lock had to wait for the fault
	// to end, or for a TTL.
	Unavailable
	// Detected: a holder lost the lock, and learned it before it did harm: by its own clock,
	// by the servers, or by the store.
	Detected
	// Violated: two held the lock at once and believed so, what is a stranger's was
	// deleted, a write was lost, or nobody ever got the lock again.
	Violated
)

// Verdicts are all that there are, the best first.
func Verdicts() []Verdict { return []Verdict{Kept, Unavailable, Detected, Violated} }

// verdicts are, by verdict: its name, a mark of one character, and what it says of a lock.
var verdicts = [...][3]string{
	{"no verdict", "?"},
	{"kept", "✓", "the holder kept the lock, rivals waited, and the next contender got it at once " +
		"(a contender that was itself cut off and gave up does not count)"},
	{"unavailable but safe", "○", "a contender that could have had the lock had to wait until the fault or a TTL ended"},
	{"detected", "◐", "a holder lost the lock, and learned that before it did harm: from its own clock, from the servers, or from the store"},
	{"violated", "✗", "two held the lock at once and believed so, somebody else's lock or data was deleted, " +
		"a write was lost, or nobody ever got the lock again"},
}

func (v Verdict) String() string { return verdicts[v][0] }

// Mark is the verdict in one character.
func (v Verdict) Mark() string { return verdicts[v][1] }

// Meaning is what the verdict says of a lock, for those who read the table.
func (v Verdict) Meaning() string { return verdicts[v][2] }

// A Cell is the verdict on one strategy under one fault.
type Cell struct {
	Verdict Verdict
	Reason  string // in a sentence
	Derived bool   // it follows from the source, and there is nothing to play
}

// A Fault is a row.
type Fault struct {
	Name    string
	Group   string // its Title
	Story   string // what happens, and at which point
	Prevent string // what a reader can do so that it does not happen or does no harm; empty: no strategy needs it

	// Cells are the verdicts by column. Every strategy has one, and its variants have one
	// where they differ from it.
	Cells map[string]Cell

	// Turned are the mistakes by which a lock would not keep what it keeps: for each column
	// that is Kept at least one of them leads to another verdict.
	Turned []Sloppy

	calm  func(*Stage) // what is left of the play without the fault; nil: what most begin with
	fsync string       // of an append-only file: always, everysec, no; empty: nothing is kept
	play  func(*Stage)
	held  func(*Stage, *hold) // in place of play: what happens when A holds the lock
}

func (f Fault) tell(s *Stage) {
	if f.held != nil {
		f.held(s, s.holder("A"))
		return
	}
	f.play(s)
}

// Cell is the verdict on a column, and whether the page has it: of a variant that it has not, it is
// the strategy's own.
func (f Fault) Cell(c Column) (cell Cell, told bool) {
	if cell, told = f.Cells[c.Name]; told {
		return cell, true
	}
	return f.Cells[c.Of], false
}

// A Group is the rows of one kind.
type Group struct {
	Title  string
	About  string // what these faults have in common
	Faults []Fault
}

// Groups are the rows by their kind, in the order of the table.
func Groups() []Group {
	groups := []Group{
		{"memory", `A server that has forgotten a lock grants it again. The first holder learns of that at its next renewal: with KeepAlive, a
second or two after the server is back. On several servers the restart guard keeps one that may have forgotten locks from voting,
until these have lapsed. With appendfsync everysec, a server whose disk is slow may answer up to two seconds before it writes.`, memoryFaults()},
		{"fail-over", `A replica that takes over knows what has reached it, and replication does not wait. The variants -acknowledged wait for the
one replica that they are given. If more replicas can take over, one that has not heard of the lock may do so, and grants it.`, failOvers()},
		{"server", `A server that is down, frozen, full or forbidden grants nothing. That is safe. The rows say who has to wait, what the error
says, and what is left behind.`, serverFaults()},
		{"network", `A client without an answer does not know what became of its request. It must take the request neither for granted nor for
refused, and it must undo the request in such an order that the undo cannot arrive first.`, networkFaults()},
		{"client", `Holders die, wait for ever, are paused, and come too late. A lock whose release is two steps can change hands between them.`,
			slices.Concat(clientFaults(), pauses())},
		{"clock", `The server's clock counts a TTL, and the holder's monotonic clock counts a deadline. Only setnxgetset compares the wall clocks
of its contenders.`, clockFaults()},
		{"misuse", `Somebody who has the right to do so ends a lock that another holds.`, misuse()},
	}
	for _, g := range groups {
		for i := range g.Faults {
			g.Faults[i].Group = g.Title
		}
	}
	return groups
}

// All returns the rows in the order of the table.
func All() (all []Fault) {
	for _, g := range Groups() {
		all = append(all, g.Faults...)
	}
	return all
}

// every gives the same cell to all strategies; but changes some of them.
func every(v Verdict, reason string, but ...map[string]Cell) map[string]Cell {
	return all(Cell{Verdict: v, Reason: reason}, but...)
}

// derived is a cell that is not played.
func derived(v Verdict, reason string) Cell {
	return Cell{Verdict: v, Reason: reason, Derived: true}
}

// all is every, for any cell.
func all(cell Cell, but ...map[string]Cell) map[string]Cell {
	cells := map[string]Cell{}
	for _, c := range Columns() {
		if c.Of == "" {
			cells[c.Name] = cell
		}
	}
	for _, more := range but {
		maps.Copy(cells, more)
	}
	return cells
}

// in is a cell of some columns that differs from the others.
func in(v Verdict, reason string, columns ...string) map[string]Cell {
	cells := map[string]Cell{}
	for _, name := range columns {
		cells[name] = Cell{Verdict: v, Reason: reason}
	}
	return cells
}
