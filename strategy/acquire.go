package strategy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Acquire asks at once, unless others of this process wait already. If the lock is held it
// stands in line; at the head of the line it asks again whenever it has reason to. Behind
// the head an owner asks only whether it holds the lock already, or it would wait for
// those who wait for it.
func (l *lock) Acquire(ctx context.Context) (*Lease, error) {
	asked := time.Now()
	n, err := 0, l.refuse(ctx)
	if err != nil {
		return nil, err // what is not allowed does not wait
	}
	if !l.s.hasLine(l.key) {
		n++
		lease, e := l.attempt(ctx, n, asked, false)
		if !l.worthWaiting(e) {
			return lease, endedBy(ctx, e)
		}
		err = e
	}
	if err := l.s.enter(); err != nil {
		return nil, err
	}
	defer l.s.leave()
	place := l.s.join(l.key, l.reentersAs(ctx), reasonOf(err))
	defer place.leave()
	return l.wait(ctx, place, n, asked)
}

// reentersAs returns the owner by whom the caller may hold the lock already; empty: by
// none.
func (l *lock) reentersAs(ctx context.Context) string {
	if re, ok := l.s.p.(Reenterer); !ok || !re.Reenters() {
		return ""
	}
	return ownerOf(ctx)
}

// wait brings a contender from its place in line to the lock, after n attempts.
func (l *lock) wait(ctx context.Context, p *place, n int, asked time.Time) (*Lease, error) {
	lease, why, err := l.comeForward(ctx, p, &n, asked)
	if lease != nil {
		return lease, nil
	}
	if why.held != nil && p.owner != "" && why.held.Holder == p.owner {
		why.ask = true // nobody waits for a release of its own: the lock lets it in
	}
	for err == nil {
		if err = p.pause(ctx, l, n, why); err == nil && ctx.Err() != nil {
			err = errContext // both had come: a context that is done sends nothing
		}
		if err != nil {
			break
		}
		n++
		p.ln.asking()
		patient, done := outlast(ctx, l.s.o.OpTimeout/20)
		lease, e := l.attempt(patient, n, asked, false)
		done()
		if ctx.Err() == nil {
			p.tellFailure(e)
		}
		switch {
		case e == nil && ctx.Err() != nil: // granted just after the wait was over
			err := l.gaveUp(ctx, p, asked)
			p.ln.learn(grantedTo(lease))
			l.s.giveBack(lease)
			return nil, err
		case e == nil:
			p.ln.learn(grantedTo(lease))
			return lease, nil
		case !l.worthWaiting(e):
			p.ln.unanswered()
			return nil, l.last(ctx, p, e, asked)
		}
		why = reasonOf(e)
		p.ln.learn(why)
	}
	if errors.Is(err, errContext) {
		return nil, l.gaveUp(ctx, p, asked)
	}
	return nil, err
}

// comeForward waits until the contender is the head of the line, and returns what its
// predecessor knew. On the way, an owner that may hold the lock already asks whether it
// does, and has a lease if so. n counts its attempts.
func (l *lock) comeForward(ctx context.Context, p *place, n *int, asked time.Time) (*Lease, reason, error) {
	for ask := p.unsure; ; ask = false {
		if !ask {
			if why, err := p.turn(ctx, l, *n); !errors.Is(err, errLetIn) {
				return nil, why, err
			}
		}
		if ctx.Err() != nil {
			return nil, reason{}, errContext
		}
		*n++
		lease, err := l.attempt(ctx, *n, asked, true)
		if err == nil {
			return lease, reason{}, nil
		}
		if !l.worthWaiting(err) {
			return nil, reason{}, l.last(ctx, p, err, asked)
		}
		p.unsure = !errors.Is(err, ErrHeld)
	}
}

// outlast is ctx with a little patience: it ends that much later. A wait is often
// ended while a question is on its way; with its answer, which comes soon, the
// caller learns that the lock is held, and without it only that nobody knows.
func outlast(ctx context.Context, patience time.Duration) (patient context.Context, done func()) {
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(contextError(ctx))
		case <-patient.Done():
		}
	})
	return patient, func() {
		stop()
		cancel(nil)
	}
}

// giveBack releases, in the background, a lock that nobody wants any more.
func (s *Strategy) giveBack(l *Lease) {
	if c, err := l.finish(); err == nil {
		s.undo(c)
		s.observe(Event{Kind: EventReleased, Name: c.Name, Token: c.Token, Took: time.Since(l.granted)})
	}
}

// errContext says that ctx ended a wait, before the reasons are put together;
// errLetIn, that one who stands in line has reason to ask whether its owner has the lock.
var (
	errContext = errors.New("context done")
	errLetIn   = errors.New("let in")
)

