// Package luascript is the lock that the articles teach: SET NX PX with a random
// token, and scripts that compare the token before they touch the key.
//
// # The idea
//
// Acquire: if the key does not exist, set it to a token that nobody else has, with
// a TTL. Release: if the key holds my token, delete it. Extend: if the key holds my
// token, start the TTL again. Each "if … then" must be one step. As two commands
// (package setnxpx) the key can expire and be taken between the comparison and the
// deletion, which then frees another's lock. Redis runs a script as one step.
//
// As a script, acquire can do one thing more than SET: it issues a fence, the number
// of the hold, in the same step as the lock.
//
// # What it guarantees
//
//   - Exclusion: at most one holder at a time, for as long as Redis keeps the key and
//     holders stop at their deadline ([strategy.Lease.Deadline], Lost, Context).
//   - Ownership: only the holder releases or extends. A late release changes nothing.
//   - No deadlock: a holder that dies is gone after its TTL.
//   - Fencing: each hold has a number greater than all before ([strategy.Lease.Fence]), unless
//     [WithoutFences]. A store that refuses lesser numbers is safe even from a holder that was
//     paused past its deadline.
//
// # When something breaks
//
//   - The holder dies: its key expires with the TTL. Waiters know that TTL and ask when it ends.
//   - A reply is lost: nobody knows what Redis did. The engine undoes such an acquire, and
//     repeats such a release, until Redis confirms it or the TTL has passed.
//   - A waiter dies: it has left nothing in Redis.
//   - A message is lost: the waiter sleeps until the holder's TTL ends.
//
// # What it does not guarantee
//
// Fairness between processes. A release wakes one waiter of each process, and the first to
// ask gets the lock. Within a process waiters stand in line, and for 2 ms the holder hands the
// lock on without a request ([strategy.Options].NoHandOver). So an acquire reserves several fences
// if others stand in line. Package fairqueue queues the processes, too: fewer requests, if many wait.
//
// One Redis is one point of failure. It forgets a lock when it restarts without having
// persisted it, when a replica is promoted that does not know the lock yet, when somebody
// flushes or evicts the key. Then the lock is granted again while its holder still works.
// The fence still rises, unless the server's clock is behind the last fence. [strategy.Options].Acks
// make fewer fail-overs forget the lock.
//
// # When
//
// Take it where the algorithm must be readable at a glance, and where other libraries lock the
// same keys. Otherwise take fairqueue. Do not take a lock for what a single atomic command can
// do: to decrement a stock, decrement it.
//
// # Other libraries on the same keys
//
// The key and its value are those of SET key token NX PX. Given the same key, this lock,
// packages setnxpx and fairqueue, redsync, bsm/redislock, redis-py and StackExchange.Redis
// exclude each other. No option is needed for that.
//
// None of the others publishes its release on this lock's channel, and a waiter must not sleep
// until their TTL ends. So a waiter looks at the holder's token. The engine marks the tokens of
// this package: they are UUIDs of version 7 whose third group is 7e11. If the mark is missing,
// the waiter asks again after pauses of Options.Backoff, 250 ms at most by default. The mark
// decides nothing but the pause. A foreign UUID of version 7 has it once in 4096; then the
// waiter sleeps until that TTL ends.
//
// # On the wire
//
// Acquire, Extend and Release are one round trip each. A waiter also subscribes, and then asks
// once more, because a release may have come before. Locks that KeepAlive renews at about the
// same time are renewed together, up to 256 per request.
//
//	lock:{name}         the key, with the holder's token. The braces are part of it
//	                    (a hash tag), so the three lie in one slot of a Redis Cluster
//	lock:{name}:fence   the last fence, a number; it expires Options.FenceTTL after it was issued
//	lock:{name}:free    the channel; a message is the token that no longer has the lock
//
// Redis 6.2 or later, or Valkey.
//
// Source: SET, "Patterns", in the Redis documentation
// (https://redis.io/docs/latest/commands/set/), and its page on distributed locks.
package luascript

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/algorithm/fences"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string

	acquire = driver.NewScript("acquire", fences.Numbers+acquireLua)
	extend  = driver.NewScript("extend", extendLua)
	release = driver.NewScript("release", releaseLua)
)

