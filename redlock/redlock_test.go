// Tests what RedLock does on real servers that are killed, frozen, slow, foreign or one twice, and what
// every lock must do (the conformance suite). Most tests of other files use the helpers here.
package redlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
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

// unhurried lets a node take as long as the operation may: a busy machine is not
// 50 ms precise.
var unhurried = redlock.WithNodeTimeout(time.Minute)

// bootstrapped are servers that this test binary has bootstrapped already.
var bootstrapped sync.Map

// known bootstraps servers, each once: what becomes of one that forgets is for its own tests.
func known(t *testing.T, servers []*redistest.Server) {
	t.Helper()
	for _, s := range servers {
		bootstrap, _ := bootstrapped.LoadOrStore(s, sync.OnceValue(func() error {
			return bootstrap(context.Background(), s.Pool())
		}))
		if err := bootstrap.(func() error)(); err != nil {
			t.Fatal(err)
		}
	}
}

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

// open returns a strategy on servers that is closed with the test.
func open(t *testing.T, servers []*redistest.Server, o strategy.Options, options ...redlock.Option) strategy.Strategy {
	t.Helper()
	known(t, servers)
	locks, err := redlock.New(locktest.Nodes(pools(servers)...), o, options...)
	return opened(t, locks, err)
}

func opened(t *testing.T, locks strategy.Strategy, err error) strategy.Strategy {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
	})
	return locks
}

// gated is open with a gate before each node; nil: none.
func gated(t *testing.T, servers []*redistest.Server, gates []conformance.Gate, o strategy.Options, options ...redlock.Option) strategy.Strategy {
	t.Helper()
	known(t, servers)
	nodes := locktest.Nodes(pools(servers)...)
	for i, n := range nodes {
		if gates[i] != nil {
			nodes[i] = conformance.GateNode(n, gates[i])
		}
	}
	locks, err := redlock.New(nodes, o, options...)
	return opened(t, locks, err)
}

// lockOf names a lock that only this test uses, in this process: the servers may be
// others', too.
func lockOf(t *testing.T, which ...string) string {
	return strings.Join(append([]string{t.Name(), thisProcess}, which...), " ")
}

var thisProcess = rand.Text()

func acquire(t *testing.T, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatalf("TryAcquire() = %v, want nil", err)
	}
	return lease
}

func release(t *testing.T, l strategy.Lease) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

var is, isNot = enginetest.Is, enginetest.IsNot

// token is what a server has at the key of a lock.
func token(t *testing.T, s *redistest.Server, name string) string {
	t.Helper()
	text, _ := redistest.Do(t, s, "GET", strategy.DefaultKey(name)).([]byte)
	return string(text)
}

// settled waits until all servers have the lease's token.
func settled(t *testing.T, servers []*redistest.Server, l strategy.Lease) {
	t.Helper()
	verdict.Eventually(t, "all servers have granted", func() bool {
		return !slices.ContainsFunc(servers, func(s *redistest.Server) bool { return token(t, s, l.Name()) != l.Token() })
	})
}

// empty waits until no server has the lock's key.
func empty(t *testing.T, servers []*redistest.Server, name string) {
	t.Helper()
	verdict.Eventually(t, "no server has a key of the lock", func() bool {
		return !slices.ContainsFunc(servers, func(s *redistest.Server) bool {
			return redistest.Do(t, s, "EXISTS", strategy.DefaultKey(name)) != int64(0)
		})
	})
}

// ownServers are servers for this test alone.
func ownServers(t *testing.T, n int) []*redistest.Server {
	t.Helper()
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.Own(t, redistest.Config{})
	}
	return servers
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
	known(t, []*redistest.Server{s})
	alias := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(s.URL()) }}
	defer alias.Close()
	locks, err := redlock.New(locktest.Nodes(s.Pool(), alias), calm, unhurried)
	opened(t, locks, err)
	_, err = locks.NewLock(lockOf(t)).TryAcquire(t.Context())
	is(t, "TryAcquire()", err, strategy.ErrRefused)
	for call, err := range map[string]error{"TryAcquire": err, "Check": locks.Check(t.Context())} {
		for _, word := range []string{"node 1 (", "node 2 (", "give each server once"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s() = %v, want it to say %q", call, err, word)
			}
		}
	}
	empty(t, []*redistest.Server{s}, lockOf(t))
}

// TestUnusable: the error says which node cannot be used. Those before it are given up again, and no other. Nor is the
// error of a node's Close lost.
func TestUnusable(t *testing.T) {
	for i := range 3 {
		nodes := []driver.Node{named("a"), named("b"), named("c")}
		fault := errors.New("its client is nil")
		s, err := redlock.New(nodes, calm)
		is(t, "New()", err)
		nodes[i].(*namedNode).fault = fault
		is(t, "Close()", s.Close(), fault)
		_, err = redlock.New(nodes, calm)
		if want := fmt.Sprintf("(node %d of 3)", i+1); !errors.Is(err, fault) || !strings.Contains(err.Error(), want) {
			t.Errorf("New() = %v, want %v %s", err, fault, want)
		}
		for j, n := range nodes {
			if used := n.(*namedNode).used.Load(); used != 0 {
				t.Errorf("node %d fails: node %d has been used %d times more than it was closed, want 0", i+1, j+1, used)
			}
		}
	}
}

// named is a node that knows its name and nothing else.
func named(name string) driver.Node { return &namedNode{name: name} }

type namedNode struct {
	driver.Node
	name  string
	fault error        // of Use and Close
	used  atomic.Int64 // less how often it was closed
}

func (n *namedNode) Name() string { return n.name }

func (n *namedNode) Use() error {
	if n.fault == nil {
		n.used.Add(1)
	}
	return n.fault
}

func (n *namedNode) Close() error {
	n.used.Add(-1)
	return n.fault
}

func (n *namedNode) Probe(context.Context, time.Time) uint64 { return 0 }
