// Package multilock makes one lock of several: its lease holds all of them, or there is none. They may be of different
// strategies, on different servers.
//
//	both, err := multilock.New(locks.NewLock("account/7"), locks.NewLock("account/2"))
//	err = strategy.Do(ctx, both, transfer)
//
// It acquires them one after the other, sorted by their keys. So contenders that acquire several locks through this package
// alone cannot deadlock.
//
// Acquire keeps the locks in hand alive while it waits for the next. If it loses one, it releases the others and starts
// again. After an error no lock is held. The error is an *[Error].
//
// The lease has a part for each lock ([Parts]):
//   - Token has all tokens. Owner is the same for all. Deadline is the earliest.
//   - Extend, KeepAlive and Release act on all at once. The maximum hold counts from the last grant, also that
//     of Options.MaxHold: until then it does not run. If this lock is part of another one of this package, it counts from the
//     last grant of that one.
//   - If one lock is lost, the lease is lost. Renewal of the other locks stops, but they stay held until
//     Release or their TTL, because the work may need a moment to stop. So call Release after a loss, too.
//
// Locks and leases may be decorated: this package calls nothing but the methods of [strategy.Lock] and [strategy.Lease].
package multilock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/holdstart"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// New makes one lock of several. It refuses two locks with the same key, and a lock without a key, because its name is
// not allowed. A lock that New has made stands for its locks, which are sorted among the others; one that is decorated
// stands for itself.
func New(locks ...strategy.Lock) (strategy.Lock, error) {
	all := &lock{}
	for i, l := range locks {
		switch l := l.(type) {
		case nil:
			return nil, fmt.Errorf("locks: multilock: argument %d is nil: allowed are locks", i+1)
		case *lock:
			all.locks = append(all.locks, l.locks...)
		default:
			all.locks = append(all.locks, l)
		}
	}
	if len(all.locks) == 0 {
		return nil, errors.New("locks: multilock of no locks: allowed is one or more")
	}
	slices.SortFunc(all.locks, func(a, b strategy.Lock) int { return strings.Compare(a.Key(), b.Key()) })
	for i, l := range all.locks {
		if l.Key() == "" {
			return nil, fmt.Errorf("locks: multilock: the lock %q has no key: allowed are names of 1 to %d bytes", l.Name(), contract.MaxNameLen)
		}
		if i > 0 && l.Key() == all.locks[i-1].Key() {
			return nil, fmt.Errorf("locks: multilock: the locks %q and %q have the same key %q: allowed is each key once, also on different servers (see Options.Key)",
				all.locks[i-1].Name(), l.Name(), l.Key())
		}
	}
	return all, nil
}

// Parts returns the leases of which l is made, in the order of their grants: one for each lock if l is a
// lease of this package, otherwise l alone. If one part is released or detached, the whole lease is lost.
func Parts(l strategy.Lease) []strategy.Lease {
	if all, ok := l.(*lease); ok {
		return slices.Clone(all.parts)
	}
	return []strategy.Lease{l}
}

// An Error reports which of several locks failed, and why. errors.Is and errors.As
// find what each of them returned.
type Error struct {
	Name  string   // of all
	Names []string // of the locks that failed, in the order in which they are acquired
	Errs  []error  // Errs[i] is what Names[i] returned
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock %q", e.Name)
	for i, err := range e.Errs {
		b.WriteString([2]string{": ", "; "}[min(i, 1)])
		lock := fmt.Sprintf("lock %q: ", e.Names[i]) // said once
		b.WriteString(lock + strings.TrimPrefix(err.Error(), lock))
	}
	return b.String()
}

func (e *Error) Unwrap() []error { return e.Errs }

// lock is several locks as one, sorted by their keys.
type lock struct{ locks []strategy.Lock }

func (a *lock) Name() string { return joined(a.locks, strategy.Lock.Name, ", ") }
func (a *lock) Key() string  { return joined(a.locks, strategy.Lock.Key, " ") }

func (a *lock) TryAcquire(ctx context.Context) (strategy.Lease, error) {
	lease, _, err := a.acquire(ctx, strategy.Lock.TryAcquire)
	return lease, err
}

func (a *lock) Acquire(ctx context.Context) (strategy.Lease, error) {
	for n := 1; ; n++ {
		lease, again, err := a.acquire(ctx, strategy.Lock.Acquire)
		if !again {
			return lease, err
		}
		select {
		case <-time.After(mathrand.N(contract.Backoff(n)) + 1):
		case <-ctx.Done():
		}
		if ended := timeup.Ended(ctx); ended != nil {
			return nil, fmt.Errorf("%w; gave up: %w", err, ended)
		}
	}
}

