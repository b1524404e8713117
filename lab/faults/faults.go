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
	"fmt"
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

func (v Verdict) String() string {
	switch v {
	case Kept:
		return "kept"
	case Unavailable:
		return "unavailable but safe"
	case Detected:
		return "detected"
	case Violated:
		return "violated"
	}
	return fmt.Sprintf("Verdict(%d)", int(v))
}

// A Cell is the verdict on one strategy under one fault.
type Cell struct {
	Verdict Verdict
	Reason  string // in a sentence
	Derived bool   // it follows from the source, and there is nothing to play
}

// A Fault is a row.
type Fault struct {
	Name  string
	Group string
	Story string // what happens, and at which point

	// Cells are the verdicts by column. Every strategy has one, and its variants have one
	// where they differ from it.
	Cells map[string]Cell

	// Turned are the mistakes by which a lock would not keep what it keeps: for each column
	// that is Kept at least one of them leads to another verdict.
	Turned []Sloppy

	calm  func(*Stage) // what is left of the play without the fault; nil: what most begin with
	fsync string       // of an append-only file: always, everysec, no; empty: nothing is kept
	play  func(*Stage)
}

// Cell is the verdict on a column, and whether the page has it: of a variant that it has not, it is
// the strategy's own.
func (f Fault) Cell(c Column) (cell Cell, told bool) {
	if cell, told = f.Cells[c.Name]; told {
		return cell, true
	}
	return f.Cells[c.Of], false
}

// All returns the rows in the order of the table.
func All() []Fault {
	return slices.Concat(memoryFaults(), failOvers(), serverFaults(), networkFaults(), clientFaults(), pauses(), clockFaults(), misuse())
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
		for name, cell := range more {
			cells[name] = cell
		}
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
