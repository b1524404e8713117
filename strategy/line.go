package strategy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// A line is where the contenders of one process for one key stand: first come,
// first served. Only the head speaks to the servers, so that what a lock costs
// them does not depend on how many wait for it. What the head has learned, its
// subscription, and its place in the servers' queue pass to the next.
//
// While a lease that came through the line holds the lock, nobody has to speak: the
// line rests until that lease is over. See tie.
type line struct {
	h   *house
	key string

	// Guarded by h.mu.
	places   []*place  // the first is the head, which is told so unless the line rests
	refused  bool      // the servers have no place for it in their queue
	failures int       // attempts in a row that the servers failed
	holder   *Lease    // came through the line, and its release is what the line waits for
	tenure   time.Time // when the servers gave the holder the lock, or one that it comes after
	bid      *bid      // what the servers know of the line; nil: nothing
	vigil    *vigil    // looks after holder; nil: nobody does

	wake chan struct{} // a notice has come; holds one

	mu     sync.Mutex
	why    reason    // why the last to ask did not get the lock, or who got it
	freed  []string  // tokens released since the last attempt began
	direct direct    // the last direct grant that was told
	next   time.Time // when the one before the line in the queue has to have extended
	broken bool      // the subscription has ended by itself
	deaf   time.Time // until when not to ask for a subscription again: it was refused
	stop   func()    // ends the subscription; nil: there is none. The head's
	queue  bool      // the subscription is one that hears of direct grants
}

// A place is a contender's in a line.
type place struct {
	l      *lock
	ln     *line
	as     string        // the owner that its ctx names
	owner  string        // by whom it may re-enter; empty: by nobody
	unsure bool          // owner may hold the lock already: that is to be asked
	isHead bool          // head is closed; guarded by h.mu
	head   chan struct{} // closed when it is the head and has to speak
	given  chan *Lease   // it has the lock without having asked, and left the line; holds one
	letIn  chan struct{} // owner has got the lock; holds one
	away   chan error    // what the servers did to the head before it; holds one
}

// maxFreed bounds what a line remembers while an attempt is under way.
const maxFreed = 64

func (h *house) hasLine(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines[key] != nil
}

// join takes the last place, for a contender whose ctx names the owner as. why is what it
// knows, if it had to open the line.
func (l *lock) join(as string, why reason) *place {
	h := l.s.house
	p := &place{
		l: l, as: as, head: make(chan struct{}),
		given: make(chan *Lease, 1), letIn: make(chan struct{}, 1), away: make(chan error, 1),
	}
	if l.s.reenters() {
		p.owner = as
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	ln := h.lines[l.key]
	if ln == nil {
		ln = &line{h: h, key: l.key, wake: make(chan struct{}, 1), why: why}
		h.lines[l.key] = ln
	}
	p.ln = ln
	ln.places = append(ln.places, p)
	ln.rouse()
	p.unsure = p.owner != "" && !p.isHead // from now on it is told: see letIn
	return p
}

// rouse tells the head that it has to speak, unless the line rests. The caller holds h.mu.
func (ln *line) rouse() {
	if len(ln.places) == 0 || ln.rests() || ln.places[0].isHead {
		return
	}
	ln.places[0].isHead = true
	close(ln.places[0].head)
}

// letIn tells all of owner's who stand in line for key that it has got the lock: they
// need not wait for its release.
func (h *house) letIn(key, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ln := h.lines[key]
	if ln == nil {
		return
	}
	for _, p := range ln.places {
		if p.owner != owner {
			continue
		}
		select {
		case p.letIn <- struct{}{}:
		default: // it has been told already
		}
	}
}

// turn waits until the place is the head, and returns what its predecessor knew; or until
// it is given the lock; or until there is reason to ask whether its owner has the lock:
// then the error is errLetIn. n is how many attempts were made.
func (p *place) turn(ctx context.Context, l *lock, n int) (*Lease, reason, error) {
	var again <-chan time.Time
	if p.unsure { // it was asked, and not answered
		timer := time.NewTimer(l.jitter(n))
		defer timer.Stop()
		again = timer.C
	}
	for {
		select {
		case lease := <-p.given:
			return lease, reason{}, nil
		case <-p.head:
			return nil, p.ln.reason(), nil
		case <-p.letIn:
			return nil, reason{}, errLetIn
		case <-again:
			return nil, reason{}, errLetIn
		case err := <-p.away:
			if !l.s.o.Persist {
				return nil, reason{}, err
			}
		case <-ctx.Done():
			return nil, reason{}, errContext
		case <-l.s.closing:
			return nil, reason{}, ErrClosed
		}
	}
}

// tellFailure takes in whether the servers failed the head. When they have failed two
// in a row, those who stand in line are told: they need not each wait for a time-out
// of their own to learn the same. One failure may be a lost packet: the next asks.
func (p *place) tellFailure(err error) {
	h := p.ln.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if !isServers(err) {
		p.ln.failures = 0
		return
	}
	if p.ln.failures++; p.ln.failures < 2 {
		return
	}
	for _, other := range p.ln.places {
		if other == p {
			continue
		}
		select {
		case other.away <- err:
		default: // it has been told already, and persists
		}
	}
}

// remove takes p out of the line, if it stands in it. The caller holds h.mu.
func (ln *line) remove(p *place) {
	if i := slices.Index(ln.places, p); i >= 0 {
		ln.places = slices.Delete(ln.places, i, i+1)
	}
}

// leave gives the place up, if it is not given up yet, and with it what it was given and
// does not want any more.
func (p *place) leave() {
	ln, h := p.ln, p.ln.h
	h.mu.Lock()
	ln.remove(p)
	after := ln.settle()
	h.mu.Unlock()
	after()
	select {
	case lease := <-p.given:
		p.l.s.giveBack(lease)
	default:
	}
}

// settle makes the line fit what has changed: the next head speaks or inherits, and when
// nobody stands in it any more, and no lease holds it, the line is gone, with what the
// servers know of it. It is called, with h.mu held, after every such change; the caller
// calls after without it.
func (ln *line) settle() (after func()) {
	b := ln.bid
	switch {
	case b == nil || b.passing: // whoever passes sees to it
	case len(ln.places) == 0 || !b.suits(ln.places[0]):
		ln.bid = nil
	}
	gone := len(ln.places) == 0 && !ln.rests() && ln.h.lines[ln.key] == ln
	if gone {
		delete(ln.h.lines, ln.key)
	}
	ln.rouse()
	ln.watch()
	withdrawn := b != nil && ln.bid == nil && b.sent
	return func() {
		if withdrawn {
			b.s.undo(b.c)
		}
		if gone {
			ln.unlisten()
		}
	}
}

func (ln *line) reason() reason {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.why
}

func (ln *line) learn(why reason) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.why = why
}

