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
// [Sharer], [BulkExtender], [Acknowledger], [Validator], [Prober] and io.Closer by type assertion.
//
// [Node] is a Redis server, and [Script] runs on it. Package rediskit helps protocols and nodes that speak to Redis: it reads
// replies, builds a Check, renews in bulk, waits for replicas. Package conformance then judges the result.
package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A Protocol is a lock algorithm: what to ask the servers, and how to read their answers. It waits
// for nothing but its servers, keeps no timers, and repeats nothing that is not idempotent. The texts of
// its errors show no more of a token than [strategy.ShortToken]. A protocol that lacks one of the last four
// methods embeds [Unsupported], which will also have what later versions add.
//
// A call and all that it leaves running end by the claim's Due. Close, if the protocol has one, waits
// for them. All methods are safe for concurrent use.
type Protocol interface {
	// Acquire tries once to make c.Token the holder of c.Key for c.TTL. If somebody else holds the
	// lock, the error is a *[strategy.HeldError].
	//
	// If nobody can know what the servers did, the error is [strategy.ErrUnknown]. After that, and after any error next to a
	// Grant that is Partial, the engine calls Undo, with the Grant's State, and never sends this Token again. After any
	// other error the claim must have no effect.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes the servers count c.TTL again, if c.Token is still the holder. Otherwise the error
	// is a *[strategy.LostError], and nothing has changed: Extend never brings back a lock that is
	// gone. After an error next to a Grant that is Partial some servers may keep the token beyond the deadline.
	Extend(ctx context.Context, c Claim) (Grant, error)

	// Release ends the hold of c.Token. nil: others find the lock free. A *[strategy.LostError]: the token was not the
	// holder any more. After any other error, and if the Outcome is Partial, the engine calls Undo.
	Release(ctx context.Context, c Claim) (Outcome, error)

	// Undo ends a claim whose Acquire, Extend, Adopt or Release was not answered, or not in time, and gives up its place in
	// the queue. nil: the claim has no effect now and can have none later. So a token that is not there is a success only
	// if an acquire under way can no longer take effect: see rediskit.Undone. After an error the engine calls Undo
	// again, until a TTL has passed since the servers last gave a sign of life. It never touches another's lock.
	Undo(ctx context.Context, c Claim) error

	// ForceRelease is the Release of an operator, who has seen the holder: c.Token, or, where owners re-enter, all holds of
	// c.Owner with the fence c.Grant.Fence. It never touches another's lock.
	ForceRelease(ctx context.Context, c Claim) (Outcome, error)

	// Adopt gives a hold to a process that has its token: it does in one step what Extend does for the hold with the token
	// from, and replaces that token by c.Token, with a new fence. So no two can adopt the same hold, and its old user can
	// neither release it nor write after the new one. Errors are those of Extend; the engine undoes c as after Acquire. A
	// [Notifier] sends what a release of the old hold would send, because waiters wait for the holder that they know.
	//
	// Where owners re-enter, there are two cases. The only hold of an owner becomes c.Owner's. One hold
	// of several stays with its owner, which the Grant names, and nothing is sent. The engine hands a
	// re-entrant lock over within the process in this way: the next holder adopts it.
	Adopt(ctx context.Context, c Claim, from string) (Grant, error)

	// Inspect reports who holds the lock, and changes nothing. c.Token and c.TTL are empty. It fills in Held, Token, TTL,
	// Fence and Queue, and, where owners re-enter, Owner and Holds. The engine adds Name, Key, Label
	// and Since, and, where owners do not re-enter, Owner and Holds.
	Inspect(ctx context.Context, c Claim) (strategy.Info, error)

	// Check finds out before the first lock whether the servers answer, obey, allow what locks need, and keep locks. An
	// error says what to change. o.Wait is as the user gave it: WaitBest demands nothing that waiting can do without.
	Check(ctx context.Context, o strategy.Options) error
}

// Unsupported is for protocols to embed that lack one of its methods. Each says so: [strategy.ErrUnsupported].
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
	Name  string        // as the user calls the lock
	Key   string        // as the servers call it: Options.Key of Name
	Token string        // of this attempt alone, and of the holder once granted
	Owner string        // the owner, which may re-enter; the Token unless ctx names an owner
	TTL   time.Duration // what the servers are to count; whole milliseconds
	Due   time.Time     // when the operation's time-out comes

	// Line names this process's wait line to a [Queuer]. If the lock is held, Acquire then gives the
	// line a place in the servers' queue, and Watch gets what is meant for the line. Empty: no place. A
	// claim that may have a place names its Line each time, so the servers may know the place by Line and Token together.
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

	Repeated bool  // Acquire: sent before with this Token, which may have a place in the servers' queue
	Again    bool  // Acquire: only if Owner holds the lock already; see Reenterer
	Grant    Grant // the last one, of a claim that has one; of a queued claim Start alone: when it was answered
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
	// Partial says, also next to an error, that some of several servers have not answered, and may keep something of the
	// claim. The engine undoes that: when the lease is lost, or at once if there is none.
	Partial bool
	// Owner is the holder as the servers know it, where that is not the token: what a
	// [strategy.HeldError] and a [Notification] call the holder. Re-entrant algorithms set it.
	Owner string
	// State is the protocol's own. The engine returns it with the claim.
	State any
}

// IsZero reports whether nothing has been granted: the engine fills in Start.
func (g Grant) IsZero() bool { return g.Start.IsZero() }

// An Outcome is how a release ended that has succeeded, or that found the lock lost.
type Outcome struct {
	// Partial says that some of several servers have not answered, and may keep the lock. The engine undoes that.
	Partial bool
}

// ErrAcquireMayArrive is the cause of the error of an Undo that came too early: see rediskit.Undone.
var ErrAcquireMayArrive = errors.New("the lock is not there, but the request that timed out may still arrive")

// Drift is how much earlier than the servers' expiry a deadline is: the servers' clocks may run
// faster than ours by 1 %, and they round to milliseconds (2 ms), as in
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }
