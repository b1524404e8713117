// Package setnxgetset is the lock of Redis before 2.6.12: SETNX, and in the value
// the moment at which the lock lapses. It is here for those who share keys with such
// locks, and to show what each later lock fixed.
//
// # The idea
//
// The key has no TTL: once there was no command to set it in one step with the key,
// and in two steps a crash between them locks for ever. So the value has a stamp, the time at
// which the lock lapses, in Unix milliseconds; then a colon, and the holder's token. SETNX sets
// it if there is no key. Otherwise GET: if the stamp is ahead, the lock is held. If it has
// passed, a contender may take the lock over. DEL and then SETNX would not be safe: if two
// contenders see that the stamp has passed, the second deletes the first one's new lock, and
// both hold it. GETSET swaps the value and returns the old one. The contender that gets back a
// stamp that has passed (or nothing) is the first, and holds the lock. A contender that gets
// back one that is ahead was second.
//
// [WithWatchTakeOver] takes over in a transaction instead: WATCH, GET, and, if the stamp
// has passed, MULTI, SET, EXEC, which does nothing if anybody wrote in between.
//
// # What it guarantees
//
// Exclusion, if all clocks agree, holders stop at their deadline, and none of the races below
// happens. No deadlock: a contender that comes after a dead holder's stamp takes over. Redis'
// own clock and expiry play no part.
//
// # When something breaks
//
//   - The holder dies: its key stays. A contender takes it over once the stamp has passed.
//   - A reply is lost: nobody knows what Redis did. The engine undoes an unconfirmed SETNX, and
//     repeats an unconfirmed release, until Redis confirms it or the stamp has passed. It leaves
//     the value of an unconfirmed GETSET to lapse: that may be a loser's, which hides a lock.
//   - A waiter dies: it has left nothing in Redis, unless it had just lost a GETSET.
//
// # What it does not guarantee
//
//   - Clocks decide. A contender whose clock is ahead takes a lock that is held. The lock
//     of a holder whose clock is behind lapses too early. A holder whose clock is ahead
//     locks for too long. All other locks of this module count durations.
//   - The loser of a GETSET has overwritten the winner's value, and that stays so: to
//     write it back would be one more race. The winner's token is hidden, so its own
//     Extend and Release say ErrLost though nobody else holds the lock, and the lock
//     stays until the loser's stamp has passed. If that is earlier than the winner's
//     (a shorter TTL, a clock behind, a GETSET that was long on its way), a third takes
//     the lock while the winner holds it. With WithWatchTakeOver a loser writes nothing.
//   - Release (GET, compare, DEL), Extend and Adopt (GET, compare, SET XX) are two
//     steps: if the lock lapses and is taken between them, the DEL frees the other's
//     lock, and the SET takes it away. With WithWatchTakeOver they are transactions, and
//     the hole is closed, without scripts. [WithBlindRelease] does not compare at all.
//   - A dead holder's key stays until somebody takes it over: Redis does not clean up.
//     To another strategy, when given the same key, it looks held for ever: delete such
//     keys when you change over.
//   - No fences: a number drawn before or after the lock can come in the wrong order,
//     and stamps are as good as the clocks. No wake-up: a waiter asks again after
//     random pauses, though within a process the holder hands the lock on, for
//     2 ms ([strategy.Options].NoHandOver).
//   - A renewal writes a value, so a Redis that is out of memory refuses it. With
//     WithWatchTakeOver Redis 7.0 also refuses the release, because it takes no transactions then.
//     The engine repeats that release in the background for a TTL. Redis 8 and Valkey take it.
//   - Redis grants again a lock that it has forgotten, as with every lock on one Redis.
//
// # When
//
// Where others already lock the same keys in this way, and for teaching. Otherwise take package
// fairqueue. Where scripts are forbidden take setnxpx, or this lock WithWatchTakeOver.
//
// A value that is only digits is the lock of a client without tokens (the original
// algorithm's, ServiceStack's); the stamp stands in for the token. ServiceStack's clients do
// not read our values: they take such a lock for held until the key is deleted. A dead holder of
// ours locks them out until one of our contenders has taken over and released. Any other value
// is no lock of this kind, and an error: "123", "1700000000" (that is seconds), a stamp more than
// a year ahead.
//
// # The same lock under another name
//
// ServiceStack.Redis, AcquireLock(key, timeout), waits as long as the lock would last,
// with random pauses that grow, and releases without comparing.
//
//	s, err := setnxgetset.New(node, strategy.Options{TTL: timeout, Key: raw, Backoff: setnxgetset.Backoff},
//		setnxgetset.WithWatchTakeOver(), setnxgetset.WithBlindRelease())
//	wait, cancel := context.WithTimeout(ctx, timeout) // its one number stands for both
//	lease, err := s.NewLock(key).Acquire(wait)           // DeadlineExceeded is its TimeoutException
//	err = lease.Release(ctx)                          // Dispose
//
// where raw is func(name string) string { return name }. If a holder works for as long as the
// others are ready to wait, its stamp passes before their wait ends, and they take its lock
// over. With two numbers (a TTL longer than the wait) they give up instead. Here no pause
// outlasts the wait or the holder's stamp. The original's pauses do: its waiters with a limit
// of 2 s gave up after 3 s, some after 8.
//
// # On the wire
//
// Acquire: one round trip, SETNX; two if the lock is held; three to take it over.
// Extend and Release: two; a release that does not compare, one. With WithWatchTakeOver
// there are transactions, of six each (five, and one to learn whose connection it is):
// eight to take over, six to extend or release. GET is sent as GETEX without options: the same, but a
// replica refuses it. Keys: lock:{name}, and no other.
//
// Source: SETNX, "Design pattern: Locking with SETNX", in the Redis documentation
// (https://redis.io/docs/latest/commands/setnx/); ServiceStack.Redis, RedisLock.
package setnxgetset

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
	p := &protocol{now: time.Now}
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

