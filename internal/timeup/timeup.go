// Package timeup says why a request may not go on: its context has ended, or its due time
// has come. The nodes of all clients say it alike, whatever words their client has for it.
package timeup

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Err is every time-out of ours.
var Err = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)

// With adds what ended a request, if anything has, to the error that it ended with.
func With(ctx context.Context, due time.Time, err error) error {
	if why := Why(ctx, due); why != nil {
		return fmt.Errorf("%w: %w", why, err)
	}
	return err
}

// Why says what ended a request, or nil. The context comes first, as that is what its owner
// asks about; errors.Is finds both.
func Why(ctx context.Context, due time.Time) error {
	late := !time.Now().Before(due)
	switch {
	case ctx.Err() == nil && !late:
		return nil
	case ctx.Err() == nil:
		return Err
	case !late:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w, and %w", context.Cause(ctx), Err)
}
