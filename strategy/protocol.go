package strategy

import (
	"context"
	"time"
)

// A Protocol is a lock algorithm: what to say to the servers, and how to read
// what they answer. It waits for nothing but its servers, keeps no timers and
// retries nothing that is not idempotent; waiting, renewal, loss and clean-up
// are the machinery's ([New]), written once for all algorithms.
//
// Whatever a call leaves running ends by the claim's Due, and Close, if the
// protocol has one, waits for it. All methods are safe for concurrent use.
//
// A protocol may do more: see [Notifier], [BulkExtender], [Inspector] and
// [Checker]. The machinery finds these, and io.Closer, by type assertion.
type Protocol interface {
	// Acquire tries once to make c.Token the holder of c.Key for c.TTL. If
	// somebody else holds it the error is a *[HeldError]. If it cannot be known
	// what the servers did it is [ErrUnknown]: then the machinery calls Release
	// with Undo until that returns nil or one TTL has passed since the servers gave
	// a sign of life, and never sends this Token again. After any other error the claim must have no effect.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes the servers count c.TTL anew if c.Token is still the holder.
	// Otherwise the error is a *[LostError], and nothing has changed: a lock that
	// is gone is never made again.
	//
	// With c.Heir the lock is being adopted ([Strategy.Adopt]): in the same step Heir
	// takes Token's place, with a fence of its own, so that no two can adopt the same
	// hold. c.Grant is zero then.
	Extend(ctx context.Context, c Claim) (Grant, error)

	// Release ends a claim that is granted or unanswered. nil means: it has no
	// effect now and can have none later. A *LostError means that the token was
	// not the holder any more; with Undo that is success, and nil, if and only if
	// an acquire still under way can no longer take effect.
	Release(ctx context.Context, c Claim) error
}

// A Claim is one contender's wish for one lock: what the machinery hands to a
// [Protocol].
type Claim struct {
	Name  string        // as the user calls the lock
	Key   string        // as the servers call it: Options.Key of Name
	Token string        // of this attempt alone, and of the holder once granted
	Heir  string        // Extend: the token that takes Token's place; empty: none
	Owner string        // who re-enters; the Token unless ctx names an owner
	TTL   time.Duration // what the servers are to count; whole milliseconds
	Due   time.Time     // when the operation's time-out comes
	Undo  bool          // Release: the reply to Acquire was lost, or came too late
	Grant Grant         // Extend, Release: the last one; zero when adopted
}

// A Grant is what the servers gave.
type Grant struct {
	// Start is a moment not after the servers began to count TTL. Zero means
	// the moment at which the call was made.
	Start time.Time
	// TTL is what the servers count. Zero means the claim's.
	TTL time.Duration
	// Fence is this hold's number: unique for the key and greater than that of
	// every earlier hold. Zero means none.
	Fence uint64
}

// IsZero tells that nothing has been granted: the machinery fills in Start.
func (g Grant) IsZero() bool { return g.Start.IsZero() }

// A Notice says that a lock has become free. It is a hint: the key is the truth.
type Notice struct {
	// Token was the holder's, as a [HeldError] names it: a waiter minds only the
	// release of the holder that it was told of. A zero Notice says that the
	// subscription broke and no more will come.
	Token string
}

// A Notifier is a [Protocol] whose servers tell waiters when a lock is released.
type Notifier interface {
	// Watch returns once the servers have confirmed that they will tell, so that
	// an attempt made after it cannot miss a later release. fn must not block. A
	// watch that breaks ends with a single zero Notice. After stop has returned,
	// fn is not called again. ctx and c.Due bound only the confirmation.
	Watch(ctx context.Context, c Claim, fn func(Notice)) (stop func(), err error)
}

// A BulkExtender is a [Protocol] that renews many holds in few requests.
type BulkExtender interface {
	// ExtendAll does for each claim what Extend does and calls done once for
	// each, in any order or at the same time, before it returns.
	ExtendAll(ctx context.Context, cs []Claim, done func(i int, g Grant, err error))
}

// An Inspector is a [Protocol] that can tell who holds a lock.
type Inspector interface {
	// Inspect reads and changes nothing. c.Token and c.TTL are empty.
	Inspect(ctx context.Context, c Claim) (Info, error)
}

// A Checker is a [Protocol] that can tell before the first lock whether its
// servers can be relied on.
type Checker interface {
	// Check returns nil if they can be reached, obey, and are set up in a way
	// that keeps locks; otherwise an error that says what to change.
	Check(ctx context.Context, o Options) error
}

// Info is what [Strategy.Inspect] saw of a lock.
type Info struct {
	Name  string
	Key   string
	Held  bool
	Token string        // the holder's; empty if free
	Label string        // the holder's Options.Label, if its token bears one
	TTL   time.Duration // until the servers let go; negative: never
	Fence uint64        // the last one issued for this key; zero: none
}
