// The restart guard on real servers that are restarted, emptied, promoted or set back: none votes while it
// may have forgotten a lock. scripts_test.go has the branches of the guard's scripts.
package redlock_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// forgetful are the ways in which a server forgets what it granted. Each returns the
// server that is in its place then.
var forgetful = []struct {
	name   string
	reason string
	config redistest.Config
	// before is called before the lock is granted: what comes later is not kept.
	before func(t *testing.T, s *redistest.Server) (after func() *redistest.Server)
}{
	{
		name: "Restarted", reason: redlock.ReasonEmpty,
		before: func(t *testing.T, s *redistest.Server) func() *redistest.Server {
			return func() *redistest.Server {
				must(t, s.Restart(t.Context()))
				return s
			}
		},
	},
	{
		name: "Flushed", reason: redlock.ReasonEmpty,
		before: func(t *testing.T, s *redistest.Server) func() *redistest.Server {
			return func() *redistest.Server {
				redistest.Do(t, s, "FLUSHALL")
				return s
			}
		},
	},
	{
		// As after a loss of power with appendfsync everysec: the guard is there, the lock,
		// which is younger, is not.
		name: "OldAOF", reason: redlock.ReasonRestarted, config: redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}},
		before: func(t *testing.T, s *redistest.Server) func() *redistest.Server {
			redistest.Do(t, s, "CONFIG", "SET", "appendonly", "no")
			return func() *redistest.Server {
				must(t, s.Restart(t.Context()))
				return s
			}
		},
	},
	{
		// As at a fail-over to a replica that has not heard of the last writes.
		name: "Promoted", reason: redlock.ReasonRestarted,
		before: func(t *testing.T, s *redistest.Server) func() *redistest.Server {
			replica := redistest.Own(t, redistest.Config{})
			copies(t, replica, s)
			redistest.Do(t, replica, "REPLICAOF", "127.0.0.1", "1") // it hears nothing any more
			return func() *redistest.Server {
				must(t, s.Kill(t.Context()))
				redistest.Do(t, replica, "REPLICAOF", "NO", "ONE")
				return replica
			}
		},
	},
	{
		// And back, before anybody has asked the replica: it is the process that wrote the
		// guard, with what the replica knew.
		name: "PromotedAgain", reason: redlock.ReasonRestarted,
		before: func(t *testing.T, s *redistest.Server) func() *redistest.Server {
			replica := redistest.Own(t, redistest.Config{})
			copies(t, replica, s)
			redistest.Do(t, replica, "REPLICAOF", "127.0.0.1", "1")
			return func() *redistest.Server {
				redistest.Do(t, replica, "REPLICAOF", "NO", "ONE")
				copies(t, s, replica)
				redistest.Do(t, s, "REPLICAOF", "NO", "ONE")
				return s
			}
		},
	},
}

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
	for _, fault := range forgetful {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			servers := append(redistest.Nodes(t, 4), redistest.Own(t, fault.config))
			drop := func(string, func()) {} // what is sent there is lost
			onFirst, onLast := []conformance.Gate{nil, nil, drop, drop, nil}, []conformance.Gate{drop, drop, nil, nil, nil}
			known(t, servers)
			before := open(t, servers, calm, unhurried)
			verdict.Eventually(t, "the server has voted, and knows of the TTL", func() bool {
				err := acquire(t, before, lockOf(t, "before")).Release(t.Context())
				return err == nil && guardOf(t, servers[4])["max"] != "0" // no more than that it is bootstrapped
			})
			forget := fault.before(t, servers[4])
			guarded := acquire(t, gated(t, servers, onLast, calm, unhurried), lockOf(t, "guarded"))
			unguarded := acquire(t, gated(t, servers, onLast, calm, unhurried, redlock.WithoutGuard()), lockOf(t, "unguarded"))
			_, err := gated(t, servers, onFirst, calm, unhurried).NewLock(guarded.Name()).TryAcquire(t.Context())
			is(t, "TryAcquire() by the second before", err, strategy.ErrNoQuorum)

			servers[4] = forget()
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
			if err := unguarded.Extend(t.Context()); err == nil {
				t.Error("without the guard Extend() by the first = nil, want an error: the other's vote is one of its majority")
			}
			if err := both.Extend(t.Context()); err != nil {
				t.Errorf("without the guard Extend() by the second = %v, want nil", err)
			}
			unguarded.Detach() // what it has left lies on the others, and expires
			both.Detach()      // it was joined by those that it cannot reach, perhaps: a release would not know

			_, err = gated(t, servers, onFirst, calm, unhurried).NewLock(guarded.Name()).TryAcquire(t.Context())
			is(t, "TryAcquire() by the second", err, strategy.ErrNoQuorum, strategy.ErrRefused)
			isNot(t, "TryAcquire() by the second", err, strategy.ErrHeld)
			refusedBy(t, err, fault.reason, 0, contract.MaxTTL) // shared servers may have heard of longer TTLs
			if n := servers[4].Addr(); err != nil && !strings.Contains(err.Error(), n+": refused by the server: it does not vote for ") {
				t.Errorf("TryAcquire() by the second = %v, want it to name %s", err, n)
			}
			if err := guarded.Err(); err != nil {
				t.Errorf("Err() of the first = %v, want nil", err)
			}
			guarded.Detach()
			clean(t, servers, strategy.DefaultKey(unguarded.Name()), strategy.DefaultKey(guarded.Name()))
		})
	}
}

