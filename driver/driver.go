// Package driver is what an author of a lock algorithm, or of a client for one, writes against. Users of locks need package
// strategy alone.
//
// An algorithm is a [Protocol]: how to acquire, extend and release one lock, in one attempt each. Package engine makes a
// strategy of it, with waiting, renewal, deadlines, loss, undo and events:
//
//	s, err := engine.New(myalgorithm.On(node), strategy.Options{})
//
// A protocol may do more. The engine finds the interfaces [Reenterer], [Notifier], [Queuer], [Sharer], [BulkExtender],
// [Acknowledger], [Validator], [Prober] and io.Closer by type assertion.
//
// A [Node] is a Redis server, a [Script] runs on it, and package rediskit helps with both. All else here is for servers of any
// kind: stores/postgres and stores/etcd do without a Node. Package conformance judges the result.
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Protocol is a lock algorithm: what to ask the servers, and how to read their answers. It never waits for a lock, keeps no
// timers, and repeats nothing that is not idempotent. No call changes another's lock. A call, with all that it leaves
// running, ends by the claim's Due; Close, if the protocol has one, waits for that. All methods are safe for concurrent use.
// The texts of errors show no more of a token than [strategy.ShortToken].
//
// A protocol that lacks one of the last four methods embeds [Unsupported], which will also have what later versions add.
type Protocol interface {
	// Acquire tries once to make c.Token the holder of c.Key for c.TTL. A *[strategy.HeldError]: somebody else holds the lock.
	// [strategy.ErrUnknown]: nobody can know what the servers did. After that, and after an error next to a Grant that is
	// Partial, the engine calls Undo, and never sends this Token again. After any other error the claim has no effect.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes the servers count c.TTL again. A *[strategy.LostError]: c.Token is not the holder any more, and nothing has
	// changed: a lock that is gone stays gone.
	Extend(ctx context.Context, c Claim) (Grant, error)

	// Release ends the hold of c.Token: others find the lock free. A *[strategy.LostError]: it was not the holder any more.
	// After any other error, and if the Outcome is Partial, the engine calls Undo.
	Release(ctx context.Context, c Claim) (Outcome, error)

	// Undo ends a claim whose Acquire, Extend, Adopt or Release was not answered in time, and gives up its place in the queue.
	// nil: the claim has no effect now and can have none later. If the token is not there, and its acquire can still arrive: an
	// error that wraps [ErrAcquireMayArrive]. After an error the engine calls Undo again, until a TTL has passed since the
	// servers last gave a sign of life.
	Undo(ctx context.Context, c Claim) error

	// ForceRelease is the Release of an operator who has seen the holder: c.Token, or, where owners re-enter, all holds of
	// c.Owner with the fence c.Grant.Fence.
	ForceRelease(ctx context.Context, c Claim) (Outcome, error)

	// Adopt takes a hold over by its token: in one step it extends the hold of the token from, and gives it c.Token and a new
	// fence. So no two adopt the same hold, and its old user can neither release it nor write after the new one. Errors are
	// those of Extend; the engine undoes c as after Acquire. A [Notifier] sends what a release of the old hold would send.
	// Where owners re-enter, the only hold of an owner becomes c.Owner's; one hold of several stays with its owner, which the
	// Grant names. Nothing is sent: there, waiters wake with the release of any owner.
	Adopt(ctx context.Context, c Claim, from string) (Grant, error)

	// Inspect reads who holds the lock: Held, Token, TTL, Fence and Queue, and, where owners re-enter, Owner and Holds. The
	// engine fills in the rest. c.Token and c.TTL are empty.
	Inspect(ctx context.Context, c Claim) (strategy.Info, error)

	// Check finds out before the first lock whether the servers answer, are primaries, allow what locks need, and keep locks. An
	// error says what to change. o.Wait is as the user gave it: WaitBest demands nothing that waiting can do without.
	Check(ctx context.Context, o strategy.Options) error
}

// Unsupported is for protocols to embed that lack one of its methods. Each returns [strategy.ErrUnsupported].
type Unsupported struct{}

