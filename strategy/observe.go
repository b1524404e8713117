package strategy

import "time"

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

var eventNames = [...]string{"", "attempt", "held", "acquired", "renewed", "failing", "lost", "released"}

func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "event?"
}

// An Event is one thing that happened to one lock; see [Options].Observe.
type Event struct {
	Kind    EventKind
	Name    string        // the lock's
	Token   string        // of the attempt or the holder
	Attempt int           // attempt, held, acquired: which attempt of this call, from 1; acquired: 0 if it came without one
	Took    time.Duration // what it measures depends on Kind
	Err     error
}
