package nemesis

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/lab/history"
)

// evidence is what a history holds of a strategy's known weaknesses.
type evidence struct {
	Config
	faults   []history.Op
	deadline map[string]time.Duration // by hold: the last
	grants   map[string][]history.Op  // by key
	moves    map[string][]history.Op  // by hold: renewals and releases, by Start
	strays   map[string][]stray       // by key
	asked    map[string][]history.Op  // by key: acquires
	fresh    map[string][]span        // by key: when no stamp can have passed; merged
	writes   map[write]history.Op     // that may have taken effect
	from     map[write]string         // the value that each overwrote, as its writer knew
	broken   map[string]time.Duration // by hold: since when its exclusion is, by a declared violation
}

// A write is one of the values of a key: no two writes have the same.
type write struct{ key, value string }

// A span is a time.
type span struct{ from, until time.Duration }

// A stray is the second step of a move of two: what it writes, or deletes, may be another's
// by then. Its first step has found its own token.
type stray struct {
	hold string // empty: an attempt's of unknown end
	span        // from its first step at the earliest until its second at the latest

	// free is when what it found can have expired at the earliest: before that nobody else
	// gets the lock, and it hits nobody.
	free time.Duration
}

func newEvidence(c Config, ops []history.Op) *evidence {
	e := &evidence{
		Config: c, deadline: map[string]time.Duration{}, grants: map[string][]history.Op{}, moves: map[string][]history.Op{},
		strays: map[string][]stray{}, asked: map[string][]history.Op{}, fresh: map[string][]span{},
		writes: map[write]history.Op{}, from: map[write]string{}, broken: map[string]time.Duration{},
	}
	knows := map[string]string{} // by hold: what it read or wrote last
	for _, op := range ops {
		if op.Deadline != 0 {
			e.deadline[op.Hold] = max(e.deadline[op.Hold], op.Deadline)
		}
		switch op.Kind {
		case history.KindFault:
			e.faults = append(e.faults, op)
		case history.KindAcquire:
			e.asked[op.Key] = append(e.asked[op.Key], op)
			if op.Result == history.OK {
				e.grants[op.Key] = append(e.grants[op.Key], op)
			}
		case history.KindRenew, history.KindRelease:
			e.moves[op.Hold] = append(e.moves[op.Hold], op)
		}
	}
	for _, op := range ops {
		switch op.Kind {
		case history.KindAcquire, history.KindRenew, history.KindRelease:
			if s, ok := e.stray(op); ok {
				e.strays[op.Key] = append(e.strays[op.Key], s)
			}
		case history.KindRead:
			if op.Result == history.OK {
				knows[op.Hold] = op.Value
			}
		case history.KindWrite:
			if op.Result == history.OK || op.Result == history.Unknown {
				w := write{op.Key, op.Value}
				e.writes[w], e.from[w] = op, knows[op.Hold]
				knows[op.Hold] = op.Value
			}
		}
	}
	if e.overwrites() {
		for key, grants := range e.grants {
			e.unseen(key, grants)
			e.fresh[key] = e.freshness(grants)
		}
	}
	return e
}

// stray is what may come of an operation past its time, if anything.
func (e *evidence) stray(op history.Op) (stray, bool) {
	s := stray{op.Hold, span{op.Start, op.End}, e.deadline[op.Hold]}
	switch {
	case op.Kind == history.KindAcquire && !doubtful(op) && op.GaveUp: // it may have been granted at last, and given back
		s.hold, s.from = "", op.End-opTimeout
		s.free, s.until = s.from+ttl, e.arrives(op, ttl)
	case op.Kind == history.KindAcquire && !doubtful(op):
		return stray{}, false
	case op.Kind == history.KindAcquire: // what it left is looked for, and deleted, for a TTL
		s.hold, s.free = "", op.Start+ttl
		s.until = e.arrives(op, ttl)
	case op.Kind == history.KindRenew && !e.overwrites():
		return stray{}, false // to prolong another's lock takes it from nobody
	case op.Kind == history.KindRenew && (op.Result == history.Unknown || op.Result == history.Lost && op.End >= s.free): // lost, as the deadline came
		s.until = e.arrives(op, 0)
	case op.Kind == history.KindRelease && (op.Result == history.Unknown || op.Result == history.Refused || op.Result == history.Unsent):
		s.until = e.arrives(op, ttl) // it is repeated for a TTL
	case op.Result != history.OK:
		return stray{}, false // it has found another's token, or none
	}
	if e.unkilled(s.until) {
		s.free = s.from // by another copy of its own, which came first
	}
	return s, s.until >= s.free
}

// doubtful reports whether an acquire may have left something of which its client has no
// hold: by an attempt of unknown end, or a grant that came too late.
func doubtful(op history.Op) bool {
	return op.End == history.Forever || op.Result == history.Unknown || op.Result == history.Lost || op.Unconfirmed > 0
}

