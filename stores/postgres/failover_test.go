// Standbys and fail-overs: no lock is granted, refused or reported as held by a standby, and what a fail-over keeps depends on
// synchronous_commit.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// TestStandbyRefuses: nothing that a standby has counts, though it could read it.
func TestStandbyRefuses(t *testing.T) {
	t.Parallel()
	p := storetest.OwnPostgres(t)
	pool := poolOf(t, p.PostgresURL())
	migrate(t, pool)
	standby := poolOf(t, storetest.OwnStandby(t, p).PostgresURL())
	lease := try(t, open(t, pool, long).NewLock(unique(t)))
	replayed(t, pool, standby)
	s := open(t, standby, strategy.Options{TTL: time.Minute, OpTimeout: 20 * time.Second})
	_, err := s.NewLock(lease.Name()).TryAcquire(t.Context())
	want(t, "TryAcquire at a standby", err, strategy.ErrRefused)
	if errors.Is(err, strategy.ErrHeld) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("TryAcquire at a standby = %v, want that it says so", err)
	}
	_, err = s.Inspect(t.Context(), lease.Name())
	want(t, "Inspect at a standby", err, strategy.ErrRefused)
	_, err = List(t.Context(), standby)
	want(t, "List at a standby", err, strategy.ErrRefused)
	_, err = s.Adopt(t.Context(), lease.Name(), lease.Token())
	want(t, "Adopt at a standby", err, strategy.ErrRefused)
	want(t, "Check at a standby", s.Check(t.Context()), strategy.ErrRefused)
	want(t, "CheckTx at a standby", CheckTx(t.Context(), begin(t, standby), lease), strategy.ErrRefused)
}

// TestStandbyIsLeft: connections of the pool lead to a standby. The first call leaves them, and asks the primary.
func TestStandbyIsLeft(t *testing.T) {
	t.Parallel()
	p := storetest.OwnPostgres(t)
	migrate(t, poolOf(t, p.PostgresURL()))
	standby := storetest.OwnStandby(t, p)
	a := addressOf(t, standby)
	pool := poolOf(t, a.url())
	replayed(t, poolOf(t, p.PostgresURL()), pool)
	s := open(t, pool, strategy.Options{TTL: time.Minute, OpTimeout: 20 * time.Second})
	crowd(t, 8, 8, func(int) error { _, err := pool.Exec(t.Context(), "select pg_sleep(0.1)"); return err }) // as many connections
	a.lead(p)
	crowd(t, 8, 8, func(int) error {
		lease, err := s.NewLock(unique(t)).TryAcquire(t.Context())
		if err != nil {
			return fmt.Errorf("TryAcquire by a connection that leads to a standby: %w", err)
		}
		return lease.Release(t.Context())
	})
}

// TestFailOver: a lock that the standby has outlives the primary, with its holder, its fence and its waiters.
func TestFailOver(t *testing.T) {
	t.Parallel()
	p := storetest.OwnPostgres(t)
	a := addressOf(t, p)
	pool := poolOf(t, a.url())
	migrate(t, pool)
	next := storetest.OwnStandby(t, p)
	o := strategy.Options{TTL: time.Minute, OpTimeout: 20 * time.Second, RetryOnError: true}
	holder, waiter := open(t, pool, o), open(t, pool, o)
	lease := try(t, holder.NewLock(unique(t)))
	want(t, "KeepAlive", lease.KeepAlive(0), nil)
	acquired := make(chan strategy.Lease, 1)
	go func() {
		l, err := waiter.NewLock(lease.Name()).Acquire(t.Context())
		want(t, "Acquire", err, nil)
		acquired <- l
	}()
	verdict.Eventually(t, "the waiter queues", func() bool {
		info, err := holder.Inspect(t.Context(), lease.Name())
		return err == nil && len(info.Queue) == 1
	})
	replayed(t, pool, poolOf(t, next.PostgresURL()))
	promote(t, p, next)
	a.lead(next)

	verdict.Eventually(t, "the new primary answers", func() bool { return lease.Extend(t.Context()) == nil })
	_, err := holder.NewLock(lease.Name()).TryAcquire(t.Context())
	want(t, "TryAcquire after the fail-over", err, strategy.ErrHeld)
	verdict.Eventually(t, "the waiter listens at the new primary", func() bool {
		return value[int](t, pool, `select count(*) from locks.queue q join pg_locks l on l.locktype = 'advisory'
			and (l.classid::bigint << 32 | l.objid::bigint) = q.listener where l.granted`) == 1
	})
	want(t, "Release", lease.Release(t.Context()), nil)
	then := <-acquired
	before, _ := lease.Fence()
	after, _ := then.Fence()
	if after <= before {
		t.Errorf("the fence after the fail-over is %d, want more than %d", after, before)
	}
	want(t, "CheckTx", CheckTx(t.Context(), begin(t, pool), then), nil)

	// What the promotion before the last one did may be forgotten: this server has been at the timeline 0, and is at 2.
	run(t, pool, `update locks.timeline set name = '00000000'`)
	twice := try(t, open(t, poolOf(t, a.url()), o).NewLock(unique(t)))
	if fence, _ := twice.Fence(); fence-after <= 2*driver.MaxFences<<24 {
		t.Errorf("the fence after two promotions is %d, want it to move from %d as for two", fence, after)
	}
}

