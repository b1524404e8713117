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
// The wire format is that of SET key token NX PX: package setnxpx, redsync,
// bsm/redislock, redis-py and StackExchange.Redis exclude this lock and are
// excluded by it, when given the same key. They do not publish their releases, so
// a waiter here sleeps through these until their TTL ends: among such company set
// Options.Wait to strategy.WaitPoll.
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
//   - Quiet waiting: a release is published; whoever waits sleeps until then, or until
//     the holder's TTL ends. In one process, first come, first served.
//
// # What it does not
//
// One Redis is one point of failure. A lock is forgotten, and granted again while
// its holder still works, when Redis restarts without having persisted it, when a
// replica that has not yet heard of it is promoted, when somebody flushes or evicts
// it. The fence still rises then, unless the server's clock is behind the last one.
// [Acknowledged] makes fewer fail-overs forget it.
// Between processes waiting is a race, not a queue.
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
// Acquire and Release are one round trip each, and so is Extend; locks that are kept
// alive and due at about the same time are renewed together, up to a hundred per
// request. Keys: lock:{name}, the lock; lock:{name}:fence, the counter, which stays
// (see [WithoutFences]). Channel: lock:{name}:free, the token of whoever released.
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

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed fence.lua
	fenceLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed adopt.lua
	adoptLua string
	//go:embed inspect.lua
	inspectLua string

	acquire = strategy.NewScript("acquire", fenceLua+acquireLua)
	extend  = strategy.NewScript("extend", extendLua)
	release = strategy.NewScript("release", releaseLua)
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

// Acquire sets the key if nobody has it. One round trip.
func (p *protocol) Acquire(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	reply, err := p.Eval(ctx, c.Due, acquire, p.keys(c), c.Token, c.TTL.Milliseconds())
	if err != nil {
		return strategy.Grant{}, err
	}
	switch r := reply.(type) {
	case int64:
		return p.granted(r)
	case []any:
		if len(r) == 2 {
			holder, ok := r[0].([]byte)
			ms, ok2 := r[1].(int64)
			if ok && ok2 {
				return strategy.Grant{}, &strategy.HeldError{Name: c.Name, Holder: string(holder), TTL: strategy.RemainingTTL(ms)}
			}
		}
	}
	return strategy.Grant{}, strategy.BadReply(p, reply)
}

// Extend counts the TTL anew if the key still holds the token. One round trip.
func (p *protocol) Extend(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	return p.extending().Extend(ctx, c)
}

// Release deletes the key if it still holds the token. One round trip.
func (p *protocol) Release(ctx context.Context, c strategy.Claim) error {
	reply, err := p.Eval(ctx, c.Due, release, []string{c.Key}, c.Token, channel(c))
	switch {
	case err != nil:
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

// granted reads a fence. One that is none was not issued by our script.
func (p *protocol) granted(fence int64) (strategy.Grant, error) {
	if p.fences != (fence > 0) || fence < 0 {
		return strategy.Grant{}, strategy.BadReply(p, fence)
	}
	return strategy.Grant{Fence: uint64(fence)}, nil
}

func (p *protocol) keys(c strategy.Claim) []string {
	if !p.fences {
		return []string{c.Key}
	}
	return []string{c.Key, counter(c)}
}

func counter(c strategy.Claim) string { return strategy.SiblingKey(c.Key, "fence") }
func channel(c strategy.Claim) string { return strategy.SiblingKey(c.Key, "free") }
