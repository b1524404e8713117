// Transactional fencing: a transaction that has checked its lease keeps the lock until it ends, and one that comes too late
// does not pass.
package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

// open is a strategy that is closed with the test.
func open(t testing.TB, pool *pgxpool.Pool, o strategy.Options, options ...Option) strategy.Strategy {
	t.Helper()
	s, err := New(pool, o, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// unique is the name of a lock that nobody else uses.
func unique(t testing.TB) string { return t.Name() + " " + testChannel() }

func try(t testing.TB, l strategy.Lock) strategy.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.Background()) }) //nolint:errcheck // it may have ended
	return tx
}

// want reports an error that is not the wanted one.
func want(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s = %v, want %v", what, err, want)
	}
}

// evict lets the lock expire, which its holder does not learn.
func evict(t testing.TB, pool *pgxpool.Pool, l strategy.Lock) {
	t.Helper()
	run(t, pool, "update locks.lease set expires = clock_timestamp() where key = $1", []byte(l.Key()))
}

var long = strategy.Options{TTL: time.Hour, OpTimeout: time.Minute}

// TestCheckKeepsTheLock: a holder is paused in its transaction until its lease has expired. Nobody gets the lock before the
// transaction has ended.
func TestCheckKeepsTheLock(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	for _, end := range []string{"commit", "rollback"} {
		a, b := open(t, pool, long).NewLock(unique(t)), open(t, pool, long)
		lease := try(t, a)
		tx := begin(t, pool)
		want(t, "CheckTx", CheckTx(t.Context(), tx, lease), nil)
		want(t, "Extend during the transaction", lease.Extend(t.Context()), nil)
		evict(t, pool, a)
		_, err := b.NewLock(a.Name()).TryAcquire(t.Context())
		want(t, "TryAcquire during the transaction", err, strategy.ErrHeld)
		acquired := make(chan error, 1)
		go func() {
			_, err := b.NewLock(a.Name()).Acquire(t.Context())
			acquired <- err
		}()
		verdict.Eventually(t, "B waits", func() bool {
			info, err := b.Inspect(t.Context(), a.Name())
			return err == nil && len(info.Queue) > 0
		})
		select {
		case err := <-acquired:
			t.Fatalf("Acquire = %v before the end of the transaction", err)
		default:
		}
		if end == "commit" {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		want(t, end, err, nil)
		want(t, "Acquire after the "+end, <-acquired, nil)
	}
}

// TestCheckComesTooLate: another holds the lock, and the old holder does not know it yet.
func TestCheckComesTooLate(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	a, b := open(t, pool, long).NewLock(unique(t)), open(t, pool, long)
	lease := try(t, a)
	evict(t, pool, a)
	want(t, "CheckTx of an expired lease", CheckTx(t.Context(), begin(t, pool), lease), strategy.ErrLost)
	next := try(t, b.NewLock(a.Name()))
	err := CheckTx(t.Context(), begin(t, pool), lease)
	var lost *strategy.LostError
	if !errors.As(err, &lost) || lost.Holder != next.Token() {
		t.Errorf("CheckTx = %v, want that %s holds the lock", err, strategy.ShortToken(next.Token()))
	}
	want(t, "CheckTx of the holder", CheckTx(t.Context(), begin(t, pool), next), nil)
	want(t, "Release", lease.Release(t.Context()), strategy.ErrLost)
	want(t, "CheckTx after the release", CheckTx(t.Context(), begin(t, pool), lease), strategy.ErrReleased)
}

// TestCheckDuringTakeOver: a check that comes while the lock is being taken away waits, and does not pass.
func TestCheckDuringTakeOver(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	a := open(t, pool, long).NewLock(unique(t))
	lease := try(t, a)
	evict(t, pool, a)
	takes := begin(t, pool) // the step of a next holder, which has not committed
	n := newNames(defaultSchema).of(a.Key())
	if _, err := takes.Exec(t.Context(), "select locks.acquire_1($1, 1000, '', $2, 'other', 60000, 0, '', 0, 1, false)", n.slot, n.key); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, pool)
	checked := make(chan error, 1)
	go func() { checked <- CheckTx(t.Context(), tx, lease) }()
	waits := `select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%check_1%' and pid = $1)`
	verdict.Eventually(t, "the check waits", func() bool { return value[bool](t, pool, waits, tx.Conn().PgConn().PID()) || len(checked) > 0 })
	want(t, "commit", takes.Commit(t.Context()), nil)
	want(t, "CheckTx", <-checked, strategy.ErrLost)
}