// TestReplicaIsLeft holds the suite's property of fail-overs. A server of PostgreSQL becomes a standby by a restart alone, so the
// connections to the old primary end, as they do when it is stopped.
func TestReplicaIsLeft(t *testing.T) {
	t.Parallel()
	p := storetest.OwnPostgres(t)
	a := addressOf(t, p)
	migrate(t, poolOf(t, p.PostgresURL()))
	next := storetest.OwnStandby(t, p)
	s := subject("fail-over", poolOf(t, a.url()), a.url())
	s.Evict = nil // of what expires, nobody has to tidy up
	s.OpenGround = func(context.Context) (*conformance.Ground, error) {
		return &conformance.Ground{
			Open: func(o strategy.Options) (strategy.Strategy, error) { return New(poolOf(t, a.url()), o) },
			Moves: []conformance.Move{{Name: "a standby is promoted", Do: func(context.Context) error {
				replayed(t, poolOf(t, p.PostgresURL()), poolOf(t, next.PostgresURL()))
				promote(t, p, next)
				a.lead(next)
				return nil
			}}},
			Close: func() error { return nil }, // they end with the test
		}, nil
	}
	for _, property := range conformance.Properties() {
		if property.Name == "ReplicaIsLeft" {
			if r := conformance.Check(t.Context(), s, property); r.Status != conformance.Kept {
				t.Error(r)
			}
		}
	}
}

// TestSynchronousCommit: with "on" a grant counts once the synchronous standby has it; with "local" it counts before, and a
// fail-over may forget it.
func TestSynchronousCommit(t *testing.T) {
	t.Parallel()
	p := storetest.OwnPostgres(t)
	pool := poolOf(t, p.PostgresURL())
	migrate(t, pool)
	standby := storetest.OwnStandby(t, p)
	replayed(t, pool, poolOf(t, standby.PostgresURL()))
	run(t, pool, "alter system set synchronous_standby_names = '*'")
	run(t, pool, "select pg_reload_conf()")
	verdict.Eventually(t, "the standby is synchronous", func() bool {
		return value[int](t, pool, "select count(*) from pg_stat_replication where sync_state = 'sync'") == 1
	})
	brief := strategy.Options{TTL: time.Hour, OpTimeout: 300 * time.Millisecond}
	name, other := unique(t), unique(t)
	try(t, open(t, pool, long, WithSynchronousCommit("on")).NewLock(name)) // the standby has it

	run(t, poolOf(t, standby.PostgresURL()), "alter system set primary_conninfo = ''") // it hears nothing more
	run(t, poolOf(t, standby.PostgresURL()), "select pg_reload_conf()")
	verdict.Eventually(t, "the standby is cut off", func() bool {
		return value[int](t, pool, "select count(*) from pg_stat_replication") == 0
	})
	alone := open(t, pool, long, WithSynchronousCommit("local"))
	for range 50 { // so that the standby does not know how far the sequence is
		want(t, "Release", try(t, alone.NewLock(other)).Release(t.Context()), nil)
	}
	local := try(t, alone.NewLock(other))
	synchronous := open(t, pool, brief, WithSynchronousCommit("remote_apply"))
	third := unique(t)
	_, err := synchronous.NewLock(third).TryAcquire(t.Context())
	want(t, "TryAcquire that no standby confirms", err, strategy.ErrUnknown)
	verdict.Eventually(t, "it is undone", func() bool {
		return value[int](t, pool, "select count(*) from locks.lease where key = $1", []byte(strategy.DefaultKey(third))) == 0
	})

	promote(t, p, standby)
	s := open(t, poolOf(t, standby.PostgresURL()), long)
	_, err = s.NewLock(name).TryAcquire(t.Context())
	want(t, "TryAcquire of a lock that the standby had", err, strategy.ErrHeld)
	again := try(t, s.NewLock(other)) // the fail-over has forgotten it
	want(t, "the old holder, which cannot know: Err", local.Err(), nil)
	first, _ := local.Fence()
	second, _ := again.Fence()
	if second <= first {
		t.Errorf("the fence of the next hold is %d, want more than that of the forgotten one, %d", second, first)
	}
	want(t, "CheckTx of the forgotten lease", CheckTx(t.Context(), begin(t, poolOf(t, standby.PostgresURL())), local), strategy.ErrLost)
}

// TestRestart: locks outlive a restart, and the first call after it costs nothing.
func TestRestart(t *testing.T) {
	t.Parallel()
	p := storetest.OwnPostgres(t)
	pool := poolOf(t, p.PostgresURL())
	migrate(t, pool)
	s := open(t, pool, strategy.Options{TTL: time.Minute, OpTimeout: 20 * time.Second})
	lease := try(t, s.NewLock(unique(t)))
	run(t, poolOf(t, p.PostgresURL()), "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and backend_type = 'client backend'")
	want(t, "Extend after the sessions were ended", lease.Extend(t.Context()), nil)
	want(t, "Kill", p.Kill(t.Context()), nil)
	want(t, "Restart", p.Restart(t.Context()), nil)
	want(t, "Ready", p.Ready(t.Context()), nil)
	want(t, "Extend after a restart", lease.Extend(t.Context()), nil)
	want(t, "Release", lease.Release(t.Context()), nil)
}
