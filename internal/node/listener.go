package node

import (
	"runtime"
	"strings"
)

// call calls fn unless the subscription is over; with an error it is, after that.
// Its frame on the stack is what tells silence that it runs inside of fn.
//
//go:noinline
func (l *listener) call(msg []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over.Load() {
		return
	}
	if err != nil {
		l.over.Store(true)
	}
	l.fn(msg, err)
}

// silence makes sure that fn is not called again, and waits for a call under way
// unless it is part of it.
func (l *listener) silence() {
	l.over.Store(true)
	if !l.mu.TryLock() {
		if insideCall() {
			return
		}
		l.mu.Lock()
	}
	l.mu.Unlock() //nolint:staticcheck // it was held to wait
}

// insideCall reports whether this goroutine is inside (*listener).call. It costs a
// walk over the stack, and is asked only when a call is under way somewhere.
func insideCall() bool {
	pcs := make([]uintptr, 256)
	for skip := 2; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for n > 0 {
			f, more := frames.Next()
			if strings.HasSuffix(f.Function, "node.(*listener).call") {
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