// unanswered is called when the head leaves after an attempt without an answer:
// what was known before is all that can be said, but nothing to sleep on. The
// notice that led to that attempt has been forgotten.
func (ln *line) unanswered() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.why.ask = true
}

// asking is called before an attempt: a release heard from now on may be that of
// the holder whom the attempt will find, though its notice overtakes the reply.
func (ln *line) asking() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.freed, ln.next = ln.freed[:0], time.Time{}
}

// heard tells whether holder has released, so that asking makes sense; when the one who is
// before the line in the queue has to have extended, if that has just been told; and
// whether there is nothing more to be heard. Notices of earlier holders are stale: they
// were released before holder acquired.
func (ln *line) heard(holder string) (freed bool, next time.Time, broken bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	freed = len(ln.freed) >= maxFreed || holder == "" && len(ln.freed) > 0 || slices.Contains(ln.freed, holder)
	next, ln.next = ln.next, time.Time{}
	return freed, next, ln.broken
}

// listen subscribes if that is not done yet; fresh says that it was done just now.
// After a subscription broke there is one pause without: where they never last,
// they must not be what sets the pace. Only the head calls it.
func (ln *line) listen(ctx context.Context, l *lock) (fresh, ok bool) {
	ln.mu.Lock()
	broken, stop, deaf := ln.broken, ln.stop, time.Now().Before(ln.deaf)
	other := stop != nil && ln.queue != (l.s.queue != nil)
	ln.mu.Unlock()
	switch {
	case broken:
		ln.unlisten()
		return false, false
	case other: // the one before waited in another way
		ln.unlisten()
	case stop != nil:
		return false, true
	case deaf:
		return false, false
	}
	c := Claim{Name: l.name, Key: l.key, TTL: l.s.o.TTL, Due: time.Now().Add(l.s.o.OpTimeout)}
	if l.s.queue != nil {
		c.Line = l.s.id
	}
	ln.doubtClock()
	stop, err := l.s.p.(Notifier).Watch(ctx, c, ln.notify)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if err != nil {
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrUnsupported) {
			ln.deaf = time.Now().Add(l.s.o.TTL) // it may be for a passing reason: LOADING, too many clients
		}
		return false, false
	}
	ln.stop, ln.queue = stop, l.s.queue != nil
	ln.why.ask = true // also for the next, should this one leave now
	return true, true
}

// doubtClock is called before the line listens anew: after a fail-over another server is heard,
// whose clock is another, and what it tells must not be timed by what the one before showed. So
// no direct grant is taken until a question has been answered again.
func (ln *line) doubtClock() {
	ln.h.mu.Lock()
	defer ln.h.mu.Unlock()
	if ln.bid != nil {
		ln.bid.queued = false
	}
}

// listens tells whether the line would hear of a direct grant.
func (ln *line) listens() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.stop != nil && ln.queue && !ln.broken
}

// unlisten ends the subscription. stop waits for a notice being delivered, which
// takes mu, so it is called without.
func (ln *line) unlisten() {
	ln.mu.Lock()
	stop := ln.stop
	ln.stop, ln.broken = nil, false
	ln.mu.Unlock()
	if stop != nil {
		stop()
	}
}

func (ln *line) notify(n Notice) {
	now := time.Now()
	ln.mu.Lock()
	switch {
	case n.Broken():
		ln.broken = true
	case n.Token != "":
		ln.direct = direct{n, now}
	case n.Next > 0:
		ln.next = now.Add(n.Next)
	case len(ln.freed) < maxFreed:
		ln.freed = append(ln.freed, n.Holder)
	}
	ln.mu.Unlock()
	select {
	case ln.wake <- struct{}{}:
	default: // it has been told already
	}
}
