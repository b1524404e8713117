// Package waitline is a FIFO of waiters: first come, first served, and only the head acts.
package waitline

import "slices"

// A Line is the waiters of one process for one lock. Its user guards it with a mutex.
type Line[W comparable] struct {
	waiters []W
	head    W // who was called last
}

// Join puts w at the end.
func (l *Line[W]) Join(w W) { l.waiters = append(l.waiters, w) }

// JoinFirst puts w before all others.
func (l *Line[W]) JoinFirst(w W) { l.waiters = slices.Insert(l.waiters, 0, w) }

// Leave takes w out, and reports whether it was in the line.
func (l *Line[W]) Leave(w W) bool {
	i := slices.Index(l.waiters, w)
	if i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	return i >= 0
}

// Call calls promote with the first waiter, once for each that becomes the first.
func (l *Line[W]) Call(promote func(W)) {
	if len(l.waiters) > 0 && l.waiters[0] != l.head {
		l.head = l.waiters[0]
		promote(l.head)
	}
}

// Called reports whether Call has called w, and no other since.
func (l *Line[W]) Called(w W) bool { return l.head == w }

// Len returns how many wait.
func (l *Line[W]) Len() int { return len(l.waiters) }

// First returns the first waiter. The line must not be empty.
func (l *Line[W]) First() W { return l.waiters[0] }

// All returns the waiters, first come first. They are the line's own: do not change them.
func (l *Line[W]) All() []W { return l.waiters }
