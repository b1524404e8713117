// Package mutants holds faults that its test puts into the real sources, Go and Lua, one at a time, to
// see the conformance suite, or a test of the package's own, convict each. A suite that acquits one
// proves less than it says.
//
// A fault names a function and an operator, such as "never": it quotes no source lines, so it outlives
// most refactorings. Where two places of a function would do, a few words say which.
package mutants

import (
	"slices"
	"strings"
)

// A Mutant is one fault in one function.
type Mutant struct {
	File  string // from the repository's root
	Func  string // such as (*line).successor or free; empty: all of the file
	Fault Fault
	Judge Judge
	// Killed are the subtests of the judge that must convict it, each on its own, separated by spaces.
	Killed string
}

// Name is where the fault is, and what.
func (m Mutant) Name() string {
	return strings.TrimSpace(m.File+" "+m.Func) + ": " + m.Fault.String()
}

// Properties are the subtests that must convict it.
func (m Mutant) Properties() []string { return strings.Fields(m.Killed) }

// A Judge is a test, with the subject: each property is a subtest of it.
type Judge struct {
	Package string // from the repository's root
	Test    string
	Redis   bool // needs a server
	Own     bool // a test of the package's own: its subtests are not the suite's properties
	Starts  bool // it starts servers to break, and so chooses them itself
}

// All returns the mutants.
func All() []Mutant {
	return slices.Concat(engine(), several(), transport(), acks(), setNXGetSet(), setNXPX(), luaScript(), fairQueue(), reentrant(), redLock())
}
