// Package ifeq is the lock of package luascript without scripts: Redis 8.4 and Valkey 9.0 have
// commands that compare and write in one step.
//
// # The idea
//
// Acquire: SET key token NX PX. Extend: SET key token IFEQ token PX, which sets the key only if it
// holds the token. Release: DELEX key IFEQ token (Redis 8.4, Valkey 9.2) or DELIFEQ key token (Valkey
// 9.0), which deletes the key only if it holds the token. So the hole of package setnxpx, between
// reading the key and writing it, is closed.
//
// The lock tries which of the two the server has, before the first acquire and again when the server
// does not know the command any more. On a server that has neither it grants nothing: the first
// call and Check return [strategy.ErrUnsupported].
//
// # What it guarantees
//
//   - Exclusion: at most one holder at a time, for as long as Redis keeps the key and
//     holders stop at their deadline ([strategy.Lease.Deadline], Lost, Context).
//   - Ownership: only the holder releases or extends. A late release changes nothing.
//   - No deadlock: a holder that dies is gone after its TTL.
//
// # When something breaks
//
//   - The holder dies: its key expires with the TTL. Waiters know that TTL and ask when it ends.
//   - A reply is lost: nobody knows what Redis did. The engine undoes such an acquire, and
//     repeats such a release, until Redis confirms it or the TTL has passed.
//   - A waiter dies: it has left nothing in Redis.
//   - A holder dies between its two steps of a release, or a message is lost: the lock is free,
//     but waiters of other processes sleep until the holder's TTL would have ended.
//   - Redis has no memory left: it refuses every SET, also one that needs no memory. Extend then goes
//     through a transaction (WATCH, GETEX, PEXPIRE), so that holders keep their locks. Acquire and Adopt fail.
//
// # What it does not guarantee
//
// Fences: a command cannot issue a number in the step that takes the lock. Take package luascript
// where a store can check fences.
//
// Fairness between processes: a release wakes one waiter of each process, and the first to ask gets
// the lock. Within a process the holder hands it on, for 2 ms ([strategy.Options].NoHandOver). And as with
// every lock on one Redis: what Redis forgets (a restart without persistence, a fail-over, an eviction)
// is granted again. [strategy.Options].Acks make fewer fail-overs forget the lock.
//
// # When
//
// Where scripts are forbidden and the server is new enough. Otherwise take luascript: it has fences,
// and it releases and wakes in one request.
//
// # Other libraries on the same keys
//
// The key, its value and the channel are those of package luascript: all that it says of other
// libraries is true here.
//
// # On the wire
//
// Acquire and Extend are one round trip each; an acquire of a held lock, two (PTTL); Release and Adopt, two: the
// second is PUBLISH, when the lock has changed already. A waiter also subscribes.
//
//	lock:{name}         the key, with the holder's token
//	lock:{name}:free    the channel; a message is the token that no longer has the lock
//
// SET replaces the TTL, and yet a late extension shortens no lock that its holder relies on: the TTL of
// a token is always the same. The exception is the last extension of a hold with a maximum
// ([strategy.Options].MaxHold): it is shorter, and nothing relies on the lock after it.
//
// Redis 8.4 or later; Valkey 9.0 or later.
//
// Source: SET, DELEX (https://redis.io/docs/latest/commands/delex/) and DELIFEQ
// (https://valkey.io/commands/delifeq/).
package ifeq

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/algorithm/stringkey"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on a node: what the New of a client returns. It does no I/O: see [strategy.Strategy.Check].
// Close closes the node, unless another strategy uses it, too; the client stays the caller's.
func New(n driver.Node, o strategy.Options) (strategy.Strategy, error) {
	return engine.New(On(n), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(n driver.Node) driver.Protocol {
	return &protocol{Node: driver.NodeOf(n, nil), names: keycache.New(), dialect: new(atomic.Pointer[dialect])}
}

// Acknowledged is the same lock for [strategy.Options].Acks.
func (p *protocol) Acknowledged(a strategy.Acks) driver.Protocol {
	return rediskit.Acknowledged(p.Node, a, func(n driver.Node) rediskit.Confirmable {
		q := *p
		q.Node = n
		return &q
	})
}

// protocol is the algorithm on one node.
type protocol struct {
	driver.Node // the server
	names       *keycache.Cache
	dialect     *atomic.Pointer[dialect] // of the server; nil: not known
}

var _ interface {
	driver.Protocol // also check.go
	driver.Acknowledger
	driver.Notifier
} = (*protocol)(nil)

// Acquire sets the key if it does not exist.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if err := p.supported(ctx, c); err != nil {
		return driver.Grant{}, err
	}
	reply, err := p.set(ctx, c, "NX") // nil: there was no key
	if err != nil || reply == nil {
		return driver.Grant{}, err
	}
	holder, ok := reply.([]byte)
	if !ok {
		return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
	}
	ttl, _ := stringkey.Remaining(ctx, p, c) // if this fails, the lock is held all the same
	announced, _ := token.Announced(string(holder))
	held := &strategy.HeldError{Name: c.Name, Holder: string(holder), TTL: ttl}
	return driver.Grant{Silent: !announced}, held // silent: nobody will publish its release, so poll
}

