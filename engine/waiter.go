package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// A waiter is one Acquire in a line.
type waiter struct {
	*target
	ln       *line
	named    string    // the owner that its ctx names
	owner    string    // the owner as which it may re-enter; empty: none
	asked    time.Time // when the call began
	deadline time.Time // its ctx's; zero: none
	n        int       // attempts so far

	unsure  bool      // owner may hold the lock already: ask
	again   time.Time // unsure, and no answer came: when to ask again
	acted   bool      // it has been the head
	rest    rest      // its sleep as the head
	failing time.Time // since when the servers fail its attempts, or when that was reported last; zero: they do not

	mail chan struct{} // there is something new for it; holds one

	// What is new. Guarded by ln.all.mu.
	lease      *lease // the lock, for which it has not asked; it has left the line
	ownerHolds bool   // owner has got the lock
	failed     error  // how the servers failed the head; nil: they did not
}

// A rest is how long a head sleeps.
type rest struct {
	since     time.Time // zero: it does not sleep
	until     time.Time
	reason    int           // for which reason of the line
	listening bool          // it hears of a release
	without   bool          // it has no subscription, and goes on without: subscriptions that never last must not set the pace
	jitter    time.Duration // drawn once for it; zero: not yet
}

func newWaiter(t *target, ln *line, named string) *waiter {
	w := &waiter{target: t, ln: ln, named: named, mail: make(chan struct{}, 1)}
	if t.c.reenters {
		w.owner = named
	}
	return w
}

// wake makes w look at what is new.
func (w *waiter) wake() {
	select {
	case w.mail <- struct{}{}:
	default: // it has not looked yet
	}
}

// post gives w the lock. The caller holds the mutex of the lines.
func (w *waiter) post(l *lease) {
	w.lease = l
	w.wake()
}

// A step is what a waiter does next.
type step uint8

const (
	sleep     step = iota // until there is mail, or a time has come
	take                  // the lock that it has been given
	ask                   // for the lock
	askAgain              // whether its owner has the lock already
	subscribe             // to what the servers announce
	giveUp                // ctx is over
	fail                  // the servers do, or the strategy is closed
)

// wait brings a waiter from its place in line to the lock.
func (w *waiter) wait(ctx context.Context) (*lease, error) {
	w.deadline, _ = ctx.Deadline()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if w.rest.jitter == 0 {
			w.rest.jitter = w.jitter(w.n) // here: the mutex is not held while a user's function runs
		}
		do, until, err := w.next(timeup.Over(ctx))
		var l *lease
		switch do {
		case take:
			return w.taken(), nil
		case ask:
			l, err = w.ask(ctx)
		case askAgain:
			l, err = w.askAgain(ctx)
		case subscribe:
			w.rest.without = !w.subscribe(ctx)
		case giveUp:
			err = w.gaveUp(ctx, nil)
		case sleep:
			var due <-chan time.Time
			if !until.IsZero() {
				timer.Reset(time.Until(until))
				due = timer.C
			}
			select {
			case <-w.mail:
			case <-due:
			case <-ctx.Done():
			case <-w.c.group.Closing():
			}
		}
		if l != nil || err != nil {
			return l, err
		}
	}
}

// next decides what w does; over says that its ctx is. until is when a sleep ends that nothing else ends; zero: never. After ask the
// line is asking.
func (w *waiter) next(over bool) (do step, until time.Time, err error) {
	w.ln.all.mu.Lock()
	defer w.ln.unlock()
	isHead := w.ln.head == w && w.ln.state == waiting
	switch {
	case w.lease != nil:
		return take, until, nil
	case over:
		return giveUp, until, nil
	case w.c.group.Closed():
		return fail, until, strategy.ErrClosed
	case w.failed != nil && !w.c.o.RetryOnError:
		return fail, until, w.failed
	case isHead:
		do, until = w.nextAsHead()
	case w.ownerHolds, w.unsure && !time.Now().Before(w.again):
		do, w.ownerHolds = askAgain, false
	case w.unsure:
		until = w.again
	}
	if do == sleep && !w.deadline.IsZero() && (until.IsZero() || w.deadline.Before(until)) {
		until = w.deadline // the timer of ctx may be late
	}
	return do, until, nil
}

