package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/internal/token"
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
	lease, err := l.once(ctx, asked)
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
	c.observe(strategy.Event{Kind: strategy.EventMissed, Context: ctx, Name: name, Elapsed: time.Since(asked), Err: err})
}

// once makes one attempt of a call that began at asked.
func (l *lock) once(ctx context.Context, asked time.Time) (*lease, error) {
	c, err := l.claim(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.c.enter(); err != nil {
		return nil, err
	}
	defer l.c.leave()
	lease, _, err := l.attempt(ctx, c, 1)
	if err != nil {
		return nil, err
	}
	l.begin(ctx, lease, 1, asked)
	return lease, nil
}

// begin starts a lease, and tells the waiters of its owner.
func (l *lock) begin(ctx context.Context, lease *lease, n int, asked time.Time) {
	lease.begin(ctx, n, asked)
	if !l.c.reenters {
		return
	}
	if owner := strategy.OwnerFrom(ctx); owner != "" {
		l.lines.tellOwner(l.key, owner)
	}
}

// acquire asks at once, unless others of this process ask or wait already: then it waits in line. If the lock is
// held, the caller that has asked is the head of the line. The head asks again whenever it has reason to. Behind the
// head, an owner asks only whether it holds the lock already: otherwise it would wait for waiters that wait for it.
func (l *lock) acquire(ctx context.Context, asked time.Time) (*lease, error) {
	if err := l.refuse(ctx); err != nil {
		return nil, err // what is not allowed does not wait
	}
	if err := l.waitsForItself(ctx); err != nil {
		return nil, err
	}
	if err := l.c.enter(); err != nil {
		return nil, err
	}
	defer l.c.leave()
	n := 0
	w, err := l.takePlace(ctx, asked)
	if err != nil {
		return nil, err
	}
	if w == nil {
		n++
		var lease *lease
		lease, w, err = l.askFirst(ctx)
		switch {
		case err == nil:
			l.begin(ctx, lease, n, asked)
			return lease, nil
		case w == nil:
			return nil, endedBy(ctx, err)
		}
	}
	defer w.leave()
	lease, n, err := w.wait(ctx, n, asked)
	switch {
	case err != nil:
		return nil, err
	case timeup.Over(ctx):
		return nil, w.gaveUp(ctx, asked, lease)
	case l.c.group.Closed(): // nobody would renew it
		lease.giveBack()
		return nil, strategy.ErrClosed
	}
	l.begin(ctx, lease, n, asked)
	return lease, nil
}

// waitsForItself returns an error if ctx is that of a lease that keeps the caller out for as long as it is held.
func (t *target) waitsForItself(ctx context.Context) error {
	if t.c.sharer == nil {
		return nil
	}
	outer, ok := ctx.Value(within{t.c.shared, t.key}).(*lease)
	if !ok || outer.Err() != nil || !t.c.sharer.Excludes(outer.claim.Share, t.share) {
		return nil
	}
	return fmt.Errorf("%w; ctx is that of this holder, so the caller would wait for itself", grantedTo(outer).err)
}

// askFirst makes the first attempt of a call. The caller has the lease, or its place in line, w, or neither.
func (l *lock) askFirst(ctx context.Context) (lease *lease, w *waiter, err error) {
	start := time.Now()
	var a answer
	err = errPanic
	defer func() { w = l.answered(ctx, lease, a, err, time.Since(start)) }()
	lease, a, err = l.attempt(ctx, l.claimFor(strategy.OwnerFrom(ctx)), 1)
	return lease, nil, err
}

// errPanic is what became of an attempt that has not returned: the protocol or an observer panicked.
var errPanic = errors.New("panic in an attempt")

// answered takes in a first attempt, which took that long. If the lock was granted, the lease blocks the line. If the
// caller has to wait, it is the first in line, as w.
func (l *lock) answered(ctx context.Context, granted *lease, a answer, err error, elapsed time.Duration) (w *waiter) {
	ls, key, waits := l.lines, l.firstLine(), l.worthWaiting(ctx, err)
	ls.mu.Lock()
	ln := ls.byKey[key]
	switch {
	case ln != nil:
	case waits:
		ln = ls.open(key, 1)
	default: // nobody else has come
		delete(ls.byKey, key)
		ls.mu.Unlock()
		return nil
	}
	ln.asking--
	if !cutShort(ctx, err) {
		ln.reportFailure(l.c, err)
	}
	ln.adapt(elapsed, min(l.c.o.OpTimeout, driver.SuccessorTTL(l.c.o.TTL)))
	switch {
	case granted != nil:
		ln.blockOn(nil, granted, time.Now())
	case waits:
		why := l.c.reasonOf(err, a.Grant)
		ln.learn(why)
		to := ln
		if l.c.queued() {
			to = ls.open(lineKey{l.key, token.New("", false)}, 0)
			to.learn(why)
		}
		w = to.newWaiter(&l.target, strategy.OwnerFrom(ctx))
		to.waiters.JoinFirst(w)
		to.callHead()
	}
	after := ln.settle()
	ls.mu.Unlock()
	after()
	return w
}

// takePlace returns the caller's place in line; nil: it is to make the first attempt. Where each waits in a line of its
// own, the caller waits here until it may make that.
func (l *lock) takePlace(ctx context.Context, asked time.Time) (*waiter, error) {
	w := l.lines.join(&l.target, strategy.OwnerFrom(ctx))
	if w == nil || !l.c.queued() {
		return w, nil
	}
	_, _, err := w.awaitHead(ctx, 0)
	if err == nil && timeup.Over(ctx) {
		err = errContext
	}
	if errors.Is(err, errContext) {
		err = w.gaveUp(ctx, asked, nil)
	}
	if err != nil {
		w.leave()
	}
	return nil, err
}

// errContext says that ctx ended a wait, before the reasons are put together. errOwnerHolds says that a
// waiter has reason to ask whether its owner has the lock.
var (
	errContext    = errors.New("context done")
	errOwnerHolds = errors.New("its owner may have the lock")
)

// wait brings a waiter from its place in line to the lock, after n attempts. It returns how many there
// were in the end.
func (w *waiter) wait(ctx context.Context, n int, asked time.Time) (*lease, int, error) {
	l, why, err := w.becomeHead(ctx, &n, asked)
	if why.held != nil && w.owner != "" && why.held.Holder == w.owner {
		why.ask = true // its own release will not come: its owner may acquire the lock again
	}
	for l == nil && err == nil {
		if l, err = w.pause(ctx, n, why); l != nil {
			break
		}
		if err == nil && timeup.Over(ctx) {
			err = errContext // both had come: when ctx is over, nothing is sent
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
		if !cutShort(ctx, e) {
			w.ln.change(func() { w.ln.reportFailure(w.c, e) })
		}
		if e == nil {
			break
		}
		if !w.worthWaiting(ctx, e) {
			w.ln.distrustReason()
			return nil, n, w.last(ctx, e, asked)
		}
		w.outlasts(ctx, n, e, asked)
		why = w.c.reasonOf(e, a.Grant)
		w.ln.learn(why)
	}
	if errors.Is(err, errContext) {
		err = w.gaveUp(ctx, asked, nil)
	}
	return l, n, err
}

// becomeHead waits until w is the head of the line, and returns what the last head knew; or the lease,
// if w was granted one. On the way, an owner that may hold the lock already asks whether it does, and has
// a lease if so. n counts the attempts.
func (w *waiter) becomeHead(ctx context.Context, n *int, asked time.Time) (*lease, reason, error) {
	for ask := w.unsure; ; ask = false {
		if !ask {
			if l, why, err := w.awaitHead(ctx, *n); !errors.Is(err, errOwnerHolds) {
				return l, why, err
			}
		}
		if timeup.Over(ctx) {
			return nil, reason{}, errContext
		}
		*n++
		c := w.claimFor(w.named)
		c.Again = true
		patient, done := outlast(ctx, w.c.o.OpTimeout/20)
		l, _, err := w.attempt(patient, c, *n)
		done()
		if err == nil {
			return l, reason{}, nil
		}
		if !w.worthWaiting(ctx, err) {
			return nil, reason{}, w.last(ctx, err, asked)
		}
		w.unsure = !errors.Is(err, strategy.ErrHeld)
	}
}

// retryReport is how often a call that goes on while the servers fail reports that.
const retryReport = 10 * time.Second

// outlasts takes in what attempt n of a call found that goes on. Without its report nobody would hear of an outage before
// the end of the call, which may wait for days.
func (w *waiter) outlasts(ctx context.Context, n int, err error, asked time.Time) {
	switch now := time.Now(); {
	case errors.Is(err, strategy.ErrHeld), !isServers(err):
		w.failing = time.Time{}
	case w.failing.IsZero():
		w.failing = now
	case now.Sub(w.failing) >= retryReport:
		w.failing = now
		w.c.observe(strategy.Event{Kind: strategy.EventRetry, Context: ctx, Name: w.name, Attempt: n, Elapsed: now.Sub(asked), Err: err})
	}
}

// awaitHead waits until w is the head, and returns what the last head knew; or until it is granted the lock;
// or until it has reason to ask whether its owner has the lock: then the error is errOwnerHolds. n is how
// many attempts were made.
func (w *waiter) awaitHead(ctx context.Context, n int) (*lease, reason, error) {
	w.over = overAt(ctx)
	var again <-chan time.Time
	if w.unsure { // it has asked, and got no answer
		again = time.After(w.jitter(n))
	}
	for {
		select {
		case l := <-w.granted:
			return l, reason{}, nil
		case <-w.head:
			return nil, w.ln.reason(), nil
		case <-w.ownerHolds:
			return nil, reason{}, errOwnerHolds
		case <-again:
			return nil, reason{}, errOwnerHolds
		case err := <-w.failed:
			if !w.c.o.RetryOnError {
				return nil, reason{}, err
			}
		case <-ctx.Done():
			return nil, reason{}, errContext
		case <-w.over:
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
	if timeup.Over(ctx) {
		return nil, errContext // a subscription would be for nobody
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
				if latest := why.latest(w.c.o.TTL); latest.Before(next) {
					next = latest
				}
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
		case <-w.ownerHolds:
			return nil, nil
		case <-ctx.Done():
			return nil, errContext
		case <-w.over:
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
		c := driver.Claim{Name: w.name, Key: w.key, TTL: w.c.o.TTL, Share: w.share, Due: time.Now().Add(w.c.o.OpTimeout)}
		if queues {
			c.Line = ln.id
		}
		ln.distrustClock()
		if !ln.subscribe(ctx, w.c, c) {
			return false, false
		}
		ln.distrustReason() // if this head leaves now, the next one asks, too
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
	expiry := min(max(time.Until(until), 0), contract.MaxTTL) + time.Millisecond
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

// last is the error of a wait that an attempt ended. If ctx ended that attempt before it was sent, the
// last reason still counts, unless all that this process has heard is old: the servers may have gone away since.
func (w *waiter) last(ctx context.Context, err error, asked time.Time) error {
	heard := min(time.Since(w.ln.reason().at), w.ln.all.sinceHeld())
	if timeup.Over(ctx) && errors.Is(err, strategy.ErrUnsent) && heard < w.c.o.OpTimeout {
		return w.gaveUp(ctx, asked, nil)
	}
	w.leave()
	return endedBy(ctx, err)
}

// gaveUp joins why the lock was not available with why the wait ended. A lease that came too late goes to the next.
func (w *waiter) gaveUp(ctx context.Context, asked time.Time, late *lease) error {
	waited := time.Since(asked).Round(time.Microsecond)
	why := w.ln.reason()
	if holder := w.ln.heldBy(); holder != nil {
		why = grantedTo(holder) // nobody had to ask
	} else if late != nil && why.err == nil {
		why = grantedTo(late)
	}
	w.leave()
	if late != nil {
		late.giveBack()
	}
	ended := timeup.Ended(ctx) // which may take a moment: nobody is to wait for it
	if why.err == nil {        // no attempt has been answered yet
		return fmt.Errorf("lock %q: %w: gave up after %v behind a caller of this process that got no answer yet: %w", w.name, strategy.ErrUnsent, waited, ended)
	}
	err := why.err
	if why.held != nil {
		left := max(time.Until(why.until), 0)
		if why.held.TTL < 0 {
			left = why.held.TTL
		}
		held := *why.held
		held.Name, held.TTL = w.name, left
		err = &held
	}
	return fmt.Errorf("%w; gave up after %v: %w", err, waited, ended)
}
