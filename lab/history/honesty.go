package history

import (
	"cmp"
	"slices"
	"time"
)

// honestLoss finds holders that did not learn of a loss in time, and what was lost and came back.
//
//   - Nothing that the lock protects is begun at or after the deadline, or after the
//     holder knew of the end. (A holder that works begins an operation, asks the
//     lease, and sends it then: one that was not sent is none.)
//   - No renewal succeeds that was called after the loss or the deadline, or answered after
//     the deadline; nor does a release that was called then, which would claim that the lock
//     was held until then.
//   - No deadline is later than the servers' expiry can be: one TTL after the answer.
//   - A hold that is over has had a deadline two fifths of a TTL after its grant, at least, unless something was broken: a grant
//     that was handed over is at most half a TTL old, and one that a message told of is renewed at once.
//
// It does not judge whether the holder woke at its deadline: a machine may be paused.
func (b *book) honestLoss(r Rules) []Violation {
	var found []Violation
	report := func(ops []Op, format string, args ...any) {
		found = append(found, violation("HonestLoss", ops, format, args...))
	}
	for _, h := range b.holds {
		over, by := h.over()
		for _, op := range append([]Op{h.grant}, h.renewals()...) {
			if op.TTL > 0 && op.Deadline > plus(op.End, op.TTL) {
				report([]Op{op}, "%s believes it holds %q until %v after the answer, more than the TTL of %v", h.client, op.Key, rounded(op.Deadline-op.End), op.TTL)
			}
		}
		for _, op := range h.ops {
			at, least := op.Start, plus(h.grant.End, h.grant.TTL*2/5)
			if deadline, since := h.deadlineAt(at, op); r.Prompt > 0 && (op.Kind == KindRelease || op.Kind == KindLost) && !op.Capped && at > plus(h.grant.End, renewed) && deadline < least && !b.broken(op.Key, h.grant.Start, op.End) {
				report([]Op{h.grant, since, op}, "%s had %q until %v after its grant, of a TTL of %v", h.client, op.Key, rounded(deadline-h.grant.End), h.grant.TTL)
			}
			use := (op.Kind == KindRead || op.Kind == KindWrite) && op.Result != Unsent && op.Result != Closed && op.Result != Released
			if !use && !((op.Kind == KindRenew || op.Kind == KindRelease) && op.Result == OK) {
				continue
			}
			late := false
			if deadline, since := h.deadlineAt(op.Start, op); op.Start >= deadline {
				late = true
				report([]Op{h.grant, since, op}, "the %s of %s %s at or after its deadline: %v after it", op.Kind, h.client, began(use), rounded(op.Start-deadline))
			}
			if op.Kind == KindRenew && !op.Noticed && !late {
				if deadline, since := h.deadlineAt(op.answered(), op); op.answered() >= deadline {
					report([]Op{h.grant, since, op}, "the %s of %s was believed %v after its deadline: it was lost, and came back", op.Kind, h.client, rounded(op.answered()-deadline))
				}
			}
			if op.Start >= over && by != op {
				report([]Op{h.grant, by, op}, "the %s of %s %s although it knew that its hold was over", op.Kind, h.client, began(use))
			}
		}
	}
	return found
}

// renewed is how soon a grant that a message told of is renewed.
const renewed = 20 * time.Millisecond

func began(use bool) string {
	if use {
		return "began"
	}
	return "succeeded, called"
}

// honestAmbiguity finds what nobody knew and was yet reported as held, lost or acquired.
// What a client's history shows of that, and this reports:
//
//   - a hold that was used, renewed or released although the acquire that asked for it was
//     not OK, or whose token was granted twice: an answer that nobody got was believed;
//   - "held" although nobody could have held the lock at any moment of the call: an
//     attempt that failed was called one that was refused. Who could: a hold from the
//     call that got it until its release was confirmed or until linger past its TTL; an
//     attempt of unknown outcome, or that its client gave up, likewise; and, as a server
//     that is paused counts no time, until linger and a TTL past any fault on the way.
//     Of a lock that several may hold, although there was room for the caller, and for each
//     waiter that it must not overtake. linger 0: not judged;
//   - an operation that was not recorded whole, of which nothing can be said.
//
// It cannot see an answer of OK that no server gave, if nobody else notices:
// [Exclusion] finds what comes of it.
func (b *book) honestAmbiguity(r Rules) []Violation {
	var found []Violation
	report := func(ops []Op, format string, args ...any) {
		found = append(found, violation("HonestAmbiguity", ops, format, args...))
	}
	for _, op := range b.ops {
		if err := op.Check(); err != nil {
			report([]Op{op}, "%v", err)
		}
	}
	for _, g := range b.twice {
		report(g[:], "%s and %s were granted the same token", g[0].Client, g[1].Client)
	}
	for _, op := range b.stray {
		if op.Result == OK || op.Kind == KindRead || op.Kind == KindWrite {
			report([]Op{op}, "the %s of %s is for a hold of %q that nobody was granted", op.Kind, op.Client, op.Key)
		}
	}
	if r.Linger <= 0 {
		return found
	}
	for _, key := range b.keys() {
		p := b.byKey[key]
		lapses := func(op Op) time.Duration { return b.lapses(key, op, r.Linger) }
		taken := full(b.present(key, p, r, r.Linger, lapses), r.room())
		wanted := b.wanted(key, p, r)
		for _, op := range p.attempts {
			if op.Result != Held {
				continue
			}
			times, who := taken(wanted(op)), "nobody"
			i, _ := slices.BinarySearchFunc(times, op.Start, func(s span, t time.Duration) int { return cmp.Compare(s.until, t) })
			if i < len(times) && times[i].from <= op.End {
				continue
			}
			if r.shared() {
				who = "too few"
			}
			report([]Op{op}, "%s heard that %q is held, but %s could have held it then", op.Client, key, who)
		}
	}
	return found
}

