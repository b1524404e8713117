package engine

import (
	"cmp"
	"errors"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A queueEntry is what the servers know of a line: the claim for which Acquire asks, and which waits in
// their queue. It belongs to the line: the next head inherits it.
type queueEntry struct {
	c      *core
	owner  string        // as which a waiter may re-enter by it; empty: none
	claim  driver.Claim  // its Token is kept while it queues; without a place each attempt has one of its own
	sent   bool          // the servers may have it
	queued bool          // it has its place
	offset time.Duration // queued: our monotonic clock less the servers' clock, at least
}

// suits reports whether w can have the lock by this entry.
func (e *queueEntry) suits(w *waiter) bool {
	return e.c == w.c && e.owner == w.owner && e.claim.Share == w.share
}

// claimOf is the entry's claim, made by w.
func (e *queueEntry) claimOf(w *waiter) driver.Claim {
	c := e.claim
	c.Owner = cmp.Or(w.named, c.Token)
	return c
}

// placed takes in that the entry has its place, asked for at start, when the server's clock showed that time. It was
// answered, so no request of it can arrive after it is withdrawn.
func (e *queueEntry) placed(start time.Time, clock time.Duration) {
	e.queued, e.claim.Grant.Start = true, start
	e.offset = e.c.renewal.Since(start) - clock // at least: our clock counts from the scheduler's epoch
}

// believed returns how much of a direct grant counts; ok is false if nothing does. Anybody who may publish can have sent
// the message, so it is for a successor's TTL and for what was asked for, whatever it says.
//
// The servers count from when they made the grant. By our clock that was no earlier than the offset says; after they
// answered the entry's question; and no later than we heard of it. Since the offset was taken, the clocks have drifted
// apart by 1 % at most. If that exceeds the drift for which the TTL allows, the offset says too little.
func (e *queueEntry) believed(d directGrant) (g driver.Grant, ok bool) {
	g, asked := d.Grant, e.claim.Grant.Start
	g.TTL, g.Fences, g.Holds = min(g.TTL, driver.SuccessorTTL(e.claim.TTL)), min(g.Fences, e.claim.Fences), min(g.Holds, e.claim.Holds)
	counted, drifted := e.c.renewal.Epoch().Add(g.ServerTime+e.offset), d.at.Sub(asked)/100
	g.Start = counted.Add(-drifted)
	ok = drifted <= driver.Drift(g.TTL) && !counted.Before(asked) && !g.Start.After(d.at) && time.Now().Before(deadlineOf(g))
	return g, ok
}

// mostHolds is how many holds a claim asks for. They are released one by one, perhaps by few connections.
const mostHolds = 64

// newClaim is the claim of a new attempt of w, the first: if several may hold the lock, for w and those behind it who want the same; and
// with as many fences as may be handed over. Once the line had to wait, it takes shares one by one, or it would take those for which other
// processes have come meanwhile.
func (ln *line) newClaim(w *waiter) driver.Claim {
	c := w.claimFor(w.named)
	c.Joins, ln.joins = ln.joins, ""
	if ln.group || ln.why.held == nil && !w.c.alone(w.share) {
		for _, next := range ln.waiters {
			if next.c != w.c || next.share != w.share || c.Holds == mostHolds {
				break
			}
			c.Holds++
		}
	}
	if w.c.handsOver(w.share) {
		c.Fences = min(max(4*len(ln.waiters), 16), driver.MaxFences)
	}
	return c
}

// needEntry returns the line's queue entry, and makes it for w, the first, if there is none.
func (ln *line) needEntry(w *waiter) *queueEntry {
	if ln.entry == nil {
		ln.entry = &queueEntry{c: w.c, owner: w.owner, claim: ln.newClaim(w)}
		ln.expect(ln.entry.claim.Token)
	}
	return ln.entry
}

// claimOfHead is what w, the head, sends.
func (ln *line) claimOfHead(w *waiter) driver.Claim {
	ln.forget()
	if !w.c.queues {
		return ln.newClaim(w)
	}
	e := ln.needEntry(w)
	c := e.claimOf(w)
	c.Repeated, e.sent = e.sent, true
	c.Grant = driver.Grant{} // in case this attempt gets no answer
	// A line that hears nothing takes no new place: nobody would know of a direct grant. But it names the place that
	// it may have, so that a grant or an undo takes that out of the queue.
	if ln.hearsGrants() {
		c.Line = ln.id
	}
	e.claim.Joins = "" // it is asked for once
	return c
}

// headAnswered takes in the answer to the attempt that w, the head, made with c at start.
func (ln *line) headAnswered(w *waiter, c driver.Claim, l *lease, a answer, err error, start time.Time) {
	held := errors.Is(err, strategy.ErrHeld)
	if e := ln.entry; w.c.queues {
		switch {
		case err == nil, a.undone:
			ln.entry = nil
		case held && a.Place > 0:
			if e.queued && !a.Kept {
				// The line had its place, and the servers passed it over, or lost the queue. Perhaps they do not
				// count its subscription any more: the lock is on another server now, say. They
				// would pass the line over again and again, so it subscribes again.
				ln.unsubscribe()
			}
			e.claim.Line, ln.room = c.Line, false
			e.placed(start, a.ServerTime)
		case !c.Repeated: // nothing has changed; an entry that was sent before keeps its place
			ln.entry = nil
		}
		ln.full = held && c.Line != "" && a.Place == 0
	}
	t := ln.turn
	ln.turn = nil
	if l == nil {
		ln.on(refused)
		return
	}
	if t == nil {
		t = newTurn()
	}
	if w.lease != nil { // handed to it meanwhile
		ln.give(l)
	}
	ln.gotHolds(w, l, t, a.Holds, max(a.Holds, 1) >= c.Holds)
}

// inherit gives w, the head, the lock if the servers have said that they granted it to the line. Or w has to ask, because the message does
// not say enough, or cannot be true. Otherwise nothing was heard.
func (ln *line) inherit(w *waiter) step {
	e := ln.entry
	if e == nil || !e.queued {
		return sleep
	}
	d, heard := ln.grantHeard()
	if !heard {
		return sleep
	}
	g, counts := e.believed(d)
	if !counts {
		e.queued = false // it may be the holder's token now: the servers know it
		return ask
	}
	ln.entry, ln.room = nil, false // what was given back has gone through the queue
	if g.Owner == "" && e.c.reenters {
		g.Owner = e.claim.Owner // the notification does not name the holder
	}
	l := newLease(e.c, e.claimOf(w), g, g.Start)
	l.unconfirmed = true
	ln.gotHolds(w, l, newTurn(), g.Holds, true) // others may wait: the next takes its place behind them
	w.lease = l
	return take
}

// gotHolds is got for a grant of several holds: the others are for those who are first then.
func (ln *line) gotHolds(w *waiter, l *lease, t *turn, holds int32, room bool) {
	ln.got(w, l, t, room)
	for i := 1; i < int(holds); i++ {
		ln.give(l.hold(i))
	}
}

// give gives the first waiter a hold of its own, l. If it does not want that, nobody gets it.
func (ln *line) give(l *lease) {
	if len(ln.waiters) == 0 || ln.waiters[0].c != l.c || ln.waiters[0].share != l.claim.Share {
		ln.later(l.giveBack)
		return
	}
	w := ln.waiters[0]
	l.claim.Owner, l.turn = cmp.Or(w.named, l.claim.Token), newTurn()
	ln.out(w)
	w.post(l)
}

// hold is the lease of the i-th hold of l's grant.
func (l *lease) hold(i int) *lease {
	c := l.claim
	c.Token = driver.HoldToken(c.Token, i)
	if c.Grant.Fence != 0 && !l.c.sharer.Groups(c.Share) {
		c.Grant.Fence += uint64(i * max(c.Grant.Fences, 1))
	}
	next := newLease(l.c, c, c.Grant, c.Grant.Start)
	next.granted, next.unconfirmed = l.granted, l.unconfirmed
	return next
}
