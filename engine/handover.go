package engine

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// This file passes a lock from one holder to the next. For a while, the process's turn, a holder hands it
// over within the process, without a request. (If the lock is re-entrant, with one: the next holder adopts
// it.) Then the holder releases it, so that other processes have their turn. Where the servers keep a
// queue, the release passes the lock to the first in it, and takes the line's next place there, in the
// same request. Elsewhere the line pauses after the release, as if another process had the lock.

// handOverLimit is how long a process's turn lasts at most. The longer, the later the waiters of other
// processes find the lock free.
const handOverLimit = 2 * time.Millisecond

// pauseAfterTurn is how long the line pauses on average after a turn, for each hand-over in it, but not for
// longer than the turn. It is a tenth of what a release and an acquire would have left to others.
const pauseAfterTurn = 10 * time.Microsecond

// handsOver reports whether locks are handed over without a request. Re-entrant locks are not: the
// owner may have another hold, of which this process does not know, and its successor would hold the lock
// under the owner's name. See pass. Nor are locks that several may hold.
func (c *core) handsOver() bool {
	return !c.o.NoHandOver && !c.reenters && c.maxShare == 0
}

// lineClaim is the claim of a new attempt of w, the head, for as many holds as may be handed over. The
// caller holds all.mu.
func (w *waiter) lineClaim() driver.Claim {
	c := w.claimFor(w.named)
	if w.c.handsOver() {
		c.Fences = min(max(4*w.ln.waiters.Len(), 16), driver.MaxFences)
	}
	return c
}

// ask makes the head's attempt. Its success blocks the line.
func (w *waiter) ask(ctx context.Context, n int) (*lease, answer, error) {
	if w.c.queues {
		return w.askByEntry(ctx, n)
	}
	ln := w.ln
	ln.all.mu.Lock()
	c := w.lineClaim()
	ln.all.mu.Unlock()
	l, a, err := w.attempt(ctx, c, n)
	ln.change(func() {
		switch {
		case l == nil:
			ln.turn = time.Time{}
		case ln.turn.IsZero():
			ln.handed = 0
			ln.blockOn(w, l, time.Now())
		default: // asked at once after a release: the turn goes on
			ln.blockOn(w, l, ln.turn)
		}
	})
	return l, a, err
}

// newEntry is a queue entry for w. The caller holds all.mu.
func (w *waiter) newEntry() *queueEntry {
	e := &queueEntry{c: w.c, owner: w.owner, claim: w.lineClaim()}
	w.ln.expect(e.claim.Token)
	return e
}

// askByEntry is ask with the line's entry, which it makes if there is none.
func (w *waiter) askByEntry(ctx context.Context, n int) (*lease, answer, error) {
	ln := w.ln
	ln.all.mu.Lock()
	known := ln.entry != nil // the servers may have it
	if !known {
		ln.entry = w.newEntry()
	}
	e := ln.entry
	ln.all.mu.Unlock()

	c := e.claimOf(w)
	c.Repeated = known
	c.Grant = driver.Grant{} // in case this attempt gets no answer
	// A line that hears nothing takes no new place: nobody would know of a direct grant. But it names the place that
	// it may have, so that a grant or an undo takes that out of the queue.
	if ln.hearsGrants() {
		c.Line = ln.id
	}
	start := time.Now()
	l, a, err := w.attempt(ctx, c, n)
	unheard := false
	ln.all.mu.Lock()
	switch {
	case err == nil, a.undone:
		ln.entry = nil
	case errors.Is(err, strategy.ErrHeld) && a.Place > 0:
		unheard = e.queued && !a.Kept
		e.claim.Line = c.Line
		e.placed(start, w.c.offset(start, a.ServerTime))
	case !known: // nothing has changed; an entry that was sent before keeps its place
		ln.entry = nil
	}
	ln.refused = errors.Is(err, strategy.ErrHeld) && c.Line != "" && a.Place == 0
	ln.all.mu.Unlock()
	if unheard {
		// The line had its place, and the servers passed it over, or lost the queue. Perhaps they do not
		// count its subscription any more: the lock's slot has moved, or a replica is the master now. They
		// would pass the line over again and again, so it subscribes again.
		ln.subscription.close()
	}
	if l != nil {
		w.startTurn(l)
	}
	return l, a, err
}

// offset returns by how much our monotonic clock, counted from the scheduler's epoch, is ahead of a
// server's clock, at least. clock is what the server's clock showed when the server executed a request
// that was sent at start.
func (s *shared) offset(start time.Time, clock time.Duration) time.Duration {
	return s.renewal.Since(start) - clock
}

