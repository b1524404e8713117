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

// pauseAfterTurn is how long the line pauses after a turn, on average, for each hand-over in it, and no longer
// than a turn for all. It is a tenth of what a release and an acquire would have left to others.
const pauseAfterTurn = 10 * time.Microsecond

// A turn is the time in which a process hands on a lock that it has got.
type turn struct {
	line   *line // for which the lock keeps others out; nil: none
	began  time.Time
	handed int // how often
}

func newTurn() *turn { return &turn{began: time.Now()} }

// over reports whether others are to have the lock. A nil turn is over.
func (t *turn) over() bool { return t == nil || time.Since(t.began) >= handOverLimit }

// handsOver reports whether this share of a lock is handed over without a request. Re-entrant locks are not: the
// owner may have another hold, of which this process does not know, and its successor would hold the lock
// under the owner's name. See pass. Nor is what a whole group holds: who waits for it waits for others to go.
func (c *core) handsOver(share int32) bool {
	return !c.o.NoHandOver && !c.reenters && !(c.sharer != nil && c.sharer.Groups(share))
}

// release gives up the lock of l, which is over; c is its claim. If somebody waits in this process, the lock goes to the
// first of them; or the release takes the line's next place in the queue; or the line goes on when the
// release has been answered.
func (l *lease) release(ctx context.Context, c driver.Claim) (err error) {
	s := l.c.lines.succeed(l, c)
	switch {
	case s.handed: // nothing is sent
	case s.entry != nil:
		err = s.ln.pass(ctx, l, c, s.entry)
	case s.ln != nil:
		err = s.ln.release(ctx, l, c)
	default:
		err = l.c.release(ctx, c)
	}
	if l.unconfirmed && errors.Is(err, strategy.ErrLost) {
		l.c.undo(c) // it may still have its place in the queue
	}
	return err
}

// A succession is who has the lock after a lease that is over. The zero succession: the release is nobody's business.
type succession struct {
	handed bool        // a waiter has it already
	entry  *queueEntry // the release is to ask for this, too
	ln     *line       // the line that waits for the answer
}

// succeed finds the successor of l, which is over.
func (ls *lines) succeed(l *lease, c driver.Claim) (s succession) {
	ls.mu.Lock()
	var ln *line
	alone := l.c.alone(c.Share)
	if !alone {
		ln = ls.byKey[l.c.lineKey(c.Key, c.Share)]
	} else if l.turn != nil {
		ln = l.turn.line
	}
	if ln == nil {
		ls.mu.Unlock()
		return s
	}
	defer ln.unlock()
	if alone {
		ln.unhold()
	}
	var w *waiter // the first; nil also while a first attempt is under way, whose caller comes before it
	if len(ln.waiters) > 0 && (ln.state != asking || !alone && ln.head != nil) {
		w = ln.waiters[0]
	}
	switch {
	case w == nil || l.c.group.Closed():
		if ln.room = true; alone {
			ln.on(ends)
		}
	case ln.mayHandOver(l, c, w):
		s.handed = true
		ln.handOver(l, c, w)
	case ln.mayPass(l, w):
		s.ln, s.entry = ln, ln.needEntry(w)
		ln.on(passes)
	case alone:
		s.ln = ln
	default: // a request that is under way may not see what l gives back
		ln.room = true
	}
	return s
}

// mayHandOver reports whether w can have the lock by the grant that l had. Otherwise it needs one of its own:
// because l's is used up or was not renewed, or because the turn is over, or because readers wait, who come before the next writer.
func (ln *line) mayHandOver(l *lease, c driver.Claim, w *waiter) bool {
	g := c.Grant
	if w.c != l.c || w.share != c.Share || !l.c.handsOver(c.Share) || l.turn.over() {
		return false
	}
	if group := ln.all.byKey[lineKey{ln.key, true}]; group != nil && group != ln {
		return false
	}
	return g.Fences > 1 && l.intact && !time.Now().After(g.Start.Add(g.TTL/2))
}

// handOver makes w the holder after l.
func (ln *line) handOver(l *lease, c driver.Claim, w *waiter) {
	own := token.New(l.c.o.Label, l.c.announces)
	if c.Grant.Fences--; c.Grant.Fence != 0 {
		c.Grant.Fence++
	}
	c.Owner = cmp.Or(w.named, own)
	next := newLease(l.c, c, c.Grant, c.Grant.Start)
	next.ownToken, next.counted, next.unconfirmed = own, l.counted, l.unconfirmed
	next.granted = time.Now()
	next.turn = l.turn
	next.turn.handed++
	if next.turn.line != nil {
		ln.holder = next
	}
	acting := ln.head
	if ln.out(w); ln.state == asking {
		ln.head = acting // until its attempt is answered, which is then for the next
	}
	w.post(next)
}

