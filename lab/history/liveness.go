package history

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// deadlockFree finds who kept trying in vain: while nobody believes it holds a lock and no
// fault hinders him, nobody is to go on trying for longer than bound. An operation under way
// is a try; so is the pause to the client's next one, if that is less than a tenth of
// bound. A killed client no longer tries. A client that is paused is a fault, too.
//
// Of a lock that several may hold, it is while there is room for each of those who ask at the same time.
func (b *book) deadlockFree(r Rules) []Violation {
	return b.inVain("DeadlockFree", r, r.Bound, func(_ string, p *page) (believed []presence) {
		for _, s := range p.spans {
			believed = append(believed, presence{s.from, s.until, r.size(s.hold.grant)})
		}
		return believed
	})
}

// prompt is deadlockFree for a lock of which nothing can be left with the servers. Nobody waits for a TTL to end then: a
// waiter hears that the lock is free, or asks again soon.
func (b *book) prompt(r Rules) []Violation {
	r.Hinders = nil
	return b.inVain("Prompt", r, r.Prompt, func(key string, p *page) []presence {
		return b.present(key, p, r, r.Prompt, func(op Op) time.Duration { return b.undone(key, op, r) })
	})
}

// inVain finds those who kept trying for longer than bound, where others did not have the lock.
func (b *book) inVain(property string, r Rules, bound time.Duration, had func(key string, p *page) []presence) []Violation {
	hinders := r.Hinders
	var found []Violation
	for _, key := range b.keys() {
		p := b.byKey[key]
		type obstacle struct {
			from, until time.Duration
			fault       *Op // nil: the lock was not available
		}
		taken, wanted := full(had(key, p), r.room()), b.wanted(key, p, r)
		bySize := map[int][]obstacle{} // to those who ask for that size
		against := func(size int) []obstacle {
			if all, ok := bySize[size]; ok {
				return all
			}
			var all []obstacle
			for _, s := range taken(size) {
				all = append(all, obstacle{s.from, s.until, nil})
			}
			for _, h := range p.holds {
				all = append(all, obstacle{h.grant.End, h.grant.End, nil}) // somebody got it
			}
			for i, f := range b.faults {
				if hits(f, key) {
					all = append(all, obstacle{f.Start, f.End, &b.faults[i]})
				}
			}
			slices.SortFunc(all, func(a, b obstacle) int { return cmp.Compare(a.from, b.from) })
			bySize[size] = all
			return all
		}
		for _, try := range tries(p.attempts, bound/10) {
			from := try.from
			obstacles := against(wanted(Op{Share: try.ops[0].Share, Start: try.from, End: try.until}))
			report := func(until time.Duration) {
				if until = min(until, try.until); until-from > bound {
					first, last := try.ops[0], try.ops[len(try.ops)-1]
					found = append(found, violation(property, []Op{first, last}, "%s tried for %v to get %q, which nobody held: allowed are %v",
						first.Client, rounded(until-from), key, bound))
				}
			}
			for _, c := range obstacles {
				if c.until < from || c.fault != nil && hinders != nil && !hinders(*c.fault, try.ops[0].Client) {
					continue
				}
				if c.from >= try.until {
					break
				}
				report(c.from)
				from = max(from, c.until)
			}
			report(try.until)
		}
	}
	return found
}

// A try is a client's attempts, one soon after the other.
type try struct {
	from, until time.Duration
	ops         []Op
}

// tries puts attempts together that follow each other within a pause.
func tries(attempts []Op, pause time.Duration) []try {
	var all []try
	open := map[string]int{} // by client: its last
	for _, op := range attempts {
		if op.Kind != KindAcquire || op.End == Forever {
			continue
		}
		i, ok := open[op.Client]
		if !ok || op.Start > all[i].until+pause {
			i = len(all)
			open[op.Client] = i
			all = append(all, try{from: op.Start, until: op.End})
		}
		all[i].until = max(all[i].until, op.End)
		all[i].ops = append(all[i].ops, op)
		if op.Result == OK {
			delete(open, op.Client)
		}
	}
	return all
}

// fair finds waiters whom too many of other processes overtook, while nothing was broken.
func (b *book) fair(r Rules) []Violation {
	var found []Violation
	process := func(op Op) string { name, _, _ := strings.Cut(op.Client, "/"); return name }
	for _, key := range b.keys() {
		attempts := b.byKey[key].attempts
		for i, op := range attempts {
			if op.End == Forever || !r.Equal(op) || b.broken(key, op.Start, op.End) {
				continue
			}
			overtakers := []Op{op}
			for _, o := range attempts[i+1:] {
				if o.Start >= op.End {
					break
				}
				if o.grants() && o.End < op.End && o.Start > op.Start && process(o) != process(op) {
					overtakers = append(overtakers, o)
				}
			}
			// One that waits in another way may be the head of its process's line.
			differs := func(o Op) bool {
				return !r.Equal(o) && process(o) == process(op) && o.Start < op.End && o.End > op.Start
			}
			if n := len(overtakers) - 1; n > r.Overtakers && !slices.ContainsFunc(attempts, differs) {
				found = append(found, violation("Fair", []Op{op, overtakers[n]}, "%s waited for %q while %d of other processes came later and got it: allowed are %d",
					op.Client, key, n, r.Overtakers))
			}
		}
	}
	return found
}

// broken reports whether a fault on the way to a key lasts for some of a time.
func (b *book) broken(key string, from, until time.Duration) bool {
	return slices.ContainsFunc(b.faults, func(f Op) bool { return hits(f, key) && f.Start <= until && f.End >= from })
}