// protocol is the algorithm on one node.
type protocol struct {
	driver.Node  // Close is the node's
	watch, blind bool
	now          func() time.Time
}

var _ driver.Protocol = (*protocol)(nil) // and more: see capabilities.go

// Acquire is SETNX; and if somebody has the key, it is taken over once its stamp
// has passed.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	mine, err := p.value(c.Token, c.TTL, 0)
	if err != nil {
		return driver.Grant{}, err
	}
	reply, err := p.Do(ctx, c.Due, "SETNX", c.Key, mine)
	switch {
	case err != nil || reply == int64(1):
		return driver.Grant{}, err
	case reply != int64(0):
		return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
	}
	if reply, err = p.Do(ctx, c.Due, "GETEX", c.Key); err != nil {
		return driver.Grant{}, err
	}
	switch seen, err := p.read(c, reply); {
	case err != nil:
		return driver.Grant{}, err
	case !seen.absent && !seen.lapsed():
		return driver.Grant{}, seen.held(c)
	case p.watch:
		return driver.Grant{}, p.takeOverWatching(ctx, c)
	case seen.absent: // free just now: ask again. A GETSET would risk an overwrite for nothing
		return driver.Grant{}, &strategy.HeldError{Name: c.Name}
	}
	return p.takeOver(ctx, c)
}

// takeOver is GETSET. Others may have seen the same stamp pass: Redis puts their GETSETs in a row, and
// the contender that gets back a stamp that has passed is the first.
func (p *protocol) takeOver(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	mine, err := p.value(c.Token, c.TTL, 0) // a new stamp: that for the SETNX is older by two round trips
	if err != nil {
		return driver.Grant{}, err
	}
	reply, err := p.Do(ctx, c.Due, "GETSET", c.Key, mine)
	if errors.Is(err, strategy.ErrUnknown) {
		return driver.Grant{State: mayHide{}}, err
	}
	if err != nil {
		return driver.Grant{}, err
	}
	old, err := p.read(c, reply)
	switch {
	case err != nil: // GETSET has overwritten what was no lock: nobody knows whose the key is now
		return driver.Grant{State: mayHide{}}, rediskit.BadReply(p.Name(), reply)
	case old.absent || old.lapsed():
		return driver.Grant{}, nil
	}
	// Another contender was quicker, and our value has replaced the winner's: from now
	// on every contender reads our stamp, and the winner finds our token. That is this
	// algorithm. To write the old value back would be no better: it could overwrite the
	// next holder's, or bring back a lock that the winner has released meanwhile.
	return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: old.token, TTL: c.TTL}
}

// mayHide is the State of a claim whose GETSET was not answered. If it took effect,
// the token in the key may be the holder's, or a loser's that hides the holder's: then
// to undo it would free a lock that is held. So Undo leaves it to lapse.
type mayHide struct{}

// takeOverWatching is WATCH, GET, and, if the lock is still free, MULTI, SET, EXEC.
func (p *protocol) takeOverWatching(ctx context.Context, c driver.Claim) error {
	return p.inOneStep(ctx, c, func(seen stamp) (command, error) {
		if !seen.absent && !seen.lapsed() {
			return command{}, seen.held(c)
		}
		mine, err := p.value(c.Token, c.TTL, 0)
		return command{"SET", []any{mine}}, err
	})
}

