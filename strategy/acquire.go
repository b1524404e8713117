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
	lease, err := l.acquire(ctx, asked)
	if err != nil {
		l.s.missed(ctx, l.name, asked, err)
	}
	return lease, err
}

func (l *lock) acquire(ctx context.Context, asked time.Time) (*Lease, error) {
	n, err := 0, l.refuse(ctx)
	if err != nil {
		return nil, err // what is not allowed does not wait
	}
	if !l.s.hasLine(l.key) {
		n++
		lease, e := l.attempt(ctx, n, asked)
		if !l.worthWaiting(e) {
			return lease, endedBy(ctx, e)
		}
		err = e
	}
	if err := l.s.enter(); err != nil {
		return nil, err
	}
	defer l.s.leave()
	place := l.join(ownerOf(ctx), reasonOf(err))
	defer place.leave()
	return l.wait(ctx, place, n, asked)
}

// reenters tells whether an owner gets in again.
func (s *Strategy) reenters() bool {
	re, ok := s.p.(Reenterer)
	return ok && re.Reenters()
}

// wait brings a contender from its place in line to the lock, after n attempts.
func (l *lock) wait(ctx context.Context, p *place, n int, asked time.Time) (*Lease, error) {
	lease, why, err := l.comeForward(ctx, p, &n, asked)
	if why.held != nil && p.owner != "" && why.held.Holder == p.owner {
		why.ask = true // nobody waits for a release of its own: the lock lets it in
	}
	for lease == nil && err == nil {
		if lease, err = p.pause(ctx, l, n, why); lease != nil {
			break
		}
		if err == nil && ctx.Err() != nil {
			err = errContext // both had come: a context that is done sends nothing
		}
		if err != nil {
			break
		}
		n++
		p.ln.asking()
		patient, done := outlast(ctx, l.s.o.OpTimeout/20)
		var e error
		lease, e = p.ask(patient, n)
		done()
		if ctx.Err() == nil {
			p.tellFailure(e)
		}
		if e == nil {
			break
		}
		if !l.worthWaiting(e) {
			p.ln.unanswered()
			return nil, l.last(ctx, p, e, asked)
		}
		why = reasonOf(e)
		p.ln.learn(why)
	}
	switch {
	case lease != nil:
		return l.accept(ctx, p, lease, n, asked)
	case errors.Is(err, errContext):
		return nil, l.gaveUp(ctx, p, asked)
	}
	return nil, err
}

// accept begins the lease that has ended a wait, unless the wait was over before.
func (l *lock) accept(ctx context.Context, p *place, lease *Lease, n int, asked time.Time) (*Lease, error) {
	switch {
	case ctx.Err() != nil:
		err := l.gaveUp(ctx, p, asked)
		l.s.giveBack(lease)
		return nil, err
	case l.s.isClosed(): // nobody would renew it
		l.s.giveBack(lease)
		return nil, ErrClosed
	}
	l.start(ctx, lease, p.owner, n, asked)
	return lease, nil
}

// comeForward waits until the contender is the head of the line, and returns what its
// predecessor knew; or the lease, if it was given one. On the way, an owner that may hold
// the lock already asks whether it does, and has a lease if so. n counts its attempts.
func (l *lock) comeForward(ctx context.Context, p *place, n *int, asked time.Time) (*Lease, reason, error) {
	for ask := p.unsure; ; ask = false {
		if !ask {
			if lease, why, err := p.turn(ctx, l, *n); !errors.Is(err, errLetIn) {
				return lease, why, err
			}
		}
		if ctx.Err() != nil {
			return nil, reason{}, errContext
		}
		*n++
		c, err := l.claim(ctx)
		if err != nil {
			return nil, reason{}, err
		}
		c.Again = true
		lease, _, err := l.ask(ctx, c, *n)
		if err == nil {
			return lease, reason{}, nil
		}
		if !l.worthWaiting(err) {
			return nil, reason{}, l.last(ctx, p, err, asked)
		}
		p.unsure = !errors.Is(err, ErrHeld)
	}
}

// ask makes the head's attempt. With its success the line rests, or the next is the head.
func (p *place) ask(ctx context.Context, n int) (*Lease, error) {
	l := p.l
	if l.s.queue != nil {
		lease, err := p.offer(ctx, n)
		if lease != nil {
			p.took(lease)
		}
		return lease, err
	}
	c, err := l.claim(ctx)
	if err != nil {
		return nil, err
	}
	lease, _, err := l.ask(ctx, c, n)
	if lease != nil {
		p.ln.learn(grantedTo(lease))
	}
	return lease, err
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

// giveBack releases, in the background, a lock that nobody wants any more. Its lease has not
// begun, so nobody is told of it.
func (s *Strategy) giveBack(l *Lease) {
	if c, err := l.finish(); err == nil {
		s.background(func() { l.letGo(context.Background(), c) })
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
	if holder := p.ln.restsOn(); holder != nil {
		why = grantedTo(holder) // nobody had to ask
	}
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

// pause returns no error when there is reason to ask again: the lock was released, or
// its holder's TTL is over, or, where nothing tells of releases, some random time
// has passed. Whatever woke it, the key is the truth: the caller asks. It returns the lease,
// if the servers have told of a direct grant.
func (p *place) pause(ctx context.Context, l *lock, n int, why reason) (*Lease, error) {
	if lease := p.inherit(); lease != nil || why.err == nil || why.ask {
		return lease, nil
	}
	var notices <-chan struct{}
	if why.held != nil && l.s.o.Wait != WaitPoll {
		fresh, ok := p.ln.listen(ctx, l)
		if fresh {
			return nil, nil // a release before the confirmation was not heard: ask now
		}
		if ok {
			notices = p.ln.wake
		}
	}
	if notices != nil && l.s.queue != nil {
		switch queued, refused := p.ln.standing(); {
		case refused:
			notices = nil
		case !queued:
			return nil, nil // for a place
		}
	}
	limit := time.NewTimer(l.pauseLimit(n, why, notices != nil))
	defer limit.Stop()
	for {
		if notices != nil {
			switch freed, next, broken := p.ln.heard(why.held.Holder); {
			case freed:
				return nil, nil
			case broken:
				return p.pause(ctx, l, n, why) // without notices
			case !next.IsZero(): // the heir before it has so long, whatever was said of the holder
				why.until = next
				limit.Reset(l.pauseLimit(n, why, true))
			}
			if lease := p.inherit(); lease != nil {
				return lease, nil
			}
		}
		select {
		case <-notices:
		case <-limit.C:
			return nil, nil
		case <-p.letIn:
			return nil, nil
		case <-ctx.Done():
			return nil, errContext
		case <-l.s.closing:
			return nil, ErrClosed
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
	if why.held != nil && why.held.Silent {
		told = false
	}
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