// nextAsHead is next for the head. Whatever wakes it, the key is the truth: it asks. The caller holds the mutex of the lines.
func (w *waiter) nextAsHead() (do step, until time.Time) {
	ln := w.ln
	reasonToAsk := w.ownerHolds || ln.why.err == nil || ln.why.ask
	if !w.acted && ln.why.held != nil && w.owner != "" && ln.why.held.Holder == w.owner {
		reasonToAsk = true // its own release will not come: its owner may acquire the lock again
	}
	w.acted, w.ownerHolds = true, false
	switch do = ln.inherit(w); {
	case do != sleep:
	case reasonToAsk:
		do = ask
	default:
		do, until = w.restOn(ln.why)
	}
	if do == ask {
		ln.on(asks)
	}
	return do, until
}

// restOn decides how long the head sleeps for this reason, and whether it has to subscribe first, or to ask.
func (w *waiter) restOn(why reason) (do step, until time.Time) {
	ln, listening := w.ln, false
	if time.Now().Before(why.turn) && len(ln.freed) == 0 {
		return sleep, why.turn
	}
	if why.held != nil && w.c.o.Wait != strategy.WaitPoll && !w.rest.without {
		needed, there := ln.needs(w.c.queues)
		switch {
		case needed:
			return subscribe, until
		case ln.broken:
			ln.unsubscribe()
			w.rest.without = true
		case there && w.c.queues && !ln.full && (ln.entry == nil || !ln.entry.queued):
			return ask, until // for a place in the queue
		default:
			listening = there && !(w.c.queues && ln.full)
		}
	}
	if listening {
		freed, next := ln.heard(w.c.awaited(why.held))
		if freed {
			return ask, until
		}
		if !next.IsZero() { // the line is first now; the new holder has this long, whatever the old one had
			why = why.next(next, w.c.o.TTL)
			ln.learn(why)
			why = ln.why
		}
	}
	now := time.Now()
	if w.rest.since.IsZero() {
		w.rest.since = now
	}
	if w.rest.until.IsZero() || w.rest.reason != why.n || w.rest.listening != listening {
		w.rest.until, w.rest.reason, w.rest.listening = now.Add(w.pause(w.rest.jitter, why, listening)), why.n, listening
	}
	until = w.rest.until
	if last := w.lastQuestion(why); !last.IsZero() && last.Before(until) {
		until = last
	}
	if !now.Before(until) {
		return ask, until
	}
	return sleep, until
}

// lastQuestion comes shortly before the caller's deadline, if by then the last answer is old: the caller wants to
// know whether the lock is still held or the servers are away. Zero: it does not come in this rest.
func (w *waiter) lastQuestion(why reason) (at time.Time) {
	at = w.deadline.Add(-w.c.o.OpTimeout / 20)
	if w.deadline.IsZero() || at.Sub(why.at) < w.c.o.OpTimeout || w.rest.since.After(at) {
		return time.Time{}
	}
	return at
}

// taken is the lock that w has been given.
func (w *waiter) taken() *lease {
	w.ln.all.mu.Lock()
	defer w.ln.all.mu.Unlock()
	l := w.lease
	w.lease = nil
	return l
}

// ask makes the head's attempt, for which the line is asking.
func (w *waiter) ask(ctx context.Context) (*lease, error) {
	w.n++
	w.rest = rest{}
	var c driver.Claim
	w.ln.change(func() { c = w.ln.claimOfHead(w) })
	start := time.Now()
	patient, done := outlast(ctx, w.c.o.OpTimeout/20)
	l, a, err := w.attempt(patient, c, w.n)
	done()
	goesOn, given := w.worthWaiting(ctx, err), false
	w.ln.change(func() {
		given = w.lease != nil
		w.ln.headAnswered(w, c, l, a, err, start)
		switch {
		case err == nil:
		case goesOn:
			w.ln.learn(w.c.reasonOf(err, a.Grant))
		default:
			w.ln.why.ask = true
		}
		if !cutShort(ctx, err) {
			w.ln.report(w.c, err)
		}
	})
	if given { // a share, meanwhile
		return nil, nil
	}
	switch {
	case err == nil:
		return l, nil
	case !goesOn:
		return nil, w.last(ctx, err)
	}
	w.outlasts(ctx, err)
	return nil, nil
}

// askAgain asks whether the owner of w holds the lock already.
func (w *waiter) askAgain(ctx context.Context) (*lease, error) {
	w.n++
	c := w.claimFor(w.named)
	c.Again = true
	patient, done := outlast(ctx, w.c.o.OpTimeout/20)
	l, _, err := w.attempt(patient, c, w.n)
	done()
	switch {
	case err == nil:
		return l, nil
	case !w.worthWaiting(ctx, err):
		return nil, w.last(ctx, err)
	}
	if w.unsure = !errors.Is(err, strategy.ErrHeld); w.unsure {
		w.again = time.Now().Add(w.jitter(w.n))
	}
	return nil, nil
}

