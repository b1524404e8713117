// Package luascript is the lock that most people should use on one Redis: a key
// with a random token and a TTL, and Lua scripts that compare the token before they
// touch the key.
//
// # The idea
//
// Acquire: if the key does not exist, set it to a token that nobody else has, with
// a TTL. Release: if the key holds my token, delete it. Extend: if the key holds my
// token, count the TTL anew. Each "if … then" must be one step. As two commands
// (package setnxpx) the key can expire and be taken between the comparison and the
// deletion, which then frees a stranger's lock. Redis runs a script as one step.
//
// The next holder is not left to chance either. Whoever has to wait takes a place in a
// queue, a list beside the lock with one entry for each process. Release takes the first
// entry and sets the key to its token, in the same script (a direct grant), and publishes
// that to the process. An heir that died there is passed over, since nobody listens; one
// that stands still costs a second, as a direct grant is for no longer until it is extended.
//
// The wire format is that of SET key token NX PX: package setnxpx, redsync,
// bsm/redislock, redis-py and StackExchange.Redis exclude this lock and are
// excluded by it, when given the same key. They make nobody their heir, so
// a waiter here sleeps through their releases until their TTL ends: among such company set
// Options.Wait to strategy.WaitPoll. Nor do they queue: they get the lock when nobody does.
//
// # What it guarantees
//
//   - Exclusion: at most one holder at a time, for as long as Redis keeps the key and
//     holders stop at their deadline ([strategy.Lease.Deadline], Lost, Context).
//   - Ownership: only the holder releases or extends; a late release changes nothing.
//   - No deadlock: a holder that dies is gone after its TTL.
//   - Fencing: each hold has a number greater than all before ([strategy.Lease.Fence]),
//     issued in the same step as the lock. A store that refuses lesser numbers is safe
//     even from a holder that was paused past its deadline.
//   - Fair, quiet waiting: processes queue, first come, first served, and so do contenders
//     in each. Whoever releases makes the next its heir in the same step, and tells it; in
//     the process it hands the lock over without a request. Whoever waits sleeps until
//     then, or until the holder's TTL ends.
//
// # What it does not
//
// One Redis is one point of failure. A lock is forgotten, and granted again while
// its holder still works, when Redis restarts without having persisted it, when a
// replica that has not yet heard of it is promoted, when somebody flushes or evicts
// it. The fence still rises then, unless the server's clock is behind the last one.
// [Acknowledged] makes fewer fail-overs forget it.
//
// # When
//
// Take it when one Redis is what you have, and the work can be fenced or an
// exclusion broken once in a fail-over costs no more than doing the work twice.
// Do not take it for what a single atomic command can do: to decrement a stock,
// decrement it.
//
// # On the wire
//
// Acquire and Release are one round trip each, and so is Extend; whoever waits also
// subscribes, and asks once more for its place; a release with a successor in the same
// process is the successor's acquire, too. Locks that are kept alive and due at about the
// same time are renewed together, up to 256 per request. What contenders of a process ask for
// several locks at the same moment is one request, too, up to 64. Keys: lock:{name}, the lock;
// lock:{name}:queue, while somebody waits; lock:{name}:fence, the counter, which stays
// (see [WithoutFences]). Channels: lock:{name}:queue:<process>, direct grants to it;
// lock:{name}:free, the token of whoever released while nobody queued.
//
// Source: SET, "Patterns", in the Redis documentation
// (https://redis.io/docs/latest/commands/set/), and its page on distributed locks.
// Redis 6.2 or later, or Valkey.
package luascript

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed fence.lua
	fenceLua string
	//go:embed queue.lua
	queueLua string
	//go:embed free.lua
	freeLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed unqueued.lua
	unqueuedLua string
	//go:embed release.lua
	releaseLua string
	//go:embed pass.lua
	passLua string
	//go:embed adopt.lua
	adoptLua string
	//go:embed inspect.lua
	inspectLua string

	acquire = strategy.NewJointScript("acquire", 4, freeLua+strategy.EachLua+strategy.EnqueueLua+fenceLua+queueLua+acquireLua)
	extend  = strategy.NewScript("extend", extendLua)
	release = strategy.NewJointScript("release", 1, unqueuedLua+strategy.EachLua+fenceLua+queueLua+releaseLua)
	pass    = strategy.NewScript("pass", strategy.EnqueueLua+fenceLua+queueLua+passLua)
	adopt   = strategy.NewScript("adopt", fenceLua+adoptLua)
	inspect = strategy.NewScript("inspect", inspectLua)
)

// New returns the strategy on the Redis that pool dials. It takes the pool's
// settings (address, password, TLS, database) and, for its own two connections,
// dials beside it; the pool stays the caller's to close. It does no I/O: see
// [strategy.Strategy.Check].
func New(pool *redis.Pool, o strategy.Options, own ...Option) (*strategy.Strategy, error) {
	n, err := node.New(pool)
	if err != nil {
		return nil, err
	}
	return strategy.New(On(n, own...), o)
}

// On returns the algorithm on any node: for other clients, decorators and tests.
// Closing the protocol closes the node.
func On(n strategy.Node, own ...Option) strategy.Protocol {
	p := &protocol{Node: n, fences: true}
	for _, set := range own {
		set(p)
	}
	if p.acks != nil {
		return strategy.Acknowledged(n, *p.acks, p.on)
	}
	return p
}

