package history

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// LinearLock looks for an order that explains what clients heard from one server's lock:
// free, or held by an owner with so many holds, each with a TTL. It is for locks that one
// server decides; the votes of a quorum do not make one. What it sees beyond the sweeps:
// "held" must be true at the very moment, the lock must be free when it is said to be, and
// the count of a re-entrant owner's holds must be right. A hundred thousand operations that
// some order explains take seconds; limit bounds the search where there is none.
//
// Of a lock that several may hold, a state is all holds; a grant needs room next to them. "Held" is true
// if there is no room for the attempt, or for a waiter in the queue that it must not overtake. A waiter of
// which nobody knows whether it stood there is believed to.
//
// Time is a step of its own, the lapse of what a grant or renewal gave: not before the
// holder's deadline, not later than linger past the TTL (see honestAmbiguity). So an
// alarm is a lock that was given away too early, or that stayed too long. The lapse of what
// was renewed since, or released, does nothing.
//
// Requests of unknown end would make a search endless if each could take effect or not at
// any moment. So a release of unknown end is a lapse that may come at once, a renewal of
// unknown end one that may come later. An acquire of unknown end may have held the lock
// until it would have lapsed: until then "held" is believed, and no count.
func LinearLock(ops []Op, r Rules, limit time.Duration) []Violation {
	b := bookOf(ops)
	var found []Violation
	for _, key := range b.keys() {
		s := b.script(key, r)
		found = append(found, linear("LinearLock", key, lockModel(r), s.steps, limit)...)
	}
	return found
}

// The effects of a step.
const (
	answer = iota // what a client asked for, as it was answered
	lapse         // a hold expires, if it was not renewed since
	forget        // a fault that may take every hold
)

// A lockStep is a step of the lock model.
type lockStep struct {
	what  int
	op    Op
	hold  string
	epoch int // renewals are counted; lapse: -1 ends whatever was renewed

	haze   int  // what size holds may have of which nobody knows
	wanted int  // of an attempt that was refused: see wanted
	early  []Op // likewise: see early
}

// A lockState is the lock as its server knows it. It is not changed once it is made.
type lockState struct {
	owner string
	holds []oneHold // sorted
	fence uint64    // the last that was issued
}

type oneHold struct {
	hold  string
	epoch int
	size  int
}

func (b *book) script(key string, r Rules) *script {
	p := b.byKey[key]
	var s script
	until := func(op Op) time.Duration {
		if r.Linger <= 0 {
			return Forever // not judged
		}
		return b.lapses(key, op, r.Linger)
	}
	var haze []Op // attempts of which something may be there until their End
	for _, op := range p.attempts {
		if op.remains() {
			op.End = until(op)
			haze = append(haze, op)
		}
	}
	hazy := func(op Op) (size int) {
		for _, h := range haze {
			if h.Start <= op.End && h.End >= op.Start && (op.Result == Held || r.Reentrant && h.owner() == op.owner()) {
				size += r.size(h)
			}
		}
		return size
	}
	wanted := b.wanted(key, p, r)
	for _, op := range p.attempts {
		step := lockStep{op: op, hold: op.Hold, haze: hazy(op)}
		switch {
		case op.Result == Held:
			step.wanted, step.early = wanted(op), p.early(op, r)
		case !op.grants():
			continue
		}
		s.add(op.Client, step, &op, op.Start, op.End)
	}
	for _, h := range p.holds {
		h.script(&s, until, hazy, b.past[h.grant.Hold])
	}
	for _, f := range b.faults {
		if r.Forgets != nil && hits(f, key) && r.Forgets(f) {
			s.add("server", lockStep{what: forget}, nil, f.Start, f.End)
		}
	}
	return &s
}

// early are the acquires under way with op that may have held a part of the lock before: a waiter that was made a
// holder, and has not heard of it, asks again, and gets another fence. Others may have been granted a part meanwhile.
func (p *page) early(op Op, r Rules) (all []Op) {
	if !r.shared() {
		return nil
	}
	for _, o := range p.attempts {
		if o.Start > op.End {
			break
		}
		if o.grants() && o.End >= op.Start {
			all = append(all, o)
		}
	}
	return all
}

// script adds the steps of a hold, and its lapses. past: it was downgraded, which is a step of the hold that took its
// place.
func (h *hold) script(s *script, until func(Op) time.Duration, hazy func(Op) int, past bool) {
	over := Forever // then the hold has surely ended
	if r, ok := h.released(); ok {
		over = r.End
	}
	known := []Op{h.grant} // what gave it a TTL
	ends := h.grant.End    // when it ends at the latest, for what nobody knows
	mayEnd := Forever      // from when on it may be, for the same reason
	for _, op := range h.ops {
		step := lockStep{op: op, hold: h.grant.Hold, haze: hazy(op)}
		deadline, _ := h.deadlineBefore(op.Start)
		switch {
		case op.Kind != KindRenew && op.Kind != KindRelease, op.Kind == KindRelease && past:
		case op.Result == Lost && op.Start >= deadline: // it knew, and did not ask
		case op.Kind == KindRenew && op.Result == OK:
			step.epoch = len(known)
			known = append(known, op)
			s.add(op.Client, step, &op, op.Start, op.End)
		case op.Kind == KindRenew && (op.Result == Unknown || op.Result == Lost && op.End >= deadline):
			ends = max(ends, until(op)) // lost, as the deadline came: whatever the server said
		case op.repeated():
			last := op
			last.TTL = h.grant.TTL
			mayEnd, ends = min(mayEnd, op.Start, deadline), max(ends, until(last))
		case op.Result == OK || op.Result == Lost:
			s.add(op.Client, step, &op, op.Start, op.End)
		}
	}
	if mayEnd < over {
		for _, op := range known {
			ends = max(ends, until(op))
		}
		s.add("time", lockStep{what: lapse, hold: h.grant.Hold, epoch: -1}, nil, mayEnd, ends)
		return
	}
	for i, op := range known {
		next := over
		for _, later := range known[i+1:] {
			next = min(next, later.End)
		}
		if next < op.Deadline {
			continue // it would do nothing, and be tried everywhere
		}
		s.add("time", lockStep{what: lapse, hold: h.grant.Hold, epoch: i}, nil, op.Deadline, max(ends, until(op)))
	}
}