// New returns the strategy on a node: what the New of a client returns. It does no I/O: see [strategy.Strategy.Check].
// Close closes the node, unless another strategy uses it, too; the client stays the caller's.
func New(n driver.Node, o strategy.Options, options ...Option) (strategy.Strategy, error) {
	return engine.New(On(n, options...), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(n driver.Node, options ...Option) driver.Protocol {
	p := &protocol{names: keycache.New("fence"), fences: true}
	p.Node = driver.NodeOf(n, driver.Apply(p, options))
	return p
}

// Acknowledged is the same lock for [strategy.Options].Acks.
func (p *protocol) Acknowledged(a strategy.Acks) driver.Protocol {
	return rediskit.Acknowledged(p.Node, a, func(n driver.Node) rediskit.Confirmable {
		q := *p
		q.Node = n
		return &q
	})
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// WithoutFences issues no fences, and so leaves no counter behind, not even until
// Options.FenceTTL is over: for very many names that are each used once.
func WithoutFences() Option {
	return func(p *protocol) { p.fences = false }
}

// protocol is the algorithm on one node.
type protocol struct {
	driver.Node // the server
	names       *keycache.Cache
	fences      bool
}

var _ interface {
	driver.Protocol // also adopt.go, inspect.go, check.go
	driver.Acknowledger
	driver.Notifier
	driver.BulkExtender
} = (*protocol)(nil)

// Acquire sets the key if it does not exist.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	l := p.names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, acquire, p.keys(l), c.Token, l.TTL.Of(c.TTL), l.FenceTTL.Of(c.FenceTTL), max(c.Fences, 1))
	if err != nil {
		return driver.Grant{}, err
	}
	if held, ok := rediskit.HeldReply(c, reply); ok {
		announced, _ := token.Announced(held.Holder)
		return driver.Grant{Silent: !announced}, held // silent: nobody will publish its release, so poll
	}
	if g, ok := p.granted(reply); ok {
		return g, nil
	}
	return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
}

// Extend starts the TTL again if the key holds the token.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return p.bulk().Extend(ctx, c)
}

// ExtendAll extends many locks, 256 in a request.
func (p *protocol) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	p.bulk().ExtendAll(ctx, cs, done)
}

func (p *protocol) bulk() rediskit.BulkScript {
	return rediskit.BulkScript{Node: p, Script: extend, Most: 256, Refused: p.lost}
}

// Release deletes the key if it holds the token, and publishes that.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	l := p.names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, release, l.Keys[:1], c.Token, l.Free)
	if err != nil {
		return driver.Outcome{}, err
	}
	return driver.Outcome{}, rediskit.ReleaseReply(p.Name(), c, reply)
}

// Undo is Release: see [rediskit.Undone].
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	_, err := p.Release(ctx, c)
	return rediskit.Undone(p, c, err)
}

// ForceRelease is Release.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

// Watch hears what Release and Adopt publish.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	return rediskit.WatchChannel(ctx, p, c, p.names.Of(c.Key).Channel(), fn)
}

// keys are the lock and, with fences, its counter.
func (p *protocol) keys(l *keycache.Lock) []string {
	if !p.fences {
		return l.Keys[:1]
	}
	return l.Keys
}

// granted reads fence, or {fence, how many are reserved}. Without fences it is 0.
func (p *protocol) granted(reply any) (g driver.Grant, ok bool) {
	reserved := int64(1)
	if r, _ := reply.([]any); len(r) == 2 {
		reply = r[0]
		reserved, _ = r[1].(int64)
	}
	fence, ok := reply.(int64)
	if !p.fences {
		return g, ok && fence == 0 && reserved == 1
	}
	ok = ok && fence > 0 && reserved > 0 && reserved <= driver.MaxFences
	return driver.Grant{Fence: uint64(fence), Fences: int(reserved)}, ok
}

func (p *protocol) lost(c driver.Claim, reply any) error {
	return rediskit.LostReply(p.Name(), c, reply)
}
