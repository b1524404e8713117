// Package timeup says why a call or a request may not go on: its context has ended, or its due time has come.
// Everybody says it alike, whatever words their client has for it.
//
// A deadline counts from its own time on, by the clock. The timer that ends a context runs late where the process is short
// of CPU: until then Err is nil, although the caller's time is over.
package timeup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Err is every time-out of ours. It is [os.ErrDeadlineExceeded] without the words of that, which a client's own error may
// have.
var Err error = timeUp{}

type timeUp struct{}

func (timeUp) Error() string { return "no answer in time" }
func (timeUp) Unwrap() error { return os.ErrDeadlineExceeded }

// Over reports whether ctx is over: it has ended, or its deadline has passed.
func Over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	at, ok := ctx.Deadline()
	return ok && !time.Now().Before(at)
}

// timerDelay is for how long Ended waits for a timer that is due already.
const timerDelay = 100 * time.Millisecond

// Ended says for a caller why ctx is over: its error, and its cause if that says more. nil: it is not over.
func Ended(ctx context.Context) error {
	if !Over(ctx) {
		return nil
	}
	if ctx.Err() == nil { // only with its timer comes its cause
		select {
		case <-ctx.Done():
		case <-time.After(timerDelay):
			return context.DeadlineExceeded
		}
	}
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// With adds what ended a request, if anything has, to the error that it ended with.
func With(ctx context.Context, due time.Time, err error) error {
	if why := Why(ctx, due); why != nil {
		return Before(why, err)
	}
	return err
}

// Before puts why a request ended before the error that it ended with, unless that says the same.
func Before(why, err error) error {
	if errors.Is(why, err) || err == Err {
		return why
	}
	return fmt.Errorf("%w: %w", why, err)
}

// Why says what ended a request, or nil. The context comes first, as that is what its owner
// asks about; errors.Is finds both.
func Why(ctx context.Context, due time.Time) error {
	ended, late := Cause(ctx), !time.Now().Before(due)
	switch {
	case ended == nil && !late:
		return nil
	case ended == nil:
		return Err
	case !late:
		return ended
	}
	return fmt.Errorf("%w, and %w", ended, Err)
}

// Cause is the cause with which ctx has ended, or nil, as far as that is known at once: [Ended] waits for it.
func Cause(ctx context.Context) error {
	if c := context.Cause(ctx); c != nil || !Over(ctx) {
		return c
	}
	return context.DeadlineExceeded
}
