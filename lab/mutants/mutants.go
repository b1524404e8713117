// Package mutants holds faults that its test puts into the real sources, Go and
// Lua, one at a time, to see the conformance suite convict each. A suite that
// acquits one proves less than it says.
package mutants

import "slices"

// A Mutant is one fault: an edit of one file.
type Mutant struct {
	Name string
	File string // from the repository's root
	Old  string // occurs in File exactly once
	New  string

	// Judge is the subject that is to be convicted.
	Judge Judge
	// Killed are the properties that must convict it, each on its own.
	Killed []string
}

// A Judge is a test that holds the suite on one subject.
type Judge struct {
	Package string // from the repository's root
	Test    string // with the subject: a property is a subtest of it
	Redis   bool   // needs a server
	Own     bool   // a test of the package's own: its subtests are no properties
	Starts  bool   // it starts servers to break, and so chooses them itself
}

// All returns the mutants.
func All() []Mutant {
	return slices.Concat(machinery(), several(), setNXGetSet(), setNXPX(), luaScript(), fairQueue(), reentrant(), redLock(), acks())
}
