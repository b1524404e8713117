// Package fairqueue is the lock that most people should use on one Redis: the lock of
// package luascript, with a queue in Redis. Processes get the lock in the order in which
// they asked, and a waiter gets it without asking again.
//
// # The idea
//
// The lock is a key with the holder's token and a TTL, as in package luascript. Next to it
// lies the queue, a list with one entry for each process that waits. An entry has the token
// with which that process wants to hold the lock. The list is first in, first out.
//
//  1. Acquire finds the lock held. The process subscribes to a channel of its own: without
//     that it would look dead. Then it asks again, now with its entry, which goes to the
//     end of the queue.
//  2. Release takes the first entry, sets the key to its token, and publishes that to the
//     process. This is a direct grant: the successor holds the lock when it hears of it.
//     Nobody asks, and nobody can come in between. If nobody queues, Release deletes the key.
//  3. The next entry's process is notified that it is first now, and for how long the
//     successor has the lock.
//
// So a release sends at most two messages, however many wait, and one more for each dead
// entry that it passes over.
//
// # Many callers in one process
//
// Contenders of one process stand in a line, and the process has one entry in the queue. The
// holder hands the lock to the next in its line without a request. It does so for at most
// 2 ms (handOverLimit in package engine), 256 holds ([driver.MaxFences]) and half of the TTL, so
// that other processes get their turn. For this an acquire reserves a range of fences: each hold
// has a number of its own. When that is used up, the release is a Pass: in one request it serves
// the queue, and takes the line's next place.
//
// Requests of one process for different locks, made at the same moment, go out as one, up to 64
// (mostJoined in clients/redigo). A joint script answers each of them as if it had come alone
// ([driver.NewJointScript]).
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
//   - Fairness: first come, first served, among processes and among the contenders in each.
//     A process that holds the lock may serve its own line first, for 2 ms.
//   - Quiet waiting: a waiter sleeps until it has the lock. Only the first in the queue also
//     asks when the holder's TTL ends; all others together ask a few times per TTL. So the
//     requests for an acquisition do not grow with the number of waiters.
//
// # When something breaks
//
//   - The holder dies: its key expires with the TTL. The first in the queue knows when, asks,
//     and is the holder.
//   - The holder dies, and so does the first in the queue: the n-th in the queue asks within
//     n - 1 TTLs after the holder's TTL ends, at a random moment. The next request, a waiter's or a
//     newcomer's, makes the first in the queue that still listens the holder. That takes about a
//     TTL if most waiters live. If few are left of a long queue, it can take those n - 1 TTLs,
//     where n is the place that the waiter had when it last asked.
//   - A reply is lost: nobody knows what Redis did. The engine undoes such an acquire, which
//     also gives up the place in the queue. It repeats such a release, until Redis confirms it
//     or the TTL has passed.
//   - A waiter dies: nobody listens on its channel, and the release passes over its entry.
//   - A waiter listens, but the server of the lock does not count it, because the slot has moved
//     or a replica is the primary now: it is passed over once. When it asks again, it learns that
//     it has lost its place, and subscribes again.
//   - A waiter is paused: it listens, and does not answer. So a direct grant is short: its TTL
//     is a second at most ([driver.SuccessorTTL]), and the successor extends it when it runs. A
//     paused successor costs that second. The next in the queue knows when it ends, asks, and
//     is granted the lock.
//   - A message is lost: the direct grant ends like that of a paused waiter. A waiter that does
//     not hear that it is first is like one that has died.
//   - The queue is lost: waiters ask again at the same moments, and take a new place. Without a
//     place, because the ACL forbids the queue, each asks again when the holder's TTL ends. The
//     lock never depends on the queue.
//
// # What it does not guarantee
//
// One Redis is one point of failure. It forgets a lock when it restarts without having
// persisted it, when a replica is promoted that does not know the lock yet, when somebody
// flushes or evicts the key. Then the lock is granted again while its holder still works.
// The fence still rises, unless the server's clock is behind the last fence. [strategy.Options].Acks
// make fewer fail-overs forget the lock; with it nobody queues.
//
// # When
//
// Take it as the default on one Redis, in two cases: the work can be fenced, or a broken
// exclusion, once in a fail-over, costs no more than work that is done twice. Take luascript
// instead if other libraries lock the same keys. Do not take a lock for what a
// single atomic command can do: to decrement a stock, decrement it.
//
// # Other lockers of the same keys
//
// Given the same key, package luascript, package setnxpx, redsync, bsm/redislock, redis-py
// and StackExchange.Redis exclude this lock, and this lock excludes them. They do not know the
// queue. They can get the lock when nobody queues, or when a holder's TTL has ended, and their
// release grants it to nobody. So while one of them holds the lock, the first waiter of each
// process asks again after pauses of Options.Backoff, and keeps its place. It recognizes them
// by their tokens. The exception is setnxpx, whose tokens look like ours: after its release a
// waiter sleeps until that TTL ends. To share keys with setnxpx, set Options.Wait to
// strategy.WaitPoll.
//
// # On the wire
//
// Acquire, Release and Extend are one round trip each. A waiter also subscribes, and asks
// once more for its place. A release with a successor in the same process is the
// successor's acquire, too. Locks that are kept alive and due at about the same time are
// renewed together, up to 256 per request.
//
//	lock:{name}               the key, with the holder's token. The braces are part of it (a
//	                          hash tag), so the three keys lie in one slot of a Redis Cluster
//	lock:{name}:queue         the queue, while somebody waits; entries: see internal/algorithm/queue/queue.lua
//	lock:{name}:fence         the last fence, a number; it expires Options.FenceTTL after it was issued
//	lock:{name}:queue:<line>  the channel for direct grants to the process with this line;
//	                          messages: likewise
//	lock:{name}:free          the channel for those who wait by notification; a message is the
//	                          token that was released while nobody queued, or adopted by another
//
// The scripts: acquire.lua, release.lua and pass.lua are the algorithm, over grant.lua. What other
// algorithms share is in internal/algorithm/queue and internal/algorithm/fences. acquire.lua and
// release.lua begin with their common case, locks that nobody else wants, which a few commands
// serve for all; each.lua serves the others one at a time. A script is sent with what it needs in
// front: `locks script -n fairqueue/acquire` prints all of it.
//
// Redis 6.2 or later, or Valkey.
//
// Source: the lock is that of SET, "Patterns", in the Redis documentation
// (https://redis.io/docs/latest/commands/set/). The queue follows the queue lock of
// Mellor-Crummey and Scott (1991), in which a release wakes the successor alone.
package fairqueue

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/algorithm/fences"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/algorithm/queue"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed grant.lua
	grantLua string
	//go:embed each.lua
	eachLua string

	//go:embed acquire.lua
	acquireLua string
	//go:embed release.lua
	releaseLua string
	//go:embed pass.lua
	passLua string
	//go:embed extend.lua
	extendLua string

	acquire = driver.NewJointScript("acquire", acquireShared, fences.Numbers+queue.Enqueue+queue.Entries+grantLua+eachLua+acquireLua)
	release = driver.NewJointScript("release", releaseShared, fences.Numbers+queue.Entries+grantLua+eachLua+releaseLua)
	pass    = driver.NewScript("pass", queue.Enqueue+fences.Numbers+queue.Entries+grantLua+passLua)
	extend  = driver.NewScript("extend", extendLua)
)

