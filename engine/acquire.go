package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// lock is the Lock of every algorithm.
type lock struct {
	target
	lines *lines
}

var _ strategy.Lock = (*lock)(nil)

func (l *lock) TryAcquire(ctx context.Context) (strategy.Lease, error) {
	asked := l.c.called(ctx, l.name)
	lease, _, err := l.once(ctx, 1, asked)
	if err = endedBy(ctx, err); err != nil {
		l.c.missed(ctx, l.name, asked, err)
		return nil, err
	}
	return lease, nil
}

func (l *lock) Acquire(ctx context.Context) (strategy.Lease, error) {
	asked := l.c.called(ctx, l.name)
	lease, err := l.acquire(ctx, asked)
	if err != nil {
		l.c.missed(ctx, l.name, asked, err)
		return nil, err
	}
	return lease, nil
}

// called reports that a call begins, and returns when.
func (c *core) called(ctx context.Context, name string) time.Time {
	c.observe(strategy.Event{Kind: strategy.EventAsked, Context: ctx, Name: name})
	return time.Now()
}

// missed reports that a call ends without a lease.
func (c *core) missed(ctx context.Context, name string, asked time.Time, err error) {
	c.observe(strategy.Event{Kind: strategy.EventMissed, Context: ctx, Name: name, Took: time.Since(asked), Err: err})
}

// once makes one attempt, number n of a call that began at asked.
func (l *lock) once(ctx context.Context, n int, asked time.Time) (*lease, answer, error) {
	c, err := l.claim(ctx)
	if err != nil {
		return nil, answer{}, err
	}
	lease, a, err := l.attempt(ctx, c, n)
	if err != nil {
		return nil, a, err
	}
	owner := ""
	if l.c.reenters {
		owner = strategy.OwnerFrom(ctx)
	}
	l.begin(ctx, lease, owner, n, asked)
	return lease, a, nil
}

// begin starts a lease, and lets in the waiters of its owner.
func (l *lock) begin(ctx context.Context, lease *lease, owner string, n int, asked time.Time) {
	lease.begin(ctx, n, asked)
	if owner != "" {
		l.lines.letIn(l.key, owner)
	}
}

// acquire asks at once, unless others of this process wait already. If the lock is held, it waits in
// line. The head of the line asks again whenever it has reason to. Behind the head, an owner asks only
// whether it holds the lock already: otherwise it would wait for waiters that wait for it.
func (l *lock) acquire(ctx context.Context, asked time.Time) (*lease, error) {
	n, err := 0, l.refuse(ctx)
	if err != nil {
		return nil, err // what is not allowed does not wait
	}
	var why reason
	if !l.lines.has(l.key) {
		n++
		lease, a, err := l.once(ctx, n, asked)
		if !l.worthWaiting(err) {
			return lease, endedBy(ctx, err)
		}
		why = l.c.reasonOf(err, a.Grant)
	}
	if err := l.c.enter(); err != nil {
		return nil, err
	}
	defer l.c.leave()
	w := l.lines.join(&l.target, strategy.OwnerFrom(ctx), why)
	defer w.leave()
	lease, n, err := w.wait(ctx, n, asked)
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		err := w.gaveUp(ctx, asked)
		lease.giveBack()
		return nil, err
	case l.c.group.Closed(): // nobody would renew it
		lease.giveBack()
		return nil, strategy.ErrClosed
	}
	l.begin(ctx, lease, w.owner, n, asked)
	return lease, nil
}

// errContext says that ctx ended a wait, before the reasons are put together. errLetIn says that a
// waiter has reason to ask whether its owner has the lock.
var (
	errContext = errors.New("context done")
	errLetIn   = errors.New("let in")
)

// wait brings a waiter from its place in line to the lock, after n attempts. It returns how many there
// were in the end.
func (w *waiter) wait(ctx context.Context, n int, asked time.Time) (*lease, int, error) {
	l, why, err := w.comeForward(ctx, &n, asked)
	if why.held != nil && w.owner != "" && why.held.Holder == w.owner {
		why.ask = true // its own release will not come: the lock lets the owner in
	}
	for l == nil && err == nil {
		if l, err = w.pause(ctx, n, why); l != nil {
			break
		}
		if err == nil && ctx.Err() != nil {
			err = errContext // both had come: when ctx is done, nothing is sent
		}
		if err != nil {
			break
		}
		n++
		w.ln.forget()
		patient, done := outlast(ctx, w.c.o.OpTimeout/20)
		var a answer
		var e error
		l, a, e = w.ask(patient, n)
		done()
		if ctx.Err() == nil {
			w.reportFailure(e)
		}
		if e == nil {
			break
		}
		if !w.worthWaiting(e) {
			w.ln.unanswered()
			return nil, n, w.last(ctx, e, asked)
		}
		why = w.c.reasonOf(e, a.Grant)
		w.ln.learn(why)
	}
	if errors.Is(err, errContext) {
		err = w.gaveUp(ctx, asked)
	}
	return l, n, err
}