// TestForgottenAdoption: who adopts brings the old token, and a server that has forgotten
// an adoption shows it again.
func TestForgottenAdoption(t *testing.T) {
	t.Run("Refused", func(t *testing.T) {
		imitation(t, redistest.Shared(t), "what a server remembers over a restart")
		servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}}))
		lease := acquire(t, open(t, servers, calm, unhurried), lockOf(t))
		settled(t, servers, lease)
		token, err := lease.Detach()
		is(t, "Detach()", err)
		redistest.Do(t, servers[4], "CONFIG", "SET", "appendonly", "no") // what comes now is forgotten
		first, err := gated(t, servers, only(2, 3, 4), calm, unhurried).Adopt(t.Context(), lockOf(t), token)
		is(t, "Adopt()", err)
		must(t, servers[4].Restart(t.Context()))
		second, err := gated(t, servers, only(0, 1, 4), calm, unhurried).Adopt(t.Context(), lockOf(t), token)
		is(t, "Adopt() by another", err, strategy.ErrNoQuorum, strategy.ErrRefused)
		if err == nil {
			t.Errorf("Err() = %v and %v, want one holder", first.Err(), second.Err())
		}
		first.Detach()
		clean(t, servers, strategy.DefaultKey(lockOf(t)))
	})
}

// clean removes keys from servers that other tests use, too, or this one again.
func clean(t *testing.T, servers []*redistest.Server, keys ...any) {
	t.Helper()
	for _, s := range servers {
		redistest.Do(t, s, "DEL", keys...)
	}
}

// refusedBy checks that err has a *GuardError for that reason, for more than least and no
// more than most.
func refusedBy(t *testing.T, err error, reason string, least, most time.Duration) *redlock.GuardError {
	t.Helper()
	var g *redlock.GuardError
	if !errors.As(err, &g) {
		t.Fatalf("error = %v, want a *GuardError", err)
	}
	if g.Reason != reason || g.For <= least || g.For > most {
		t.Errorf("*GuardError = %+v, want %q, and %v … %v", *g, reason, least, most)
	}
	return g
}

// alone opens a strategy on one server, which is not bootstrapped.
func alone(t *testing.T, s *redistest.Server, ttl time.Duration, options ...redlock.Option) strategy.Strategy {
	t.Helper()
	locks, err := redlock.New(locktest.Nodes(s.Pool()), strategy.Options{TTL: ttl, OpTimeout: ttl - 1}, append([]redlock.Option{unhurried}, options...)...)
	return opened(t, locks, err)
}

func try(t *testing.T, s strategy.Strategy) error {
	t.Helper()
	lease, err := s.NewLock(lockOf(t)).TryAcquire(t.Context())
	if err == nil {
		release(t, lease)
	}
	return err
}

