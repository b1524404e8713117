package setnxgetset

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/algorithm/stringkey"
	"github.com/lockstrategies/locks/strategy"
)

// This protocol also confirms grants and validates its options.
var _ interface {
	driver.Acknowledger
	driver.Validator
} = (*protocol)(nil)

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// WithWatchTakeOver takes a lapsed lock over in a transaction, as ServiceStack does, and
// extends and releases in one, too. A contender that comes second changes nothing, and a lock
// that changes hands on the way is left alone. It costs more round trips, needs
// WATCH and MULTI (proxies may lack them), and borrows connections of the pool. All
// contenders should do the same: another contender's GETSET still overwrites.
func WithWatchTakeOver() Option {
	return func(p *protocol) { p.watch = true }
}

// WithBlindRelease makes Release a plain DEL, as in the original algorithm and in
// ServiceStack: one round trip, and if the lock was taken away meanwhile, it frees the
// next holder's lock. A lease past its deadline sends no DEL. The
// originals would.
//
// Only a lease's own Release is blind. Undoing an acquire whose reply was lost, and
// [strategy.Strategy.ForceRelease], compare: they must not touch another's lock.
func WithBlindRelease() Option {
	return func(p *protocol) { p.blind = true }
}

// WithClock makes now the clock by which locks are stamped, and stamps read: to keep the
// time of a server that all contenders agree with, or, in tests, to be wrong. Leases
// follow the monotonic clock in any case. The default is time.Now.
func WithClock(now func() time.Time) Option {
	return func(p *protocol) { p.now = now }
}

// Backoff is ServiceStack's pace, for Options.Backoff: full jitter below 200, 400,
// 800 … 20 000 ms.
func Backoff(attempt int) time.Duration {
	const first, most = 200 * time.Millisecond, 20 * time.Second
	return min(first<<(min(max(attempt, 1), 8)-1), most) // the eighth is past the ceiling
}

// Validate refuses a missing clock.
func (p *protocol) Validate(strategy.Options) error {
	if p.now == nil {
		return errors.New("locks: setnxgetset.WithClock is nil: allowed is a function that tells the time")
	}
	return nil
}

// Adopt is GET, compare, SET XX.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	return driver.Grant{}, p.compareThen(ctx, c, func(seen stamp) (command, error) {
		if err := seen.ownedBy(c, from); err != nil {
			return command{}, err
		}
		mine, err := p.value(c.Token, c.TTL, 0)
		return command{"SET", []any{mine, "XX"}}, err
	})
}

// Inspect is GET. A lock that has lapsed by our clock is not held.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	reply, err := p.Do(ctx, c.Due, "GETEX", c.Key)
	if err != nil {
		return strategy.Info{}, err
	}
	seen, err := p.read(c, reply)
	if err != nil || seen.absent || seen.lapsed() {
		return strategy.Info{}, err
	}
	return strategy.Info{Held: true, Token: seen.token, TTL: seen.left}, nil
}

// Check looks at the server, and tries the commands on a key of its own. GETSET writes, whatever
// it is given, so that key is there for an instant, with a stamp that has passed.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return rediskit.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := rediskit.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		if p.watch {
			return p.checkTransaction(ctx, c)
		}
		lapsed := strconv.FormatInt(earliest, 10) + ":" + c.Token
		cmds := [][]any{{"GETEX"}, {"SET", lapsed, "XX"}, {"DEL"}}
		if err := rediskit.CheckCommands(ctx, c.Due, p, c.Key, cmds...); err != nil {
			return err // first: what is written must be deleted
		}
		return rediskit.CheckCommands(ctx, c.Due, p, c.Key, []any{"SETNX", lapsed}, []any{"GETSET", lapsed}, []any{"DEL"})
	})
}

// checkTransaction tries the commands in a transaction. All of them are done, each to a key that
// is not there after it.
func (p *protocol) checkTransaction(ctx context.Context, c driver.Claim) error {
	lapsed := strconv.FormatInt(earliest, 10) + ":" + c.Token
	return p.Session(ctx, c.Due, c.Key, func(conn driver.Conn) error {
		steps := [][]any{
			{"OK", "WATCH", c.Key}, {"OK", "MULTI"}, {"QUEUED", "GETEX", c.Key}, {"QUEUED", "SETNX", c.Key, lapsed},
			{"QUEUED", "SET", c.Key, lapsed, "XX"}, {"QUEUED", "DEL", c.Key},
		}
		for _, s := range steps {
			if err := stringkey.Expect(conn, p.Name(), s[0].(string), s[1].(string), s[2:]...); err != nil {
				return fmt.Errorf("%w (%s of %s: allow it, and the key)", err, s[1], c.Key)
			}
		}
		if _, err := conn.Do("EXEC"); err != nil {
			return fmt.Errorf("%w (EXEC: allow it)", err)
		}
		return nil
	})
}
