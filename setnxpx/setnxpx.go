// Package setnxpx is the lock of one command: SET key token NX PX. It needs no
// scripts, and it shows why other locks use them.
//
// # The idea
//
// SET with NX sets the key only if it does not exist, and PX gives it its TTL in the
// same step. So no crash can leave a lock without expiry (SETNX followed by EXPIRE
// could). The value is a token that nobody else has. To release, read the key,
// compare it with the token, and delete it: GET, compare, DEL.
//
// The wire format is that of package luascript, of redsync, bsm/redislock, redis-py
// and StackExchange.Redis: given the same key, they exclude each other.
//
// # What it guarantees
//
// Exclusion, for as long as Redis keeps the key, holders stop at their deadline, and
// the race below does not happen. No deadlock: a holder that dies is gone after its TTL.
//
// # When something breaks
//
//   - The holder dies: its key expires with the TTL.
//   - A reply is lost: nobody knows what Redis did. The engine undoes such an acquire, and
//     repeats such a release, until Redis confirms it or the TTL has passed.
//   - A waiter dies: it has left nothing in Redis.
//
// # What it does not guarantee
//
// Ownership. Release is two steps, on purpose. If the lock expires between the GET and the
// DEL, and another takes it, the DEL frees the other's lock. Extend (GET, compare, PEXPIRE) has
// the same hole: the late holder then believes it still holds the lock, and PEXPIRE has set its
// TTL on the new holder's key. Adopt (GET, compare, SET XX) can take the other's lock away.
// [BlindRelease] does not even compare: a DEL that comes late frees the next holder's lock.
// Package luascript closes the hole by making the two steps one.
//
// No fences: SET cannot issue a number, and a number taken before or after it can
// come in the wrong order. No wake-up: releases are not published, so a waiter
// asks again after random pauses. (Within a process the holder hands the lock on,
// for 2 ms: [strategy.Options].HandOver.) And as with every lock on one Redis: what Redis
// forgets (a restart without persistence, a fail-over, an eviction) is granted again.
//
// # When
//
// Where scripts are forbidden; where others already lock the same keys in this way;
// for teaching. With a long TTL, such as a minute, and a renewal that stops in
// time, the race is rare. If rare is not enough, take luascript, or without scripts
// setnxgetset with WatchTakeOver.
//
// # The same lock under other names
//
// ServiceStack.Redis, Add(key, value, ttl) and Remove(key): one attempt, and a
// release without comparing.
//
//	s, err := setnxpx.New(pool, strategy.Options{TTL: ttl, Key: raw}, setnxpx.BlindRelease())
//	lease, err := s.NewLock(key).TryAcquire(ctx) // Add: ErrHeld is its false
//	err = lease.Release(ctx)                  // Remove
//
// where raw is func(name string) string { return name }.
//
// StackExchange.Redis (LockTake) and CSRedisCore (Lock) have the same wire format, but not the
// hole: the one compares and deletes in a transaction, the other in a script. The examples of
// New share keys with them; for what they guarantee write luascript.New for setnxpx.New.
//
// # On the wire
//
// Acquire: one round trip, SET; if the lock is held, two more: GET, for the holder and
// because the key must be a string, and PTTL, for the remaining TTL. Extend and Release: two. A
// release that does not compare: one. Keys: lock:{name}, and no other.
//
// Source: SET, in the Redis documentation (https://redis.io/docs/latest/commands/set/).
package setnxpx

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/internal/plain"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on the Redis that pool dials. It takes the pool's
// settings (address, password, TLS, database) and dials a connection of its own. The
// caller closes the pool. It does no I/O: see [strategy.Strategy.Check].
func New(pool *redis.Pool, o strategy.Options, own ...Option) (strategy.Strategy, error) {
	n, err := node.New(pool)
	if err != nil {
		return nil, err
	}
	return engine.New(On(n, own...), o)
}

// On returns the algorithm on any node: for other clients, decorators and tests.
// Closing the protocol closes the node.
func On(n driver.Node, own ...Option) driver.Protocol {
	p := &protocol{Node: n}
	for _, set := range own {
		set(p)
	}
	if p.acks != nil {
		return driver.Acknowledged(n, *p.acks, p.on)
	}
	return p
}