// TestGuardOpens: a server that is new votes when MaxTTL has passed, and not before.
func TestGuardOpens(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	locks := alone(t, s, time.Minute, redlock.WithMaxTTL(time.Hour))
	refusedBy(t, try(t, locks), redlock.ReasonEmpty, 59*time.Minute, time.Hour)
	passes(t, s, 50*time.Minute)
	refusedBy(t, try(t, locks), redlock.ReasonEmpty, 5*time.Minute, 10*time.Minute)
	passes(t, s, 10*time.Minute)
	is(t, "TryAcquire() when MaxTTL has passed", try(t, locks))
	// A client that wants a fence, or knows of a shorter TTL, gets its vote from guard.lua, not from fastpath.lua.
	for _, option := range []redlock.Option{redlock.WithFences(), redlock.WithMaxTTL(time.Minute)} {
		is(t, "TryAcquire() by others", try(t, alone(t, s, time.Minute, option)))
	}
}

// passes lets the server's generation be older by that much.
func passes(t *testing.T, s *redistest.Server, d time.Duration) {
	t.Helper()
	redistest.Do(t, s, "HINCRBY", redlock.GuardKey, "born", -d.Milliseconds())
}

// TestGuardHears: the longest TTL that anybody uses decides, as far as the servers can tell.
func TestGuardHears(t *testing.T) {
	const short, long = 10 * time.Second, 10 * time.Minute
	t.Run("OfAGrant", func(t *testing.T) {
		s := redistest.Own(t, redistest.Config{})
		known(t, []*redistest.Server{s})
		is(t, "TryAcquire()", try(t, alone(t, s, long)))
		locks := alone(t, s, short)
		is(t, "TryAcquire()", try(t, locks))
		redistest.Do(t, s, "FLUSHALL")
		refusedBy(t, try(t, locks), redlock.ReasonEmpty, short, long)
	})
	t.Run("OfARefusal", func(t *testing.T) {
		s := redistest.Own(t, redistest.Config{})
		known(t, []*redistest.Server{s})
		lease := acquire(t, alone(t, s, long), lockOf(t))
		locks := alone(t, s, short)
		is(t, "TryAcquire()", try(t, locks), strategy.ErrHeld)
		redistest.Do(t, s, "FLUSHALL")
		refusedBy(t, try(t, locks), redlock.ReasonEmpty, short, long)
		is(t, "Release()", lease.Release(t.Context()), strategy.ErrLost)
	})
	t.Run("Later", func(t *testing.T) { // what it may have forgotten was not for those alone who asked first
		s := redistest.Own(t, redistest.Config{})
		refusedBy(t, try(t, alone(t, s, short)), redlock.ReasonEmpty, 0, short)
		refusedBy(t, try(t, alone(t, s, long)), redlock.ReasonEmpty, short, long)
		refusedBy(t, try(t, alone(t, s, short)), redlock.ReasonEmpty, short, long)
	})
	t.Run("AfterARestart", func(t *testing.T) {
		imitation(t, redistest.Shared(t), "what a server remembers over a restart")
		s := redistest.Own(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
		known(t, []*redistest.Server{s})
		is(t, "TryAcquire()", try(t, alone(t, s, long)))
		must(t, s.Restart(t.Context()))
		refusedBy(t, try(t, alone(t, s, short)), redlock.ReasonRestarted, short, long)
	})
}

// TestPromotedLongAgo: a server that has no replica forgets after a while that it was
// promoted. That is no reason to stop voting.
func TestPromotedLongAgo(t *testing.T) {
	t.Parallel()
	s, replica := redistest.Own(t, redistest.Config{}), redistest.Own(t, redistest.Config{})
	imitation(t, s, "what becomes of a server that was promoted long ago")
	known(t, []*redistest.Server{s})
	redistest.Do(t, replica, "CONFIG", "SET", "repl-backlog-ttl", 1)
	is(t, "TryAcquire()", try(t, alone(t, s, time.Minute)))
	copies(t, replica, s)
	redistest.Do(t, replica, "REPLICAOF", "NO", "ONE")
	locks := alone(t, replica, time.Minute)
	refusedBy(t, try(t, locks), redlock.ReasonRestarted, 0, contract.MaxTTL)
	passes(t, replica, time.Minute)
	is(t, "TryAcquire() of the promoted server, when the TTL has passed", try(t, locks))
	verdict.Eventually(t, "the server forgets its promotion", func() bool {
		return bytes.Contains(redistest.Do(t, replica, "INFO", "replication").([]byte), []byte("master_replid2:0000"))
	})
	for range 2 {
		is(t, "TryAcquire() after that", try(t, locks))
	}
}

// TestGuardKnowsItsOwn: a replica has its primary's replication id, guard and all, and is
// not what wrote that: one that can be written, against all advice, does not vote for it.
func TestGuardKnowsItsOwn(t *testing.T) {
	t.Run("NotItsPrimarys", func(t *testing.T) {
		t.Parallel()
		s, replica := redistest.Own(t, redistest.Config{}), redistest.Own(t, redistest.Config{})
		imitation(t, s, "what becomes of a replica that can be written")
		known(t, []*redistest.Server{s})
		first := redistest.Own(t, redistest.Config{})
		copies(t, first, s) // with its first replica a server has a new id
		is(t, "TryAcquire()", try(t, alone(t, s, time.Minute)))
		copies(t, replica, s)
		if got, want := redistest.Do(t, replica, "HGET", redlock.GuardKey, "seen"), guardOf(t, s)["seen"]; string(got.([]byte)) != want {
			t.Fatalf("the replica's guard has seen %s, want %s as its primary's", got, want)
		}
		redistest.Do(t, replica, "CONFIG", "SET", "replica-read-only", "no")
		if err := try(t, alone(t, replica, time.Minute)); !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), ": READONLY ") {
			t.Errorf("TryAcquire() of a replica = %v, want READONLY", err)
		}
	})
	t.Run("WithItsFirstReplica", func(t *testing.T) { // which has given it another id
		t.Parallel()
		s, replica := redistest.Own(t, redistest.Config{}), redistest.Own(t, redistest.Config{})
		imitation(t, s, "what becomes of a server that gets a replica")
		known(t, []*redistest.Server{s})
		locks := alone(t, s, time.Minute)
		is(t, "TryAcquire()", try(t, locks))
		before := guardOf(t, s)
		copies(t, replica, s)
		for range 2 {
			is(t, "TryAcquire() of a server with a replica", try(t, locks))
		}
		after := guardOf(t, s)
		if after["seen"] == before["seen"] {
			t.Errorf("the guard has seen %s, as before the first replica, want another id", after["seen"])
		}
		before["seen"] = after["seen"]
		if !maps.Equal(before, after) {
			t.Errorf("the guard is %v, want %v as before", after, before)
		}
	})
}