// comeForward waits until w is the head of the line, and returns what the last head knew; or the lease,
// if w was given one. On the way, an owner that may hold the lock already asks whether it does, and has
// a lease if so. n counts the attempts.
func (w *waiter) comeForward(ctx context.Context, n *int, asked time.Time) (*lease, reason, error) {
	for ask := w.unsure; ; ask = false {
		if !ask {
			if l, why, err := w.turn(ctx, *n); !errors.Is(err, errLetIn) {
				return l, why, err
			}
		}
		if ctx.Err() != nil {
			return nil, reason{}, errContext
		}
		*n++
		c := w.claimFor(w.named)
		c.Again = true
		l, _, err := w.attempt(ctx, c, *n)
		if err == nil {
			return l, reason{}, nil
		}
		if !w.worthWaiting(err) {
			return nil, reason{}, w.last(ctx, err, asked)
		}
		w.unsure = !errors.Is(err, strategy.ErrHeld)
	}
}

// turn waits until w is the head, and returns what the last head knew; or until it is given the lock;
// or until it has reason to ask whether its owner has the lock: then the error is errLetIn. n is how
// many attempts were made.
func (w *waiter) turn(ctx context.Context, n int) (*lease, reason, error) {
	var again <-chan time.Time
	if w.unsure { // it has asked, and got no answer
		again = time.After(w.jitter(n))
	}
	for {
		select {
		case l := <-w.given:
			return l, reason{}, nil
		case <-w.head:
			return nil, w.ln.reason(), nil
		case <-w.letIn:
			return nil, reason{}, errLetIn
		case <-again:
			return nil, reason{}, errLetIn
		case err := <-w.away:
			if !w.c.o.RetryOnError {
				return nil, reason{}, err
			}
		case <-ctx.Done():
			return nil, reason{}, errContext
		case <-w.c.group.Closing():
			return nil, reason{}, strategy.ErrClosed
		}
	}
}

// pause returns no error when the head has reason to ask again: the lock was released, or its holder's
// TTL is over, or, without notifications, a random time has passed. Whatever woke the head, the key is
// the truth: it asks. pause returns the lease of a direct grant, if the servers have made one.
func (w *waiter) pause(ctx context.Context, n int, why reason) (*lease, error) {
	if l, ask := w.inherit(); l != nil || ask || why.err == nil || why.ask {
		return l, nil
	}
	listening, ask := w.listen(ctx, why)
	if ask {
		return nil, nil
	}
	limit := time.NewTimer(w.pauseLimit(n, why, listening))
	last := w.lastQuestion(ctx, why)
	for {
		var wake <-chan struct{}
		if listening {
			wake = w.ln.wake
			freed, next, broken := w.ln.heard(w.c.awaited(why.held))
			switch {
			case freed:
				return nil, nil
			case broken:
				w.ln.subscription.close()
				limit.Reset(w.pauseLimit(n, why, false))
			case !next.IsZero(): // the line is first now; the new holder has this long, whatever the old one had
				why.until, why.longer, why.silent = next, 0, false
				w.ln.learn(why)
				limit.Reset(w.pauseLimit(n, why, true))
			}
		}
		if l, ask := w.inherit(); l != nil || ask {
			return l, nil
		}
		select {
		case <-wake:
		case <-limit.C:
			return nil, nil
		case <-last:
			return nil, nil
		case <-w.letIn:
			return nil, nil
		case <-ctx.Done():
			return nil, errContext
		case <-w.c.group.Closing():
			return nil, strategy.ErrClosed
		}
	}
}

// listen makes sure that the head hears of a release, if the servers announce it. ask says that the head
// has to ask at once: after a new subscription, because it did not hear what came before; or to get a
// place in the servers' queue.
func (w *waiter) listen(ctx context.Context, why reason) (listening, ask bool) {
	if why.held == nil || w.c.o.Wait == strategy.WaitPoll {
		return false, false
	}
	ln, queues := w.ln, w.c.queues
	needed, there := ln.needed(queues)
	if needed {
		c := driver.Claim{Name: w.name, Key: w.key, TTL: w.c.o.TTL, Share: w.part, Due: time.Now().Add(w.c.o.OpTimeout)}
		if queues {
			c.Line = ln.id
		}
		ln.distrustClock()
		if !ln.subscribe(ctx, w.c.p.(driver.Notifier), c) {
			return false, false
		}
		ln.unanswered() // if this head leaves now, the next one asks, too
		return true, true
	}
	if !there || !queues {
		return there, false
	}
	queued, refused := ln.standing()
	return !refused, !queued && !refused
}

