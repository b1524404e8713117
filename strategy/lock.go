// Package strategy is the contract of all locks in this module, and what every
// one of them needs: waiting, renewal, loss, clean-up, errors and events.
//
// Users hold a [Lock] and the [Lease] that it gives. Where a lock comes from is
// one line, so that swapping the algorithm is one line too:
//
//	s, err := luascript.New(pool, strategy.Options{}) // or setnxpx.New, …
//	err = strategy.Do(ctx, s.Lock("invoice/42"), func(ctx context.Context, lease *strategy.Lease) error {
//		return work(ctx) // ctx ends the moment the lock is lost
//	})
//
// An algorithm is a [Protocol]: what it says to its servers, and nothing else.
// [New] puts the machinery of this package around it.
//
// # Four durations
//
// The TTL is how long the servers keep a lock without renewal. The wait is how long Acquire
// may take: the context's business. The operation time-out bounds one attempt, renewal or
// release ([Options]). The maximum hold bounds how long renewal goes on
// ([Lease.KeepAlive]). They are set apart and none stands in for another.
//
// # What no lease can promise
//
// A holder that is paused (a long garbage collection, a stopped process) does not
// notice its deadline until it runs again; after a suspension of the machine not even
// then, because most systems' monotonic clock stood still, too. If the thing that the
// lock protects can compare numbers, give it [Lease.Fence]: then a late write is
// refused there.
package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Lock is one name that contenders compete for. It holds no state: every
// acquisition contends on its own, also within one goroutine, unless ctx names
// an owner ([WithOwner]) and the algorithm is re-entrant. It is safe for
// concurrent use.
type Lock interface {
	// Name returns the name given to [Strategy.Lock]; of several locks ([All]) their names.
	Name() string

	// TryAcquire asks once and does not wait. It does not mind who waits in this process,
	// but does not overtake the servers' queue, where there is one ([WaitQueue]).
	//
	// After success the caller holds the lock until [Lease.Deadline] and must
	// release it. After ErrHeld (a *HeldError) somebody else holds it, and after
	// ErrRefused or ErrUnsent nothing has happened either. After ErrUnknown the
	// servers may have granted the lock: that is undone in the background, and
	// the caller does not hold it; likewise after ErrLost, which says that the
	// grant came later than its validity. If ctx was done, no byte was sent.
	//
	// When ctx ends while the request is under way, TryAcquire returns with the
	// next sign of life from the server, and after Options.OpTimeout at the latest.
	TryAcquire(ctx context.Context) (*Lease, error)

	// Acquire waits until it has the lock or ctx ends. ctx bounds the wait, never
	// the hold. Contenders of one Strategy, and of those made from it by With, are
	// served first come, first served, and, with [WaitQueue], so are those of several
	// processes, each of which has one place for all its contenders; but where locks are
	// re-entrant, whoever has the holder's owner gets in beside those who wait.
	//
	// When ctx ends the wait, the error is what the last attempt found (ErrHeld;
	// ErrLost if it was granted too late, ErrUnknown if it was cut short, and with
	// Options.Persist any other) and the context's error and cause. That is at once, or,
	// with a request under way, as for TryAcquire.
	//
	// Errors other than ErrHeld and that ErrLost end the wait at once, unless
	// Options.Persist; what they leave behind is as for TryAcquire. When the servers have
	// failed two in a row, all who stand in line behind them get that error, too.
	Acquire(ctx context.Context) (*Lease, error)
}

// Do acquires l (waiting as l.Acquire does), runs fn while it keeps the lock
// alive, and releases it, also if fn panics.
//
// fn's context ends when ctx does or when the lock is lost ([context.Cause] then
// is ErrLost), and names the lease's owner, so that a re-entrant lock taken with it
// re-enters. Renewal goes on until fn returns: call [Lease.KeepAlive] in fn to set
// a maximum hold. fn may release the lease itself; what that release said is then
// fn's to return.
//
// The error joins fn's, the loss of the lock, and a failed release. nil means
// that fn returned nil and the lock was held until its release.
func Do(ctx context.Context, l Lock, fn func(context.Context, *Lease) error) (err error) {
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	held, cancel := lease.Context(ctx)
	defer func() {
		cancel()
		// A lost lease says so here, once; releasing twice is the user's right.
		if e := lease.Release(ctx); !errors.Is(e, ErrReleased) && !errors.Is(err, e) {
			err = errors.Join(err, e)
		}
	}()
	if err := lease.KeepAlive(0); err != nil {
		return err
	}
	return fn(held, lease)
}

type ownerKey struct{}

// WithOwner names who acquires with the returned context. A re-entrant lock lets
// the same owner in again; other algorithms ignore it. Owners are names in Redis:
// whoever knows one can re-enter, so make it unique (a request id), at most
// [MaxNameLen] bytes. An empty owner means none: each acquisition owns itself.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

func ownerOf(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}

// lock is the Lock of every algorithm.
type lock struct {
	s    *Strategy
	name string
	key  string
	err  error // the name is not allowed: every call says so
}

