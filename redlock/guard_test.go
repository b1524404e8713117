// The restart guard on real servers that are restarted, emptied or promoted: none votes while it may have forgotten a lock.
// scripts_test.go has the branches of the guard's scripts.
package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// copies makes a server a replica of another, and waits until it is one, guard and all.
func copies(t *testing.T, s, of *redistest.Server) {
	t.Helper()
	host, port, _ := strings.Cut(of.Addr(), ":")
	redistest.Do(t, of, "CONFIG", "SET", "repl-diskless-sync-delay", 0) // or it waits 5 s for more replicas
	redistest.Do(t, s, "REPLICAOF", host, port)
	verdict.Eventually(t, "the replica has the guard", func() bool {
		c := s.Pool().Get()
		defer c.Close()
		info, err := redis.String(c.Do("INFO", "replication"))
		there, err2 := redis.Bool(c.Do("EXISTS", redlock.GuardKey))
		return err == nil && err2 == nil && there && strings.Contains(info, "master_link_status:up")
	})
}

// TestForgetfulServer: one holder has a majority, of which one server forgets; another
// reaches that one, and those that the first did not. Without the guard two hold the lock
// then. With it the second is refused, and learns why.
func TestForgetfulServer(t *testing.T) {
	imitation(t, redistest.Shared(t), "that a server which may have forgotten does not vote: an embedded one has no run_id, and is never restarted with data")
	for _, fault := range []struct {
		name   string
		reason string
		args   []string
		before func(t *testing.T, s, replica *redistest.Server) // the lock is granted: what comes later is not kept
		forget func(t *testing.T, s, replica *redistest.Server) (after *redistest.Server)
	}{
		{
			"Restarted", redlock.ReasonEmpty, nil,
			func(*testing.T, *redistest.Server, *redistest.Server) {},
			func(t *testing.T, s, _ *redistest.Server) *redistest.Server {
				must(t, s.Restart(t.Context()))
				return s
			},
		},
		{ // As after a loss of power with appendfsync everysec: the guard is there, the lock, which is younger, is not.
			"OldAOF", redlock.ReasonRestarted, []string{"--appendonly", "yes", "--appendfsync", "always"},
			func(t *testing.T, s, _ *redistest.Server) { redistest.Do(t, s, "CONFIG", "SET", "appendonly", "no") },
			func(t *testing.T, s, _ *redistest.Server) *redistest.Server {
				must(t, s.Restart(t.Context()))
				return s
			},
		},
		{ // As at a fail-over to a replica that has not heard of the last writes.
			"Promoted", redlock.ReasonRestarted, nil, isolate,
			func(t *testing.T, s, replica *redistest.Server) *redistest.Server {
				must(t, s.Kill(t.Context()))
				redistest.Do(t, replica, "REPLICAOF", "NO", "ONE")
				return replica
			},
		},
		{ // And back, before anybody has asked the replica: it is the process that wrote the guard, with what the replica knew.
			"PromotedAgain", redlock.ReasonRestarted, nil, isolate,
			func(t *testing.T, s, replica *redistest.Server) *redistest.Server {
				redistest.Do(t, replica, "REPLICAOF", "NO", "ONE")
				copies(t, s, replica)
				redistest.Do(t, s, "REPLICAOF", "NO", "ONE")
				return s
			},
		},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{Args: fault.args}))
			replica := redistest.Own(t, redistest.Config{})
			onFirst, onLast := only(0, 1, 4), only(2, 3, 4)
			before := open(t, servers, calm, unhurried)
			verdict.Eventually(t, "the server has voted, and knows of the TTL", func() bool {
				err := acquire(t, before, lockOf(t, "before")).Release(t.Context())
				return err == nil && guardOf(t, servers[4])["max"] != "0" // no more than that it is bootstrapped
			})
			fault.before(t, servers[4], replica)
			guarded := acquire(t, gated(t, servers, onLast, calm, unhurried), lockOf(t, "guarded"))
			unguarded := acquire(t, gated(t, servers, onLast, calm, unhurried, redlock.WithoutGuard()), lockOf(t, "unguarded"))
			try := func() error {
				_, err := gated(t, servers, onFirst, calm, unhurried).NewLock(guarded.Name()).TryAcquire(t.Context())
				return err
			}
			is(t, "TryAcquire() by the second before", try(), strategy.ErrNoQuorum)

			servers[4] = fault.forget(t, servers[4], replica)
			bootstrapped.Store(servers[4], func() error { return nil }) // the operator does not say that it has forgotten nothing
			second := gated(t, servers, onFirst, calm, unhurried, redlock.WithoutGuard())
			var both strategy.Lease
			verdict.Eventually(t, "without the guard the server votes for another", func() bool { // its connections are new
				both, _ = second.NewLock(unguarded.Name()).TryAcquire(t.Context())
				return both != nil
			})
			if unguarded.Err() != nil || both.Err() != nil {
				t.Errorf("without the guard Err() = %v and %v, want two who believe they hold the lock", unguarded.Err(), both.Err())
			}
			unguarded.Detach() // what they have left expires
			both.Detach()

			err := try()
			is(t, "TryAcquire() by the second", err, strategy.ErrNoQuorum, strategy.ErrRefused)
			isNot(t, "TryAcquire() by the second", err, strategy.ErrHeld)
			refusedBy(t, err, fault.reason, contract.MaxTTL) // shared servers may have heard of longer TTLs
			if n := servers[4].Addr(); err != nil && !strings.Contains(err.Error(), n+": refused by the server: it does not vote for ") {
				t.Errorf("TryAcquire() by the second = %v, want it to name %s", err, n)
			}
			is(t, "Err() of the first", guarded.Err())
			guarded.Detach()
			clean(t, servers, strategy.DefaultKey(unguarded.Name()), strategy.DefaultKey(guarded.Name()))
		})
	}
}