// TestReleaseDuringCheck: a lock that is released, or passed on, in the middle of a transaction is free when that has ended.
func TestReleaseDuringCheck(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	for name, next := range map[string]func(a, b strategy.Lock) strategy.Lock{
		"another process":              func(_, b strategy.Lock) strategy.Lock { return b },
		"the same, which passes it on": func(a, _ strategy.Lock) strategy.Lock { return a },
	} {
		o := long
		o.NoHandOver = true
		a := open(t, pool, o).NewLock(unique(t))
		waiter := next(a, open(t, pool, o).NewLock(a.Name()))
		lease := try(t, a)
		tx := begin(t, pool)
		want(t, "CheckTx", CheckTx(t.Context(), tx, lease), nil)
		acquired := make(chan error, 1)
		go func() {
			_, err := waiter.Acquire(t.Context())
			acquired <- err
		}()
		verdict.Eventually(t, name+" queues", func() bool {
			return value[int](t, pool, "select count(*) from locks.queue where key = $1", []byte(a.Key())) > 0
		})
		want(t, "Release", lease.Release(t.Context()), nil)
		_, err := open(t, pool, o).NewLock(a.Name()).TryAcquire(t.Context())
		want(t, "TryAcquire after the release", err, strategy.ErrHeld)
		want(t, "CheckTx after the release", CheckTx(t.Context(), tx, lease), strategy.ErrReleased)
		select {
		case err := <-acquired:
			t.Fatalf("%s: Acquire = %v before the end of the transaction", name, err)
		default:
		}
		want(t, "commit", tx.Commit(t.Context()), nil)
		want(t, "Acquire of "+name, <-acquired, nil)
	}
}

// TestCheckAfterHandOver: the row still has the first hold's token and number.
func TestCheckAfterHandOver(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s := open(t, pool, long, WithSynchronousCommit("off"))
	l := s.NewLock(unique(t))
	var handed atomic.Bool
	for range 100 { // a slow machine may use up the turn
		holder, err := l.Acquire(t.Context())
		want(t, "Acquire", err, nil)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				lease, err := l.Acquire(t.Context())
				want(t, "Acquire", err, nil)
				if fence, _ := lease.Fence(); fence%driver.MaxFences != 0 { // not the first of the turn
					handed.Store(true)
					checkAndRelease(t, pool, lease)
					return
				}
				want(t, "Release", lease.Release(t.Context()), nil)
			})
		}
		want(t, "Release", holder.Release(t.Context()), nil)
		all.Wait()
		if handed.Load() {
			return
		}
	}
	t.Skip("INCONCLUSIVE: no lock was handed over in time")
}

func checkAndRelease(t *testing.T, pool *pgxpool.Pool, lease strategy.Lease) {
	t.Helper()
	tx := begin(t, pool)
	want(t, "CheckTx", CheckTx(t.Context(), tx, lease), nil)
	want(t, "Rollback", tx.Rollback(t.Context()), nil)
	want(t, "Release", lease.Release(t.Context()), nil)
	tx = begin(t, pool)
	want(t, "CheckTx after the release", CheckTx(t.Context(), tx, lease), strategy.ErrReleased)
	want(t, "Rollback", tx.Rollback(t.Context()), nil)
}

// TestAdoptDuringCheck: the old user's transaction may still write, so nobody adopts.
func TestAdoptDuringCheck(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	a, b := open(t, pool, long), open(t, pool, long)
	lease := try(t, a.NewLock(unique(t)))
	tx := begin(t, pool)
	want(t, "CheckTx", CheckTx(t.Context(), tx, lease), nil)
	token, err := lease.Detach()
	want(t, "Detach", err, nil)
	_, err = b.Adopt(t.Context(), lease.Name(), token)
	want(t, "Adopt during the transaction", err, strategy.ErrRefused)
	want(t, "commit", tx.Commit(t.Context()), nil)
	adopted, err := b.Adopt(t.Context(), lease.Name(), token)
	want(t, "Adopt", err, nil)
	want(t, "CheckTx", CheckTx(t.Context(), begin(t, pool), adopted), nil)
}