// arrives is when the last request of an operation can reach the server, or the last that repeats
// it within that time: an attempt that nothing holds up takes its time-out.
func (e *evidence) arrives(op history.Op, repeated time.Duration) time.Duration {
	at, end := process(op), op.End
	if end == history.Forever {
		end, repeated = e.killed(op), 0
	}
	end += repeated + opTimeout
	for again := true; again; {
		again = false
		for _, f := range e.faults {
			if f.Start <= end && f.End >= op.Start && f.End+opTimeout > end && delays(f) && (f.Client == "" || f.Client == at) {
				end, again = f.End+opTimeout, true
			}
		}
	}
	return end
}

// killed is when the process surely was no more that was seen to do something and never to
// end it: the first at a seat was killed first.
func (e *evidence) killed(op history.Op) time.Duration {
	var seat, born int
	if _, err := fmt.Sscanf(op.Client, "%d.%d", &seat, &born); err != nil {
		return op.Start
	}
	for _, f := range e.faults {
		if f.Client == fmt.Sprint(seat) && strings.HasPrefix(f.Note, "kill,") {
			if born--; born == 0 {
				return f.End
			}
		}
	}
	return op.Start // it lived until the end of the run
}

// delays tells of a fault whether what was sent may come later for it.
func delays(f history.Op) bool {
	return f.Note == Slow || kindOf(f).delays
}

// unkilled reports whether some connection may have outlived its time-out with what it
// carries: a client that may not end it repeats what it sent on another.
func (e *evidence) unkilled(until time.Duration) bool {
	return slices.ContainsFunc(e.faults, func(f history.Op) bool { return f.Start <= until && strings.HasPrefix(f.Note, "deny client,") })
}

// unseen adds the renewals in the background that may have failed: a history does not have
// them. Of holds that did not last until the first there are none.
func (e *evidence) unseen(key string, grants []history.Op) {
	for _, g := range grants {
		moves := e.moves[g.Hold]
		last := g
		if len(moves) > 0 {
			last = moves[len(moves)-1]
		}
		if from := g.End + firstRenewal; last.End > from {
			e.strays[key] = append(e.strays[key], stray{g.Hold, span{from, e.arrives(last, 0)}, e.deadline[g.Hold]})
		}
	}
}

// firstRenewal is when a lease renews itself in the background at the earliest: a third
// of its TTL, less a tenth, and some for the clock.
const firstRenewal = ttl / 4