// TestCheckKnowsMaxTTL: Check tells how long the locks will be refused.
func TestCheckKnowsMaxTTL(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	refusedBy(t, alone(t, s, time.Second, redlock.WithMaxTTL(time.Hour)).Check(t.Context()), redlock.ReasonEmpty, time.Hour-time.Minute, time.Hour)
}

// TestGuardBegins: the wait of a server that was restarted begins with the first question,
// also for a lock that it has kept: or it would begin with the release, for all who wait.
func TestGuardBegins(t *testing.T) {
	t.Run("WhileHeld", func(t *testing.T) {
		imitation(t, redistest.Shared(t), "what a server remembers over a restart")
		s := redistest.Own(t, redistest.Config{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
		known(t, []*redistest.Server{s})
		first := acquire(t, alone(t, s, time.Minute), lockOf(t))
		before := guardOf(t, s)
		must(t, s.Restart(t.Context()))
		is(t, "TryAcquire()", try(t, alone(t, s, time.Hour)), strategy.ErrHeld)
		after := guardOf(t, s)
		if after["why"] != redlock.ReasonRestarted || after["run"] == before["run"] {
			t.Errorf("the guard is %v after a refusal, and was %v before the restart, want it to have begun", after, before)
		}
		if after["max"] != "3600000" {
			t.Errorf("the guard has heard of a TTL of %s ms, want 3600000, that of who was refused", after["max"])
		}
		redistest.Do(t, s, "CONFIG", "SET", "maxmemory", 1) // it needs no memory to say that it is held
		is(t, "TryAcquire() of a server out of memory", try(t, alone(t, s, 2*time.Hour)), strategy.ErrHeld)
		redistest.Do(t, s, "CONFIG", "SET", "maxmemory", 0)
		first.Detach()
	})
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

	err = locks.Check(t.Context())
	refusedBy(t, err, redlock.ReasonEmpty, 0, calm.TTL)
	if err == nil || strings.Count(err.Error(), "does not vote") != 3 {
		t.Errorf("Check() of new servers = %v, want that none of the three votes", err)
	}
	if err == nil || strings.Count(err.Error(), "redlock.Bootstrap") != 1 || strings.Count(err.Error(), "until 1m0s after its first request for a lock") != 3 {
		t.Errorf("Check() of new servers = %v, want it to say, once, what to do, and of each that to check again is no use", err)
	}
	for i, s := range servers {
		if g := guardOf(t, s); len(g) > 0 {
			t.Errorf("after Check() server %d has %v, want it to have written nothing", i+1, g)
		}
	}

	err = try(t, locks)
	is(t, "TryAcquire() on new servers", err, strategy.ErrNoQuorum, strategy.ErrRefused)
	if err == nil || !strings.Contains(err.Error(), "; they vote in ") || !strings.Contains(err.Error(), "redlock.Bootstrap") {
		t.Errorf("TryAcquire() on new servers = %v, want it to say what ends the wait", err)
	}
	verdict.Eventually(t, "Check() of servers that have been asked says for how long they still wait", func() bool {
		try(t, locks) // the first time, two of the three were perhaps enough for an answer
		err := locks.Check(t.Context())
		return err != nil && strings.Count(err.Error(), "does not vote for ") == 3
	})
	for range 2 {
		before := guardOf(t, servers[0])
		if err := bootstrap(t.Context(), pools(servers)...); err != nil {
			t.Fatalf("Bootstrap() = %v, want nil", err)
		}
		is(t, "TryAcquire() on bootstrapped servers", try(t, locks))
		is(t, "Check() of bootstrapped servers", locks.Check(t.Context()))
		if after := guardOf(t, servers[0]); before["new"] == "1" && !maps.Equal(before, after) {
			t.Errorf("after a second Bootstrap() the guard is %v, want %v as before", after, before)
		}
	}

	lease := acquire(t, locks, lockOf(t))
	settled(t, servers, lease)
	redistest.Do(t, servers[1], "DEL", redlock.GuardKey)
	if err := bootstrap(t.Context(), pools(servers)...); err != nil {
		t.Fatalf("Bootstrap() = %v, want nil", err)
	}
	settled(t, servers, lease) // what is there stays
	release(t, lease)

	down := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("as the test has it") }}
	redistest.Do(t, servers[2], "FLUSHALL")
	err = bootstrap(t.Context(), append([]*redis.Pool{down}, pools(servers[2:])...)...)
	is(t, "Bootstrap() of one that is down", err, strategy.ErrUnsent)
	if err == nil || !strings.HasPrefix(err.Error(), "node 1: ") {
		t.Errorf("Bootstrap() = %v, want node 1 by its name", err)
	}
	is(t, "TryAcquire() on the other", try(t, alone(t, servers[2], time.Minute)))
	one := named("10.0.0.1:6379")
	for want, nodes := range map[string][]driver.Node{"allowed are": nil, "each server once": {one, one}} {
		if err := redlock.Bootstrap(t.Context(), nodes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Bootstrap() of %d nodes that are not as many servers = %v, want that it says %q", len(nodes), err, want)
		}
	}
	var conns atomic.Int64
	counted := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.DialURL(servers[0].URL(), redis.DialNetDial(func(network, addr string) (net.Conn, error) {
			c, err := net.Dial(network, addr)
			conns.Add(1)
			return closes{c, sync.OnceFunc(func() { conns.Add(-1) })}, err
		}))
	}}
	is(t, "Bootstrap()", bootstrap(t.Context(), counted))
	verdict.Eventually(t, "Bootstrap has closed its connections", func() bool { return conns.Load() == 0 })
}

