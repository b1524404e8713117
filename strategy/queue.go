package strategy

import (
	"context"
	"errors"
	"time"
)

// How a lock goes from one contender to the next where the servers keep a queue: within
// the process it is handed over, without a request; otherwise the holder's release passes
// it on in one request, and takes the line's next place in the queue with it.

// A bid is what the servers know of a line: the claim for which Acquire asks, and which
// waits in their queue. It belongs to the line: should the head leave, the next inherits it.
type bid struct {
	s       *Strategy
	as      string        // the owner whom its ctx named
	c       Claim         // its Token is kept while it queues; without a place each attempt has one of its own
	sent    bool          // the servers may know of it
	queued  bool          // it has its place
	passing bool          // on its way with a release; whoever sends that sees to the answer
	offset  time.Duration // queued: our monotonic clock less the servers' clock, at least
}

// A direct is a direct grant, and when it was heard of.
type direct struct {
	Notice
	at time.Time
}

// suits tells whether p can have the lock by this bid.
func (b *bid) suits(p *place) bool { return b.s == p.l.s && b.as == p.as }

// has takes in that the bid has its place, asked for at start. It was answered: so when it is
// withdrawn, no request of it is still to arrive.
func (b *bid) has(start time.Time, offset time.Duration) {
	b.queued, b.offset, b.c.Grant.Start = true, offset, start
}

// newBid is a bid for p. The caller holds h.mu.
func (p *place) newBid() (*bid, error) {
	c, err := p.l.claimFor(p.as)
	if err != nil {
		return nil, err
	}
	if p.l.s.handsOver() {
		c.Fences = min(max(4*len(p.ln.places), 16), MaxFences)
	}
	return &bid{s: p.l.s, as: p.as, c: c}, nil
}

// offer asks the servers for the lock by the line's bid, which is made if there is none.
// p is the head; n is for events.
func (p *place) offer(ctx context.Context, n int) (*Lease, error) {
	ln, h := p.ln, p.ln.h
	if err := p.l.refuse(ctx); err != nil {
		return nil, err
	}
	h.mu.Lock()
	b := ln.bid
	if b == nil {
		var err error
		if b, err = p.newBid(); err != nil {
			h.mu.Unlock()
			return nil, err
		}
		ln.bid = b
	}
	known := b.sent
	b.sent = true
	h.mu.Unlock()

	c := b.c
	c.Grant = Grant{} // should this attempt get no answer
	if c.Line = ""; ln.listens() {
		c.Line = h.id // otherwise nobody would hear of a direct grant
	}
	start := time.Now()
	lease, answer, err := p.l.ask(ctx, c, n)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil, answer.undone:
		ln.bid = nil
	case errors.Is(err, ErrHeld) && answer.Queued:
		b.c.Line = c.Line
		b.has(start, h.offset(start, answer.ServerTime))
	case !known: // nothing has changed, and a place that it has is still its own
		ln.bid = nil
	}
	ln.refused = errors.Is(err, ErrHeld) && c.Line != "" && !answer.Queued
	return lease, err
}

// offset is the least that our monotonic clock, counted from when the house was built, can
// be ahead of a server's that showed clock when it executed what was sent at start.
func (h *house) offset(start time.Time, clock time.Duration) time.Duration {
	return start.Sub(h.built) - clock
}

// inherit returns the lease of a direct grant that p, the head, has been told of.
//
// The servers count from when they granted it. That is by our clock, at the latest, what
// the offset says, and not later than the moment at which we heard of it.
func (p *place) inherit() *Lease {
	ln, h := p.ln, p.ln.h
	ln.mu.Lock()
	d := ln.direct
	ln.mu.Unlock()
	h.mu.Lock()
	b := ln.bid
	if b == nil || !b.queued || d.Token != b.c.Token {
		h.mu.Unlock()
		return nil
	}
	ln.bid = nil
	h.mu.Unlock()
	start := d.at
	if counted := h.built.Add(d.Grant.ServerTime + b.offset); counted.Before(start) {
		start = counted
	}
	if d.Grant.Owner == "" && b.s.reenters() {
		d.Grant.Owner = b.c.Owner // nobody else is told who holds the lock
	}
	lease := newLease(b.s, b.c, d.Grant, start)
	if !time.Now().Before(lease.deadline) {
		b.s.undo(lease.claim) // heard of too late; it may just be there still
		ln.unanswered()
		return nil
	}
	lease.brief = lease.claim.Grant.TTL < lease.claim.TTL
	p.took(lease)
	return lease
}