// The callers of a joint script have so many ARGV in common; those after them are each caller's own.
const (
	acquireShared = 5 // the TTL, how many fences, how long they last, the entry, whether to prove that the user may release
	releaseShared = 2 // the entry, how long fences last
)

// New returns the strategy on a node: what the New of a client returns. It does no I/O: see [strategy.Strategy.Check].
// Close closes the node, unless another strategy uses it, too; the client stays the caller's.
func New(n driver.Node, o strategy.Options, options ...Option) (strategy.Strategy, error) {
	return engine.New(On(n, options...), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(n driver.Node, options ...Option) driver.Protocol {
	p := &protocol{names: keycache.New("queue", "fence"), fences: true}
	p.Node = driver.NodeOf(n, driver.Apply(p, options))
	return p
}

// Acknowledged is the same lock for [strategy.Options].Acks. Nobody queues then, for a direct grant would be unconfirmed.
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
	driver.Queuer
	driver.BulkExtender
} = (*protocol)(nil)

// Acquire sets the key if nobody holds the lock and nobody queues for it. Otherwise a claim
// with a Line takes its place in the queue.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	l, prove := p.names.Of(c.Key), ""
	if !l.Proven.Load() {
		prove = "1"
	}
	args := []any{l.TTL.Of(c.TTL), p.reserve(c), l.FenceTTL.Of(c.FenceTTL), queue.Entry(c, p.reserve(c)), prove, c.Token}
	if c.Repeated && c.Line != "" {
		args = append(args, "1")
	}
	reply, err := p.Eval(ctx, c.Due, acquire, l.Keys, args...)
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := p.acquired(c, reply)
	if prove != "" && err == nil {
		l.Proven.Store(true)
	}
	return g, err
}

