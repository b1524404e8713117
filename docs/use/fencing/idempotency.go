package fencing

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Once does each request once: docs/use/idempotency.md. All processes of a service need the same locks and the same
// store.
type Once struct {
	// Locks issue fences. Their Options.MaxHold bounds the work.
	Locks interface {
		NewLock(name string) strategy.Lock
	}
	// Answers keeps the answers until somebody deletes them.
	Answers interface {
		Read(ctx context.Context, id string, h Holder) (string, error)
		Write(ctx context.Context, id, value string, h Holder) error
	}
	// Wait is for a request of the same id that is under way; 0: not at all.
	Wait time.Duration
}

var (
	// ErrReused says that another request came with this id before. Its answer is kept, and work has not begun.
	ErrReused = errors.New("idempotency key reused")
	// ErrInterrupted says that work has begun, and its answer is not kept: the lock was lost, or the store failed.
	// Nobody knows what work has done. The next request with this id runs work again.
	ErrInterrupted = errors.New("interrupted")
)

// Work does a request and returns its answer. It returns an error only if it has had no effect.
type Work func(ctx context.Context, l strategy.Lease) (answer string, err error)

// Do returns the answer that is kept for id, or that of work, which it then keeps. After any error but ErrInterrupted
// nothing was done.
func (o Once) Do(
	ctx context.Context, id, request string, work Work,
) (answer string, err error) {
	begun, done := false, false
	first := fmt.Sprintf("%x\n", sha256.Sum256([]byte(request)))
	under := func(_ context.Context, l strategy.Lease) error {
		// A caller that goes does not stop the work: it will ask again.
		ctx, cancel := l.Context(context.WithoutCancel(ctx))
		defer cancel()
		h, err := Of(l)
		if err != nil {
			return err
		}
		kept, err := o.Answers.Read(ctx, id, h) // raises the fence
		if err != nil {
			return err
		}
		if kept != "" {
			if answer, done = strings.CutPrefix(kept, first); !done {
				return ErrReused
			}
			return nil
		}
		begun = true
		text, err := work(ctx, l)
		if lost := l.Err(); lost != nil {
			return lost // another request may have begun
		}
		if err != nil {
			begun = false // it has had no effect
			return err
		}
		err = o.Answers.Write(ctx, id, first+text, h)
		answer, done = text, err == nil
		return err
	}
	err = strategy.DoWithin(ctx, o.Locks.NewLock(id), o.Wait, under)
	switch {
	case done: // the engine repeats a release that failed
		return answer, nil
	case begun:
		return "", fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	return "", err
}