// inherit returns the lease of a direct grant that w, the head, has heard of; nil: there is none. ask
// says that w has to ask, because the message does not say enough, or cannot be true.
func (w *waiter) inherit() (l *lease, ask bool) {
	ln := w.ln
	ln.all.mu.Lock()
	e := ln.entry
	if e == nil || !e.queued {
		ln.all.mu.Unlock()
		return nil, false
	}
	d, heard := ln.granted()
	g, counts := e.believed(d)
	if heard && counts {
		ln.entry = nil
	} else if heard {
		e.queued = false // it may be the holder's token now: the servers know it
	}
	ln.all.mu.Unlock()
	if !heard || !counts {
		return nil, heard
	}
	if g.Owner == "" && e.c.reenters {
		g.Owner = e.claim.Owner // the notification does not name the holder
	}
	l = newLease(e.c, e.claimOf(w), g, g.Start)
	l.unconfirmed = true
	w.startTurn(l)
	return l, false
}

// believed returns how much of a direct grant counts; ok is false if nothing does. Anybody who may publish can have sent
// the message, so it is for a successor's TTL and for what was asked for, whatever it says.
//
// The servers count from when they made the grant. By our clock that was no earlier than the offset says; after they
// answered the entry's question; and no later than we heard of it. Since the offset was taken, the clocks have drifted
// apart by 1 % at most. If that exceeds the drift for which the TTL allows, the offset says too little.
func (e *queueEntry) believed(d directGrant) (g driver.Grant, ok bool) {
	g, asked := d.Grant, e.claim.Grant.Start
	g.TTL, g.Fences = min(g.TTL, driver.SuccessorTTL(e.claim.TTL)), min(g.Fences, e.claim.Fences)
	counted, drifted := e.c.renewal.Epoch().Add(g.ServerTime+e.offset), d.at.Sub(asked)/100
	g.Start = counted.Add(-drifted)
	ok = drifted <= driver.Drift(g.TTL) && !counted.Before(asked) && !g.Start.After(d.at) && time.Now().Before(deadlineOf(g))
	return g, ok
}

// startTurn begins a turn of this process with l, which w, the head, has got from the queue.
func (w *waiter) startTurn(l *lease) {
	w.ln.change(func() { w.ln.blockOn(w, l, time.Now()) })
}

// blockOn blocks the line until l is over: its release serves the line next. w, which has the lease
// now, leaves the line. turn is when the process's turn began. The caller holds all.mu.
//
// If several may hold the lock, the next one asks at once, and the lease is released without the line.
func (ln *line) blockOn(w *waiter, l *lease, turn time.Time) {
	if ln.waiters.Leave(w); l.c.maxShare > 0 {
		ln.distrustReason()
		return
	}
	ln.holder, ln.turn, l.line = l, turn, ln
}

// release gives up the lock of l, which is over. If somebody waits in this process, the lock goes to the
// first of them; or the release takes the line's next place in the queue; or the line goes on when the
// release has been answered.
func (ln *line) release(ctx context.Context, l *lease, c driver.Claim) error {
	e := ln.succeed(l, c)
	switch {
	case l.handed:
		return nil
	case e == nil:
		err := l.c.release(ctx, c)
		ln.released(l, err)
		return err
	}
	start := time.Now()
	e.claim.Due, c.Due = start.Add(e.c.o.OpTimeout), start.Add(l.c.o.OpTimeout)
	g, err := l.c.pass(uncancelled(ctx), &c, e.claim)
	return ln.passed(ctx, l, c, e, g, start, err)
}

// pass releases last and acquires next in one request. Where the servers keep a queue, others may come before
// next. A re-entrant lock is adopted.
func (c *core) pass(ctx context.Context, last *driver.Claim, next driver.Claim) (driver.Grant, error) {
	if c.queues {
		return c.p.(driver.Queuer).Pass(ctx, *last, next)
	}
	g, err := c.p.Adopt(ctx, next, last.Token)
	if err == nil && g.Owner != next.Owner {
		// The owner holds the lock once more, so what was adopted is its hold: that is to be released.
		last.Token, err = next.Token, strategy.ErrUnsupported
	}
	return g, err
}

// succeed finds the successor of l, which is over. If the first waiter can have the lock as it is, it
// has it when succeed returns, and l.handed is set. If the release can grant it to that waiter, succeed
// returns the entry for that. Otherwise nobody can have it from here.
func (ln *line) succeed(l *lease, c driver.Claim) (e *queueEntry) {
	ln.change(func() {
		ln.endBlock()
		if ln.waiters.Len() == 0 || l.c.group.Closed() {
			return
		}
		w := ln.waiters.First()
		if next := ln.successor(l, c, w); next != nil {
			l.handed = true
			ln.handed++
			ln.blockOn(w, next, ln.turn)
			w.granted <- next
		} else if ln.entry == nil && ln.passes(l, w) {
			e = w.newEntry()
			e.claim.Line, e.passing = ln.id, true
			ln.entry = e
		} else {
			ln.releasing = true
		}
	})
	return e
}

