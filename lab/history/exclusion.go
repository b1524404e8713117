package history

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Exclusion finds holds of a lock that were believed in at once. A hold is believed in
// from the return of the call that granted it until its release is called, its holder last
// saw that it held what it then found lost, or its deadline; a renewal moves the deadline.
// Both holders would have told who asked them "yes", so each overlap is real. One that
// began after the last look at a lease that was lost is overlooked: look often. A hold that
// came of a downgrade is believed in from its call, for its holder held the lock before.
// Holds of one owner may overlap where the lock is re-entrant. Of a lock that several may hold it
// finds moments at which more of it was believed in than there is.
//
// It proves nothing about what the holders did: one that looked, was paused, and then
// wrote is found by noLostUpdate.
func Exclusion(ops []Op, r Rules) []Violation { return bookOf(ops).exclusion(r) }

func (b *book) exclusion(r Rules) []Violation {
	var found []Violation
	for _, key := range b.keys() {
		var open []span
		for _, s := range b.byKey[key].spans {
			open = slices.DeleteFunc(open, func(o span) bool { return o.until <= s.from })
			for _, against := range r.excluded(open, s) {
				lasts, both := s.until, "both"
				for _, o := range against {
					lasts = min(lasts, o.until)
				}
				if len(against) > 1 {
					both = "all at once"
				}
				against = append(against, s)
				found = append(found, violation("Exclusion", grants(against), "%s %s believed to hold %q, for %v", clients(against), both, key, rounded(lasts-s.from)))
			}
			open = append(open, s)
		}
	}
	return found
}

// excluded are the open spans that leave no room for s. Of a lock of several permits they do so together, of any
// other each one does.
func (r Rules) excluded(open []span, s span) (found [][]span) {
	var others []span
	taken := r.size(s.hold.grant)
	for _, o := range open {
		if !rival(o.hold, s.hold, r) {
			continue
		}
		if r.Permits <= 1 {
			found = append(found, []span{o})
		}
		others, taken = append(others, o), taken+r.size(o.hold.grant)
	}
	if r.Permits > 1 && taken > r.room() {
		found = append(found, others)
	}
	return found
}

func clients(spans []span) string {
	var names []string
	for _, s := range spans {
		names = append(names, s.hold.client)
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func grants(spans []span) []Op {
	var ops []Op
	for _, s := range spans {
		ops = append(ops, s.hold.grant)
	}
	return ops
}

// ownership finds what was done to a lock by somebody who did not own it: only an owner
// releases or renews, and what it owns is not taken from it. Of that a client's history
// shows, and this reports:
//
//   - a release or renewal that succeeded although another believed to hold for all of
//     the time that it took; of a lock that several may hold, although others left no room for it;
//   - a hold that was released twice, or renewed after that: the second time it was
//     somebody else's lock, or nobody's;
//   - a hold that the servers called lost before its deadline: its key was deleted. Unless
//     a fault since its grant makes servers forget.
//
// What it cannot see: a deletion of which nobody notices anything (no other gets the
// lock, and the holder does not ask again before its deadline), and who did it.
func (b *book) ownership(r Rules) []Violation {
	var found []Violation
	report := func(ops []Op, format string, args ...any) {
		found = append(found, violation("Ownership", ops, format, args...))
	}
	for _, key := range b.keys() {
		p := b.byKey[key]
		covers := p.covering()
		for _, h := range p.holds {
			var freed *Op
			for _, op := range h.ops {
				if op.Kind != KindRelease && op.Kind != KindRenew && op.Kind != KindLost {
					continue
				}
				if op.Result == OK {
					others := covers(op, func(o *hold) bool { return rival(o, h, r) })
					for _, against := range r.excluded(others, span{hold: h}) {
						report(append(grants(against), h.grant, op), "the %s of %s succeeded while %s held %q all the time", op.Kind, h.client, clients(against), key)
					}
					if freed != nil && op.Start >= freed.End {
						report([]Op{h.grant, *freed, op}, "the %s of %s succeeded after it had released %q", op.Kind, h.client, key)
					}
					if op.Kind == KindRelease && freed == nil {
						freed = &op
					}
					continue
				}
				if op.Kind != KindLost && op.Result != Lost || op.Capped {
					continue
				}
				deadline, by := h.deadlineBefore(op.Start)
				if op.End < deadline && !b.excused(h, op, r.Forgets) {
					report([]Op{h.grant, by, op}, "%s lost %q %v before its deadline, and nothing made a server forget it", h.client, key, rounded(deadline-op.End))
				}
			}
		}
	}
	return found
}

// deadlineBefore is until when the holder surely believed at t to hold: what a renewal
// has given that had ended counts.
func (h *hold) deadlineBefore(t time.Duration) (time.Duration, Op) {
	last := h.grant
	for _, r := range h.renewals() {
		if r.End <= t {
			last = r
		}
	}
	return last.Deadline, last
}

// excused reports whether a hold may be gone when op said so: something made a server forget it.
func (b *book) excused(h *hold, op Op, forgets func(Op) bool) bool {
	return forgets != nil && slices.ContainsFunc(b.faults, func(f Op) bool {
		return hits(f, h.grant.Key) && f.Start <= op.End && f.End >= h.grant.Start && forgets(f)
	})
}

// covering finds the spans of others that lasted for the whole of an operation.
func (p *page) covering() func(op Op, other func(*hold) bool) []span {
	latest := make([]time.Duration, len(p.spans)) // until when spans up to this one last
	for i, s := range p.spans {
		latest[i] = s.until
		if i > 0 {
			latest[i] = max(latest[i], latest[i-1])
		}
	}
	return func(op Op, other func(*hold) bool) (found []span) {
		i, _ := slices.BinarySearchFunc(p.spans, op.Start, func(s span, t time.Duration) int { return cmp.Compare(s.from, t) })
		for i--; i >= 0 && latest[i] > op.End; i-- {
			if s := p.spans[i]; s.until > op.End && other(s.hold) {
				found = append(found, s)
			}
		}
		slices.Reverse(found)
		return found
	}
}
