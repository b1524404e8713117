package engine

import (
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// These functions show leaks, and what tests cannot do from outside.

// Scheduled returns how many leases the scheduler has an entry for.
func Scheduled(s strategy.Strategy) int { return s.(*engine).renewal.Len() }

// Pause keeps the lease's timers from running, as a pause of the process does.
func Pause(s strategy.Lease) {
	l := s.(*lease)
	l.c.renewal.Remove(l)
}

// Waiting returns how many waiters stand in the lines for key.
func Waiting(s strategy.Strategy, key string) int {
	ls := s.(*engine).lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	n := 0
	for k, ln := range ls.byKey {
		if k.key == key && ln != nil {
			n += len(ln.waiters)
		}
	}
	return n
}

// Lines returns how many lines there are, with and without waiters.
func Lines(s strategy.Strategy) int {
	ls := s.(*engine).lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.byKey)
}

// Contexts returns how many contexts end with the lease.
func Contexts(s strategy.Lease) int {
	l := s.(*lease)
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.contexts)
}

// UnderWay returns how many requests, waits and goroutines Close would wait for.
func UnderWay(s strategy.Strategy) int { return s.(*engine).group.Active() }

// ProtocolOf is what the strategy asks.
func ProtocolOf(s strategy.Strategy) driver.Protocol { return s.(*engine).p }

// Locked reports whether somebody has the mutex of the lines now.
func Locked(s strategy.Strategy) bool {
	ls := s.(*engine).lines
	if !ls.mu.TryLock() {
		return true
	}
	ls.mu.Unlock()
	return false
}