// acquire gets all locks, one after the other, or none. again says that a lock in hand was
// lost, so another try may succeed.
func (a *lock) acquire(ctx context.Context, one func(strategy.Lock, context.Context) (strategy.Lease, error)) (whole strategy.Lease, again bool, err error) {
	owner := strategy.OwnerFrom(ctx)
	if owner == "" {
		owner = rand.Text()
	}
	started := time.Now()
	got := &lease{name: a.Name(), owner: owner, lost: make(chan struct{})}
	defer func() {
		if whole == nil { // also if a part's Acquire panics
			got.each(func(part strategy.Lease) error { return part.Release(ctx) })
		}
	}()
	inHand, hold := holdstart.With(strategy.WithOwner(ctx, owner)) // ends when a lock in hand is lost: it must not be acquired again out of order
	for _, l := range a.locks {
		part, err := one(l, inHand)
		if err == nil {
			got.parts = append(got.parts, part)
			part.KeepAlive(0) //nolint:errcheck // a part that is lost is found below
		}
		if lost := got.partLost(); lost != nil {
			return nil, true, lost // and not that the wait for the next lock ended
		}
		if err != nil {
			return nil, false, &Error{Name: got.name, Names: []string{l.Name()}, Errs: []error{err}}
		}
		var done context.CancelFunc
		inHand, done = part.Context(inHand)
		defer done()
	}
	if time.Since(started) > time.Until(got.Deadline())/10 {
		if err := got.each(func(part strategy.Lease) error { return part.Extend(inHand) }); err != nil {
			return nil, errors.Is(err, strategy.ErrLost), err
		}
	}
	hold.Begin(time.Now())
	for _, part := range got.parts {
		part.StopKeepAlive()
	}
	got.begin()
	return got, false, nil
}

// lease is the leases of several locks as one. It ends when one of them does.
type lease struct {
	name, owner string
	parts       []strategy.Lease
	lost        chan struct{}

	mu       sync.Mutex
	end      error // nil while held; then ErrReleased or the *LostError
	contexts map[*context.CancelCauseFunc]struct{}
}

// begin makes the lease end as soon as a part does.
func (l *lease) begin() {
	held := context.Background()
	for _, part := range l.parts {
		held, _ = part.Context(held)
	}
	context.AfterFunc(held, func() { l.Err() })
}

func (l *lease) Name() string          { return l.name }
func (l *lease) Token() string         { return joined(l.parts, strategy.Lease.Token, " ") }
func (l *lease) Owner() string         { return l.owner }
func (l *lease) Fence() (uint64, bool) { return 0, false }
func (l *lease) Lost() <-chan struct{} { return l.lost }

func (l *lease) Deadline() time.Time {
	return slices.MinFunc(l.parts, func(a, b strategy.Lease) int { return a.Deadline().Compare(b.Deadline()) }).Deadline()
}

func (l *lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return l.end
	}
	lost := l.partLost()
	if lost == nil {
		return nil
	}
	l.over(&strategy.LostError{Name: l.name, Err: lost.Errs[0]})
	close(l.lost)
	l.StopKeepAlive()
	return l.end
}

// over ends the lease and its contexts. The caller holds mu.
func (l *lease) over(end error) {
	l.end = end
	for cancel := range l.contexts {
		(*cancel)(end)
	}
}

// partLost returns the error of the first part that has ended; nil: none has.
func (l *lease) partLost() *Error {
	for _, part := range l.parts {
		err := part.Err()
		if errors.Is(err, strategy.ErrReleased) {
			err = fmt.Errorf("lock %q: released alone", part.Name())
		}
		if err != nil {
			return &Error{Name: l.name, Names: []string{part.Name()}, Errs: []error{err}}
		}
	}
	return nil
}

func (l *lease) RenewalErr() error {
	if l.Err() != nil {
		return nil
	}
	return l.each(strategy.Lease.RenewalErr)
}

func (l *lease) Extend(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.each(func(part strategy.Lease) error { return part.Extend(ctx) })
}

func (l *lease) KeepAlive(maxHold time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	for i, part := range l.parts {
		// If the maximum hold is over already, each part is lost at once.
		if err := part.KeepAlive(maxHold); err != nil && !errors.Is(err, strategy.ErrLost) {
			for _, kept := range l.parts[:i] {
				kept.StopKeepAlive()
			}
			return &Error{Name: l.name, Names: []string{part.Name()}, Errs: []error{err}}
		}
	}
	return l.Err()
}

func (l *lease) StopKeepAlive() {
	for _, part := range l.parts {
		part.StopKeepAlive()
	}
}

func (l *lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(strategy.WithOwner(parent, l.owner))
	l.Err() // notices the loss of a part
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		cancelCause(l.end)
	}
	if l.contexts == nil {
		l.contexts = map[*context.CancelCauseFunc]struct{}{}
	}
	l.contexts[&cancelCause] = struct{}{}
	return ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.contexts, &cancelCause)
		cancelCause(context.Canceled)
	}
}

func (l *lease) Release(ctx context.Context) error {
	l.Err() // notices the loss of a part
	l.mu.Lock()
	end := l.end
	if end == nil {
		l.over(strategy.ErrReleased)
	}
	l.mu.Unlock()
	err := l.each(func(part strategy.Lease) error { return part.Release(ctx) })
	if end != nil {
		return end
	}
	return err
}

func (l *lease) Detach() (string, error) {
	return "", fmt.Errorf("lock %q: Detach: %w by several locks as one", l.name, strategy.ErrUnsupported)
}

// each calls f for all parts at the same time, because one without an answer must not delay
// the others. The error is an *Error with those that failed.
func (l *lease) each(f func(strategy.Lease) error) error {
	errs := make([]error, len(l.parts))
	var all sync.WaitGroup
	for i, part := range l.parts {
		all.Go(func() { errs[i] = f(part) })
	}
	all.Wait()
	failed := &Error{Name: l.name}
	for i, err := range errs {
		if err != nil {
			failed.Names, failed.Errs = append(failed.Names, l.parts[i].Name()), append(failed.Errs, err)
		}
	}
	if failed.Errs == nil {
		return nil
	}
	return failed
}

func joined[T any](all []T, text func(T) string, separator string) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = text(one)
	}
	return strings.Join(texts, separator)
}
