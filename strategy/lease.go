package strategy

import (
	"context"
	"time"
)

// A Lease is one hold of a lock, from its grant to its one end: by Release or Detach, or because the lock was lost. It is safe
// for concurrent use.
type Lease interface {
	Name() string  // the lock's
	Owner() string // the owner that ctx named, or else the token
	// Token returns the name of this hold, which no other has. It alone is enough to take the lock ([Strategy.Adopt]): log
	// [ShortToken] of it. Every user that may read the lock's key sees it. After a hand-over ([Options].NoHandOver) the servers know
	// the first hold's token instead.
	Token() string
	// Fence returns the number of this hold: greater than that of every earlier hold of the lock, and unchanged by renewal and
	// re-entry. (Those who read in the same turn of a [ReadWriter] share one.) A store that refuses numbers below the greatest
	// it has seen is safe from a paused holder (docs/use/fencing.md). ok is false where the algorithm cannot issue such numbers
	// soundly, and for several locks as one (multilock.Parts have theirs).
	Fence() (n uint64, ok bool)
	// Deadline returns until when the lock is surely held without renewal: the moment before the request, plus the TTL, less 1 %
	// and 2 ms for clock drift. Setting the clock does not move it.
	Deadline() time.Time
	// Lost returns a channel that is closed when the lock is lost: when the servers report it, and at the deadline at the latest,
	// with or without a network. A release does not close it.
	Lost() <-chan struct{}
	// Err returns nil while the lock is held, ErrReleased after Release or Detach, and a *[LostError] (ErrLost) once the lock is
	// lost: at the deadline at the latest.
	Err() error
	// RenewalErr returns why the last renewal failed, or nil. It is a warning: while the lease is valid, Err is nil.
	RenewalErr() error
	// Extend makes the servers count the TTL again, once, and moves Deadline. After ErrLost the lock is lost for good. After any
	// other error the old deadline stays, and Extend may be called again.
	Extend(ctx context.Context) error
	// KeepAlive renews the lock in the background until the lease ends: each time a third to a half of the TTL has passed, and
	// soon after a failure or after a server that was away is back. The call itself does no I/O.
	//
	// maxHold bounds the hold, counted from the grant: at its end the lock expires, and the lease is lost. 0 means
	// Options.MaxHold; less than the TTL is an error. A second call sets another bound. The error is what Err returns if the
	// lease is over, or ErrClosed.
	KeepAlive(maxHold time.Duration) error
	// StopKeepAlive ends that renewal. The lease goes on until its deadline; the bound maxHold stays.
	StopKeepAlive()
	// Context returns a context for the work that the lock protects. It ends when parent does, when the lease ends
	// ([context.Cause] is then what Err returns), and when cancel is called. It names the lease's owner ([WithOwner]).
	Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc)
	// Release gives the lock up. The lease's contexts end before the lock is free. Release goes on when ctx is cancelled, for the
	// operation time-out at most.
	//
	// nil: the lock was held until now (after a hand-over: as far as this process knows), and is free, or the next waiter has
	// it. ErrLost: it was lost before, and nothing has changed. After any other error the lease is over, and the engine repeats
	// the release in the background until it is certain or the TTL has passed. A second call returns ErrReleased. After
	// [Strategy.Close] nothing is sent: the error is ErrClosed, and the lock ends with its TTL.
	Release(ctx context.Context) error
	// Detach ends the lease and leaves the lock with the servers until its TTL ends. Another process can adopt it with the token
	// ([Strategy.Adopt]). A lock that came from a queue may have only a second left: call Extend first. For several locks as one
	// the error is ErrUnsupported, and nothing has changed.
	Detach() (token string, err error)
}