func unsupported(what string) error {
	return fmt.Errorf("locks: %s: %w by this algorithm", what, strategy.ErrUnsupported)
}

// ForceRelease is not supported.
func (Unsupported) ForceRelease(context.Context, Claim) (Outcome, error) {
	return Outcome{}, unsupported("ForceRelease")
}

// Adopt is not supported.
func (Unsupported) Adopt(context.Context, Claim, string) (Grant, error) {
	return Grant{}, unsupported("Adopt")
}

// Inspect is not supported.
func (Unsupported) Inspect(context.Context, Claim) (strategy.Info, error) {
	return strategy.Info{}, unsupported("Inspect")
}

// Check is not supported.
func (Unsupported) Check(context.Context, strategy.Options) error { return unsupported("Check") }

// A Claim is what one contender asks for, of one lock. The engine fills it in.
type Claim struct {
	Name     string        // as the user calls the lock
	Key      string        // as the servers call it: Options.Key of Name
	Token    string        // of this attempt alone, and of the holder once granted
	Owner    string        // who may re-enter; the Token unless ctx names an owner
	TTL      time.Duration // for how long the servers are to keep the lock; whole milliseconds
	Due      time.Time     // when the operation's time-out comes
	Line     string        // where a [Queuer] notifies this claim, which takes a place in the queue if the lock is held; empty: no place
	Fences   int           // how many fences Acquire reserves, for as many holds of this process in a row; at most MaxFences; 0: one
	FenceTTL time.Duration // how long the servers keep a fence after the time that its number says; whole milliseconds; 0: for ever
	Share    int32         // how much of the lock, where several may hold it: see [Sharer]; 0: what NewLock asks for
	Holds    int32         // how many holds of that share Acquire asks for, for as many waiters of this process: see [Sharer]; 0: one
	Joins    string        // Acquire: the token of a hold of the same share, which the claim joins: it is granted while that is held, although others wait: see [Sharer]
	Repeated bool          // Acquire: sent before with this Token, which may have a place in the queue
	Again    bool          // Acquire: only if Owner holds the lock already: see [Reenterer]
	Grant    Grant         // the last one, of a claim that has one; of a queued claim Start alone: when it was answered
}

// A Grant is what the servers gave.
type Grant struct {
	Start      time.Time     // a moment not after the servers began to count TTL; zero: when the call was made
	TTL        time.Duration // what the servers count; 0: the claim's
	Fence      uint64        // greater than that of every earlier hold of the key; all holds of one owner share theirs; 0: none
	Fences     int           // how many holds the grant is for, with the numbers from Fence on; 0: one
	Owner      string        // what errors and notifications call the holder, where that is not the token: of re-entrant locks
	State      any           // the protocol's own; it comes back with the claim
	ServerTime time.Duration // the server's clock when it answered, since 1970: a [Queuer]'s

	// Partial says, also next to an error, that some of several servers have not answered, and may keep something of the
	// claim. The engine undoes that: when the lease is lost, or at once if there is none.
	Partial bool
	// Silent says, next to a *[strategy.HeldError], that nobody will announce the holder's release to this claim. The engine
	// then asks again after pauses of Options.Backoff.
	Silent bool
	// Kept says that the claim had its place in the queue before it asked. Place is that place, from 1, next to a
	// *[strategy.HeldError]; 0: it has none.
	Kept  bool
	Place int32
	Holds int32 // how many holds were granted at once, of a [Sharer]; 0: one
}

// IsZero reports whether nothing has been granted: the engine fills in Start.
func (g Grant) IsZero() bool { return g.Start.IsZero() }

// An Outcome is how a release ended that has succeeded, or that found the lock lost.
type Outcome struct {
	Partial bool // some of several servers have not answered, and may keep the lock: the engine undoes that
}

// ErrAcquireMayArrive is the cause of the error of an Undo that came too early: see [Protocol].
var ErrAcquireMayArrive = errors.New("the lock is not there, but the request that timed out may still arrive")

// Drift is how much earlier than the servers' expiry a deadline is: 1 % of the TTL, because clocks run apart, and 2 ms,
// because servers round.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }
