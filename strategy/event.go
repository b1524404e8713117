package strategy

import (
	"context"
	"time"
)

// An EventKind says what happened.
type EventKind int

const (
	EventAsked         EventKind = iota + 1 // a call asks for a lock; no Token
	EventAttempt                            // a request to acquire was answered, or failed; Err is nil after a grant
	EventHeld                               // an attempt found the lock held (Err)
	EventRetry                              // a call goes on that the servers have failed for another 10 s (Options.RetryOnError; Err is the last attempt's); no Token
	EventAcquired                           // a call returns a lease
	EventMissed                             // a call returns without a lease (Err); no Token
	EventRenewed                            // the servers count the TTL again
	EventRenewalFailed                      // a renewal failed (Err) while the lease is still valid
	EventLost                               // the lease ended before its release (Err)
	EventReleased                           // the lease was released or detached; Err: not confirmed
	EventUndoFailed                         // Close ended an undo that had not succeeded (Err): Token may hold the lock until its TTL ends
)

var eventNames = [...]string{"", "asked", "attempt", "held", "retry", "acquired", "missed", "renewed", "renewal-failed", "lost", "released", "undo-failed"}

func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "event?"
}

// An Event is one thing that happened to one lock; see [Options].Observe.
//
// Each call that asks for a lock (TryAcquire, Acquire, Adopt, Downgrade) begins with EventAsked and ends with one event:
// EventAcquired with a lease, EventMissed without. Each acquired lease ends with one, EventLost or EventReleased, also after
// [Strategy.Close]. So an observer that counts up and down knows how many callers wait, and how many locks are held. Events of
// different leases are in no order. The event of a renewal may come after the end of its lease.
type Event struct {
	Kind    EventKind
	Context context.Context // has the values of the call's, such as a trace; Background for renewal, loss, undo and Detach
	Name    string          // the lock's
	Token   string          // of the attempt or the holder
	Attempt int             // attempt, held, retry, acquired: of this call, from 1; 0: the call made none
	Elapsed time.Duration   // retry, acquired, missed: since the call; lost, released: since the request that got it; undo-failed: of all tries; else of the request
	Err     error
}