// distrustClock is called before the line subscribes. After a fail-over the line subscribes at another
// server, whose clock must not be compared with the old server's. So no direct grant counts until an
// attempt has been answered again.
func (ln *line) distrustClock() {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	if ln.entry != nil {
		ln.entry.queued = false
	}
}

// standing returns whether the line has its place in the servers' queue, or has been refused one.
func (ln *line) standing() (queued, refused bool) {
	ln.all.mu.Lock()
	defer ln.all.mu.Unlock()
	return ln.entry != nil && ln.entry.queued, ln.refused
}

// jitter is a random pause after n attempts: full jitter.
func (t *target) jitter(n int) time.Duration {
	return rand.N(max(t.c.o.Backoff(max(n, 1)), time.Microsecond)) + 1
}

// pauseLimit is how long a pause lasts that no notification ends.
func (w *waiter) pauseLimit(n int, why reason, listening bool) time.Duration {
	o := &w.c.o
	jitter := w.jitter(n)
	listening = listening && !why.silent
	if why.held == nil || why.until.IsZero() {
		if listening {
			return o.TTL + why.longer + min(jitter, o.TTL) // no expiry to wait for: ask now and then
		}
		return jitter
	}
	if why.held.Holder == "" {
		// Rivals have split the votes of several servers, and each gives up its own. If all came back
		// together, they would split them again. So each waits some time of its own, or until somebody
		// has had the lock.
		listening = false
	}
	// A key expires in the millisecond after its TTL. If the TTL lasts for ages, ask now and then.
	until := why.until
	if listening {
		until = until.Add(why.longer)
	}
	expiry := min(max(time.Until(until), 0), strategy.MaxTTL) + time.Millisecond
	if listening {
		// A holder that died announces nothing. Waiters of other processes wake at the same moment, so
		// spread a little.
		return expiry + min(jitter, rand.N(2*time.Millisecond))
	}
	return min(jitter, expiry)
}

// lastQuestion comes shortly before ctx's deadline, if by then the last answer is old: the caller wants to
// know whether the lock is still held or the servers are away.
func (w *waiter) lastQuestion(ctx context.Context, why reason) <-chan time.Time {
	deadline, ok := ctx.Deadline()
	at := deadline.Add(-w.c.o.OpTimeout / 20)
	if !ok || at.Sub(why.at) < w.c.o.OpTimeout || time.Now().After(at) {
		return nil
	}
	return time.After(time.Until(at))
}

// outlast is ctx, but ends that much later. ctx often ends a wait while a request is under way. The
// answer comes soon, and says that the lock is held. Without it the caller would learn only that the
// outcome is unknown. It has a deadline if ctx has one: some clients end a request by that alone.
func outlast(ctx context.Context, patience time.Duration) (patient context.Context, done func()) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(patience):
			cancel(contextError(ctx))
		case <-late.Done():
		}
	})
	patient, end := late, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		patient, end = context.WithDeadline(late, deadline.Add(patience))
	}
	return patient, func() {
		stop()
		end()
		cancel(nil)
	}
}

// last is the error of a wait that an attempt ended. If ctx ended that attempt before it was sent, the
// last reason still counts, unless it is old: the servers may have gone away since.
func (w *waiter) last(ctx context.Context, err error, asked time.Time) error {
	if ctx.Err() != nil && errors.Is(err, strategy.ErrUnsent) && time.Since(w.ln.reason().at) < w.c.o.OpTimeout {
		return w.gaveUp(ctx, asked)
	}
	return endedBy(ctx, err)
}

// gaveUp joins why the lock was not available with why the wait ended.
func (w *waiter) gaveUp(ctx context.Context, asked time.Time) error {
	waited := time.Since(asked).Round(time.Microsecond)
	why := w.ln.reason()
	if holder := w.ln.restsOn(); holder != nil {
		why = grantedTo(holder) // nobody had to ask
	}
	if why.err == nil { // no attempt has been answered yet
		return fmt.Errorf("lock %q: gave up after %v in this process's wait line: %w", w.name, waited, contextError(ctx))
	}
	err := why.err
	if why.held != nil {
		left := max(time.Until(why.until), 0)
		if why.held.TTL < 0 {
			left = why.held.TTL
		}
		err = &strategy.HeldError{Name: w.name, Holder: why.held.Holder, TTL: left}
	}
	return fmt.Errorf("%w; gave up after %v: %w", err, waited, contextError(ctx))
}
