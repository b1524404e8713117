// Package holdstart lets locks that are acquired as one count their maximum holds from one moment: when the last of them
// is there. The context of their acquisitions carries it to the leases, past decorators of locks and of leases.
package holdstart

import (
	"context"
	"sync/atomic"
	"time"
)

// A Start is when maximum holds begin.
type Start struct {
	at    atomic.Pointer[time.Time]
	outer *Start // of the acquisition that this one is a part of; nil: it is none
}

type key struct{}

// With returns a context for acquisitions whose maximum holds begin when Begin is called; if ctx carries a Start already,
// when that begins.
func With(ctx context.Context) (context.Context, *Start) {
	s := &Start{outer: From(ctx)}
	return context.WithValue(ctx, key{}, s), s
}

// From returns the start that ctx carries; nil: a maximum hold begins with its own grant.
func From(ctx context.Context) *Start {
	s, _ := ctx.Value(key{}).(*Start)
	return s
}

// Begin begins the maximum holds.
func (s *Start) Begin(at time.Time) { s.at.Store(&at) }

// Of returns when the maximum hold of a lock begins that was granted at that time; zero: it has not begun.
func (s *Start) Of(granted time.Time) time.Time {
	if s == nil {
		return granted
	}
	if s.outer != nil {
		return s.outer.Of(granted)
	}
	if at := s.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