// took makes the line rest on the lease that p, the head, has got.
func (p *place) took(lease *Lease) {
	ln := p.ln
	ln.h.mu.Lock()
	ln.tie(p, lease)
	after := ln.settle()
	ln.h.mu.Unlock()
	after()
}

// tie makes the line rest until lease is over: it came through the line, so its release
// serves the line next. The caller holds h.mu; p, which has the lease now, leaves the line.
func (ln *line) tie(p *place, lease *Lease) {
	ln.remove(p)
	ln.holder, ln.tenure, lease.line = lease, time.Now(), ln
}

// rests tells that the lock comes to the line by itself. The caller holds h.mu.
func (ln *line) rests() bool {
	return ln.holder != nil || ln.bid != nil && ln.bid.passing
}

// restsOn returns the lease that the line rests on; nil: none.
func (ln *line) restsOn() *Lease {
	ln.h.mu.Lock()
	defer ln.h.mu.Unlock()
	return ln.holder
}

// standing tells whether the line has its place in the servers' queue, or has been refused
// one.
func (ln *line) standing() (queued, refused bool) {
	ln.h.mu.Lock()
	defer ln.h.mu.Unlock()
	return ln.bid != nil && ln.bid.queued, ln.refused
}

// untie ends the rest: lease does not hold the lock any more, or does not let go of it.
func (ln *line) untie(lease *Lease) {
	ln.h.mu.Lock()
	if ln.holder != lease {
		ln.h.mu.Unlock()
		return
	}
	ln.holder = nil
	ln.unanswered() // whom the lock belongs to now, the next asks
	after := ln.settle()
	ln.h.mu.Unlock()
	after()
}

// watch sees to it that the line does not rest for ever on a lease that nobody looks at
// any more. A vigil that began with one holder serves for the next, unless that one's TTL
// is shorter. The caller holds h.mu.
func (ln *line) watch() {
	switch {
	case ln.holder != nil && (ln.vigil == nil || ln.holder.claim.TTL < ln.vigil.ttl):
		ln.look(ln.holder.claim.TTL, ln.holder.claim.TTL)
	case ln.holder == nil && len(ln.places) == 0:
		ln.unlook()
	}
}

// A vigil looks after the holder of a line.
type vigil struct {
	timer *time.Timer
	ttl   time.Duration // of the holder with whom it began
}

// look begins a vigil in place of the one that there is. The caller holds h.mu.
func (ln *line) look(after, ttl time.Duration) {
	ln.unlook()
	v := &vigil{ttl: ttl}
	v.timer = time.AfterFunc(after, func() { ln.lookNow(v) })
	ln.vigil = v
}

// unlook ends the vigil. The caller holds h.mu.
func (ln *line) unlook() {
	if ln.vigil != nil {
		ln.vigil.timer.Stop()
		ln.vigil = nil
	}
}

// lookNow asks the holder whether it is one still, and comes again when its deadline does.
func (ln *line) lookNow(v *vigil) {
	ln.h.mu.Lock()
	holder := ln.holder
	ln.h.mu.Unlock()
	again := time.Duration(0)
	if holder != nil && holder.Err() == nil { // if its deadline has come, it unties itself
		again = time.Until(holder.Deadline())
	}
	ln.h.mu.Lock()
	defer ln.h.mu.Unlock()
	if ln.vigil != v {
		return // another has taken its place meanwhile
	}
	if ln.vigil = nil; ln.holder != nil {
		ln.look(max(again, time.Millisecond), ln.holder.claim.TTL)
	}
}

// tenure is for how long a lock is handed over within a process: who waits elsewhere has
// to have its turn, too, and hears of it later the longer it has rested.
const tenure = 2 * time.Millisecond

// handsOver tells whether locks are handed over within the process. Those are not that an
// owner may enter again: it may hold the lock once more, of which nobody here knows, and
// the servers would let in by the name of the first what has come after it.
func (s *Strategy) handsOver() bool { return s.o.HandOver == HandOverBest && !s.reenters() }

// letGo ends a hold that its user has given up: c is its claim. If somebody of this process
// stands in line, the lock goes to it, or it takes the line's next place in the queue.
func (l *Lease) letGo(ctx context.Context, c Claim) error {
	ln := l.line
	if ln == nil {
		return l.s.release(ctx, c)
	}
	b := ln.succeed(l, c)
	if b == nil {
		if l.handed {
			return nil
		}
		return l.s.release(ctx, c)
	}
	start := time.Now()
	b.c.Due, c.Due = start.Add(b.s.o.OpTimeout), start.Add(l.s.o.OpTimeout)
	g, err := l.s.queue.Pass(context.WithoutCancel(ctx), c, b.c)
	return ln.passed(ctx, l, c, b, g, start, err)
}