// wanted is the greatest size that was asked for during an attempt: its own, or that of a waiter that may have stood
// in the queue. While there was no room for that waiter, nobody behind it got in.
func (b *book) wanted(key string, p *page, r Rules) func(op Op) int {
	var greater []Op // attempts of a size greater than 1, until they are surely gone
	for _, op := range p.attempts {
		if r.size(op) > 1 {
			if op.remains() {
				op.End = b.lapses(key, op, r.Linger)
			}
			greater = append(greater, op)
		}
	}
	return func(op Op) int {
		size := r.size(op)
		for _, o := range greater {
			if o.Start > op.End {
				break
			}
			if o.End >= op.Start {
				size = max(size, r.size(o))
			}
		}
		return size
	}
}

// A presence is a time in which so much of a lock may have been held.
type presence struct {
	from, until time.Duration
	size        int
}

// full are, by size, the times in which there was no room for one of that size, in order.
func full(present []presence, room int) func(size int) []span {
	type change struct {
		at time.Duration
		by int
	}
	var changes []change
	for _, p := range present {
		changes = append(changes, change{p.from, p.size}, change{p.until, -p.size})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.by, a.by)) })
	known := map[int][]span{}
	return func(size int) []span {
		times, ok := known[size]
		if ok {
			return times
		}
		taken := 0
		for _, c := range changes {
			before := taken+size > room
			taken += c.by
			switch after := taken+size > room; {
			case after && !before:
				times = append(times, span{from: c.at, until: Forever})
			case before && !after:
				times[len(times)-1].until = c.at
			}
		}
		known[size] = times
		return times
	}
}

// present is what may have been with the servers. remains says until when there may be something of an attempt or of a hold that
// its client undoes.
func (b *book) present(key string, p *page, r Rules, linger time.Duration, remains func(asked Op) time.Duration) []presence {
	var all []presence
	add := func(asked Op, until time.Duration) {
		all = append(all, presence{from: asked.Start, until: until, size: r.size(asked)})
	}
	for _, op := range p.attempts {
		if op.remains() {
			add(op, remains(op))
		}
	}
	for _, h := range p.holds {
		if released, ok := h.released(); ok {
			add(h.grant, released.End)
			continue
		}
		until := b.lapses(key, h.grant, linger)
		for _, op := range h.ops {
			switch {
			case op.Kind == KindRenew && op.Result != Refused && op.Result != Unsent: // lost: perhaps only told too late
				until = max(until, b.lapses(key, op, linger))
			case op.undone():
				op.TTL = h.grant.TTL
				until = min(until, remains(op)) // nothing comes after it
			}
		}
		add(h.grant, until)
	}
	return all
}

// undone reports whether an operation ended a hold of which the client undoes what may be left: a release that the servers did
// not confirm (one of a lock that was detached has no words), or the end of the maximum hold.
func (op Op) undone() bool {
	unsure := op.Result == Unknown || op.Result == Unsent || op.Result == Refused
	return op.Kind == KindRelease && unsure && op.Note != "" || op.Kind == KindLost && op.Capped
}

// undone is when its client has undone what op may have left: soon, but after a fault on the way it may take a part of the time that
// has passed until it asks again. If a fault ends the client, the TTL has to pass.
func (b *book) undone(key string, op Op, r Rules) time.Duration {
	if op.End == Forever {
		return b.lapses(key, op, r.Prompt)
	}
	end := plus(op.End, r.Prompt)
	for again := true; again; {
		again = false
		for _, f := range b.faults {
			if !hits(f, key) || f.Start > end || f.End < op.Start {
				continue
			}
			if r.Ends != nil && r.Ends(f, op.Client) {
				return b.lapses(key, op, r.Prompt)
			}
			if asks := plus(f.End, r.Prompt+max(f.End-op.End, 0)/3); asks > end {
				end, again = asks, true
			}
		}
	}
	return end
}

// lapses is when nothing can be left any more of what op asked for: linger past its TTL.
// A server that is paused counts no time, and may do later what it was asked for, so
// both begin again after every fault on the way.
func (b *book) lapses(key string, asked Op, linger time.Duration) time.Duration {
	if asked.TTL == 0 {
		return Forever
	}
	rest := asked.TTL + linger
	end := plus(asked.End, rest)
	for again := true; again; {
		again = false
		for _, f := range b.faults {
			if hits(f, key) && f.Start <= end && f.End >= asked.Start && plus(f.End, rest) > end {
				end, again = plus(f.End, rest), true
			}
		}
	}
	return end
}