// on is the same algorithm on another node.
func (p protocol) on(n strategy.Node) *protocol {
	p.Node = n
	return &p
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// WithoutFences issues no fences, and so leaves no counter behind: for very many
// names that are each used once.
func WithoutFences() Option {
	return func(p *protocol) { p.fences = false }
}

// Acknowledged makes what grants or prolongs a lock count only once replicas, or the
// append-only file, have confirmed it, so that fewer fail-overs, or power cuts, forget it:
// see [strategy.Acks], also for what it cannot do. Two more round trips for each, over
// connections of the pool.
func Acknowledged(a strategy.Acks) Option {
	return func(p *protocol) { p.acks = &a }
}

// protocol is the algorithm on one node.
type protocol struct {
	strategy.Node // Close is the node's
	fences        bool
	acks          *strategy.Acks // nil: nobody is waited for
}

var _ strategy.Protocol = (*protocol)(nil) // and more: see capabilities.go

// Acquire sets the key if nobody has it and nobody queues for it. One round trip.
func (p *protocol) Acquire(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	names, prove := namesOf(c), ""
	if !names.proven.Load() {
		prove = "1"
	}
	reply, err := p.Eval(ctx, c.Due, acquire, names.keys, c.TTL.Milliseconds(), p.many(c), p.entry(c), prove, c.Token)
	if err != nil {
		return strategy.Grant{}, err
	}
	g, err := p.acquired(c, reply)
	if prove != "" && err == nil {
		names.proven.Store(true)
	}
	return g, err
}

// Extend counts the TTL anew if the key still holds the token. One round trip.
func (p *protocol) Extend(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	return p.extending().Extend(ctx, c)
}

// Release makes the next in the queue the holder, if the key still holds the token, or
// deletes the key. One round trip.
func (p *protocol) Release(ctx context.Context, c strategy.Claim) error {
	place := "" // that is given up, too
	if c.Undo {
		place = p.entry(c)
	}
	names := namesOf(c)
	reply, err := p.Eval(ctx, c.Due, release, names.keys, place, c.Token, names.free)
	switch {
	case err != nil:
		names.proven.Store(false)
		return err
	case reply == int64(1):
		return nil
	}
	err = p.notOurs(c, reply)
	var lost *strategy.LostError
	if errors.As(err, &lost) {
		return strategy.Gone(p, c, lost.Holder) // ErrLost; for an undo, success
	}
	return err
}

// Pass is both at once, for a next of the same process. One round trip.
func (p *protocol) Pass(ctx context.Context, c, next strategy.Claim) (strategy.Grant, error) {
	reply, err := p.Eval(ctx, c.Due, pass, namesOf(c).keys, c.Token, next.Token, next.TTL.Milliseconds(), p.many(next), p.entry(next))
	if err != nil {
		return strategy.Grant{}, err
	}
	if _, ok := reply.([]any); ok {
		return p.acquired(next, reply)
	}
	return strategy.Grant{}, p.notOurs(c, reply)
}

// acquired reads what a script says that grants, or finds the lock held.
func (p *protocol) acquired(c strategy.Claim, reply any) (strategy.Grant, error) {
	if fence, ok := reply.(int64); ok {
		return p.granted(fence, 1)
	}
	if g, held, ok := strategy.HeldReply(c, reply); ok {
		return g, held
	}
	if r, _ := reply.([]any); len(r) == 2 {
		fence, ok := r[0].(int64)
		many, ok2 := r[1].(int64)
		if ok && ok2 {
			return p.granted(fence, many)
		}
	}
	return strategy.Grant{}, strategy.BadReply(p, reply)
}

// notOurs reads the reply of a script that found another token than c's, or none.
func (p *protocol) notOurs(c strategy.Claim, reply any) error {
	switch r := reply.(type) {
	case nil:
		return &strategy.LostError{Name: c.Name}
	case []byte:
		return &strategy.LostError{Name: c.Name, Holder: string(r)}
	case []any:
		if len(r) == 1 {
			return &strategy.ServerError{Node: p.Name(), Kind: strategy.ErrRefused, Err: fmt.Errorf("%s", r[0])}
		}
	}
	return strategy.BadReply(p, reply)
}

// granted reads a fence, and how many from it on are reserved. One that is none was not
// issued by our script.
func (p *protocol) granted(fence, many int64) (strategy.Grant, error) {
	if p.fences != (fence > 0) || fence < 0 || many < 0 || many > strategy.MaxFences {
		return strategy.Grant{}, strategy.BadReply(p, fence)
	}
	return strategy.Grant{Fence: uint64(fence), Fences: int(many)}, nil
}

// many is how many fences to reserve.
func (p *protocol) many(c strategy.Claim) int {
	if !p.fences {
		return 0
	}
	return max(c.Fences, 1)
}

// entry is c's in the queue: see queue.lua. Empty: it does not queue.
func (p *protocol) entry(c strategy.Claim) string {
	if c.Line == "" {
		return ""
	}
	ms := strategy.HeirTTL(c.TTL).Milliseconds()
	return c.Line + " " + strconv.FormatInt(ms, 10) + " " + strconv.Itoa(p.many(c)) + " " + c.Token
}

func (p *protocol) keys(c strategy.Claim) []string {
	if !p.fences {
		return []string{c.Key}
	}
	return []string{c.Key, counter(c)}
}

// names are what belongs to a lock.
type names struct {
	// The lock, its queue and its fence counter, for the scripts that may grant it to
	// another: who may want a fence where this one does not.
	keys []string
	free any // a string: the channel for who waits without queueing

	proven atomic.Bool // whoever was granted the lock last could release it, too
}

func namesOf(c strategy.Claim) *names {
	return strategy.Derived(c, func(key string) *names {
		sibling := func(suffix string) string { return strategy.SiblingKey(key, suffix) }
		return &names{keys: []string{key, sibling("queue"), sibling("fence")}, free: sibling("free")}
	})
}

func queue(c strategy.Claim) string   { return namesOf(c).keys[1] }
func counter(c strategy.Claim) string { return namesOf(c).keys[2] }
func channel(c strategy.Claim) string { return namesOf(c).free.(string) }
