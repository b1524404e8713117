// Tests what RedLock does on real servers, one of which may be restarted, promoted, foreign or there twice, and what
// every lock must do (the conformance suite).
package redlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/enginetest"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	redistest.Main(m, func(s *redistest.Server) {
		url = s.URL()
		if err := bootstrap(context.Background(), s.Pool()); err != nil {
			panic(err)
		}
		for _, f := range []*fake{{name: "east"}, {name: "north", down: true}, {name: "west", down: true}} {
			yourNodes = append(yourNodes, f)
		}
		// Tests mostly wait for servers, so more of them fit in than there are processors.
		if p := flag.Lookup("test.parallel"); !imitates(s) && p.Value.String() == p.DefValue {
			p.Value.Set("8")
		}
	})
}

// TestConformance holds the strategy to what every lock must do: on five servers, on as many with
// fences, and with no server to spare.
func TestConformance(t *testing.T) {
	subjects.Run(t, "redlock", "redlock", "redlock-fenced")
}

// TestConformanceTwoDead is left to "make more": TestAnyMinority is faster.
func TestConformanceTwoDead(t *testing.T) { subjects.Run(t, "redlock", "redlock-2-dead") }

// calm is for tests in which no time-out is meant to come.
var calm = strategy.Options{TTL: time.Minute, OpTimeout: 20 * time.Second}

// bootstrap is Bootstrap of what pools dial.
func bootstrap(ctx context.Context, pools ...*redis.Pool) error {
	return locktest.OnNodes(pools, func(nodes []driver.Node) error { return redlock.Bootstrap(ctx, nodes) })
}

func pools(servers []*redistest.Server) []*redis.Pool {
	var ps []*redis.Pool
	for _, s := range servers {
		ps = append(ps, s.Pool())
	}
	return ps
}

