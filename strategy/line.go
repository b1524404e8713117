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
// them does not depend on how many wait for it. What the head has learned, and its
// subscription, pass to the next.
type line struct {
	h      *house
	key    string
	places []*place // the first is the head; guarded by h.mu, as is failures

	failures int // attempts in a row that the servers failed

	wake chan struct{} // a notice has come; holds one

	mu     sync.Mutex
	why    reason    // why the last to ask did not get the lock, or who got it
	freed  []string  // tokens released since the last attempt began
	broken bool      // the subscription has ended by itself
	deaf   time.Time // until when not to ask for a subscription again: it was refused
	stop   func()    // ends the subscription; nil: there is none. The head's
}

// A place is a contender's in a line.
type place struct {
	ln     *line
	owner  string        // by whom it may re-enter; empty: by nobody
	unsure bool          // owner may hold the lock already: that is to be asked
	head   chan struct{} // closed when it is the head
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

// join takes the last place. why is what the contender knows, if it had to open
// the line.
func (h *house) join(key, owner string, why reason) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	ln := h.lines[key]
	if ln == nil {
		ln = &line{h: h, key: key, wake: make(chan struct{}, 1), why: why}
		h.lines[key] = ln
	}
	p := &place{ln: ln, owner: owner, head: make(chan struct{}), letIn: make(chan struct{}, 1), away: make(chan error, 1)}
	ln.places = append(ln.places, p)
	if len(ln.places) == 1 {
		close(p.head)
	}
	p.unsure = owner != "" && len(ln.places) > 1 // from now on it is told: see letIn
	return p
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

// turn waits until the place is the head, and returns what its predecessor knew; or
// until there is reason to ask whether its owner has the lock: then the error is
// errLetIn. n is how many attempts were made.
func (p *place) turn(ctx context.Context, l *lock, n int) (reason, error) {
	var again <-chan time.Time
	if p.unsure { // it was asked, and not answered
		timer := time.NewTimer(l.jitter(n))
		defer timer.Stop()
		again = timer.C
	}
	for {
		select {
		case <-p.head:
			return p.ln.reason(), nil
		case <-p.letIn:
			return reason{}, errLetIn
		case <-again:
			return reason{}, errLetIn
		case err := <-p.away:
			if !l.s.o.Persist {
				return reason{}, err
			}
		case <-ctx.Done():
			return reason{}, errContext
		case <-l.s.closing:
			return reason{}, ErrClosed
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

// leave gives the place up. The last one to leave ends the subscription.
func (p *place) leave() {
	ln, h := p.ln, p.ln.h
	h.mu.Lock()
	i := slices.Index(ln.places, p)
	ln.places = slices.Delete(ln.places, i, i+1)
	switch {
	case len(ln.places) == 0:
		delete(h.lines, ln.key)
	case i == 0:
		close(ln.places[0].head)
	}
	empty := len(ln.places) == 0
	h.mu.Unlock()
	if empty {
		ln.unlisten()
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
	ln.freed = ln.freed[:0]
}

// heard tells whether holder has released, so that asking makes sense, and whether
// there is nothing more to be heard. Notices of earlier holders are stale: they
// were released before holder acquired.
func (ln *line) heard(holder string) (freed, broken bool) {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	freed = len(ln.freed) >= maxFreed || holder == "" && len(ln.freed) > 0 || slices.Contains(ln.freed, holder)
	return freed, ln.broken
}

// listen subscribes if that is not done yet; fresh says that it was done just now.
// After a subscription broke there is one pause without: where they never last,
// they must not be what sets the pace. Only the head calls it.
func (ln *line) listen(ctx context.Context, l *lock) (fresh, ok bool) {
	ln.mu.Lock()
	broken, stop, deaf := ln.broken, ln.stop, time.Now().Before(ln.deaf)
	ln.mu.Unlock()
	switch {
	case broken:
		ln.unlisten()
		return false, false
	case stop != nil:
		return false, true
	case deaf:
		return false, false
	}
	c := Claim{Name: l.name, Key: l.key, TTL: l.s.o.TTL, Due: time.Now().Add(l.s.o.OpTimeout)}
	stop, err := l.s.p.(Notifier).Watch(ctx, c, ln.notify)
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if err != nil {
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrUnsupported) {
			ln.deaf = time.Now().Add(l.s.o.TTL) // it may be for a passing reason: LOADING, too many clients
		}
		return false, false
	}
	ln.stop = stop
	ln.why.ask = true // also for the next, should this one leave now
	return true, true
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
	ln.mu.Lock()
	if n == (Notice{}) {
		ln.broken = true
	} else if len(ln.freed) < maxFreed {
		ln.freed = append(ln.freed, n.Holder)
	}
	ln.mu.Unlock()
	select {
	case ln.wake <- struct{}{}:
	default: // it has been told already
	}
}