// closes tells when a connection is closed.
type closes struct {
	net.Conn
	closed func()
}

func (c closes) Close() error {
	c.closed()
	return c.Conn.Close()
}

// TestQuarantinedMinority: one server that does not vote costs no more than one that is down.
func TestQuarantinedMinority(t *testing.T) {
	servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{}))
	known(t, servers[:4])
	bootstrapped.Store(servers[4], func() error { return nil })
	locks := open(t, servers, calm, unhurried)
	lease := acquire(t, locks, lockOf(t))
	settled(t, servers[:4], lease)
	_, err := locks.NewLock(lockOf(t)).TryAcquire(t.Context())
	is(t, "TryAcquire() of a held lock", err, strategy.ErrHeld)
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}
	settled(t, servers, lease) // it does not vote, but may keep what a majority has granted
	release(t, lease)
	empty(t, servers, lockOf(t))
	err = locks.Check(t.Context())
	refusedBy(t, err, redlock.ReasonEmpty, 0, contract.MaxTTL) // as shared servers may have heard of longer TTLs
	name := servers[4].Addr()
	if imitates(servers[4]) { // an imitation does not tell its address
		name = "node 5: "
	}
	if err != nil && (strings.Count(err.Error(), "does not vote") != 1 || !strings.Contains(err.Error(), name)) {
		t.Errorf("Check() = %v, want the one that does not vote, %s", err, name)
	}
}

