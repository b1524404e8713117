package lockstest

import "github.com/lockstrategies/locks/internal/memory"

// Memory is the lock server in memory that [Locks] stands on, and the protocol that speaks to it. Tests of an algorithm, of
// an engine or of a decorator use it directly. The zero value is an empty server. Strategies made from one Memory contend
// with each other as processes do that share a server:
//
//	var server lockstest.Memory
//	a, err := engine.New(&server, strategy.Options{})
//	b, err := engine.New(&server, strategy.Options{})
//
// It does everything that a driver.Protocol may do: fences, notifications, a queue with direct grants, renewal in bulk. To
// test without one of these, hide it:
//
//	engine.New(struct{ driver.Protocol }{&server}, o) // a protocol and nothing else
//
// Set Reentrant before the first request, and it lets the owner of a lock in again. Locks that several may hold come from
// its methods Semaphore and ReadWriter. They need names of their own: a lock of one kind refuses those of the others.
//
// A test looks at the server by Requests and Leftovers, and changes what is there:
//
//	Intercept(f)              a [Fault] for each request that begins from now on; nil: none
//	Gated(g)                  a protocol whose requests pass a conformance.Gate
//	Advance(d)                moves the server's clock on
//	Evict(ctx, key)           takes a lock from its holder, as an expiry does
//	Spoil(ctx, key)           makes the key something that is no lock
//	BreakWatches()            ends all subscriptions, as the loss of their connection does
//	Forge(ctx, key, n)        notifies all who wait, as somebody does who may publish
//
// It answers as the scripts of the Redis strategies do. A lock is there for the whole millisecond in which its TTL ends. A
// renewal that was delayed shortens nothing. A fence expires with Options.FenceTTL. Time is that of package time, and
// nothing runs in the background.
type Memory = memory.Server

// A Request is what a [Fault] gets to see.
type Request = memory.Request

// Op is a kind of request to a [Memory].
type Op = memory.Op

// The requests. A bulk renewal is one request.
const (
	OpAcquire      = memory.OpAcquire
	OpExtend       = memory.OpExtend
	OpExtendAll    = memory.OpExtendAll
	OpAdopt        = memory.OpAdopt
	OpRelease      = memory.OpRelease
	OpUndo         = memory.OpUndo
	OpForceRelease = memory.OpForceRelease
	OpPass         = memory.OpPass
	OpWatch        = memory.OpWatch
	OpInspect      = memory.OpInspect
	OpCheck        = memory.OpCheck
	OpPermits      = memory.OpPermits
)

// Unknown is the error of a request whose reply was lost.
func Unknown() error { return memory.Unknown() }

// Unsent is the error of a request that reached nobody.
func Unsent() error { return memory.Unsent() }

// Refused is the error of a request to which the server said no, in these words.
func Refused(words string) error { return memory.Refused(words) }
