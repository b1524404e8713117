package strategy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Do acquires l, runs fn while it keeps the lock alive (for Options.MaxHold at most), and releases it, also if fn panics. ctx
// bounds the wait and the work; see [DoWithin].
//
// fn's context ends when ctx does or when the lock is lost ([context.Cause] then is ErrLost), and names the lease's owner. The
// error joins fn's error, the loss of the lock, and a failed release: "lock "x": release: …" then says that fn has done its work.
// nil: fn returned nil, and the lock was held until its release.
func Do(ctx context.Context, l Lock, fn func(context.Context, Lease) error) error {
	return do(ctx, l.Acquire, fn)
}

// DoWithin is [Do] that waits for the lock no longer than wait; 0: one attempt. ctx still bounds the work. When the wait is over,
// or up to Options.OpTimeout later if the servers do not answer, the error is [context.DeadlineExceeded] and why the lock was not
// available: ErrHeld, or what the servers failed with, such as ErrUnsent.
func DoWithin(ctx context.Context, l Lock, wait time.Duration, fn func(context.Context, Lease) error) error {
	switch {
	case wait < 0:
		return fmt.Errorf("locks: DoWithin waits for %v: allowed are 0 (one attempt) and more", wait)
	case wait == 0:
		return do(ctx, l.TryAcquire, fn)
	}
	return do(ctx, func(ctx context.Context) (Lease, error) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		return l.Acquire(ctx)
	}, fn)
}

func do(ctx context.Context, acquire func(context.Context) (Lease, error), fn func(context.Context, Lease) error) (err error) {
	lease, err := acquire(ctx)
	if err != nil {
		return err
	}
	held, cancel := lease.Context(ctx)
	defer func() {
		cancel() // before the release: what fn has left behind stops while the lock is still held
		// A lost lease reports it here, once. fn may have released it: that is no error.
		e := lease.Release(ctx)
		if e != nil && !errors.Is(e, ErrLost) && !errors.Is(err, e) {
			e = fmt.Errorf("lock %q: release: %w", lease.Name(), e) // or it would read as if fn had not begun
		}
		switch {
		case e == nil, errors.Is(e, ErrReleased), errors.Is(err, e):
		case err == nil:
			err = e // a loss as it is: callers may look for it in an error of theirs
		default:
			err = errors.Join(err, e)
		}
	}()
	if err := lease.KeepAlive(0); err != nil {
		return err
	}
	return fn(held, lease)
}