// freshness is when no stamp that anybody read can have passed: somebody has just found his
// own, or has just deleted it. A stamp is drawn before it is sent.
func (e *evidence) freshness(grants []history.Op) []span {
	var all []span
	for _, g := range grants {
		for _, op := range e.moves[g.Hold] {
			if op.Result == history.OK && op.End < op.Start+ttl-opTimeout {
				all = append(all, span{op.End, op.Start + ttl - opTimeout})
			}
		}
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := all[:0]
	for _, s := range all {
		if n := len(merged); n > 0 && s.from <= merged[n-1].until {
			merged[n-1].until = max(merged[n-1].until, s.until)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// explained notes that an exclusion was broken, so that what follows from it is no news.
func (e *evidence) explained(v history.Violation) {
	if v.Property != "Exclusion" {
		return
	}
	at := v.Ops[1].End
	for _, grant := range v.Ops[:2] {
		if was, ok := e.broken[grant.Hold]; !ok || at < was {
			e.broken[grant.Hold] = at
		}
	}
}

const (
	twoSteps   = "its release and its renewal are two steps: one that was stuck on its way hit another's lock"
	overwrites = "a loser's GETSET overwrites the winner's value, with an earlier stamp and a token of its own"
	unfenced   = "it has no fence: a holder that was paused between looking and writing writes late"
	followed   = "it follows from an exclusion that was broken before"
)

// declared says why a violation is no surprise; empty: it is one.
func (e *evidence) declared(v history.Violation) string {
	if len(v.Ops) < 2 {
		return ""
	}
	last := v.Ops[len(v.Ops)-1]
	switch v.Property {
	case "Exclusion":
		return e.robbed(v.Ops[0], v.Ops[1], false)
	case "Ownership":
		switch {
		case v.Ops[1].Kind == history.KindAcquire:
			return e.robbed(v.Ops[0], v.Ops[1], false)
		case last.Kind == history.KindLost || last.Result == history.Lost:
			return e.robbed(v.Ops[0], last, true)
		}
	case "NoLostUpdate":
		causes := e.causes(v)
		if slices.ContainsFunc(causes, func(w history.Op) bool {
			since, ok := e.broken[w.Hold]
			return ok && since <= last.End
		}) {
			return followed
		}
		if !e.Variant.Fenced && slices.ContainsFunc(causes, func(w history.Op) bool { return w.End > e.deadline[w.Hold] }) {
			return unfenced
		}
	}
	return ""
}

// causes are the writes that a lost update may come from: those of the violation; and if a
// reader found out, those that led to what it read and not to what it should have, or the
// other way round.
func (e *evidence) causes(v history.Violation) []history.Op {
	values := map[write]bool{}
	for _, op := range v.Ops {
		if op.Kind == history.KindWrite {
			values[write{op.Key, op.Value}] = true
		}
	}
	if last := v.Ops[len(v.Ops)-1]; last.Kind == history.KindRead {
		should, did := e.way(v.Ops[0]), e.way(last)
		for _, way := range []map[write]bool{should, did} {
			for w := range way {
				if !should[w] || !did[w] {
					values[w] = true
				}
			}
		}
	}
	var all []history.Op
	for w := range values {
		if op, ok := e.writes[w]; ok {
			all = append(all, op)
		}
	}
	return all
}

// way are the writes that led to a value.
func (e *evidence) way(op history.Op) map[write]bool {
	way := map[write]bool{}
	for w := (write{op.Key, op.Value}); !way[w] && w.value != ""; w.value = e.from[w] {
		way[w] = true
	}
	return way
}

// robbed says how a grant may have been taken from its holder before after, which is a
// rival's grant or, if hidden is enough, what told the holder.
func (e *evidence) robbed(victim, after history.Op, hidden bool) string {
	switch {
	case !e.twoSteps() || e.impossible(victim) || !hidden && e.impossible(after):
	case e.overwrites() && e.raced(victim, after, hidden):
		return overwrites
	case e.stuck(victim, after):
		return twoSteps
	}
	return ""
}

func (e *evidence) twoSteps() bool {
	return (e.Variant.Package == "setnxpx" || e.Variant.Package == "setnxgetset") && e.Variant.Name != "setnxgetset-watch"
}

func (e *evidence) overwrites() bool {
	return e.Variant.Package == "setnxgetset" && e.Variant.Name != "setnxgetset-watch"
}

// decided is since when a server may have decided on a grant: a wait may have begun long
// before, but the deadline counts from the request that was granted.
func decided(grant history.Op) time.Duration { return max(grant.Start, grant.Deadline-grant.TTL) }

// impossible reports whether another's key was there for all of the time in which a server may
// have granted this: nobody deleted it or wrote over it, so there is nothing to excuse.
func (e *evidence) impossible(grant history.Op) bool {
	return slices.ContainsFunc(e.grants[grant.Key], func(g history.Op) bool {
		return g.Hold != grant.Hold && g.End <= decided(grant) && e.kept(g, grant.End)
	})
}

// kept reports whether a holder's key surely was there from its grant until some time: a
// renewal or release that began after it found the token, which no other ever writes, and
// which no renewal of the holder's own has brought back.
func (e *evidence) kept(grant history.Op, until time.Duration) bool {
	for _, op := range e.moves[grant.Hold] {
		switch {
		case op.Result == history.OK && op.Start >= until:
			return !e.overwrites() || op.Start < grant.End+firstRenewal
		case e.overwrites() && op.Kind == history.KindRenew && op.Result != history.Unsent && op.Result != history.Refused:
			return false // it writes the token
		}
	}
	return false
}

// stuck reports whether the second step of some other hold's move may have come to the
// server after the victim got the lock, and its first before.
func (e *evidence) stuck(victim, after history.Op) bool {
	return slices.ContainsFunc(e.strays[victim.Key], func(s stray) bool {
		other := s.hold == "" || s.hold != victim.Hold && s.hold != after.Hold
		return other && s.from <= victim.End && s.free <= victim.End && s.until >= decided(victim)
	})
}

// raced reports whether a loser's GETSET may have hit the victim's key: the loser had seen
// that a stamp had passed before the victim wrote its own. Where the victim's key must
// not only be hidden by that, the loser's stamp passed before the rival came.
func (e *evidence) raced(victim, after history.Op, hidden bool) bool {
	return slices.ContainsFunc(e.asked[victim.Key], func(op history.Op) bool {
		from, until := max(op.Start, decided(victim)-opTimeout), op.End
		if doubtful(op) {
			from, until = op.Start, e.arrives(op, 0)
		} else if op.Hold == victim.Hold && op.Result == history.OK {
			return false // it made one attempt after the other
		}
		return op.Start <= victim.End && until >= decided(victim) &&
			(hidden || op.Start+ttl <= after.End) && e.passed(victim.Key, from, victim.End)
	})
}

// passed reports whether somebody may have read a stamp that had passed.
func (e *evidence) passed(key string, from, until time.Duration) bool {
	for _, s := range e.strays[key] { // it may have brought an old one
		if s.from <= until && s.until >= from {
			return true
		}
	}
	return !slices.ContainsFunc(e.fresh[key], func(s span) bool { return s.from < from && s.until > until })
}
