package strategy

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
)

// All makes one lock of several: its lease holds all of them, or there is none. They may be of
// different strategies. All acquires them one after the other, sorted by their keys: contenders that
// acquire several locks through All alone cannot deadlock. It refuses two locks with the same key.
//
// Acquire keeps the locks in hand alive while it waits for the next. If it loses one, it releases
// the others and starts again. After an error no lock is held. The error is an *[AllError].
//
// The lease has a part for each lock ([Parts]):
//   - Token has all tokens. Owner is the same for all. Deadline is the earliest.
//   - Extend, KeepAlive and Release act on all at once. The maximum hold of KeepAlive counts from the
//     last grant, that of Options.MaxHold from each lock's own.
//   - If one lock is lost, the lease is lost. Renewal of the other locks stops, but they stay held until
//     Release or their TTL, because the work may need a moment to stop. So call Release after a loss, too.
func All(locks ...Lock) (Lock, error) {
	all := &allLock{}
	for i, l := range locks {
		switch l := l.(type) {
		case nil:
			return nil, fmt.Errorf("locks: All: argument %d is nil: allowed are locks", i+1)
		case *allLock:
			all.locks = append(all.locks, l.locks...)
		default:
			all.locks = append(all.locks, l)
		}
	}
	if len(all.locks) == 0 {
		return nil, errors.New("locks: All of no locks: allowed is one or more")
	}
	slices.SortFunc(all.locks, func(a, b Lock) int { return strings.Compare(a.Key(), b.Key()) })
	for i, l := range all.locks {
		if l.Key() == "" {
			return nil, fmt.Errorf("locks: All: the lock %q has no key: allowed are names of 1 to %d bytes", l.Name(), MaxNameLen)
		}
		if i > 0 && l.Key() == all.locks[i-1].Key() {
			return nil, fmt.Errorf("locks: All: the locks %q and %q have the same key %q: allowed is each key once, also on different servers (see Options.Key)",
				all.locks[i-1].Name(), l.Name(), l.Key())
		}
	}
	return all, nil
}

// Parts returns the leases of which l is made, in the order of their grants: one for each lock if l is a
// lease of [All], otherwise l alone. If one part is released or detached, the whole lease is lost.
func Parts(l Lease) []Lease {
	if all, ok := l.(*allLease); ok {
		return slices.Clone(all.parts)
	}
	return []Lease{l}
}

// allLock is several locks as one, sorted by their keys.
type allLock struct{ locks []Lock }

func (a *allLock) Name() string { return joined(a.locks, Lock.Name, ", ") }
func (a *allLock) Key() string  { return joined(a.locks, Lock.Key, " ") }

func (a *allLock) TryAcquire(ctx context.Context) (Lease, error) {
	lease, _, err := a.acquire(ctx, Lock.TryAcquire)
	return lease, err
}

func (a *allLock) Acquire(ctx context.Context) (Lease, error) {
	for n := 1; ; n++ {
		lease, again, err := a.acquire(ctx, Lock.Acquire)
		if !again {
			return lease, err
		}
		select {
		case <-time.After(mathrand.N(DefaultBackoff(n)) + 1):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w; gave up: %w", err, contextError(ctx))
		}
	}
}

// acquire gets all locks, one after the other, or none. again says that a lock in hand was
// lost, so another try may succeed.
func (a *allLock) acquire(ctx context.Context, one func(Lock, context.Context) (Lease, error)) (whole Lease, again bool, err error) {
	owner := OwnerFrom(ctx)
	if owner == "" {
		owner = rand.Text()
	}
	started := time.Now()
	got := &allLease{name: a.Name(), owner: owner, lost: make(chan struct{})}
	defer func() {
		if whole == nil { // also if a part's Acquire panics
			got.each(func(part Lease) error { return part.Release(ctx) })
		}
	}()
	inHand := WithOwner(ctx, owner) // ends when a lock in hand is lost: it must not be acquired again out of order
	for _, l := range a.locks {
		part, err := one(l, inHand)
		if err == nil {
			got.add(part)
			part.KeepAlive(0) //nolint:errcheck // a part that is lost is found below
		}
		if lost := got.partLost(); lost != nil {
			return nil, true, lost // and not that the wait for the next lock ended
		}
		if err != nil {
			return nil, false, &AllError{Name: got.name, Names: []string{l.Name()}, Errs: []error{err}}
		}
		var done context.CancelFunc
		inHand, done = part.Context(inHand)
		defer done()
	}
	if time.Since(started) > time.Until(got.Deadline())/10 {
		if err := got.each(func(part Lease) error { return part.Extend(inHand) }); err != nil {
			return nil, errors.Is(err, ErrLost), err
		}
	}
	for _, part := range got.parts {
		stopKeepAlive(part)
	}
	got.begin()
	return got, false, nil
}

