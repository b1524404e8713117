// Which sequences of events a ledger accepts, and how many leases and calls it counts.
package ledger

import (
	"context"
	"errors"
	"testing"

	"github.com/lockstrategies/locks/strategy"
)

var errAny = errors.New("any")

func event(kind strategy.EventKind, token string) strategy.Event {
	return strategy.Event{Kind: kind, Context: context.Background(), Name: "n", Token: token}
}

func missed() strategy.Event {
	e := event(strategy.EventMissed, "")
	e.Err = errAny
	return e
}

func TestLedger(t *testing.T) {
	for _, tt := range []struct {
		what   string
		events []strategy.Event
		held   int
		broken bool
	}{
		{"nothing", nil, 0, false},
		{"held", []strategy.Event{event(strategy.EventAcquired, "a")}, 1, false},
		{"released", []strategy.Event{event(strategy.EventAcquired, "a"), event(strategy.EventReleased, "a")}, 0, false},
		{"lost", []strategy.Event{event(strategy.EventAcquired, "a"), event(strategy.EventRenewed, "a"), event(strategy.EventLost, "a")}, 0, false},
		{"a renewal that is late", []strategy.Event{event(strategy.EventAcquired, "a"), event(strategy.EventLost, "a"), event(strategy.EventRenewalFailed, "a")}, 0, false},
		{"missed", []strategy.Event{missed()}, 0, false},
		{"two in turn", []strategy.Event{event(strategy.EventAcquired, "a"), event(strategy.EventAcquired, "b"), event(strategy.EventReleased, "a")}, 1, false},

		{"acquired twice", []strategy.Event{event(strategy.EventAcquired, "a"), event(strategy.EventAcquired, "a")}, 2, true},
		{"acquired without a token", []strategy.Event{event(strategy.EventAcquired, "")}, 1, true},
		{"ended twice", []strategy.Event{event(strategy.EventAcquired, "a"), event(strategy.EventLost, "a"), event(strategy.EventReleased, "a")}, -1, true},
		{"lost before it was acquired", []strategy.Event{event(strategy.EventLost, "a"), event(strategy.EventAcquired, "a")}, 0, true},
		{"renewed, but never acquired", []strategy.Event{event(strategy.EventRenewed, "a")}, 0, true},
		{"missed without an error", []strategy.Event{event(strategy.EventMissed, "")}, 0, true},
		{"without a context", []strategy.Event{{Kind: strategy.EventAttempt}}, 0, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var l Ledger
			for _, e := range tt.events {
				if e.Kind == strategy.EventAcquired || e.Kind == strategy.EventMissed {
					l.Observe(event(strategy.EventAsked, ""))
				}
				l.Observe(e)
			}
			if got := l.Held(); got != tt.held {
				t.Errorf("Held() = %d, want %d", got, tt.held)
			}
			if err := l.Err(); (err != nil) != tt.broken {
				t.Errorf("Err() = %v, want an error: %v", err, tt.broken)
			}
		})
	}
}

func TestCalls(t *testing.T) {
	var l Ledger
	for i, end := range []strategy.Event{event(strategy.EventAcquired, "a"), missed(), missed()} {
		l.Observe(event(strategy.EventAsked, ""))
		l.Observe(event(strategy.EventAsked, ""))
		l.Observe(end)
		if got := l.Asking(); got != i+1 {
			t.Errorf("Asking() = %d, want %d", got, i+1)
		}
	}
	if acquired, missed := l.Calls(); acquired != 1 || missed != 2 {
		t.Errorf("Calls() = %d, %d, want 1, 2", acquired, missed)
	}
}

// A call that ends without having begun, and one that begins with a token.
func TestNotAsked(t *testing.T) {
	for what, e := range map[string]strategy.Event{
		"acquired": event(strategy.EventAcquired, "a"), "missed": missed(), "asked with a token": event(strategy.EventAsked, "a"),
	} {
		var l Ledger
		if l.Observe(e); l.Err() == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
