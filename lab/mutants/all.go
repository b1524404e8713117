package mutants

// Several judges locks that are taken as one.
var Several = Judge{Package: "./strategy", Test: "TestAll", Own: true}

// several are faults of strategy.All.
func several() []Mutant {
	const file = "strategy/all.go"
	return []Mutant{
		{
			Name: "several locks are taken in the order in which they were given", File: file,
			Old: "return strings.Compare(a.key, b.key)", New: "return 0",
			Judge: Several, Killed: []string{"Order"},
		},
		{
			Name: "several locks are taken in the order of their names", File: file,
			Old: "strings.Compare(a.key, b.key)", New: "strings.Compare(a.name, b.name)",
			Judge: Several, Killed: []string{"Order"},
		},
		{
			Name: "what was taken is not given back when the next is not to be had", File: file,
			Old: "part.giveBack()", New: "_ = part",
			Judge: Several, Killed: []string{"GivesBack", "OrNothing"},
		},
		{
			Name: "what is in hand is not kept alive while the next is waited for", File: file,
			Old: "lease.KeepAlive(0)", New: "_ = lease",
			Judge: Several, Killed: []string{"BeginsAgain"},
		},
		{
			Name: "who waits for the next does not learn that one in hand is lost", File: file,
			Old: "inHand, done = lease.Context(inHand)", New: "_, done = lease.Context(inHand)",
			Judge: Several, Killed: []string{"BeginsAgain"},
		},
		{
			Name: "a lease of several begins with what the wait has left", File: file,
			Old: "u.refresh(inHand, held)", New: "u.refresh(inHand, nil)",
			Judge: Several, Killed: []string{"Wait"},
		},
		{
			Name: "the deadline of several is the latest", File: file,
			Old: "deadline.Before(g.deadline())", New: "deadline.After(g.deadline())",
			Judge: Several, Killed: []string{"Order", "Failing"},
		},
		{
			Name: "the loss of one is not that of all", File: file,
			Old: "whole.losePart(l, end)", New: "_ = whole",
			Judge: Several, Killed: []string{"ReleasedAlone"},
		},
		{
			Name: "a part is renewed for longer than the maximum hold", File: file,
			Old: "min(part.s.o.TTL, c.TTL)", New: "part.s.o.TTL",
			Judge: Several, Killed: []string{"MaxHold"},
		},
		{
			Name: "parts outlast the maximum hold", File: "strategy/lease.go",
			Old: "return errors.Is(end, errMaxHold)", New: "return false",
			Judge: Several, Killed: []string{"MaxHold"},
		},
		{
			Name: "a release after the loss of one leaves the others", File: "strategy/lease.go",
			Old: "each(strategy.Parts(l), func(_ int, part *Lease) { part.Release(ctx) })", New: "",
			Judge: Several, Killed: []string{"Loss", "ReleasedAlone"},
		},
		{
			Name: "the parts of a lease do not have its owner", File: file,
			Old: "inHand := WithOwner(open, c.Owner)", New: "inHand := WithOwner(open, ownerOf(ctx))",
			Judge: Several, Killed: []string{"Order", "Reentry"},
		},
		{
			Name: "Close does not wait for what is in hand", File: file,
			Old: "\t\tdefer l.s.leave()\n", New: "\t\tl.s.leave()\n",
			Judge: Several, Killed: []string{"CloseInHand"},
		},
	}
}