// open returns a strategy on some of the servers, by their numbers; nil: on all. Its requests to others are lost.
func open(t *testing.T, servers []*redistest.Server, some []int, options ...redlock.Option) strategy.Strategy {
	t.Helper()
	nodes := locktest.Nodes(pools(servers)...)
	for i, n := range nodes {
		if some != nil && !slices.Contains(some, i) {
			nodes[i] = conformance.GateNode(n, func(string, func()) {})
		}
	}
	// A busy machine is not 50 ms precise: a node may take as long as the operation may.
	locks, err := redlock.New(nodes, calm, append([]redlock.Option{redlock.WithNodeTimeout(time.Minute)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { is(t, "Close()", locks.Close()) })
	return locks
}

// lockOf names a lock that only this test uses, in this process: the servers may be others', too.
func lockOf(t *testing.T, which string) string { return t.Name() + thisProcess + which }

var thisProcess = rand.Text()

func acquire(t *testing.T, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want nil", err)
	}
	return lease
}

var is, isNot = enginetest.Is, enginetest.IsNot

// settled waits until all servers have the lease's token.
func settled(t *testing.T, servers []*redistest.Server, l strategy.Lease) {
	t.Helper()
	verdict.Eventually(t, "all servers have granted", func() bool {
		return !slices.ContainsFunc(servers, func(s *redistest.Server) bool {
			token, _ := redistest.Do(t, s, "GET", strategy.DefaultKey(l.Name())).([]byte)
			return string(token) != l.Token()
		})
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		redistest.Skip(t, err, "what becomes of a lock when its servers fail")
	}
}

// imitates says of a server that it is an embedded one.
func imitates(s *redistest.Server) bool { return strings.Contains(s.Version(), "not known") }

// imitation skips a test that an embedded server, which says nothing of itself, cannot pass.
func imitation(t *testing.T, s *redistest.Server, notProven string) {
	t.Helper()
	if imitates(s) {
		t.Skip("NOT PROVEN: " + notProven)
	}
}

// TestTwins: one server under two names would vote twice.
func TestTwins(t *testing.T) {
	s := redistest.Nodes(t, 1)[0]
	imitation(t, s, "that a server under two names is named: it has no run_id")
	is(t, "Bootstrap()", bootstrap(t.Context(), s.Pool()))
	alias := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(s.URL()) }}
	defer alias.Close()
	locks, err := redlock.New(locktest.Nodes(s.Pool(), alias), calm)
	is(t, "New()", err)
	defer locks.Close()
	_, err = locks.NewLock(lockOf(t, "")).TryAcquire(t.Context())
	is(t, "TryAcquire()", err, strategy.ErrRefused)
	for call, err := range map[string]error{"TryAcquire": err, "Check": locks.Check(t.Context())} {
		for _, word := range []string{"node 1 (", "node 2 (", "give each server once"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s() = %v, want it to say %q", call, err, word)
			}
		}
	}
	verdict.Eventually(t, "the server has no key of the lock", func() bool {
		return redistest.Do(t, s, "EXISTS", strategy.DefaultKey(lockOf(t, ""))) == int64(0)
	})
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
			onFirst, onLast := []int{0, 1, 4}, []int{2, 3, 4}
			is(t, "Bootstrap()", bootstrap(t.Context(), pools(servers)...))
			before := open(t, servers, nil)
			verdict.Eventually(t, "the server has voted, and knows of the TTL", func() bool {
				err := acquire(t, before, lockOf(t, "before")).Release(t.Context())
				return err == nil && guardOf(t, servers[4])["max"] != "0" // no more than that it is bootstrapped
			})
			fault.before(t, servers[4], replica)
			guarded := acquire(t, open(t, servers, onLast), lockOf(t, "guarded"))
			unguarded := acquire(t, open(t, servers, onLast, redlock.WithoutGuard()), lockOf(t, "unguarded"))
			try := func() error {
				_, err := open(t, servers, onFirst).NewLock(guarded.Name()).TryAcquire(t.Context())
				return err
			}
			is(t, "TryAcquire() by the second before", try(), strategy.ErrNoQuorum)

			servers[4] = fault.forget(t, servers[4], replica)
			second := open(t, servers, onFirst, redlock.WithoutGuard())
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
	var servers []*redistest.Server
	for range 3 {
		servers = append(servers, redistest.Own(t, redistest.Config{}))
	}
	locks := open(t, servers, nil)
	says := func(what string, err error, times map[string]int) {
		t.Helper()
		for text, n := range times {
			if err == nil || strings.Count(err.Error(), text) != n {
				t.Errorf("%s = %v, want it to say %d times %q", what, err, n, text)
			}
		}
	}
	err := locks.Check(t.Context())
	refusedBy(t, err, redlock.ReasonEmpty, calm.TTL)
	says("Check() of new servers", err, map[string]int{"redlock.Bootstrap": 1, "vote until 1m0s after its first request for a lock": 3})
	for i, s := range servers {
		if g := guardOf(t, s); len(g) > 0 {
			t.Errorf("after Check() server %d has %v, want it to have written nothing", i+1, g)
		}
	}
	_, err = locks.NewLock(lockOf(t, "")).TryAcquire(t.Context())
	is(t, "TryAcquire() on new servers", err, strategy.ErrNoQuorum, strategy.ErrRefused)
	says("TryAcquire() on new servers", err, map[string]int{"; they vote in ": 1, "redlock.Bootstrap": 1})

	is(t, "Bootstrap()", bootstrap(t.Context(), pools(servers)...))
	is(t, "Check() of bootstrapped servers", locks.Check(t.Context()))
	lease := acquire(t, locks, lockOf(t, ""))
	settled(t, servers, lease)
	redistest.Do(t, servers[1], "DEL", redlock.GuardKey)
	is(t, "Bootstrap()", bootstrap(t.Context(), pools(servers)...))
	settled(t, servers, lease) // what is there stays
	is(t, "Release()", lease.Release(t.Context()))

	down := &redis.Pool{Dial: func() (redis.Conn, error) { return nil, errors.New("as the test has it") }}
	err = bootstrap(t.Context(), append([]*redis.Pool{down}, pools(servers)...)...)
	is(t, "Bootstrap() of one that is down", err, strategy.ErrUnsent)
	says("Bootstrap() of one that is down", err, map[string]int{"node 1: ": 1})
	says("Bootstrap() of no nodes", redlock.Bootstrap(t.Context(), nil), map[string]int{"allowed are": 1})
}

// TestNodesOfACluster: the nodes of one cluster are refused, with the reason, by Check and by
// the first attempt, which leaves nothing.
func TestNodesOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.OwnCluster(t, redistest.ClusterConfig{}).Servers()
	s := open(t, cluster, nil)
	const why = "belongs to a Redis Cluster: RedLock takes servers that know nothing of each other"
	if err := s.Check(t.Context()); err == nil || strings.Count(err.Error(), why) != len(cluster) {
		t.Errorf("Check() = %v, want of each node that it %s", err, why)
	}
	_, err := s.NewLock(t.Name()).TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrRefused) || !errors.Is(err, strategy.ErrNoQuorum) || strings.Count(err.Error(), why) < 2 {
		t.Errorf("TryAcquire() = %v, want ErrRefused by most, as it %s", err, why)
	}
	for _, s := range cluster {
		if n := redistest.Do(t, s, "DBSIZE"); n != int64(0) {
			t.Errorf("DBSIZE = %v, want 0", n)
		}
	}
}
