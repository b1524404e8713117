package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstrategies/locks/strategy"
)

// endedBy adds to the error of a request that ctx cut short why ctx ended, if it does not say so.
func endedBy(ctx context.Context, err error) error {
	cut := ctx.Err() != nil && (errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent))
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

// uncancelled is ctx, but never ends.
func uncancelled(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx // as it is: that saves an allocation
	}
	return context.WithoutCancel(ctx)
}