// succeed finds who comes after l, which is over. If somebody can have the lock as it is,
// it has it when succeed returns, and l is handed. If somebody can be granted it by the
// release, the bid for that is returned. Otherwise nobody can.
func (ln *line) succeed(l *Lease, c Claim) *bid {
	h := ln.h
	h.mu.Lock()
	after := nothing
	defer func() {
		h.mu.Unlock()
		after()
	}()
	if ln.holder != l {
		return nil
	}
	ln.holder = nil
	var b *bid
	if len(ln.places) > 0 && !h.closed {
		p := ln.places[0]
		if heir := ln.successor(l, c, p); heir != nil {
			l.handed = true
			since := ln.tenure
			ln.tie(p, heir)
			ln.tenure = since
			p.given <- heir
		} else if l.s.queue != nil && ln.bid == nil && p.l.s.queue != nil {
			if b, _ = p.newBid(); b != nil { // without randomness the next says so itself
				b.c.Line, b.sent, b.passing = h.id, true, true
				ln.bid = b
			}
		}
	}
	ln.unanswered() // what was known is over
	after = ln.settle()
	return b
}

// successor is the lease of p after l, by the grant that l had; nil if p needs one of its
// own: because l's is used up or not sound, or because there was one for l alone. The
// caller holds h.mu.
func (ln *line) successor(l *Lease, c Claim, p *place) *Lease {
	g, now := c.Grant, time.Now()
	switch {
	case p.l.s != l.s, !l.s.handsOver():
		return nil
	case g.Fences < 2, !l.sound, now.Sub(ln.tenure) >= tenure, now.After(g.Start.Add(g.TTL / 2)):
		return nil
	}
	own, err := newToken(l.s.o.Label, l.s.announces)
	if err != nil {
		return nil
	}
	if g.Fences--; g.Fence != 0 {
		g.Fence++
	}
	c.Grant, c.Fences, c.TTL = g, g.Fences, l.s.o.TTL
	if c.Owner = p.as; c.Owner == "" {
		c.Owner = own
	}
	heir := newLease(l.s, c, g, g.Start)
	heir.own, heir.counted, heir.brief = own, l.counted, l.brief
	heir.granted = now
	return heir
}

// passed takes in the answer to a Pass of l's claim c and the bid b, and returns what the
// release says.
func (ln *line) passed(ctx context.Context, l *Lease, c Claim, b *bid, g Grant, start time.Time, err error) error {
	err, remains := unmark(err)
	var lease *Lease
	if err == nil {
		if lease = newLease(b.s, b.c, g, start); !time.Now().Before(lease.deadline) {
			lease, remains = nil, true // of no use any more
		}
	}
	unknown := remains || errors.Is(err, ErrUnknown)
	held := errors.Is(err, ErrHeld)
	refused := !unknown && (errors.Is(err, ErrRefused) || errors.Is(err, ErrUnsent) || errors.Is(err, ErrUnsupported))
	if refused { // nothing has changed: without a successor, then
		err = l.s.release(ctx, c)
	} else if err != nil && !held && !errors.Is(err, ErrLost) {
		unknown = true // also what is of no kind
	}

	h := ln.h
	h.mu.Lock()
	b.passing = false
	switch {
	case lease != nil && len(ln.places) > 0 && b.suits(ln.places[0]):
		p := ln.places[0]
		ln.bid = nil
		ln.tie(p, lease)
		p.given <- lease
	case held:
		if ln.refused = !g.Queued; g.Queued {
			b.has(start, h.offset(start, g.ServerTime))
		} else {
			ln.bid = nil
		}
		ln.learn(reasonOf(err))
	default:
		// Whoever is the head asks by itself. What was granted to nobody is given back.
		ln.bid = nil
		unknown = unknown || lease != nil
		ln.unanswered()
	}
	after := ln.settle()
	h.mu.Unlock()
	after()
	if unknown {
		if lease != nil {
			b.c = lease.claim
		}
		b.s.undo(b.c)
	}
	switch {
	case err == nil, held:
		return nil
	case unknown && !refused:
		l.s.undo(c)
	}
	return err
}
