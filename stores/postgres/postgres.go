// Package postgres is a lock in PostgreSQL: for those who have a database, and want neither another server nor locks
// that a fail-over of Redis forgets. It does what package fairqueue does on Redis, and one thing that no lock on Redis
// can do: a write that comes too late cannot commit ([CheckTx]).
//
//	err := postgres.Migrate(ctx, conn) // once, or postgres.Migration() in your own migrations
//	locks, err := postgres.New(pool, strategy.Options{TTL: 10 * time.Second})
//
// # The idea
//
// The lock is a row with the holder's token and the time at which it expires, by the server's clock: a lease. A release
// deletes the row. Next to it lies the queue, a table with one row for each process that waits.
//
// Each step (acquire, release, extend …) is a function in the database, and one statement calls it: one round trip, one
// transaction. A step first takes an advisory lock of the key, until its transaction has ended. So steps on one key run
// one after the other, and each sees all that those before it have done.
//
//  1. Acquire finds the lock held. The process listens on a channel of its own (LISTEN), by one connection for all of
//     its locks. That connection holds an advisory lock, which ends with it. Then the process asks again, and takes its
//     place in the queue.
//  2. Release takes the first in the queue, makes it the holder, and notifies it. This is a direct grant: the successor
//     holds the lock when it hears of it. Nobody asks, and nobody can come in between. If nobody queues, Release deletes
//     the row.
//  3. The next in the queue is notified that it is first now, and for how long the successor has the lock.
//
// Many callers in one process stand in a line, which has one place in the queue. The holder hands the lock to the next
// in its line without a request, for a while: see package fairqueue.
//
// # Fencing in the transaction
//
// A lock with a TTL cannot stop its own holder: it may be paused after its last look at the clock, and write when
// another holds the lock. A fence helps if the store compares it. Here the store is the database of the locks, and
// [CheckTx] compares, in the transaction that writes. It locks the lease's row FOR KEY SHARE until that transaction
// ends. Renewals go on meanwhile. A step that would give the lock to another leaves the row alone: the lock counts as
// held until the transaction has committed or rolled back, even if its TTL ends before. If another has the lock already,
// CheckTx says ErrLost.
//
// So end the transaction before you release the lock. After a release in the middle of it, the next holder in another
// process waits until it has ended; a caller of the same process, to which the lock is handed over without a statement,
// does not. A transaction that never ends keeps the lock: set idle_in_transaction_session_timeout.
//
// # What it guarantees
//
//   - Exclusion: at most one holder at a time, for as long as the database keeps the row and holders stop at their
//     deadline ([strategy.Lease.Deadline], Lost, Context). Writes behind CheckTx of different processes exclude
//     each other in any case that the database does not forget: see Durability.
//   - Ownership: only the holder releases or extends. A late release changes nothing.
//   - No deadlock: a holder that dies is gone after its TTL.
//   - Fencing: each hold has a number greater than all before ([strategy.Lease.Fence]). It comes from a sequence, and
//     not from a clock.
//   - Fairness: first come, first served, among processes and among the contenders in each. A process that holds the
//     lock may serve its own line first, for 2 ms.
//   - Quiet waiting: a waiter sleeps until it has the lock. The statements for an acquisition do not grow with the
//     number of waiters.
//
// # When something breaks
//
//   - The holder dies: the row expires. The first in the queue knows when, asks, and is the holder. The row of a lock
//     that nobody wants any more stays, until some later acquire sweeps it: see sweep.sql.
//   - A waiter dies: its connection ends, and so does its advisory lock. The release passes it over.
//   - A waiter is paused: a direct grant is short. Its TTL is a second at most ([driver.SuccessorTTL]), and the
//     successor extends it when it runs.
//   - A reply is lost, or ctx ends during the request: nobody knows what the server did. The engine undoes such an
//     acquire. The undo leaves a note (the table undone, for ten minutes), by which a request that arrives still later
//     is refused.
//   - Others keep a step waiting in the server: as a rule it ends before its caller's time-out (lock_timeout), and has no
//     effect. If it does not, its outcome is unknown, and an acquire is undone.
//   - The server restarts: locks outlive that. The first call afterwards takes a new connection.
//   - A connection leads to a standby: a standby refuses each step, also those that only read. The pool's connections
//     are closed then, once a second at most, and the step is sent once more.
//   - The primary fails, and a standby is promoted: see Durability.
//   - The connection that listens breaks: waiters listen again, and ask.
//
// # Durability
//
// A step counts when its transaction has committed. What that means is up to synchronous_commit: the session's, or that
// of [WithSynchronousCommit], for steps alone.
//
//   - off: the server answers before its log is on disk. A crash of the server may forget the last steps, about a
//     second's. Then a lock is granted again while its holder still works, perhaps with the same fence. Acquire and
//     release take much less time.
//   - local: a crash forgets nothing. A fail-over forgets what the standby has not received.
//   - on: the same, if synchronous_standby_names is empty. Otherwise a fail-over to the synchronous standby forgets
//     nothing. While no such standby answers, no step does: an acquire ends with ErrUnknown, and is undone.
//   - remote_apply: also, readers at the standby see the step. Locks do not need that: they ask the primary alone.
//
// A fail-over that forgets a lock has also forgotten how far the sequence of fences was. So the first grant after a
// promotion moves it forward by 16 million grants, after two by twice as many: fences rise, and are never drawn twice. (After a crash with
// synchronous_commit off they may be: a crash is no promotion.) A transaction of the old holder does not pass CheckTx
// then. Its earlier writes are forgotten together with the grant.
//
// [strategy.Options].Acks are of Redis, and refused here.
//
// # What it does not guarantee
//
// One primary is one point of failure: while there is none, nobody gets a lock, and holders lose theirs at the deadline.
// Each acquire and each release is a commit. A hand-over to another process also notifies, and PostgreSQL lets commits
// that notify run one after the other, for all locks together. Locks that change hands thousands of times a second among
// processes belong elsewhere. A transaction that stays open for hours anywhere in the database keeps dead rows from
// being removed, and slows locks down.
//
// A jump of the server's clock ends leases early or late. Fences do not depend on a clock. CheckTx
// looks at it to say whether a lease has ended, and not to keep others out.
//
// # When
//
// Take it if what the lock protects is in the same database, or if you have PostgreSQL and no Redis. If all the work is
// one short transaction, take no lease at all: SELECT … FOR UPDATE of the row itself, or pg_advisory_xact_lock, is
// simpler and needs no TTL. A lease is for work that is longer than a transaction should be, or that goes on elsewhere.
//
// # Poolers
//
// Each step works behind a pooler in transaction mode, such as PgBouncer: it needs no prepared statement (set
// default_query_exec_mode to what your pooler demands) and no state of a session. Listening does not work there. A
// strategy finds that out: a notification to itself does not come back. Its waiters then ask again after pauses of
// Options.Backoff, and get the lock when nobody queues. [strategy.Strategy.Check] is an error if Options.Wait is
// WaitNotification or WaitQueue. To queue, give [WithListener] a configuration that leads past the pooler. That is one
// connection for each process.
//
// # Connections
//
// A step takes a connection of the pool for one statement. A strategy has one more connection, once somebody has waited,
// to listen. A program that uses all connections of its pool, and then asks for a lock, gets ErrUnsent: give locks a
// pool of their own, or enough connections. Steps need the isolation level READ COMMITTED, and say so if the session's
// default is another.
//
// # Upgrading
//
// Run [Migration] of the new version before its programs. The functions of a version end in its number (acquire_1), and
// a migration drops none, so programs of both versions work next to each other. A table only gains columns that the
// older functions need not know.
//
// # In the database
//
//	locks.lease     key, token, expires, fence: a row for each lock that is held. The fence is the first of 256
//	                numbers, for as many holds of one process
//	locks.queue     a row for each process that waits for a lock
//	locks.undone    tokens of claims that were given up, for ten minutes
//	locks.fence     the sequence of fences
//	locks.timeline  the timeline on which the last fence was drawn: see timeline.sql
//	locks_line_…    a channel for direct grants to a process
//	locks_freed_…   a channel for those who wait by notification; a message is the token that was released while
//	                nobody queued
//
// The files in the folder sql are the algorithm: acquire.sql, release.sql and pass.sql, over queue.sql. A server logs
// the connection that listens by an application_name that ends in "locks".
//
// PostgreSQL 14 or later.
//
// Source: a lease is that of Gray and Cheriton (1989). The queue follows the queue lock of Mellor-Crummey and Scott
// (1991), in which a release wakes the successor alone.
package postgres

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// New returns the strategy on a pool. It does no I/O: see [strategy.Strategy.Check]. Close closes the connection that listens;
// the pool stays the caller's.
func New(pool *pgxpool.Pool, o strategy.Options, options ...Option) (strategy.Strategy, error) {
	return engine.New(On(pool, options...), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(pool *pgxpool.Pool, options ...Option) driver.Protocol {
	return newProtocol(pool, settingsOf(options))
}

// An Option is a setting that only this algorithm has.
type Option func(*settings)

// WithSchema names the schema of the tables and functions; without it, the schema is "locks".
func WithSchema(name string) Option {
	return func(s *settings) {
		s.schema = name
		if name == "" || len(name) > mostSchema {
			s.fail(fmt.Errorf("locks: WithSchema(%q): allowed are 1 to %d bytes", name, mostSchema))
		}
	}
}

// mostSchema is the length to which PostgreSQL cuts names.
const mostSchema = 63

// WithListener gives the connection that listens another configuration than that of the pool: for a pool that leads to a
// pooler in transaction mode, which does not pass notifications on. It leads to the same database, past the pooler.
func WithListener(config *pgx.ConnConfig) Option {
	return func(s *settings) {
		if config == nil {
			s.fail(errors.New("locks: WithListener(nil): allowed is what pgx.ParseConfig returned"))
			return
		}
		s.listener = config.Copy()
	}
}

// WithSynchronousCommit sets synchronous_commit for each step: "off", "local", "remote_write", "on" or "remote_apply". Without it,
// each step has that of its session. See the package documentation, "Durability".
func WithSynchronousCommit(level string) Option {
	return func(s *settings) {
		s.durability = level
		if levels := []string{"off", "local", "remote_write", "on", "remote_apply"}; !slices.Contains(levels, level) {
			s.fail(fmt.Errorf("locks: WithSynchronousCommit(%q): allowed are %q", level, levels))
		}
	}
}

type settings struct {
	schema     string
	listener   *pgx.ConnConfig // nil: as the pool's
	durability string          // synchronous_commit; empty: the session's
	fault      error
}

// fail notes what is wrong with an option; the first fault is kept.
func (s *settings) fail(err error) {
	if s.fault == nil {
		s.fault = err
	}
}

func settingsOf(options []Option) settings {
	s := settings{schema: defaultSchema}
	if err := driver.Apply(&s, options); err != nil {
		s.fail(err)
	}
	return s
}

// protocol is the algorithm on one database.
type protocol struct {
	database
	settings settings
	names    *names
	acquires atomic.Uint64
}

var _ interface {
	driver.Protocol
	driver.Queuer
	driver.BulkExtender
	driver.Prober
	driver.Validator
	io.Closer
} = (*protocol)(nil)

func newProtocol(pool *pgxpool.Pool, s settings) *protocol {
	if pool == nil {
		s.fail(errors.New("locks: the pool is nil: allowed is what pgxpool.New returned"))
	}
	p := &protocol{settings: s, names: newNames(s.schema)}
	if p.database = (unusable{s.fault}); s.fault == nil {
		p.database = newServer(pool, s)
	}
	return p
}

// Validate reports what is wrong with the pool and the options of New.
func (p *protocol) Validate(strategy.Options) error { return p.settings.fault }