// TestChecker: locks of another schema, with other keys, in a transaction of database/sql.
func TestChecker(t *testing.T) {
	t.Parallel()
	pool := poolOf(t, storetest.PostgresURL(t))
	schema := WithSchema(`o'dd "locks". s`)
	migrate(t, pool, schema)
	o := long
	o.Key = func(name string) string { return "k" + name }
	s := open(t, pool, o, schema)
	want(t, "Check", s.Check(t.Context()), nil)
	lease := try(t, s.NewLock(unique(t)))
	right := Checker{Schema: `o'dd "locks". s`, Key: o.Key}
	want(t, "CheckTx", right.CheckTx(t.Context(), begin(t, pool), lease), nil)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	want(t, "BeginTx", err, nil)
	defer tx.Rollback() //nolint:errcheck // below
	want(t, "CheckSQLTx", right.CheckSQLTx(t.Context(), tx, lease), nil)
	want(t, "CheckTx with another key", Checker{Schema: right.Schema}.CheckTx(t.Context(), begin(t, pool), lease), strategy.ErrLost)
	want(t, "CheckTx in a schema that is not there", Checker{Schema: "none"}.CheckTx(t.Context(), begin(t, pool), lease), strategy.ErrRefused)
	ended := begin(t, pool)
	ended.Rollback(t.Context()) //nolint:errcheck // what it says is of no concern
	want(t, "CheckTx in a transaction that has ended", right.CheckTx(t.Context(), ended, lease), strategy.ErrUnknown)
}

func TestCheckWithoutFence(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	s := open(t, pool, long)
	both, err := multilock.New(s.NewLock(unique(t)), s.NewLock(unique(t)))
	want(t, "All", err, nil)
	want(t, "CheckTx", CheckTx(t.Context(), begin(t, pool), try(t, both)), strategy.ErrUnsupported)
}

// TestNoLostUpdate: holders of three processes are paused in their transactions, mostly for longer than their leases last. No
// update is lost, because none commits next to another's.
func TestNoLostUpdate(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	table := testChannel()
	run(t, pool, "create table "+table+" as select 0 as n")
	t.Cleanup(func() { run(t, pool, "drop table "+table) })
	name := unique(t)
	var committed, late atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		s := open(t, pool, strategy.Options{TTL: 60 * time.Millisecond, OpTimeout: 59 * time.Millisecond, RetryOnError: true})
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil && committed.Load() < 40 {
					lease, err := s.NewLock(name).Acquire(ctx)
					if err != nil {
						continue
					}
					err = pgx.BeginFunc(context.WithoutCancel(ctx), pool, func(tx pgx.Tx) error {
						pause := func() { tx.Exec(ctx, "select pg_sleep($1)", rand.Float64()*0.09) } //nolint:errcheck // if it is short, the test is less severe
						if rand.N(2) == 0 {
							pause()
						}
						if err := CheckTx(ctx, tx, lease); err != nil {
							return err
						}
						var n int
						if err := tx.QueryRow(ctx, "select n from "+table).Scan(&n); err != nil {
							return err
						}
						pause()
						_, err := tx.Exec(ctx, "update "+table+" set n = $1", n+1)
						return err
					})
					if err == nil {
						committed.Add(1)
					} else if errors.Is(err, strategy.ErrLost) {
						late.Add(1)
					}
					lease.Release(ctx) //nolint:errcheck // mostly it is lost
				}
			})
		}
	}
	all.Wait()
	if n := value[int64](t, pool, "select n from "+table); n != committed.Load() {
		t.Errorf("%d updates have committed, and %d are there", committed.Load(), n)
	}
	t.Logf("%d committed, %d came too late", committed.Load(), late.Load())
	if committed.Load() == 0 {
		t.Skip("INCONCLUSIVE: the machine was too slow for any of them")
	}
}