// allLease is the leases of several locks as one. It ends when one of them does.
type allLease struct {
	name, owner string
	parts       []Lease
	received    []time.Time // when each part was: not before its grant
	granted     time.Time   // when the last part was received
	lost        chan struct{}

	mu       sync.Mutex
	end      error // nil while held; then ErrReleased or the *LostError
	contexts map[*context.CancelCauseFunc]struct{}
}

func (l *allLease) add(part Lease) {
	l.granted = time.Now()
	l.parts, l.received = append(l.parts, part), append(l.received, l.granted)
}

// begin makes the lease end as soon as a part does.
func (l *allLease) begin() {
	held := context.Background()
	for _, part := range l.parts {
		held, _ = part.Context(held)
	}
	context.AfterFunc(held, func() { l.Err() })
}

func (l *allLease) Name() string          { return l.name }
func (l *allLease) Token() string         { return joined(l.parts, Lease.Token, " ") }
func (l *allLease) Owner() string         { return l.owner }
func (l *allLease) Fence() (uint64, bool) { return 0, false }
func (l *allLease) Lost() <-chan struct{} { return l.lost }

func (l *allLease) Deadline() time.Time {
	return slices.MinFunc(l.parts, func(a, b Lease) int { return a.Deadline().Compare(b.Deadline()) }).Deadline()
}

func (l *allLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return l.end
	}
	lost := l.partLost()
	if lost == nil {
		return nil
	}
	l.over(&LostError{Name: l.name, Err: lost.Errs[0]})
	close(l.lost)
	for _, part := range l.parts {
		stopKeepAlive(part)
	}
	return l.end
}

// over ends the lease and its contexts. The caller holds mu.
func (l *allLease) over(end error) {
	l.end = end
	for cancel := range l.contexts {
		(*cancel)(end)
	}
}

// partLost returns the error of the first part that has ended; nil: none has.
func (l *allLease) partLost() *AllError {
	for _, part := range l.parts {
		err := part.Err()
		if errors.Is(err, ErrReleased) {
			err = fmt.Errorf("lock %q: released alone", part.Name())
		}
		if err != nil {
			return &AllError{Name: l.name, Names: []string{part.Name()}, Errs: []error{err}}
		}
	}
	return nil
}

func (l *allLease) RenewalErr() error {
	if l.Err() != nil {
		return nil
	}
	return l.each(Lease.RenewalErr)
}

func (l *allLease) Extend(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.each(func(part Lease) error { return part.Extend(ctx) })
}

func (l *allLease) KeepAlive(maxHold time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	for i, part := range l.parts {
		bound := maxHold
		if maxHold != 0 {
			bound += l.granted.Sub(l.received[i])
		}
		// If the bound is over already, each part is lost at once.
		if err := part.KeepAlive(bound); err != nil && !errors.Is(err, ErrLost) {
			for _, kept := range l.parts[:i] {
				stopKeepAlive(kept)
			}
			return &AllError{Name: l.name, Names: []string{part.Name()}, Errs: []error{err}}
		}
	}
	return l.Err()
}

func (l *allLease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(WithOwner(parent, l.owner))
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

func (l *allLease) Release(ctx context.Context) error {
	l.Err() // notices the loss of a part
	l.mu.Lock()
	end := l.end
	if end == nil {
		l.over(ErrReleased)
	}
	l.mu.Unlock()
	err := l.each(func(part Lease) error { return part.Release(ctx) })
	if end != nil {
		return end
	}
	return err
}

func (l *allLease) Detach() (string, error) {
	return "", fmt.Errorf("lock %q: Detach: %w by several locks as one", l.name, ErrUnsupported)
}

// each calls f for all parts at the same time, because one without an answer must not delay
// the others. The error is an *AllError with those that failed.
func (l *allLease) each(f func(Lease) error) error {
	errs := make([]error, len(l.parts))
	var all sync.WaitGroup
	for i, part := range l.parts {
		all.Go(func() { errs[i] = f(part) })
	}
	all.Wait()
	failed := &AllError{Name: l.name}
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

// stopKeepAlive ends the renewal of a lease, if the lease can do that: those of this module can.
func stopKeepAlive(l Lease) {
	if s, ok := l.(interface{ StopKeepAlive() }); ok {
		s.StopKeepAlive()
	}
}

func joined[T any](all []T, text func(T) string, separator string) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = text(one)
	}
	return strings.Join(texts, separator)
}

// contextError returns why ctx ended: its error, and its cause if that says more.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
