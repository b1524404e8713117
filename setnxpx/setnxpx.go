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
// [WithBlindRelease] does not even compare: a DEL that comes late frees the next holder's lock.
// Package luascript closes the hole by making the two steps one.
//
// No fences: SET cannot issue a number, and a number taken before or after it can
// come in the wrong order. No wake-up: releases are not published, so a waiter
// asks again after random pauses. (Within a process the holder hands the lock on,
// for 2 ms: [strategy.Options].NoHandOver.) And as with every lock on one Redis: what Redis
// forgets (a restart without persistence, a fail-over, an eviction) is granted again.
//
// # When
//
// Where scripts are forbidden; where others already lock the same keys in this way;
// for teaching. With a long TTL, such as a minute, and a renewal that stops in
// time, the race is rare. If rare is not enough, take luascript, or without scripts
// setnxgetset WithWatchTakeOver.
//
// # The same lock under other names
//
// ServiceStack.Redis, Add(key, value, ttl) and Remove(key): one attempt, and a
// release without comparing.
//
//	s, err := setnxpx.New(node, strategy.Options{TTL: ttl, Key: raw}, setnxpx.WithBlindRelease())
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
// release that does not compare: one. GET is sent as GETEX without options: the same, but a replica
// refuses it. Keys: lock:{name}, and no other.
//
// Source: SET, in the Redis documentation (https://redis.io/docs/latest/commands/set/).
package setnxpx

import (
	"context"
	"errors"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/algorithm/stringkey"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on a node: what the New of a client returns. It does no I/O: see [strategy.Strategy.Check].
// Close closes the node, unless another strategy uses it, too; the client stays the caller's.
func New(n driver.Node, o strategy.Options, options ...Option) (strategy.Strategy, error) {
	return engine.New(On(n, options...), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(n driver.Node, options ...Option) driver.Protocol {
	p := &protocol{}
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

// WithBlindRelease makes Release a plain DEL, as ServiceStack's Remove is: one round
// trip, and if the lock was taken away meanwhile (by eviction, by an operator, by
// expiry while the DEL was on its way), it frees the next holder's lock. A
// lease past its deadline sends no DEL. ServiceStack would.
//
// Only a lease's own Release is blind. Undoing an acquire whose reply was lost, and
// [strategy.Strategy.ForceRelease], compare: they must not touch another's lock.
func WithBlindRelease() Option {
	return func(p *protocol) { p.blind = true }
}

// protocol is the algorithm on one node.
type protocol struct {
	driver.Node // Close is the node's
	blind       bool
}

var _ interface {
	driver.Protocol
	driver.Acknowledger
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
		return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
	}
	// NX refuses whatever the key holds. So find out who has it, for how long, and
	// whether it is a lock: a hash may never expire. If a question fails, its answer
	// stays unknown: the key is there all the same.
	holder, held, err := stringkey.Holder(ctx, p, c)
	if errors.Is(err, strategy.ErrRefused) {
		return driver.Grant{}, err
	}
	var ttl time.Duration
	if held {
		ttl, _ = stringkey.Remaining(ctx, p, c)
	}
	return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: holder, TTL: ttl}
}

// Extend is GET, compare, PEXPIRE.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, p.compareThen(ctx, c, c.Token, "PEXPIRE", c.TTL.Milliseconds())
}

// Adopt is GET, compare, SET XX PX.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return driver.Grant{}, p.compareThen(ctx, c, from, "SET", c.Token, "XX", "PX", c.TTL.Milliseconds())
}

// compareThen is GET, compare with the token, and, if it holds the lock, the command.
func (p *protocol) compareThen(ctx context.Context, c driver.Claim, token, cmd string, args ...any) error {
	holder, held, err := stringkey.Holder(ctx, p, c)
	if err != nil {
		return err
	}
	if !held || holder != token {
		return &strategy.LostError{Name: c.Name, Holder: holder}
	}
	// The hole: from here on it may be another's.
	return p.write(ctx, c, cmd, args...)
}

// write sends a command that writes the key if it is there.
func (p *protocol) write(ctx context.Context, c driver.Claim, cmd string, args ...any) error {
	reply, err := p.Do(ctx, c.Due, cmd, c.Key, args...)
	switch {
	case err != nil || reply == int64(1) || cmd == "SET" && isOK(reply):
		return err
	case reply == nil || reply == int64(0): // it has gone
		return &strategy.LostError{Name: c.Name}
	}
	return rediskit.BadReply(p.Name(), reply)
}

// isOK reads a status reply, which a Node returns as []byte.
func isOK(reply any) bool {
	b, ok := reply.([]byte)
	return ok && string(b) == "OK"
}

// Release is GET, compare, DEL; or DEL alone.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	if p.blind {
		return driver.Outcome{}, p.write(ctx, c, "DEL")
	}
	return p.ForceRelease(ctx, c)
}

// Undo is ForceRelease: see [rediskit.Undone].
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	_, err := p.ForceRelease(ctx, c)
	return rediskit.Undone(p, c, err)
}

// ForceRelease is GET, compare, DEL.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.compareThen(ctx, c, c.Token, "DEL")
}

// Inspect is GETEX and PTTL: see [stringkey.Inspect].
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return stringkey.Inspect(ctx, p, c)
}

// Check looks at the server, and tries the commands on a key that is not there.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return rediskit.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := rediskit.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		return rediskit.CheckCommands(ctx, c.Due, p, c.Key,
			[]any{"GETEX"}, []any{"SET", c.Token, "XX", "PX", 1}, []any{"PEXPIRE", 1}, []any{"DEL"})
	})
}
