package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// lock is the Lock of every algorithm.
type lock struct{ target }

var _ strategy.Lock = (*lock)(nil)

func (l *lock) TryAcquire(ctx context.Context) (strategy.Lease, error) {
	return l.call(ctx, l.once)
}

func (l *lock) Acquire(ctx context.Context) (strategy.Lease, error) {
	return l.call(ctx, l.acquire)
}

// call reports that a call begins and, if that is so, that it ends without a lease.
func (l *lock) call(ctx context.Context, get func(ctx context.Context, asked time.Time) (*lease, error)) (strategy.Lease, error) {
	asked := l.c.called(ctx, l.name)
	lease, err := get(ctx, asked)
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
		return nil, endedBy(ctx, err)
	}
	if err := l.c.enter(); err != nil {
		return nil, err
	}
	defer l.c.leave()
	lease, _, err := l.attempt(ctx, c, 1)
	if err != nil {
		return nil, endedBy(ctx, err)
	}
	lease.begin(ctx, 1, asked)
	return lease, nil
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
	w := l.c.lines.join(&l.target, strategy.OwnerFrom(ctx))
	if w == nil {
		lease, first, err := l.askFirst(ctx)
		switch {
		case err == nil:
			lease.begin(ctx, 1, asked)
			return lease, nil
		case first == nil:
			return nil, endedBy(ctx, err)
		}
		w = first
		w.n = 1
	}
	defer w.leave()
	w.asked = asked
	lease, err := w.wait(ctx)
	switch {
	case err != nil:
		return nil, err
	case timeup.Over(ctx):
		return nil, w.gaveUp(ctx, lease)
	case l.c.group.Closed(): // nobody would renew it
		lease.giveBack()
		return nil, strategy.ErrClosed
	}
	lease.begin(ctx, w.n, asked)
	return lease, nil
}

// waitsForItself returns an error if ctx is that of a lease that keeps the caller out for as long as it is held.
func (t *target) waitsForItself(ctx context.Context) error {
	outer, _ := ctx.Value(withinKey{}).(*within)
	for ; outer != nil; outer = outer.outer {
		if outer.c.shared == t.c.shared && outer.claim.Key == t.key && outer.Err() == nil && t.c.sharer.Excludes(outer.claim.Share, t.share) {
			return fmt.Errorf("%w; ctx is that of this holder, so the caller would wait for itself", grantedTo(outer.lease).err)
		}
	}
	return nil
}

// askFirst makes the first attempt of a call. The caller has the lease, or its place in line, w, or neither.
func (l *lock) askFirst(ctx context.Context) (lease *lease, w *waiter, err error) {
	var a answer
	defer func() { w = l.firstAnswered(ctx, lease, a, err) }()
	lease, a, err = l.attempt(ctx, l.claimFor(strategy.OwnerFrom(ctx)), 1)
	return lease, nil, err
}

// firstAnswered takes in a first attempt. If the lock was granted, and keeps others out, the lease serves the line next. If the
// caller has to wait, it is the first in line, as w.
func (l *lock) firstAnswered(ctx context.Context, lease *lease, a answer, err error) (w *waiter) {
	ls, key, waits := l.c.lines, l.lineKey(), l.worthWaiting(ctx, err)
	ls.mu.Lock()
	ln := ls.byKey[key]
	switch {
	case ln != nil:
	case waits:
		ln = ls.open(key)
	default: // nobody else has come
		delete(ls.byKey, key)
		ls.mu.Unlock()
		return nil
	}
	defer ln.unlock()
	if !cutShort(ctx, err) {
		ln.report(l.c, err)
	}
	switch {
	case lease != nil:
		ln.got(nil, lease, newTurn(), true)
	case waits:
		w = newWaiter(&l.target, ln, strategy.OwnerFrom(ctx))
		ln.waiters = append([]*waiter{w}, ln.waiters...)
		ln.learn(l.c.reasonOf(err, a.Grant))
		ln.on(refused)
	default:
		ln.on(ends)
	}
	return w
}
