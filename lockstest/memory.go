package lockstest

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

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
// Semaphore and ReadWriter. They need names of their own: a lock of one kind refuses those of the others.
//
// It answers as the scripts of the Redis strategies do. A lock is there for the whole millisecond in which its TTL ends. A
// renewal that was delayed shortens nothing. A fence expires with Options.FenceTTL. Time is that of package time, and
// nothing runs in the background.
type Memory struct {
	memory.Server // the methods of a driver.Protocol, and the field Reentrant
}

// Semaphore returns a strategy whose locks have so many permits.
func (m *Memory) Semaphore(permits int, o strategy.Options) (strategy.Semaphore, error) {
	return m.Server.Semaphore(permits, o)
}

// ReadWriter returns a strategy whose locks many may hold to read, or one to write.
func (m *Memory) ReadWriter(o strategy.Options) (strategy.ReadWriter, error) {
	return m.Server.ReadWriter(o)
}

// Intercept makes each request that begins from now on meet f; nil: no fault.
func (m *Memory) Intercept(f Fault) {
	if f == nil {
		m.Server.Intercept(nil)
		return
	}
	m.Server.Intercept(func(ctx context.Context, r memory.Request, serve func() error) error {
		return f(ctx, Request(r), serve)
	})
}

// Gated returns a protocol on the server whose requests pass a conformance.Gate.
func (m *Memory) Gated(gate func(request string, send func())) driver.Protocol {
	return m.Server.Gated(gate)
}

// Requests returns how many requests of these kinds have left so far, whether they arrived or not; without kinds, of all.
func (m *Memory) Requests(ops ...Op) int { return m.Server.Requests(ops...) }

// Leftovers returns what the server keeps of a lock but its fence: the lock, its queue, its watches. The error is nil.
func (m *Memory) Leftovers(ctx context.Context, key string) ([]string, error) {
	return m.Server.Leftovers(ctx, key)
}

// Advance moves the server's clock on by d, and no other clock, or back if d is negative. As with an expiry, nobody is notified.
func (m *Memory) Advance(d time.Duration) { m.Server.Advance(d) }

// Evict takes a lock from its holder without a notification, as an expiry does. The error is nil.
func (m *Memory) Evict(ctx context.Context, key string) error { return m.Server.Evict(ctx, key) }

// Spoil makes the key something that is no lock, until it is evicted. The error is nil.
func (m *Memory) Spoil(ctx context.Context, key string) error { return m.Server.Spoil(ctx, key) }

// BreakWatches ends all subscriptions, as the loss of their connection does.
func (m *Memory) BreakWatches() { m.Server.BreakWatches() }

// Forge notifies all who wait for a lock, as somebody does who may publish. A grant gets the server's time, added to its own, and
// if it has none a fence. The error is nil.
func (m *Memory) Forge(ctx context.Context, key string, n driver.Notification) error {
	return m.Server.Forge(ctx, key, n)
}

// A Request is what a [Fault] gets to see.
type Request struct {
	Op     Op
	Claims []driver.Claim // one, but for OpExtendAll, and OpPass: the holder, and the next one; none for OpCheck
}

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
