package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// endedBy adds to the error of a request that ctx cut short why ctx ended, if it does not say so.
func endedBy(ctx context.Context, err error) error {
	if !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
		return err
	}
	ended := timeup.Ended(ctx)
	if ended == nil || errors.Is(err, cmp.Or(ctx.Err(), context.DeadlineExceeded)) && errors.Is(err, cmp.Or(context.Cause(ctx), context.DeadlineExceeded)) {
		return err
	}
	return fmt.Errorf("%w: %w", err, ended)
}

// outlast is ctx, but ends that much later. ctx often ends a wait while a request is under way. The answer comes
// soon, and says that the lock is held. Without it the caller would learn only that the outcome is unknown.
//
// The patience is that of a process that runs. It begins when the timer of ctx runs, and goes in steps: if the process was
// stopped, or waited for a CPU, the answer may be there, and only has to be read. Some clients end a request by
// the context's deadline alone. If ctx has one, there is one for them, which comes later.
func outlast(ctx context.Context, patience time.Duration) (patient context.Context, done func()) {
	const steps = 10
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		for range steps {
			select {
			case <-time.After(patience / steps):
			case <-late.Done():
				return
			}
		}
		cancel(timeup.Ended(ctx))
	})
	patient, end := late, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		patient, end = context.WithDeadline(late, deadline.Add(5*patience))
	}
	return patient, func() {
		stop()
		end()
		cancel(nil)
	}
}

// uncancelled is ctx, but never ends.
func uncancelled(ctx context.Context) context.Context {
	if _, ends := ctx.Deadline(); !ends && ctx.Done() == nil {
		return ctx // as it is: that saves an allocation
	}
	return context.WithoutCancel(ctx)
}
