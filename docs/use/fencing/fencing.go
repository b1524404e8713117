// Package fencing is code to copy: three stores that refuse a holder that was paused
// past its TTL, in SQL, in Redis, and behind HTTP. Why, and what the rule means, is in
// docs/use/fencing.md of the module. [Once] keeps answers in them, for requests that come
// twice.
//
// It is a module of its own, so that nobody who takes a lock depends on SQLite.
package fencing

import (
	"errors"
	"fmt"

	"github.com/lockstrategies/locks/strategy"
)

// ErrStale means that a later holder has been here (or, after the lock server lost its
// counter, that this fence is too small). Nothing was read or written; stop the work.
var ErrStale = errors.New("stale fence")

// A Holder is what a store knows a hold by.
type Holder struct {
	Fence uint64 // greater than that of every earlier hold
	Owner string // tells apart two holds with one fence, which a lost counter can cause
}

// Of returns the Holder of a lease, or an error if its lock issues no fences.
func Of(lease strategy.Lease) (Holder, error) {
	fence, ok := lease.Fence()
	if !ok {
		return Holder{}, fmt.Errorf("lock %q issues no fences: allowed are luascript and fairqueue not WithoutFences, reentrant, rwlock, and redlock WithFences", lease.Name())
	}
	return Holder{Fence: fence, Owner: lease.Owner()}, nil
}

// follows is the rule: may h come after last, the greatest holder that the store saw?
func (h Holder) follows(last Holder) bool {
	return h.Fence > last.Fence || h.Fence == last.Fence && h.Owner == last.Owner
}

// check keeps out what no lock has issued: a zero Holder would match an item that
// nobody has touched, and a script's numbers are exact only below 2^53.
func (h Holder) check() error {
	if h.Fence == 0 || h.Fence >= 1<<53 || h.Owner == "" {
		return fmt.Errorf("fence %d of owner %q: allowed are 1 … 2^53-1 and an owner", h.Fence, h.Owner)
	}
	return nil
}