func lockModel(r Rules) porcupine.NondeterministicModel {
	seed := maphash.MakeSeed()
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{lockState{}} },
		Step: func(state, input, _ any) []any {
			s, step := state.(lockState), input.(lockStep)
			if step.what == forget {
				return []any{s, s.without("", true)}
			}
			if next, ok := s.step(step, r); ok {
				return []any{next}
			}
			return nil
		},
		Equal: func(a, b any) bool {
			s, t := a.(lockState), b.(lockState)
			return s.owner == t.owner && s.fence == t.fence && slices.Equal(s.holds, t.holds)
		},
		Hash: func(state any) uint64 {
			s := state.(lockState)
			sum := maphash.Comparable(seed, struct {
				owner string
				fence uint64
			}{s.owner, s.fence})
			for _, h := range s.holds {
				sum = sum*31 + maphash.Comparable(seed, h)
			}
			return sum
		},
	}
}

// step is what the lock becomes; false: it cannot have answered so.
func (s lockState) step(step lockStep, r Rules) (lockState, bool) {
	op := step.op
	at := slices.IndexFunc(s.holds, func(h oneHold) bool { return h.hold == step.hold })
	there := at >= 0
	if step.what == lapse {
		if there && (step.epoch < 0 || s.holds[at].epoch == step.epoch) {
			return s.without(step.hold, false), true
		}
		return s, true
	}
	if op.Kind == KindAcquire && op.Result == OK && op.From != "" {
		before := len(s.holds)
		if s = s.without(op.From, false); len(s.holds) == before {
			return s, false
		}
	}
	mine := len(s.holds) > 0 && r.Reentrant && s.owner == op.owner()
	fits := s.taken()+r.size(op) <= r.room()
	switch {
	case op.Kind == KindAcquire && op.Result == Held:
		return s, r.Linger <= 0 || step.haze > 0 && r.Reentrant || !mine && s.taken()+s.unheard(step.early, r)+step.haze+step.wanted > r.room()
	case op.Kind == KindAcquire:
		return s.granted(step, fits, r), (fits || mine) && s.allows(step, fits, r)
	case op.Result == Lost:
		return s, !there
	case !there:
		return s, false
	case op.Kind == KindRenew:
		return s.renewed(at, step.epoch), true
	default: // release
		return s.without(step.hold, false), true
	}
}

// taken is the size of all holds.
func (s lockState) taken() (size int) {
	for _, h := range s.holds {
		size += h.size
	}
	return size
}

// unheard is the size of those grants that are not there yet.
func (s lockState) unheard(grants []Op, r Rules) (size int) {
	for _, g := range grants {
		if !slices.ContainsFunc(s.holds, func(h oneHold) bool { return h.hold == g.Hold }) {
			size += r.size(g)
		}
	}
	return size
}

// allows reports whether a grant has the fence that it must have. A new
// tenure has a greater fence than all before it, a re-entry its tenure's. A reader has the last one that was
// issued, perhaps to somebody of whom nobody knows. The fences of permits come in any order: see FenceOrder.
func (s lockState) allows(step lockStep, tenure bool, r Rules) bool {
	fence, hazy := step.op.Fence, step.haze > 0
	if r.Permits > 1 {
		return true
	}
	if r.ReadWrite && step.op.Share > 0 {
		return fence == 0 || fence >= s.fence
	}
	return fence == 0 || (tenure || hazy) && fence > s.fence || (!tenure || hazy) && fence == s.fence
}

func (s lockState) granted(step lockStep, tenure bool, r Rules) lockState {
	if tenure && !r.shared() {
		s.owner = step.op.owner()
	}
	s.fence = max(s.fence, step.op.Fence)
	s.holds = append(slices.Clone(s.holds), oneHold{hold: step.hold, size: r.size(step.op)})
	slices.SortFunc(s.holds, func(a, b oneHold) int { return cmp.Compare(a.hold, b.hold) })
	return s
}

func (s lockState) renewed(at, epoch int) lockState {
	s.holds = slices.Clone(s.holds)
	s.holds[at].epoch = epoch
	return s
}

// without takes a hold away, or all. It forgets the holder then, and keeps the fence.
func (s lockState) without(hold string, all bool) lockState {
	s.holds = slices.DeleteFunc(slices.Clone(s.holds), func(h oneHold) bool { return all || h.hold == hold })
	if len(s.holds) == 0 {
		s.owner, s.holds = "", nil
	}
	return s
}
