// Package client has what the nodes of several clients do alike, next to their subscriptions (package subscription).
package client

import (
	"context"
	"errors"
	"sync"
	"time"
)

// MostLeft is how many calls that were left may hang before further ones are refused: each is a goroutine, and
// perhaps a connection.
const MostLeft = 16

// Hanging are calls into a client that may hang whatever their context says, because the user's Dial knows none.
// They are left when their time is over. A node waits for them, and for all else that goes on next to its callers, when
// it closes.
type Hanging struct {
	mu      sync.Mutex
	left    int           // and not returned
	running int           // left, or not
	none    chan struct{} // closed when none runs; nil: nobody waits for that
}

// Call returns what call returns, or, when ctx ends before, ctx's cause. Call gives late a result that comes after that. The
// context of call ends when call does.
func Call[T any](ctx context.Context, h *Hanging, call func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	if h.full() {
		return none, errors.New("too many connections hang while being made")
	}
	type result struct {
		v   T
		err error
	}
	got, left := make(chan result), make(chan struct{})
	h.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		v, err := call(ctx)
		select {
		case got <- result{v, err}:
		case <-left:
			if err == nil {
				late(v)
			}
			h.note(-1)
		}
	})
	select {
	case r := <-got:
		return r.v, r.err
	case <-ctx.Done():
		h.note(1)
		close(left)
		return none, context.Cause(ctx)
	}
}

func (h *Hanging) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left >= MostLeft
}

func (h *Hanging) note(left int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left += left
}

// Go runs f next to the callers. It may be called while Wait waits, which a sync.WaitGroup forbids.
func (h *Hanging) Go(f func()) {
	h.mu.Lock()
	h.running++
	h.mu.Unlock()
	go func() {
		defer h.done()
		f()
	}()
}

func (h *Hanging) done() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running--; h.running == 0 && h.none != nil {
		close(h.none)
		h.none = nil
	}
}

// Wait waits until all have returned, but not for longer than grace.
func (h *Hanging) Wait(grace time.Duration) {
	h.mu.Lock()
	if h.running == 0 {
		h.mu.Unlock()
		return
	}
	if h.none == nil {
		h.none = make(chan struct{})
	}
	none := h.none
	h.mu.Unlock()
	limit := time.NewTimer(grace)
	defer limit.Stop()
	select {
	case <-none:
	case <-limit.C:
	}
}
