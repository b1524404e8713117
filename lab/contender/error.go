package contender

import (
	"context"
	"errors"
	"slices"

	"github.com/lockstrategies/locks/strategy"
)

// An Error is what a contender in another process got: the words, and what they are
// for errors.Is.
type Error struct {
	Text  string
	Kinds []string
}

func (e *Error) Error() string { return e.Text }

// Is matches the sentinels of package strategy, [ErrStale], and a context's errors.
func (e *Error) Is(target error) bool {
	return slices.ContainsFunc(e.Kinds, func(k string) bool { return sentinels[k] == target })
}

// sentinels are what survives the way between processes.
var sentinels = map[string]error{
	"held":        strategy.ErrHeld,
	"no quorum":   strategy.ErrNoQuorum,
	"lost":        strategy.ErrLost,
	"released":    strategy.ErrReleased,
	"refused":     strategy.ErrRefused,
	"unsent":      strategy.ErrUnsent,
	"unknown":     strategy.ErrUnknown,
	"unsupported": strategy.ErrUnsupported,
	"closed":      strategy.ErrClosed,
	"stale":       ErrStale,
	"cancelled":   context.Canceled,
	"too late":    context.DeadlineExceeded,
}

// wired is err as it goes to another process; nil for nil.
func wired(err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{Text: err.Error()}
	for k, s := range sentinels {
		if errors.Is(err, s) {
			e.Kinds = append(e.Kinds, k)
		}
	}
	slices.Sort(e.Kinds)
	return e
}