// passes reports whether the release of l can grant the lock to w. Without a queue it does so for the
// process's turn. The caller holds all.mu.
func (ln *line) passes(l *lease, w *waiter) bool {
	if l.c.queues {
		return w.c.queues
	}
	return w.c == l.c && l.c.adopts && time.Since(ln.turn) < handOverLimit
}

// released is called when the release of l is over, and err is its outcome. Within the process's turn
// the next head asks at once, and the turn goes on. When the turn is over, others come first: where the
// servers keep no queue, nobody here can see who waits. So the line pauses in proportion to what it has
// handed over, and then the head waits as next to any holder. If the release failed, the head asks at
// once, to learn whether the servers are away.
func (ln *line) released(l *lease, err error) {
	ln.all.mu.Lock()
	waited := ln.releasing
	over := err == nil && !l.c.queues && time.Since(ln.turn) >= handOverLimit
	pause := 2 * min(pauseAfterTurn*time.Duration(ln.handed), handOverLimit)
	ln.all.mu.Unlock()
	goOn := func() {
		ln.change(func() {
			ln.releasing = false
			if over {
				ln.turn = time.Time{}
				ln.learn(grantedTo(l))
			}
		})
	}
	switch {
	case !waited:
	case over && pause > 0:
		time.AfterFunc(rand.N(pause), goOn)
	default:
		goOn()
	}
}

// successor is the lease of w after l, by the grant that l had; nil if w needs a grant of its own:
// because l's is used up or was not renewed, or because it was for one hold. The caller holds all.mu.
func (ln *line) successor(l *lease, c driver.Claim, w *waiter) *lease {
	g, now := c.Grant, time.Now()
	switch {
	case w.c != l.c, !l.c.handsOver():
		return nil
	case g.Fences < 2, !l.intact, now.Sub(ln.turn) >= handOverLimit, now.After(g.Start.Add(g.TTL / 2)):
		return nil
	}
	own := token.New(l.c.o.Label, l.c.announces)
	if g.Fences--; g.Fence != 0 {
		g.Fence++
	}
	c.Grant = g
	c.Owner = cmp.Or(w.named, own)
	next := newLease(l.c, c, g, g.Start)
	next.ownToken, next.counted, next.unconfirmed = own, l.counted, l.unconfirmed
	next.granted = now
	return next
}

// passed takes in the answer to a Pass of l's claim c and the entry e, and returns the error of the
// release.
func (ln *line) passed(ctx context.Context, l *lease, c driver.Claim, e *queueEntry, g driver.Grant, start time.Time, err error) error {
	unknown := mayRemain(g, err)
	var next *lease
	if err == nil {
		if next = newLease(e.c, e.claim, g, start); !time.Now().Before(next.deadline) {
			next, unknown = nil, true // of no use any more
		}
	}
	held := errors.Is(err, strategy.ErrHeld)
	refused := !unknown && (errors.Is(err, strategy.ErrRefused) || errors.Is(err, strategy.ErrUnsent) || errors.Is(err, strategy.ErrUnsupported))
	if refused { // nothing has changed: without a successor, then
		err = l.c.release(ctx, c)
	} else if err != nil && !held && !errors.Is(err, strategy.ErrLost) {
		unknown = true // also an error of no kind
	}

	ln.change(func() {
		e.passing = false
		switch {
		case next != nil && ln.waiters.Len() > 0 && e.suits(ln.waiters.First()):
			w := ln.waiters.First()
			next.claim.Owner = e.claimOf(w).Owner
			if ln.entry = nil; e.c.queues {
				ln.turn = time.Now() // of a lock that is adopted it goes on
			}
			ln.blockOn(w, next, ln.turn)
			w.granted <- next
		case held:
			if ln.refused = g.Place == 0; g.Place > 0 {
				e.placed(start, e.c.offset(start, g.ServerTime))
			} else {
				ln.entry = nil
			}
			ln.learn(e.c.reasonOf(err, g))
		default:
			// The next head asks by itself. A grant that nobody waits for is given back.
			ln.entry = nil
			unknown = unknown || next != nil
		}
	})
	if unknown {
		if next != nil {
			e.claim = next.claim
		}
		e.c.undo(e.claim)
	}
	switch {
	case err == nil, held:
		return nil
	case unknown && !refused:
		l.c.undo(c)
	}
	return err
}
