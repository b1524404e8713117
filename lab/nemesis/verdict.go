package nemesis

import (
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/lab/history"
)

// A Report is what came of a run.
type Report struct {
	Config
	Began    time.Duration // by the clock of package history
	Ops      []history.Op
	Found    []history.Violation // that nobody has declared
	Declared []Declared          // that the strategy is known for
}

// A Declared violation is one that the strategy is known for, and why it may be one.
type Declared struct {
	history.Violation
	Because string
}

// searchLimit bounds the search for an order that explains a history. One of a minute takes
// milliseconds; what is not found within it counts as a violation.
const searchLimit = 30 * time.Second

// judge holds a history to what its strategy claims.
func judge(c Config, began time.Duration, ops []history.Op) *Report {
	r := &Report{Config: c, Began: began, Ops: ops}
	rules := history.Rules{
		Reentrant: c.Variant.Reentrant, Fenced: c.Variant.Fenced, Permits: c.Permits, ReadWrite: c.ReadWrite,
		Forgets: func(f history.Op) bool { return kindOf(f).forgets },
		Bound:   bound,
	}
	oneStep := false
	switch c.Variant.Package {
	case "redlock": // votes may be split, so that nobody has it
	case "setnxgetset": // losers leave their stamps, so "held" is all that is ever known
	case "setnxpx":
		rules.Linger = linger
	case "ifeq", "luascript", "fairqueue", "reentrant", "semaphore", "rwlock":
		rules.Linger, oneStep = linger, true
	}
	known := ops
	if c.Variant.Servers > 1 {
		rules.Hinders, known = hinders, slices.Concat(ops, outages(ops, c.Variant.Servers))
	}
	found := history.Judge(known, rules)
	if oneStep {
		found = append(found, history.LinearLock(ops, rules, searchLimit)...)
	}
	if c.Variant.Fenced && c.Permits <= 1 {
		found = append(found, history.FencedRegister(ops, "", searchLimit)...)
	}
	e := newEvidence(c, ops)
	for _, v := range found {
		if why := e.declared(v); why != "" {
			r.Declared = append(r.Declared, Declared{v, why})
			e.explained(v)
		} else {
			r.Found = append(r.Found, v)
		}
	}
	return r
}

// kindOf is the kind of a fault in the history.
func kindOf(f history.Op) kind {
	name, _, _ := strings.Cut(f.Note, ",")
	for known, k := range kinds {
		if rest, ok := strings.CutPrefix(name, known); ok && (rest == "" || len(k.details) > 0 && rest[0] == ' ') {
			return k
		}
	}
	return kind{}
}