// isolate makes a replica of a server that from now on hears nothing any more.
func isolate(t *testing.T, s, replica *redistest.Server) {
	copies(t, replica, s)
	redistest.Do(t, replica, "REPLICAOF", "127.0.0.1", "1")
}

// clean removes keys from servers that other tests use, too, or this one again.
func clean(t *testing.T, servers []*redistest.Server, keys ...any) {
	t.Helper()
	for _, s := range servers {
		redistest.Do(t, s, "DEL", keys...)
	}
}

// refusedBy checks that err has a *GuardError for that reason, for no longer than most.
func refusedBy(t *testing.T, err error, reason string, most time.Duration) {
	t.Helper()
	var g *redlock.GuardError
	if !errors.As(err, &g) {
		t.Fatalf("error = %v, want a *GuardError", err)
	}
	if g.Reason != reason || g.For <= 0 || g.For > most {
		t.Errorf("*GuardError = %+v, want %q, and %v at most", *g, reason, most)
	}
}

// guardOf is the guard that a server has.
func guardOf(t *testing.T, s *redistest.Server) map[string]string {
	t.Helper()
	g, err := redis.StringMap(redistest.Do(t, s, "HGETALL", redlock.GuardKey), nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestBootstrap: a cluster that is known to be new need not wait; errors name Bootstrap.
func TestBootstrap(t *testing.T) {
	servers := ownServers(t, 3)
	locks, err := redlock.New(locktest.Nodes(pools(servers)...), calm, unhurried)
	opened(t, locks, err)
	says := func(what string, err error, times map[string]int) {
		t.Helper()
		for text, n := range times {
			if err == nil || strings.Count(err.Error(), text) != n {
				t.Errorf("%s = %v, want it to say %d times %q", what, err, n, text)
			}
		}
	}
	err = locks.Check(t.Context())
	refusedBy(t, err, redlock.ReasonEmpty, calm.TTL)
	says("Check() of new servers", err, map[string]int{"redlock.Bootstrap": 1, "does not vote until 1m0s after its first request for a lock": 3})
	for i, s := range servers {
		if g := guardOf(t, s); len(g) > 0 {
			t.Errorf("after Check() server %d has %v, want it to have written nothing", i+1, g)
		}
	}
	_, err = locks.NewLock(lockOf(t)).TryAcquire(t.Context())
	is(t, "TryAcquire() on new servers", err, strategy.ErrNoQuorum, strategy.ErrRefused)
	says("TryAcquire() on new servers", err, map[string]int{"; they vote in ": 1, "redlock.Bootstrap": 1})

	is(t, "Bootstrap()", bootstrap(t.Context(), pools(servers)...))
	is(t, "Check() of bootstrapped servers", locks.Check(t.Context()))
	lease := acquire(t, locks, lockOf(t))
	settled(t, servers, lease)
	redistest.Do(t, servers[1], "DEL", redlock.GuardKey)
	is(t, "Bootstrap()", bootstrap(t.Context(), pools(servers)...))
	settled(t, servers, lease) // what is there stays
	release(t, lease)

	down := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("as the test has it") }}
	err = bootstrap(t.Context(), append([]*redis.Pool{down}, pools(servers)...)...)
	is(t, "Bootstrap() of one that is down", err, strategy.ErrUnsent)
	says("Bootstrap() of one that is down", err, map[string]int{"node 1: ": 1})
	says("Bootstrap() of no nodes", redlock.Bootstrap(t.Context(), nil), map[string]int{"allowed are": 1})
}
