// Package lifecycle counts what is under way, so that Close can end it and wait for it.
package lifecycle

import "sync"

// A Group is the requests, waits and goroutines that one Close waits for.
type Group struct {
	closing chan struct{}

	mu     sync.Mutex
	idle   sync.Cond // active is 0
	active int
	closed bool // nothing new begins
	done   bool // nor any goroutine
}

// New returns an open group.
func New() *Group {
	g := &Group{closing: make(chan struct{})}
	g.idle.L = &g.mu
	return g
}

// Enter begins something that Close waits for. It reports false, and begins nothing, once Close has
// been called.
func (g *Group) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.active++
	return true
}

// Leave ends what Enter began.
func (g *Group) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active--; g.active == 0 {
		g.idle.Broadcast()
	}
}

// Go runs f on a goroutine that Close waits for. It does so also while Close waits, because an undo may
// begin then, but not after.
func (g *Group) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done {
		return
	}
	g.active++
	go func() {
		defer g.Leave()
		f()
	}()
}

// Closing returns a channel that is closed when Close begins.
func (g *Group) Closing() <-chan struct{} { return g.closing }

// Closed reports whether Close has begun.
func (g *Group) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// Active returns how much is under way.
func (g *Group) Active() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.active
}

// Close refuses what is new and waits until nothing is under way. first is true for the first call.
func (g *Group) Close() (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if first = !g.closed; first {
		g.closed = true
		close(g.closing)
	}
	for g.active > 0 {
		g.idle.Wait()
	}
	g.done = true
	return first
}
