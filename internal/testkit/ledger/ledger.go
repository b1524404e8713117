// Package ledger holds the events of locks to what [strategy.Event] promises: each lease is
// acquired once, and ends once, and so does each call that asks for one. It is for tests.
package ledger

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lockstrategies/locks/strategy"
)

// A Ledger counts leases up and down. Its Observe is for [strategy.Options].Observe, also
// that of several strategies.
type Ledger struct {
	mu       sync.Mutex
	leases   map[string]bool // by token: held, or else over
	asking   int
	held     int
	acquired int
	missed   int
	errs     []error
}

// Observe takes in an event.
func (l *Ledger) Observe(e strategy.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leases == nil {
		l.leases = map[string]bool{}
	}
	held, known := l.leases[e.Token]
	if e.Context == nil {
		l.fault(e, "it has no context")
	}
	switch e.Kind {
	case strategy.EventAsked:
		if e.Token != "" {
			l.fault(e, "want no token")
		}
		l.asking++
	case strategy.EventAcquired, strategy.EventMissed:
		if l.asking--; l.asking < 0 {
			l.fault(e, "no call has asked")
		}
	}
	switch e.Kind {
	case strategy.EventAcquired:
		if known || e.Token == "" {
			l.fault(e, "want a token of its own")
		}
		l.leases[e.Token] = true
		l.acquired++
		l.held++
	case strategy.EventMissed:
		if e.Err == nil || e.Token != "" {
			l.fault(e, "want an error and no token")
		}
		l.missed++
	case strategy.EventRenewed, strategy.EventRenewalFailed:
		if !known {
			l.fault(e, "it was never acquired")
		}
	case strategy.EventLost, strategy.EventReleased:
		if !held {
			l.fault(e, "nobody holds it")
		}
		l.leases[e.Token] = false
		l.held--
	}
}

func (l *Ledger) fault(e strategy.Event, what string) {
	l.errs = append(l.errs, fmt.Errorf("event %v of %q by %q (%v): %s", e.Kind, e.Name, e.Token, e.Err, what))
}

// Asking is how many calls have begun and not ended.
func (l *Ledger) Asking() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asking
}

// Held is how many leases are held.
func (l *Ledger) Held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// Calls is how many calls have ended with a lease, and how many without.
func (l *Ledger) Calls() (acquired, missed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acquired, l.missed
}

// Err says what was against the rules.
func (l *Ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}