// Extend starts the TTL again if the key holds the token.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	err := p.replace(ctx, c, c.Token)
	if isOOM(err) {
		err = p.extendWithoutMemory(ctx, c) // memory.go
	}
	return driver.Grant{}, err
}

// Adopt puts c's token in the place of the holder's, and notifies those who wait for the release of that one.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	err := p.replace(ctx, c, from)
	if err == nil {
		p.publish(ctx, c, from)
	}
	return driver.Grant{}, err
}

// replace sets the key to c's token if it holds the token from.
func (p *protocol) replace(ctx context.Context, c driver.Claim, from string) error {
	reply, err := p.set(ctx, c, "IFEQ", from)
	if err != nil {
		return err
	}
	if holder, ok := reply.([]byte); ok && string(holder) == from {
		return nil
	}
	return rediskit.LostReply(p.Name(), c, reply)
}

// set is SET with c's token and TTL, under a condition. The reply is what the key held before, also
// where the condition was not met (GET); nil: there was no key.
func (p *protocol) set(ctx context.Context, c driver.Claim, condition ...any) (any, error) {
	args := append([]any{c.Token}, condition...)
	return p.Do(ctx, c.Due, "SET", c.Key, append(args, "GET", "PX", c.TTL.Milliseconds())...)
}

// Release deletes the key if it holds the token, and publishes that.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	deleted, err := p.deleteIfEqual(ctx, c)
	if err != nil {
		return driver.Outcome{}, err
	}
	if !deleted {
		holder, _, err := stringkey.Holder(ctx, p, c)
		if err == nil {
			err = &strategy.LostError{Name: c.Name, Holder: holder}
		}
		return driver.Outcome{}, err
	}
	p.publish(ctx, c, c.Token)
	return driver.Outcome{}, nil
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

// publish says that a token does not hold the lock any more. It is a hint: where it fails, what was done stands.
func (p *protocol) publish(ctx context.Context, c driver.Claim, token string) {
	p.Do(ctx, c.Due, "PUBLISH", p.names.Of(c.Key).Channel(), token)
}

// Watch hears what Release and Adopt publish.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	return rediskit.WatchChannel(ctx, p, c, p.names.Of(c.Key).Channel(), fn)
}

// Inspect is GETEX and PTTL: see [stringkey.Inspect].
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	return stringkey.Inspect(ctx, p, c)
}

// A dialect is how a server says: delete the key if it holds this value.
type dialect struct {
	command string
	words   []any // between the key and the value
}

var dialects = []*dialect{{"DELEX", []any{"IFEQ"}}, {"DELIFEQ", nil}}

// deleteIfEqual deletes the key if it holds c's token. It begins with the dialect that the server
// knew last.
func (p *protocol) deleteIfEqual(ctx context.Context, c driver.Claim) (deleted bool, err error) {
	known := p.dialect.Load()
	if known != nil {
		if deleted, err = p.delete(ctx, c, known); !isUnknownCommand(err) {
			return deleted, err
		}
	}
	for _, d := range dialects {
		if d == known {
			continue
		}
		if deleted, err = p.delete(ctx, c, d); !isUnknownCommand(err) {
			return deleted, err
		}
	}
	p.dialect.Store(nil)
	return false, &strategy.ServerError{Node: p.Name(), Kind: strategy.ErrUnsupported, Err: errTooOld}
}

var errTooOld = errors.New("the server has neither DELEX nor DELIFEQ: take Redis 8.4, Valkey 9.0 or later, or package luascript")

func (p *protocol) delete(ctx context.Context, c driver.Claim, d *dialect) (deleted bool, err error) {
	reply, err := p.Do(ctx, c.Due, d.command, c.Key, append(d.words[:len(d.words):len(d.words)], c.Token)...)
	if err != nil {
		return false, err
	}
	p.dialect.Store(d)
	if reply != int64(0) && reply != int64(1) {
		return false, rediskit.BadReply(p.Name(), reply)
	}
	return reply == int64(1), nil
}

// supported finds the server's dialect, unless it is known: it deletes the key if it holds a token that no
// key holds yet.
func (p *protocol) supported(ctx context.Context, c driver.Claim) error {
	if p.dialect.Load() != nil {
		return nil
	}
	_, err := p.deleteIfEqual(ctx, c)
	return err
}

func isUnknownCommand(err error) bool { return refusedWith(err, "ERR unknown command") }

func isOOM(err error) bool { return refusedWith(err, "OOM ") }

// refusedWith reports whether err is a server's error reply that begins so.
func refusedWith(err error, words string) bool {
	var said *strategy.ServerError
	return errors.As(err, &said) && said.Kind == strategy.ErrRefused && said.Err != nil && strings.HasPrefix(said.Err.Error(), words)
}