// on is the same algorithm on another node.
func (p protocol) on(n driver.Node) *protocol {
	p.Node = n
	return &p
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// BlindRelease makes Release a plain DEL, as ServiceStack's Remove is: one round
// trip, and if the lock was taken away meanwhile (by eviction, by an operator, by
// expiry while the DEL was on its way), it frees the next holder's lock. A
// lease past its deadline sends no DEL. ServiceStack would.
//
// Only a lease's own Release is blind. Undoing an acquire whose reply was lost, and
// [strategy.Strategy.ForceRelease], compare: they must not touch another's lock.
func BlindRelease() Option {
	return func(p *protocol) { p.blind = true }
}

// Acknowledged makes what grants or prolongs a lock count only once replicas, or the
// append-only file, have confirmed it, so that fewer fail-overs, or power cuts, forget it:
// see [strategy.Acks], also for what it cannot do. It costs two more round trips for each,
// over connections of the pool.
func Acknowledged(a strategy.Acks) Option {
	return func(p *protocol) { p.acks = &a }
}

// protocol is the algorithm on one node.
type protocol struct {
	driver.Node // Close is the node's
	blind       bool
	acks        *strategy.Acks // nil: a grant counts at once
}

var _ interface {
	driver.Protocol
	driver.Adopter
	driver.Inspector
	driver.Checker
	driver.Prober
} = (*protocol)(nil)

// Acquire is SET NX PX.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	reply, err := p.Do(ctx, c.Due, "SET", c.Key, c.Token, "NX", "PX", c.TTL.Milliseconds())
	switch {
	case err != nil:
		return driver.Grant{}, err
	case isOK(reply):
		return driver.Grant{}, nil
	case reply != nil:
		return driver.Grant{}, driver.BadReply(p.Name(), reply)
	}
	// NX refuses whatever the key holds. So find out who has it, for how long, and
	// whether it is a lock: a hash may never expire. If a question fails, its answer
	// stays unknown: the key is there all the same.
	holder, held, err := plain.Holder(ctx, p, c)
	if errors.Is(err, strategy.ErrRefused) {
		return driver.Grant{}, err
	}
	var ttl time.Duration
	if held {
		ttl, _ = plain.Remaining(ctx, p, c)
	}
	return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: holder, TTL: ttl}
}

// Extend is GET, compare, PEXPIRE.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return p.compareThen(ctx, c, c.Token, "PEXPIRE", c.Key, c.TTL.Milliseconds())
}

// Adopt is GET, compare, SET XX PX.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return p.compareThen(ctx, c, from, "SET", c.Key, c.Token, "XX", "PX", c.TTL.Milliseconds())
}

// compareThen is GET, compare with the token, and, if it holds the lock, the command.
func (p *protocol) compareThen(ctx context.Context, c driver.Claim, token, cmd, key string, args ...any) (driver.Grant, error) {
	holder, held, err := plain.Holder(ctx, p, c)
	if err != nil {
		return driver.Grant{}, err
	}
	if !held || holder != token {
		return driver.Grant{}, &strategy.LostError{Name: c.Name, Holder: holder}
	}
	// The hole: from here on it may be another's.
	reply, err := p.Do(ctx, c.Due, cmd, key, args...)
	switch {
	case err != nil || isOK(reply) || reply == int64(1):
	case reply == nil || reply == int64(0): // it went in between
		err = &strategy.LostError{Name: c.Name}
	default:
		err = driver.BadReply(p.Name(), reply)
	}
	return driver.Grant{}, err
}

// isOK reads a status reply, which a Node returns as []byte.
func isOK(reply any) bool {
	b, ok := reply.([]byte)
	return ok && string(b) == "OK"
}

// Release is GET, compare, DEL; or DEL alone.
func (p *protocol) Release(ctx context.Context, c driver.Claim) error {
	// An undo and an operator's release must not touch another's lock.
	if blind := p.blind && !c.Undo && !c.Force; !blind {
		holder, held, err := plain.Holder(ctx, p, c)
		if err != nil {
			return err
		}
		if !held || holder != c.Token {
			return driver.Gone(p.Name(), p.Ordered(), c, holder)
		}
		// The hole: from here on it may be another's.
	}
	reply, err := p.Do(ctx, c.Due, "DEL", c.Key)
	switch {
	case err != nil || reply == int64(1):
	case reply == int64(0):
		err = driver.Gone(p.Name(), p.Ordered(), c, "")
	default:
		err = driver.BadReply(p.Name(), reply)
	}
	return err
}

// Inspect is GET and PTTL: see [plain.Inspect].
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return plain.Inspect(ctx, p, c)
}

// Check looks at the server, and tries the commands on a key that is not there.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return driver.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := driver.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		return driver.CheckCommands(ctx, c.Due, p, c.Key,
			[]any{"GET"}, []any{"SET", c.Token, "XX", "PX", 1}, []any{"PEXPIRE", 1}, []any{"DEL"})
	})
}

// Probe asks the server whether it was away.
func (p *protocol) Probe(ctx context.Context, due time.Time) uint64 {
	return driver.ProbeNodes(ctx, due, p.Node)
}