// subscribe makes the line hear of a release, if the servers announce it. Then the head asks at once, because it did not hear what
// came before. Returns whether that has succeeded.
func (w *waiter) subscribe(ctx context.Context) bool {
	c := driver.Claim{Name: w.name, Key: w.key, TTL: w.c.o.TTL, Share: w.share, Due: time.Now().Add(w.c.o.OpTimeout)}
	if w.c.queues {
		c.Line = w.ln.id
	}
	var hear func(driver.Notification)
	w.ln.change(func() {
		w.ln.unsubscribe() // the last head waited in another way
		hear = w.ln.listener()
		if w.ln.entry != nil {
			// After a fail-over the line subscribes at another server, whose clock must not be compared with the old server's. So no
			// direct grant counts until an attempt has been answered again.
			w.ln.entry.queued = false
		}
	})
	start := time.Now()
	end, err := w.c.p.(driver.Notifier).Watch(ctx, c, hear)
	w.ln.change(func() {
		switch {
		case err != nil && timeup.Over(ctx): // that says nothing of the servers
		case err != nil:
			w.ln.notSubscribed(w.c, start, err)
		case w.ln.head != w:
			w.ln.later(end) // another head subscribes
		default:
			w.ln.subscribed(w.c, c.Line != "", end)
			w.ln.why.ask = true // if this head leaves now, the next one asks, too
		}
	})
	return err == nil
}

// retryReport is how often a call that goes on while the servers fail reports that.
const retryReport = 10 * time.Second

// outlasts takes in what an attempt found of a call that goes on. Without its report nobody would hear of an outage before
// the end of the call, which may wait for days.
func (w *waiter) outlasts(ctx context.Context, err error) {
	switch now := time.Now(); {
	case errors.Is(err, strategy.ErrHeld), !isServers(err):
		w.failing = time.Time{}
	case w.failing.IsZero():
		w.failing = now
	case now.Sub(w.failing) >= retryReport:
		w.failing = now
		w.c.observe(strategy.Event{Kind: strategy.EventRetry, Context: ctx, Name: w.name, Attempt: w.n, Elapsed: now.Sub(w.asked), Err: err})
	}
}

// leave gives the place up, and a lease that was given too late.
func (w *waiter) leave() { w.ln.change(w.left) }

// left is leave for a caller that holds the mutex of the lines.
func (w *waiter) left() {
	acting := w.ln.head == w
	w.ln.out(w)
	if acting {
		w.ln.on(leaves)
	}
	if l := w.lease; l != nil {
		w.ln.later(l.giveBack) // a second time it does nothing
	}
}

// last is the error of a wait that an attempt ended. If ctx ended that attempt before it was sent, the
// last reason still counts, unless it is old: the servers may have gone away since.
func (w *waiter) last(ctx context.Context, err error) error {
	w.ln.all.mu.Lock()
	heard := time.Since(w.ln.why.at)
	w.ln.all.mu.Unlock()
	if timeup.Over(ctx) && errors.Is(err, strategy.ErrUnsent) && heard < w.c.o.OpTimeout {
		return w.gaveUp(ctx, nil)
	}
	w.leave()
	return endedBy(ctx, err)
}

// gaveUp leaves, and joins why the lock was not available with why the wait ended. A lease that came too late goes to the next.
func (w *waiter) gaveUp(ctx context.Context, late *lease) error {
	waited := time.Since(w.asked).Round(time.Microsecond)
	var why reason
	w.ln.change(func() {
		why = w.ln.why
		if w.ln.holder != nil {
			why = grantedTo(w.ln.holder) // nobody had to ask
		} else if late != nil && why.err == nil {
			why = grantedTo(late)
		}
		w.left()
		if late != nil {
			w.ln.later(late.giveBack)
		}
	})
	ended := timeup.Ended(ctx) // which may take a moment: nobody is to wait for it
	if why.err == nil {        // no attempt has been answered yet
		return fmt.Errorf("lock %q: %w: gave up after %v behind a caller of this process that got no answer yet: %w", w.name, strategy.ErrUnsent, waited, ended)
	}
	return fmt.Errorf("%w; gave up after %v: %w", why.left(w.name), waited, ended)
}