// mayPass reports whether the release of l can ask for w, too. Without a queue it does so for the process's turn.
func (ln *line) mayPass(l *lease, w *waiter) bool {
	switch {
	case !l.c.queues:
		return w.c == l.c && l.c.adopts && !l.turn.over()
	case l.c.alone(l.claim.Share):
		return w.c.queues
	default: // the line has an entry already, or needs one
		return w.c.queues && ln.state == waiting && !ln.group
	}
}

// pass releases l's claim c and asks for the entry, in one request.
func (ln *line) pass(ctx context.Context, l *lease, c driver.Claim, e *queueEntry) error {
	start := time.Now()
	c.Due = start.Add(l.c.o.OpTimeout)
	next := e.claim
	next.Line, next.Repeated, next.Holds, next.Grant = ln.id, e.sent, 0, driver.Grant{}
	next.Due = start.Add(e.c.o.OpTimeout)
	g, err := driver.Grant{}, errPanic
	defer func() {
		if outcomeOf(g, err) == unknown {
			l.c.undo(c)
		}
		ln.change(func() {
			if ln.passed(l, e, g, start, err); ln.head != nil {
				ln.head.wake() // it has slept through the request
			}
		})
	}()
	g, err = l.c.pass(uncancelled(ctx), &c, next)
	switch outcomeOf(g, err) {
	case held:
		return nil
	case noEffect: // without a successor, then
		return l.c.release(ctx, c)
	}
	return err
}

// release gives up l's claim c, and then the line goes on.
func (ln *line) release(ctx context.Context, l *lease, c driver.Claim) error {
	err := errPanic
	defer func() { ln.released(l, err) }()
	err = l.c.release(ctx, c)
	return err
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

// passed takes in the answer to a pass of l that asked for e.
func (ln *line) passed(l *lease, e *queueEntry, g driver.Grant, start time.Time, err error) {
	got := outcomeOf(g, err)
	e.claim.Line = ln.id
	switch {
	case got == held && g.Place > 0:
		e.sent, ln.full = true, false
		e.placed(start, g.ServerTime)
		ln.learn(e.c.reasonOf(err, g))
		ln.on(refused)
		return
	case got == held:
		ln.entry, ln.full = nil, true
		ln.learn(e.c.reasonOf(err, g))
		ln.on(refused)
		return
	case (got == noEffect || got == lost) && e.sent: // it keeps its place
		ln.on(ends)
		return
	}
	ln.entry = nil
	if got == done {
		next := newLease(e.c, e.claim, g, start)
		if time.Now().Before(next.deadline) && len(ln.waiters) > 0 && e.suits(ln.waiters[0]) {
			w := ln.waiters[0]
			next.claim.Owner = e.claimOf(w).Owner
			t := l.turn // of a lock that is adopted it goes on
			if e.c.queues {
				t = newTurn()
			}
			ln.got(w, next, t, l.claim.Share > e.claim.Share) // what was released is more than w wants
			w.post(next)
			return
		}
		e.claim, got = next.claim, unknown // nobody waits for it, or it is of no use any more
	}
	if ln.on(ends); got == unknown {
		ln.later(func() { e.c.undo(e.claim) })
	}
}

// released is called when the release of l is over, and err is its outcome. Within the process's turn
// the next head asks at once, and the turn goes on. When the turn is over, others come first: where the
// servers keep no queue, nobody here can see who waits. So the line pauses in proportion to what it has
// handed over, and then the head waits as next to any holder. If the release failed, the head asks at
// once, to learn whether the servers are away.
func (ln *line) released(l *lease, err error) {
	over := err == nil && !l.c.queues && l.turn.over()
	goOn := func() {
		ln.change(func() {
			if ln.on(ends); over {
				ln.learn(grantedTo(l))
			} else if !l.c.queues {
				ln.turn = l.turn
			}
		})
	}
	if pause := 2 * min(pauseAfterTurn*time.Duration(l.turn.handed), handOverLimit); over && pause > 0 {
		time.AfterFunc(rand.N(pause), goOn)
		return
	}
	goOn()
}