func (l *lock) Name() string { return l.name }

func (l *lock) TryAcquire(ctx context.Context) (*Lease, error) {
	asked := time.Now()
	lease, err := l.attempt(ctx, 1, asked)
	if err = endedBy(ctx, err); err != nil {
		l.s.missed(ctx, l.name, asked, err)
	}
	return lease, err
}

// attempt asks once. n and asked are for events: which attempt of a call that began when.
func (l *lock) attempt(ctx context.Context, n int, asked time.Time) (*Lease, error) {
	c, err := l.claim(ctx)
	if err != nil {
		return nil, err
	}
	lease, _, err := l.ask(ctx, c, n)
	if err == nil {
		owner := ""
		if l.s.reenters() {
			owner = ownerOf(ctx)
		}
		l.start(ctx, lease, owner, n, asked)
	}
	return lease, err
}

// start begins what a lease needs from its grant on, and tells of it; owner is by whom
// others may enter now.
func (l *lock) start(ctx context.Context, lease *Lease, owner string, n int, asked time.Time) {
	lease.begin(ctx, n, asked)
	if owner != "" {
		l.s.letIn(l.key, owner)
	}
}

// An answer is what a claim was told beside an error.
type answer struct {
	Grant
	undone bool // the claim is over: what it may have left behind is undone
}

// ask sends a claim, and sees to what it leaves behind. The lease has not begun yet.
func (l *lock) ask(ctx context.Context, c Claim, n int) (*Lease, answer, error) {
	if err := l.s.enter(); err != nil {
		return nil, answer{}, err
	}
	defer l.s.leave()

	start := time.Now() // before the request: the servers start to count later
	c.Due = start.Add(l.s.o.OpTimeout)
	g, err := l.s.p.Acquire(ctx, c)
	end := time.Now()
	told, _ := unmark(err)
	l.s.observe(Event{Kind: EventAttempt, Context: ctx, Name: c.Name, Token: c.Token, Attempt: n, Took: end.Sub(start), Err: told})
	if err != nil {
		c.Grant.State = g.State
		undone, err := l.failed(ctx, c, n, err)
		return nil, answer{g, undone}, err
	}

	lease := newLease(l.s, c, g, start)
	if !end.Before(lease.deadline) || l.s.isClosed() {
		// Granted, but of no use any more: the reply took longer than the
		// validity, or Close came meanwhile. Nobody will release it but us.
		l.s.undo(lease.claim)
		if l.s.isClosed() {
			return nil, answer{undone: true}, ErrClosed
		}
		return nil, answer{undone: true}, &LostError{Name: c.Name, Lapsed: true, Err: errors.New("the grant came after its validity")}
	}
	return lease, answer{Grant: g}, nil
}

// failed sees to what an attempt has left behind, and returns what its caller is to
// know.
func (l *lock) failed(ctx context.Context, c Claim, n int, err error) (undone bool, told error) {
	err, remains := unmark(err)
	if undone = remains || errors.Is(err, ErrUnknown); undone {
		l.s.undo(c)
	}
	if errors.Is(err, ErrHeld) {
		l.s.observe(Event{Kind: EventHeld, Context: ctx, Name: c.Name, Token: c.Token, Attempt: n, Err: err})
	}
	return undone, err
}

// refuse says why no attempt is made at all: what is asked for is not allowed, or
// ctx is done.
func (l *lock) refuse(ctx context.Context) error {
	if l.err != nil {
		return l.err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("lock %q: %w", l.name, contextError(ctx))
	}
	if n := len(ownerOf(ctx)); n > MaxNameLen {
		return fmt.Errorf("locks: the owner has %d bytes: allowed are %d", n, MaxNameLen)
	}
	return nil
}

// claim makes the claim of a new attempt: a fresh token each time, so that an
// attempt whose end nobody knows can be undone without touching the next.
func (l *lock) claim(ctx context.Context) (Claim, error) {
	if err := l.refuse(ctx); err != nil {
		return Claim{}, err
	}
	return l.claimFor(ownerOf(ctx))
}

// claimFor is a claim for the owner whom a ctx names, if it names one.
func (l *lock) claimFor(owner string) (Claim, error) {
	token, err := newToken(l.s.o.Label, l.s.announces)
	if err != nil {
		return Claim{}, err
	}
	if owner == "" {
		owner = token
	}
	return Claim{Name: l.name, Key: l.key, Token: token, Owner: owner, TTL: l.s.o.TTL, memo: l.s.memos.at(l.key)}, nil
}

// endedBy makes the error of a request that ctx cut short say why ctx ended, in
// case the protocol's does not.
func endedBy(ctx context.Context, err error) error {
	cut := ctx.Err() != nil && (errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnsent))
	if !cut || errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx)) {
		return err
	}
	return fmt.Errorf("%w: %w", err, contextError(ctx))
}

// contextError returns why ctx ended: its error, and its cause if that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
