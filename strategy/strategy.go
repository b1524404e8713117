// Package strategy is the contract of all locks in this module: what users hold.
//
// A [Strategy] is a lock algorithm with its servers. It gives a [Lock] for each name, and the lock
// gives a [Lease] for each hold. To use another algorithm, change one line:
//
//	s, err := fairqueue.New(node, strategy.Options{}) // or luascript.New, redlock.New, …
//	err = strategy.Do(ctx, s.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
//		return work(ctx) // ctx ends the moment the lock is lost
//	})
//
// [Options] keep four durations apart: the TTL, for which the servers keep a lock without renewal; the wait, which ctx bounds; the
// operation time-out of one attempt, renewal or release; the maximum hold, after which renewal stops.
//
// No lease can prevent one thing. A paused holder (a long garbage collection, a stopped process, a suspended machine) does not
// notice its deadline until it runs again, and then it may write late. So give [Lease.Fence] to the store that the lock protects:
// it can then refuse the late write.
//
// From v1 on, a minor version may add methods to these interfaces, and fields to these structs. So a decorator, or a fake in
// your tests, embeds the interface that it implements, and a literal of a struct names its fields.
package strategy

import (
	"context"
	"time"
)

// A Strategy is an algorithm with its servers. It is safe for concurrent use.
type Strategy interface {
	// NewLock returns the lock of that name: 1 … 1024 bytes, any bytes; of another name every call on the lock is an error. Locks
	// of one name are the same lock. It does no I/O.
	NewLock(name string) Lock

	// With returns a Strategy on the same connections whose options are those of this one, changed by the function. An option
	// that was not given takes the default that goes with the change. Close of one of the strategies closes all of them.
	With(change func(*Options)) (Strategy, error)

	// Check asks whether the servers can be relied on: they answer, are primaries, do not evict keys, are not full, and allow all
	// that locks need, and the way to wait that Options.Wait names. It leaves nothing behind. The error says what to change.
	Check(ctx context.Context) error

	// Inspect reads who holds the lock of that name, and changes nothing. The holder may be another when Inspect returns.
	Inspect(ctx context.Context, name string) (Info, error)

	// ForceRelease takes the lock, with all its holds, from the holder that Inspect saw. ErrLost: that holder had lost the lock
	// before, and nothing has changed. The old holder learns of its loss at its next renewal, or at its deadline. Until then
	// only a fence keeps its writes apart from those of the next holder.
	ForceRelease(ctx context.Context, seen Info) error

	// Adopt makes a lease of a token that [Lease.Detach] gave, perhaps in another process: in one step it renews the lock and
	// gives the hold a new token and fence. So a token can be adopted once. ErrLost: the token was not the holder's any more, or
	// the answer came too late. After ErrUnknown the caller has not adopted the lock, and the engine releases it.
	Adopt(ctx context.Context, name, token string) (Lease, error)

	// Close ends everything, and waits until no goroutine is left: waiters get ErrClosed, renewal stops, each undo gets a last
	// try, and the connections that New made are closed (the caller's pool is not). Locks that are held expire with their TTL. So
	// does what could not be undone: an [EventUndoFailed] reports each. The error says which connections could not be closed.
	Close() error
}

// Info is what [Strategy.Inspect] saw of a lock.
type Info struct {
	Name, Key string
	Held      bool
	Token     string        // the holder's, or that of one of its holds; empty if the lock is free
	Owner     string        // the owner that may re-enter; the Token if the lock is not re-entrant
	Holds     int           // how often the lock was acquired and not yet released; of a semaphore, how many permits are taken
	Label     string        // the holder's Options.Label, if its token has one; see [Info.Holder]
	Since     time.Time     // when the holder asked for the lock, by its own clock; zero: its token does not say
	TTL       time.Duration // until the lock expires; negative: never
	Fence     uint64        // the last fence issued for this key, or reserved; zero: none, or it is older than Options.FenceTTL
	Queue     []string      // tokens in the servers' queue, first come first; see WaitQueue; some may have died
}