// Release grants the lock to the first in the queue, or deletes the key, if the key holds
// the token.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.release(ctx, c, "")
}

// Undo is Release, and also gives up the place in the queue.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	return rediskit.Undone(p, c, p.release(ctx, c, queue.Entry(c, p.reserve(c))))
}

// ForceRelease is Release.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

func (p *protocol) release(ctx context.Context, c driver.Claim, entry string) error {
	l := p.names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, release, l.Keys, entry, l.FenceTTL.Of(c.FenceTTL), c.Token, l.Free)
	if err != nil {
		l.Proven.Store(false)
		return err
	}
	return rediskit.ReleaseReply(p.Name(), c, reply)
}

// Pass is Release of c and Acquire for next, which waits in the same process, in one step.
func (p *protocol) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	l := p.names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, pass, l.Keys, c.Token, next.Token, l.TTL.Of(next.TTL), p.reserve(next), queue.Entry(next, p.reserve(next)), l.FenceTTL.Of(next.FenceTTL))
	if err != nil {
		return driver.Grant{}, err
	}
	if _, ok := reply.([]any); ok {
		return p.acquired(next, reply)
	}
	return driver.Grant{}, p.lost(c, reply)
}

// Watch hears of direct grants to the claim's line; without a line, of releases that find
// nobody in the queue. Each is published in the step that grants, or releases.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	l := p.names.Of(c.Key)
	if c.Line != "" {
		return queue.Watch(ctx, p, c, lineChannel(l, c.Line), p.fences, fn)
	}
	return rediskit.WatchChannel(ctx, p, c, l.Channel(), fn)
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

// reserve is how many fences to reserve; 0 without fences.
func (p *protocol) reserve(c driver.Claim) int {
	if !p.fences {
		return 0
	}
	return max(c.Fences, 1)
}

// acquired reads the reply of a script that grants the lock or finds it held.
func (p *protocol) acquired(c driver.Claim, reply any) (driver.Grant, error) {
	if fence, ok := reply.(int64); ok {
		return p.granted(fence, 1)
	}
	if g, held, ok := queue.HeldReply(c, reply); ok {
		g.Silent = silent(c, held.Holder)
		return g, held
	}
	if r, _ := reply.([]any); len(r) == 2 {
		fence, ok := r[0].(int64)
		reserved, ok2 := r[1].(int64)
		if ok && ok2 {
			return p.granted(fence, reserved)
		}
	}
	return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
}

// silent reports whether c would wait in vain for the holder's release. Another library's release
// announces nothing. Package luascript's, whose tokens are marked, is published to those who wait by
// notification, and does not serve the queue.
func silent(c driver.Claim, holder string) bool {
	marked, ours := token.Announced(holder)
	return !ours || (marked && c.Line != "")
}

func (p *protocol) lost(c driver.Claim, reply any) error {
	return rediskit.LostReply(p.Name(), c, reply)
}

// granted reads a fence, positive, and how many from it on are reserved; both are 0 without fences.
func (p *protocol) granted(fence, reserved int64) (driver.Grant, error) {
	if p.fences != (fence > 0) || fence < 0 || reserved < 0 || reserved > driver.MaxFences {
		return driver.Grant{}, rediskit.BadReply(p.Name(), fence)
	}
	if !p.fences {
		reserved = 0 // acquire.lua and adopt.lua return the fence alone
	}
	return driver.Grant{Fence: uint64(fence), Fences: int(reserved)}, nil
}
