package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// A hold is one grant of a lock, with all that its client did with it.
type hold struct {
	grant  Op
	owner  string
	client string
	ops    []Op // renew, release, lost, read, write, by Start
}

// A span is a time in which the holder believed to hold: [from, until).
type span struct {
	from, until time.Duration
	hold        *hold
}

// A book is a history, sorted by what the sweeps ask for.
type book struct {
	ops    []Op
	holds  []*hold          // by the grant's Start
	byKey  map[string]*page // holds and attempts of a lock
	stray  []Op             // of a hold that nobody was granted
	twice  [][2]Op          // grants of one token
	faults []Op
}

type page struct {
	holds    []*hold
	attempts []Op   // acquire
	spans    []span // of all holds, by from
}

func bookOf(ops []Op) *book {
	b := &book{ops: Merge(ops), byKey: map[string]*page{}}
	holds := map[string]*hold{}
	for _, op := range b.ops {
		switch {
		case op.Kind == KindFault:
			b.faults = append(b.faults, op)
			continue
		case op.Kind == KindAcquire:
			p := b.page(op.Key)
			p.attempts = append(p.attempts, op)
		}
		if !op.grants() {
			continue
		}
		if h := holds[op.Hold]; h != nil {
			b.twice = append(b.twice, [2]Op{h.grant, op})
			continue
		}
		h := &hold{grant: op, owner: op.owner(), client: op.Client}
		holds[op.Hold] = h
		b.holds = append(b.holds, h)
		b.page(op.Key).holds = append(b.page(op.Key).holds, h)
	}
	for _, op := range b.ops {
		if op.Kind == KindFault || op.Kind == KindAcquire || op.Hold == "" {
			continue
		}
		if h := holds[op.Hold]; h != nil {
			h.ops = append(h.ops, op)
		} else {
			b.stray = append(b.stray, op)
		}
	}
	for _, p := range b.byKey {
		for _, h := range p.holds {
			p.spans = append(p.spans, h.spans()...)
		}
		slices.SortStableFunc(p.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
	return b
}

func (b *book) page(key string) *page {
	p := b.byKey[key]
	if p == nil {
		p = &page{}
		b.byKey[key] = p
	}
	return p
}

// keys are those of all locks, in order.
func (b *book) keys() []string { return slices.Sorted(maps.Keys(b.byKey)) }

// hits reports whether a fault concerns a key.
func hits(fault Op, key string) bool { return fault.Key == "" || fault.Key == key }

// over is when the holder knew, without looking at its deadline, that it holds nothing,
// and by which operation.
func (h *hold) over() (time.Duration, Op) {
	at, by := Forever, Op{}
	for _, op := range h.ops {
		end := Forever
		switch {
		case op.Kind == KindRelease:
			end = op.Start // whatever comes of it, the work is done
		case op.Kind == KindLost, op.Kind == KindRenew && op.Result == Lost:
			end = op.End
		}
		if end < at {
			at, by = end, op
		}
	}
	return at, by
}

// disbelieved is until when the holder surely believed, whatever its deadline, and what ended
// that: of a loss that it noticed later, when it last saw that it held the lock.
func (h *hold) disbelieved() (time.Duration, Op) {
	at, by := h.over()
	for _, op := range h.ops {
		if op.Kind == KindLost && op.Start < at {
			at, by = op.Start, op
		}
	}
	return at, by
}

// renewals are those that succeeded, by End.
func (h *hold) renewals() []Op {
	var ok []Op
	for _, op := range h.ops {
		if op.Kind == KindRenew && op.Result == OK {
			ok = append(ok, op)
		}
	}
	slices.SortStableFunc(ok, func(a, b Op) int { return cmp.Compare(a.End, b.End) })
	return ok
}

// spans are the times in which the holder believed to hold. There is more than one if a
// renewal that ended past the deadline was believed.
func (h *hold) spans() []span {
	over, _ := h.disbelieved()
	var all []span
	s := span{h.grant.End, h.grant.Deadline, h}
	if h.grant.From != "" {
		s.from = h.grant.Start
	}
	push := func() {
		if s.until = min(s.until, over); s.from < s.until {
			all = append(all, s)
		}
	}
	for _, r := range h.renewals() {
		if r.End > s.until {
			push()
			s.from = r.End
		}
		s.until = r.Deadline
	}
	push()
	return all
}

// deadlineAt is until when the holder may have believed to hold at t, for all that others
// than op gave, to its favour: what a renewal had given that was only noticed later counts.
// It returns whose deadline that is.
func (h *hold) deadlineAt(t time.Duration, op Op) (time.Duration, Op) {
	latest := h.grant
	for _, r := range h.renewals() {
		given := r.End <= t || r.Noticed && r.Start <= t
		if r != op && given && r.Deadline > latest.Deadline {
			latest = r
		}
	}
	return latest.Deadline, latest
}

// released is the release that the servers confirmed.
func (h *hold) released() (Op, bool) {
	for _, op := range h.ops {
		if op.Kind == KindRelease && op.Result == OK {
			return op, true
		}
	}
	return Op{}, false
}

// rival reports whether two holds exclude each other. Two of a lock of several permits may, together with others.
func rival(a, b *hold, r Rules) bool {
	return a != b && !(r.Reentrant && a.owner == b.owner) && (r.Permits > 1 || r.size(a.grant)+r.size(b.grant) > r.room())
}

// plus adds without going beyond Forever.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return Forever
	}
	return a + b
}