// TestGuardSettings: what is not allowed is refused, and the error says what is.
func TestGuardSettings(t *testing.T) {
	for what, options := range map[string][]redlock.Option{
		"a MaxTTL below the TTL":     {redlock.WithMaxTTL(calm.TTL - time.Millisecond)},
		"a MaxTTL of no whole ms":    {redlock.WithMaxTTL(calm.TTL + time.Microsecond)},
		"a MaxTTL beyond all":        {redlock.WithMaxTTL(contract.MaxTTL + time.Millisecond)},
		"a MaxTTL without the guard": {redlock.WithMaxTTL(calm.TTL), redlock.WithoutGuard()},
		"fences without the guard":   {redlock.WithFences(), redlock.WithoutGuard()},
		"an option that is nil":      {nil},
	} {
		s, err := redlock.New([]driver.Node{named("a")}, calm, options...)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: New() = %v, want an error that says what is allowed", what, err)
		}
	}
	for what, options := range map[string][]redlock.Option{
		"MaxTTL":       {redlock.WithMaxTTL(calm.TTL)},
		"fences":       {redlock.WithFences()},
		"WithoutGuard": {redlock.WithoutGuard()},
	} {
		s, err := redlock.New([]driver.Node{named("a")}, calm, options...)
		if err != nil {
			t.Errorf("%s: New() = %v, want nil", what, err)
			continue
		}
		s.Close()
	}
	// One node twice is refused, if nodes can be compared: a type that can be may have something in it that
	// cannot. The name says nothing: servers behind one proxy have the same, and a node may not know its own yet.
	for _, c := range []struct {
		node driver.Node
		want string
	}{
		{named("a"), "nodes 1 and 3 are both a: allowed is each server once"},
		{named(driver.Unnamed), "nodes 1 and 3 are both"},
		{struct{ driver.Node }{uncomparable{Node: named("a")}}, "<nil>"},
	} {
		s, err := redlock.New([]driver.Node{c.node, named("b"), c.node}, calm)
		if err == nil {
			s.Close()
		}
		if !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("New() with one node twice = %v, want %s", err, c.want)
		}
	}
	s, err := redlock.New([]driver.Node{named("a"), named("a"), named("a")}, calm)
	if err != nil {
		t.Fatalf("New() with three nodes of one name = %v, want nil", err)
	}
	s.Close()
}

type uncomparable struct {
	driver.Node
	_ []int
}
