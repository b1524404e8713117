// Package driver is what an author of a lock algorithm, or of a client for one, writes against.
// Users of locks need package strategy alone.
//
// An algorithm is a [Protocol]: how to acquire, extend and release one lock, in one attempt each.
// Package engine adds what every algorithm needs: waiting, renewal, deadlines, loss, undo, events.
//
//	p := myalgorithm.On(…)                          // a driver.Protocol
//	s, err := engine.New(p, strategy.Options{})     // a strategy.Strategy
//
// A protocol may do more. The engine finds the interfaces [Reenterer], [Notifier], [Queuer],
// [Sharer], [BulkExtender], [Adopter], [Inspector], [Checker], [Validator], [Prober] and io.Closer by type
// assertion.
//
// The rest of this package helps protocols that speak to Redis: [Node] is a server, [Script] runs on
// it, [CheckLock] and its siblings build a Check, [Acknowledged] waits for replicas. Package
// conformance then judges the result.
package driver

import (
	"context"
	"errors"
	"time"
)

// A Protocol is a lock algorithm: what to ask the servers, and how to read their answers. It waits
// for nothing but its servers, keeps no timers, and repeats nothing that is not idempotent. The texts of
// its errors show no more of a token than [strategy.ShortToken].
//
// A call and all that it leaves running end by the claim's Due. Close, if the protocol has one, waits
// for them. All methods are safe for concurrent use.
type Protocol interface {
	// Acquire tries once to make c.Token the holder of c.Key for c.TTL. If somebody else holds the
	// lock, the error is a *[strategy.HeldError].
	//
	// If nobody can know what the servers did, it is [strategy.ErrUnknown]. The engine then calls
	// Release with Undo until that returns nil, or until a TTL has passed since the servers last gave a
	// sign of life, and never sends this Token again. It does the same after an error that [Remains]
	// has marked; Release then gets the State that Acquire returned next to the error. After any other
	// error the claim must have no effect.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes the servers count c.TTL again, if c.Token is still the holder. Otherwise the error
	// is a *[strategy.LostError], and nothing has changed: Extend never brings back a lock that is
	// gone. [Remains] marks an error after which some of several servers may keep the token beyond the
	// deadline.
	Extend(ctx context.Context, c Claim) (Grant, error)

	// Release ends a claim that is granted, queued or unanswered. nil means: the claim has no effect
	// now and can have none later. A *[strategy.LostError] means: the token was not the holder any
	// more. [Remains](nil) means: others find the lock free, but the engine has to undo the rest.
	//
	// With c.Undo a token that is not there is a success, and nil, if an acquire under way can no
	// longer take effect: see [Gone]. [Remains] then marks an error after which a server has not
	// answered since the acquire was sent, and so may not have begun to count the TTL.
	//
	// With c.Force an operator releases the lock: for c.Token, or, where owners re-enter, all holds of
	// c.Owner with the fence c.Grant.Fence. An option that makes a release blind does not apply.
	Release(ctx context.Context, c Claim) error
}

// A Claim is what one contender asks for, of one lock. The engine fills it in.
type Claim struct {
	Name  string        // as the user calls the lock
	Key   string        // as the servers call it: Options.Key of Name
	Token string        // of this attempt alone, and of the holder once granted
	Owner string        // the owner, which may re-enter; the Token unless ctx names an owner
	TTL   time.Duration // what the servers are to count; whole milliseconds
	Due   time.Time     // when the operation's time-out comes

	// Line names this process's wait line to a [Queuer]. If the lock is held, Acquire then gives the
	// line a place in the servers' queue, and Watch gets what is meant for the line. Empty: no place. A
	// Release with Undo gives the place up. A claim that may have a place names its Line each time, so the
	// servers may know the place by Line and Token together.
	Line string
	// Fences is how many holds the grant is for, one after the other in this process: Acquire reserves
	// as many fences. Zero means one.
	Fences int
	// FenceTTL is how long the servers are to keep a fence after the time that its number says. Whole
	// milliseconds; zero: for ever. The fence expires at that moment, however late it was stored. So a
	// fence that is gone is less than the servers' time, even if their clocks were set in between.
	FenceTTL time.Duration

	// Share is how much of the lock is asked for, where several may hold it at a time: see [Sharer]. Zero:
	// what NewLock asks for.
	Share int32

	Asked bool  // Acquire: sent before with this Token, which may have a place in the servers' queue
	Again bool  // Acquire: only if Owner holds the lock already; see Reenterer
	Undo  bool  // Release: the reply to Acquire was lost, or came too late
	Force bool  // Release: an operator's
	Grant Grant // Extend, Release: the last one; of a queued claim Start alone: when it was answered
}

// A Grant is what the servers gave.
type Grant struct {
	// Start is a moment not after the servers began to count TTL. Zero means when the call was made.
	Start time.Time
	// TTL is what the servers count. Zero means the claim's.
	TTL time.Duration
	// Fence is this hold's number: greater than that of every earlier hold of the key. All holds of
	// one owner share theirs. Zero means none.
	Fence uint64
	// Fences is how many holds the grant is for: the numbers from Fence on are theirs. Zero means one.
	Fences int
	// ServerTime is the time of the server's clock when it answered, since 1970; a [Queuer]'s.
	ServerTime time.Duration
	// Place is the claim's place in the queue, from 1, next to a *[strategy.HeldError]. Zero: it has no
	// place. Kept says that it had that place before it asked this time.
	Place int32
	Kept  bool
	// Silent says, next to a *[strategy.HeldError], that the holder's release will not be announced to
	// this claim, because the holder is another library's or waits in another way. The engine then
	// asks again after pauses of Options.Backoff.
	Silent bool
	// Doubt says that a server has not answered, and may keep the lock for longer than the lease
	// lasts. If the lease lapses, the engine undoes it.
	Doubt bool
	// Owner is the holder as the servers know it, where that is not the token: what a
	// [strategy.HeldError] and a [Notification] call the holder. Re-entrant algorithms set it.
	Owner string
	// State is the protocol's own. The engine returns it with the claim.
	State any
}

// IsZero reports whether nothing has been granted: the engine fills in Start.
func (g Grant) IsZero() bool { return g.Start.IsZero() }

// Drift is how much earlier than the servers' expiry a deadline is: the servers' clocks may run
// faster than ours by 1 %, and they round to milliseconds (2 ms), as in
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Remains marks what a [Protocol] returns, if some of several servers may keep something of the
// claim. The engine undoes it in the background: at once, or, of an Extend that failed, when the lease
// is lost. The caller gets err: nil, if the operation has succeeded all the same.
func Remains(err error) error { return &remaining{err} }

type remaining struct{ err error }

func (r *remaining) Error() string {
	if r.err == nil {
		return "something may remain with a server that did not answer"
	}
	return r.err.Error()
}

func (r *remaining) Unwrap() error { return r.err }

// Unmark takes the mark of [Remains] off. For the engine, and for protocols around protocols.
func Unmark(err error) (unmarked error, remains bool) {
	if err == nil {
		return nil, false
	}
	if r, ok := err.(*remaining); ok {
		return r.err, true
	}
	var r *remaining // within an error that says more
	return err, errors.As(err, &r)
}