// Extend is GET, compare, SET XX. It does not extend a lock that has lapsed: another
// contender may be about to take that. The stamp is never set back: a request that
// was stuck on its way may come after a later one that asked for more.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, p.compareThen(ctx, c, func(seen stamp) (command, error) {
		if err := seen.ownedBy(c, c.Token); err != nil {
			return command{}, err
		}
		mine, err := p.value(c.Token, c.TTL, seen.until)
		return command{"SET", []any{mine, "XX"}}, err
	})
}

// Release is GET, compare, DEL; or DEL alone.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	if p.blind {
		return driver.Outcome{}, p.write(ctx, c, del)
	}
	return p.ForceRelease(ctx, c)
}

// ForceRelease is GET, compare, DEL.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.compareThen(ctx, c, func(seen stamp) (command, error) {
		return del, seen.ownedBy(c, c.Token)
	})
}

// Undo is ForceRelease. But it leaves a token that may hide another's lock. A token whose stamp has passed is of no
// effect any more, and stays: somebody may be about to take it over.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	err := p.compareThen(ctx, c, func(seen stamp) (command, error) {
		err := seen.ownedBy(c, c.Token)
		if err == nil && c.Grant.State == (mayHide{}) {
			err = p.refused("the GETSET that was not answered may have hidden another's lock, so its value is left to lapse")
		}
		return del, err
	})
	var lost *strategy.LostError
	if errors.As(err, &lost) && lost.Lapsed {
		return nil
	}
	return rediskit.Undone(p, c, err)
}

// compareThen reads the key, lets choose see what is there, and sends the command
// that it gives. With WATCH that is one step.
func (p *protocol) compareThen(ctx context.Context, c driver.Claim, choose func(stamp) (command, error)) error {
	if p.watch {
		return p.inOneStep(ctx, c, choose)
	}
	reply, err := p.Do(ctx, c.Due, "GETEX", c.Key)
	if err != nil {
		return err
	}
	seen, err := p.read(c, reply)
	if err != nil {
		return err
	}
	cmd, err := choose(seen)
	if err != nil {
		return err
	}
	// The hole: from here on it may be another's.
	return p.write(ctx, c, cmd)
}

// inOneStep is compareThen as a transaction. If anybody writes the key after the WATCH,
// EXEC does nothing, and the new value is looked at again, until c.Due.
func (p *protocol) inOneStep(ctx context.Context, c driver.Claim, choose func(stamp) (command, error)) error {
	return p.Session(ctx, c.Due, c.Key, func(conn driver.Conn) error {
		for {
			if err := stringkey.Expect(conn, p.Name(), "OK", "WATCH", c.Key); err != nil {
				return err
			}
			reply, err := conn.Do("GETEX", c.Key)
			if err != nil {
				return err
			}
			seen, err := p.read(c, reply)
			if err != nil {
				return err
			}
			cmd, err := choose(seen)
			if err != nil {
				return err // Session takes the WATCH back
			}
			if err := stringkey.Expect(conn, p.Name(), "OK", "MULTI"); err != nil {
				return err
			}
			// A reply other than QUEUED would mean: executed, whatever came in between.
			if err := stringkey.Expect(conn, p.Name(), "QUEUED", cmd.name, append([]any{c.Key}, cmd.args...)...); err != nil {
				return err
			}
			reply, err = conn.Do("EXEC")
			if err != nil {
				return err
			}
			if reply == nil {
				continue // somebody was quicker
			}
			if replies, ok := reply.([]any); ok && len(replies) == 1 {
				return p.written(c, replies[0])
			}
			return rediskit.BadReply(p.Name(), reply)
		}
	})
}

// A command writes the claim's key; args come after it.
type command struct {
	name string
	args []any
}

var del = command{"DEL", nil}

// write sends a command on its own.
func (p *protocol) write(ctx context.Context, c driver.Claim, cmd command) error {
	reply, err := p.Do(ctx, c.Due, cmd.name, c.Key, cmd.args...)
	if err != nil {
		return err
	}
	return p.written(c, reply)
}

// written reads what SET and DEL answer.
func (p *protocol) written(c driver.Claim, reply any) error {
	switch {
	case reply == int64(1) || isText(reply, "OK"):
		return nil
	case reply == int64(0) || reply == nil: // it went in between
		return &strategy.LostError{Name: c.Name}
	}
	return rediskit.BadReply(p.Name(), reply)
}

func isText(reply any, text string) bool {
	b, ok := reply.([]byte)
	return ok && string(b) == text
}