// worthWaiting tells whether another attempt may do better.
func (l *lock) worthWaiting(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, ErrHeld), errors.Is(err, ErrLost): // lost: granted too late to be of use
		return true
	default:
		return l.s.o.Persist && isServers(err)
	}
}

// isServers tells whether err is what a server said, or that it said nothing.
func isServers(err error) bool {
	var server *ServerError
	return errors.As(err, &server)
}

// last is the error of a wait that an attempt ended. If ctx ended that attempt
// before it was sent, what was known before is still known.
func (l *lock) last(ctx context.Context, p *place, err error, asked time.Time) error {
	if ctx.Err() != nil && errors.Is(err, ErrUnsent) {
		return l.gaveUp(ctx, p, asked)
	}
	return endedBy(ctx, err)
}

// gaveUp puts both facts together: why the lock was not to be had, and why the
// wait ended.
func (l *lock) gaveUp(ctx context.Context, p *place, asked time.Time) error {
	waited := time.Since(asked).Round(time.Microsecond)
	why := p.ln.reason()
	if why.err == nil { // no attempt has been answered yet
		return fmt.Errorf("lock %q: gave up after %v in this process's queue: %w", l.name, waited, contextError(ctx))
	}
	err := why.err
	if why.held != nil {
		left := max(time.Until(why.until), 0)
		if why.held.TTL < 0 {
			left = why.held.TTL
		}
		err = &HeldError{Name: l.name, Holder: why.held.Holder, TTL: left}
	}
	return fmt.Errorf("%w; gave up after %v: %w", err, waited, contextError(ctx))
}

// A reason says why a lock was not to be had.
type reason struct {
	err   error      // nil: not known, so ask
	held  *HeldError // nil: err is not ErrHeld
	until time.Time  // held, with a TTL: when that ends
	ask   bool       // a later attempt got no answer, so ask
}

func reasonOf(err error) reason {
	r := reason{err: err}
	if errors.As(err, &r.held) && r.held.TTL > 0 {
		r.until = time.Now().Add(r.held.TTL)
	}
	return r
}

// grantedTo is what the next in line needs not ask: the one before it has the lock.
func grantedTo(l *Lease) reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.claim.Grant
	until := g.Start.Add(g.TTL)
	held := &HeldError{Name: l.claim.Name, Holder: l.holder(), TTL: time.Until(until)}
	return reason{err: held, held: held, until: until}
}

// pause returns nil when there is reason to ask again: the lock was released, or
// its holder's TTL is over, or, where nothing tells of releases, some random time
// has passed. Whatever woke it, the key is the truth: the caller asks.
func (p *place) pause(ctx context.Context, l *lock, n int, why reason) error {
	if why.err == nil || why.ask {
		return nil
	}
	var notices <-chan struct{}
	if why.held != nil && l.s.o.Wait == WaitNotice {
		fresh, ok := p.ln.listen(ctx, l)
		if fresh {
			return nil // a release before the confirmation was not heard: ask now
		}
		if ok {
			notices = p.ln.wake
		}
	}
	limit := time.NewTimer(l.pauseLimit(n, why, notices != nil))
	defer limit.Stop()
	for {
		if notices != nil {
			switch freed, broken := p.ln.heard(why.held.Holder); {
			case freed:
				return nil
			case broken:
				return p.pause(ctx, l, n, why) // without notices
			}
		}
		select {
		case <-notices:
		case <-limit.C:
			return nil
		case <-p.letIn:
			return nil
		case <-ctx.Done():
			return errContext
		case <-l.s.closing:
			return ErrClosed
		}
	}
}

// jitter is a random pause after n attempts: full jitter.
func (l *lock) jitter(n int) time.Duration {
	return rand.N(max(l.s.o.Backoff(max(n, 1)), time.Microsecond)) + 1
}

// pauseLimit is how long a pause lasts that nothing cuts short.
func (l *lock) pauseLimit(n int, why reason, told bool) time.Duration {
	o := &l.s.o
	jitter := l.jitter(n)
	if why.held == nil || why.until.IsZero() {
		if told {
			return o.TTL + min(jitter, o.TTL) // no expiry to wait for; look now and then
		}
		return jitter
	}
	if why.held.Holder == "" {
		// Nobody in particular: rivals have split the votes of several servers, and each
		// gives up its own. If all came back together they would split them again; so
		// each waits some time of its own, or until somebody has had the lock.
		told = false
	}
	// A key dies in the millisecond after its TTL. Of one that lives for ages, or so
	// it says, look now and then, too.
	expiry := min(max(time.Until(why.until), 0), MaxTTL) + time.Millisecond
	if told {
		// A holder that died tells nobody. Those who wait elsewhere wake at the same
		// moment, so spread a little.
		return expiry + min(jitter, rand.N(2*time.Millisecond))
	}
	return min(jitter, expiry)
}
