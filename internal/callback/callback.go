// Package callback ends callbacks: a listener that has stopped is not called again, also where
// it is stopped from inside of the call. The nodes of all clients have it from here.
package callback

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// A Callback is the function of one subscription, until that is over.
type Callback struct {
	fn   func([]byte, error)
	mu   sync.Mutex // held while fn runs
	over atomic.Bool
}

// Of makes one of a function.
func Of(fn func(msg []byte, err error)) *Callback { return &Callback{fn: fn} }

// Over reports whether fn will not be called again.
func (c *Callback) Over() bool { return c.over.Load() }

// Call calls fn unless the subscription is over; with an error it is, after that.
// Its frame on the stack is what tells Silence that it runs inside of fn.
//
//go:noinline
func (c *Callback) Call(msg []byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over.Load() {
		return
	}
	if err != nil {
		c.over.Store(true)
	}
	c.fn(msg, err)
}

// Silence makes sure that fn is not called again, and waits for a call under way
// unless it is part of it.
func (c *Callback) Silence() {
	c.over.Store(true)
	if !c.mu.TryLock() {
		if insideCall() {
			return
		}
		c.mu.Lock()
	}
	c.mu.Unlock() //nolint:staticcheck // it was held to wait
}

// insideCall reports whether this goroutine is inside (*Callback).Call. It costs a
// walk over the stack, and is asked only when a call is under way somewhere.
func insideCall() bool {
	pcs := make([]uintptr, 256)
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for {
			f, more := frames.Next()
			if strings.HasSuffix(f.Function, "callback.(*Callback).Call") {
				return true
			}
			if !more {
				break
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}
