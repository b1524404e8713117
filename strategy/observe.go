package strategy

import (
	"context"
	"time"
)

// An EventKind says what an [Event] tells of.
type EventKind int

const (
	// EventAttempt: a request to acquire was answered, or failed. Err is nil if it
	// was granted.
	EventAttempt EventKind = iota + 1
	// EventHeld: an attempt found the lock held; Acquire begins or goes on to
	// wait, TryAcquire gives up. Err is the *HeldError.
	EventHeld
	// EventAcquired: the caller has the lock, or has adopted it. Took is the time
	// since it asked, waiting included.
	EventAcquired
	// EventMissed: a call of TryAcquire, Acquire or Adopt ends without the lock. Err is
	// what it returns. Took is the time since it asked. There is no Token: each attempt had
	// its own.
	EventMissed
	// EventRenewed: the servers count the TTL anew. Took is the request's time.
	EventRenewed
	// EventFailing: a renewal failed while validity is left; KeepAlive's is
	// retried. Err says why.
	EventFailing
	// EventLost: the lease ended before its release. Took is how long it was held.
	EventLost
	// EventReleased: the lease was released or detached. Took is how long it was
	// held. Err is not nil if the servers did not confirm.
	EventReleased
)

var eventNames = [...]string{"", "attempt", "held", "acquired", "missed", "renewed", "failing", "lost", "released"}

func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "event?"
}

// An Event is one thing that happened to one lock; see [Options].Observe.
//
// Each call of TryAcquire, Acquire or Adopt ends with one event: EventAcquired if it returns
// a lease, EventMissed if it does not. And each lease that was acquired ends with one:
// EventLost or EventReleased, after its EventAcquired and with the same Token; also after
// [Strategy.Close], at the deadline at the latest. So who counts up and down knows how many
// are held. That of a renewal may be a moment late, and come after the end.
//
// Events of different leases are in no order: who is handed the lock may tell so before the
// one who has released it does.
type Event struct {
	Kind EventKind

	// Context bears the values of the context that the call was given which made it happen
	// (TryAcquire, Acquire, Adopt, Extend, Release): a trace, say. It is not to be waited
	// for: it may be done. Of what happens without a call, renewal by KeepAlive and each
	// loss, and of Detach it is [context.Background].
	Context context.Context

	Name    string        // the lock's
	Token   string        // of the attempt or the holder
	Attempt int           // attempt, held, acquired: which attempt of this call, from 1; acquired: 0 if it came without one
	Took    time.Duration // what it measures depends on Kind
	Err     error
}
