package engine

import "github.com/lockstrategies/locks/strategy"

// These functions show leaks.

// Scheduled returns how many leases the scheduler has an entry for.
func Scheduled(s strategy.Strategy) int { return s.(*engine).renewal.Len() }

// Waiting returns how many waiters stand in the line for key.
func Waiting(s strategy.Strategy, key string) int {
	ls := s.(*engine).lines
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ln := ls.byKey[key]; ln != nil {
		return ln.waiters.Len()
	}
	return 0
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
