// Package clienttest has what the tests of the adapters under clients share: the exported
// suite on nodes of a client, a cluster for all tests of a module, and what becomes of locks
// whose slots move. Package nodetest proves what a node as such has to do.
package clienttest

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/quotes"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

var whole = flag.Bool("all", false, "hold the suite on all strategies, not only on those that need all of a node")

const (
	// allVar tells a child process of the suite that its parent has -all.
	allVar = "LOCKS_CLIENTS_ALL"
	// clusterVar tells it where the parent's cluster is.
	clusterVar = "LOCKS_CLIENTS_CLUSTER"
)

// Patient are options by which nobody gets a lock because a TTL has ended.
var Patient = strategy.Options{TTL: 10 * time.Minute, OpTimeout: 20 * time.Second}

// Variants are those of these names, or with -all every one that needs no more servers. The one
// called fairqueue needs scripts, bulk renewal and subscriptions of a node, setnxgetset-watch
// commands and sessions: nothing else of a node is used.
func Variants(servers int, names ...string) (vs []subjects.Variant) {
	for _, v := range subjects.All() {
		all := *whole || os.Getenv(allVar) != ""
		if v.Servers <= servers && len(v.Commands) == 0 && (all || slices.Contains(names, v.Name)) {
			vs = append(vs, v)
		}
	}
	return vs
}

// Conformance holds the suite on nodes of a client, each of one server. A node's Close ends
// what open has started for it.
func Conformance(t *testing.T, open func(url string) (driver.Node, error)) {
	for _, v := range Variants(5, "fairqueue", "setnxgetset-watch") {
		servers, err := redistest.TryNodes(t, v.Servers)
		if err != nil {
			t.Run(v.Name, func(t *testing.T) { redistest.Must(t, err) })
			continue
		}
		if _, err := subjects.Bootstrap(t.Context(), []subjects.Variant{v}, servers); err != nil {
			t.Fatal(err)
		}
		var urls []string
		for _, s := range servers {
			urls = append(urls, s.URL())
		}
		for i := range v.Dead { // nobody answers there
			urls = append(urls, "redis://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(i+1)))
		}
		s := v.Subject(servers)
		s.OpenGround = v.Ground(redistest.ForTests(t), func(links []*rig.Link, o strategy.Options) (strategy.Strategy, error) {
			return on(v, v.On, o, func(i int) (driver.Node, error) { return open(links[i].URL()) })
		})
		run(t, v, s, func(i int) (driver.Node, error) { return open(urls[i]) })
	}
}

// on is the algorithm on its nodes.
func on(v subjects.Variant, algorithm func([]driver.Node) driver.Protocol, o strategy.Options, node func(i int) (driver.Node, error)) (strategy.Strategy, error) {
	var nodes []driver.Node
	for i := range v.Servers + v.Dead {
		n, err := node(i)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return engine.New(algorithm(nodes), o)
}

// run holds the suite on s, with other nodes.
func run(t *testing.T, v subjects.Variant, s conformance.Subject, node func(i int) (driver.Node, error)) {
	t.Helper()
	open := func(o strategy.Options, algorithm func([]driver.Node) driver.Protocol, around func(int, driver.Node) driver.Node) (strategy.Strategy, error) {
		return on(v, algorithm, o, func(i int) (driver.Node, error) {
			n, err := node(i)
			if err != nil {
				return nil, err
			}
			return around(i, n), nil
		})
	}
	plainly := func(_ int, n driver.Node) driver.Node { return n }
	s.Open = func(o strategy.Options) (strategy.Strategy, error) { return open(o, v.On, plainly) }
	s.OpenGated = func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
		return open(o, v.On, func(_ int, n driver.Node) driver.Node { return conformance.GateNode(n, g) })
	}
	s.OpenNodes = func(o strategy.Options, gates []conformance.Gate) (strategy.Strategy, error) {
		return open(o, v.On, func(i int, n driver.Node) driver.Node { return conformance.GateNode(n, gates[i]) })
	}
	s.OpenSkewed = func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
		on := v.On
		if v.Skewed != nil {
			on = func(nodes []driver.Node) driver.Protocol { return v.Skewed(nodes, ahead) }
		}
		return open(o, on, plainly)
	}
	if *whole {
		s.ChildEnv = append(s.ChildEnv, allVar+"=1")
	}
	conformance.Run(t, s)
}

var calm struct {
	sync.Mutex
	cl *redistest.Cluster
}

// Cluster is one for all tests of a module whose keys are their own, and which leave all
// masters alive. It ends with the farm.
func Cluster(t testing.TB) *redistest.Cluster {
	t.Helper()
	calm.Lock()
	defer calm.Unlock()
	if calm.cl == nil {
		cl, err := redistest.ForTests(t).StartCluster(context.Background(), redistest.ClusterConfig{})
		redistest.Must(t, err)
		calm.cl = cl
	}
	return calm.cl
}

// Addrs are where that cluster is, in a child process of the suite, too.
func Addrs(t testing.TB) []string {
	t.Helper()
	if told := os.Getenv(clusterVar); told != "" {
		return strings.Split(told, ",")
	}
	return Cluster(t).Addrs()
}

// ClusterConformance holds the suite on nodes of a cluster of three masters, for the strategies
// of these names, or with -all for every one on one server.
func ClusterConformance(t *testing.T, open func(addrs []string) (driver.Node, error), names ...string) {
	addrs := Addrs(t)
	var masters []*redis.Pool
	for _, addr := range addrs {
		pool := &redis.Pool{MaxIdle: 8, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
		t.Cleanup(func() { pool.Close() })
		masters = append(masters, pool)
	}
	for _, v := range Variants(1, names...) {
		s := v.SubjectOn(masters) // which finds leftovers on all of them
		s.Name += "-cluster"
		s.Evict = func(_ context.Context, key string) error { return served(masters, "DEL", key) }
		s.Spoil = func(_ context.Context, key string) error {
			if v.Foreign != "" {
				return served(masters, "SET", key, v.Foreign)
			}
			return errors.Join(served(masters, "DEL", key), served(masters, "LPUSH", key, "not a lock"))
		}
		s.ChildEnv = []string{
			clusterVar + "=" + strings.Join(addrs, ","),
			"REDIS_ADDRS=" + strings.Join(addrs, ","), "REDIS_KIND=" + string(redistest.Given),
		}
		s.OpenGround = clusterGround(t, v, open)
		run(t, v, s, func(int) (driver.Node, error) { return open(addrs) })
	}
}

// clusterGround is a cluster of one master with a replica: see [conformance.Subject].OpenGround.
func clusterGround(t *testing.T, v subjects.Variant, open func(addrs []string) (driver.Node, error)) func(context.Context) (*conformance.Ground, error) {
	if redistest.ForTests(t).Kind() == redistest.Given { // a child of the suite
		return nil
	}
	return func(ctx context.Context) (*conformance.Ground, error) {
		cl, err := redistest.ForTests(t).StartCluster(ctx, redistest.ClusterConfig{Masters: 1, Replicas: 1})
		if err != nil {
			return nil, err
		}
		demote := func(ctx context.Context) error {
			master, err := cl.Owner(ctx, 0)
			if err == nil {
				_, err = cl.Demote(ctx, master)
			}
			return err
		}
		return &conformance.Ground{
			Open: func(o strategy.Options) (strategy.Strategy, error) {
				return on(v, v.On, o, func(int) (driver.Node, error) { return open(cl.Addrs()) })
			},
			Moves: []conformance.Move{{Name: "CLUSTER FAILOVER", Do: demote}}, // nobody votes twice in half a minute
			Close: func() error { return cl.Stop(context.Background()) },
		}, nil
	}
}

// served asks one master after the other until it is the key's.
func served(masters []*redis.Pool, cmd string, args ...any) (err error) {
	for _, pool := range masters {
		c := pool.Get()
		_, err = c.Do(cmd, args...)
		c.Close()
		if err == nil || !strings.HasPrefix(err.Error(), "MOVED ") {
			break
		}
	}
	return err
}

// Must ends the test unless err is nil.
func Must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Strategy is p's, closed with the test.
func Strategy(t testing.TB, p driver.Protocol, o strategy.Options) strategy.Strategy {
	t.Helper()
	s := Must[strategy.Strategy](t)(engine.New(p, o))
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // of servers that may be dead by then
	return s
}

// Readme checks that the code of the README compiles.
func Readme(t *testing.T) {
	if from, err := quotes.Check("README.md"); err != nil || len(from) == 0 {
		t.Error(from, err)
	}
}

// A Move is the slot of a key, and the masters between which it goes.
type Move struct {
	t        testing.TB
	cl       *redistest.Cluster
	Slot     int
	From, To *redistest.Server
}

// MoveOf is the move of a key's slot to another master, not yet begun.
func MoveOf(t testing.TB, cl *redistest.Cluster, key string) Move {
	t.Helper()
	slot := Must[int](t)(cl.Slot(t.Context(), key))
	from := Must[*redistest.Server](t)(cl.Owner(t.Context(), slot))
	return Move{t, cl, slot, from, Must[*redistest.Server](t)(cl.Other(t.Context(), from))}
}

// Whole moves the slot with its keys.
func (m Move) Whole() {
	m.t.Helper()
	if err := m.cl.Move(m.t.Context(), m.Slot, m.To); err != nil {
		m.t.Fatal(err)
	}
}

// Begin leaves the slot between the two.
func (m Move) Begin() *redistest.Move {
	m.t.Helper()
	return Must[*redistest.Move](m.t)(m.cl.BeginMove(m.t.Context(), m.Slot, m.To))
}

// TryAgains counts what the two masters have refused since keys were on their way.
func (m Move) TryAgains() (n int) {
	m.t.Helper()
	for _, s := range []*redistest.Server{m.From, m.To} {
		stats := fmt.Sprintf("%s", redistest.Do(m.t, s, "INFO", "errorstats"))
		_, rest, _ := strings.Cut(stats, "errorstat_TRYAGAIN:count=")
		count, _, _ := strings.Cut(rest, "\r")
		here, _ := strconv.Atoi(count) // 0: none yet
		n += here
	}
	return n
}

// SubscriptionFollows moves the slot of a channel to another master: the subscription ends when a
// command has met with the move, and the next is at the new master, where scripts count it.
func SubscriptionFollows(t *testing.T, n driver.Node) {
	cl := Cluster(t)
	channel := "{" + t.Name() + rand.Text() + "}" // an earlier run's messages may still be on their way among the masters
	h, stop := nodetest.Subscribe(t, n, channel)
	if nodetest.Publish(t, n, channel, "here") != 1 || nodetest.Receive(t, "a message", h.Msgs) != "here" {
		t.Error("not heard")
	}
	// One whose slot stays where it is.
	other, stopOther := nodetest.Subscribe(t, n, strayFrom(t, cl, channel))
	MoveOf(t, cl, channel).Whole()
	Must[any](t)(n.Do(t.Context(), nodetest.Soon(), "GET", channel)) // MOVED
	nodetest.Want(t, "the end", nodetest.Receive(t, "the end", h.Ends), strategy.ErrUnknown)
	stop()
	verdict.Eventually(t, "it is subscribed at the new server", func() bool { // which the client may learn of a little later
		_, stop := nodetest.Subscribe(t, n, channel)
		defer stop()
		return nodetest.Publish(t, n, channel, "there") == 1
	})
	verdict.Eventually(t, "nobody listens", func() bool { return nodetest.Publish(t, n, channel, "nobody") == 0 })
	if stopOther(); !h.Silent() || !other.Silent() {
		t.Error("told after the end, or of a slot that has not moved")
	}
}

// strayFrom is a channel in another slot of the same master.
func strayFrom(t testing.TB, cl *redistest.Cluster, channel string) string {
	t.Helper()
	at := MoveOf(t, cl, channel)
	for i := 0; ; i++ {
		if other := fmt.Sprint(channel[1:len(channel)-1], i); MoveOf(t, cl, other).From == at.From {
			return other
		}
	}
}

// HeldLockMoves moves the slot of a lock that is held to another master. Its holder goes on,
// others are refused, and after the release a contender that has queued gets it, then a rival. It does so for
// all strategies on one server but those named.
func HeldLockMoves(t *testing.T, open func(t testing.TB, addrs []string) driver.Node, except ...string) {
	cl := Cluster(t)
	for _, v := range subjects.All() {
		if v.Servers > 1 || v.Aside || slices.Contains(except, v.Name) {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			n := open(t, cl.Addrs())
			retrying := Patient
			retrying.RetryOnError = true // a waiter's script may find its keys on both sides: TRYAGAIN
			holder := Strategy(t, v.On([]driver.Node{n}), retrying)
			rival := Strategy(t, v.On([]driver.Node{open(t, cl.Addrs())}), Patient)
			lease := Must[strategy.Lease](t)(holder.NewLock(t.Name()).TryAcquire(t.Context()))
			waited := make(chan error, 1)
			go func() {
				if !v.Fair { // it polls, and a session may meet with the move: see the adapters' docs
					waited <- nil
					return
				}
				next, err := holder.NewLock(t.Name()).Acquire(t.Context())
				if err == nil {
					err = next.Release(t.Context())
				}
				waited <- err
			}()
			MoveOf(t, cl, t.Name()).Whole()
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend after the move = %v, want nil", err)
			}
			if n.Ordered() {
				t.Error("Ordered = true after the move, want false: nobody asks the old server what it has yet to read")
			}
			if _, err := rival.NewLock(t.Name()).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
				t.Errorf("a rival's TryAcquire = %v, want %v", err, strategy.ErrHeld)
			}
			MoveOf(t, cl, t.Name()).Whole() // and back, or on
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release after another move = %v, want nil", err)
			}
			if err := <-waited; err != nil {
				t.Errorf("the waiter's Acquire and Release = %v, want nil", err)
			}
			lease = Must[strategy.Lease](t)(rival.NewLock(t.Name()).TryAcquire(t.Context()))
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("the rival's Release = %v, want nil", err)
			}
		})
	}
}

// ManyRenewedTogether renews locks in many slots of a cluster together: all of them last longer
// then, but for one that is another's, and only that one's holder learns of a loss.
func ManyRenewedTogether(t *testing.T, n driver.Node) {
	p := fairqueue.On(n)
	const locks = 300
	var claims []driver.Claim
	for i := range locks {
		name := fmt.Sprint(t.Name(), i)
		c := driver.Claim{Name: name, Key: "lock:{" + name + "}", Token: name, TTL: Patient.TTL, Due: nodetest.Soon()}
		Must[driver.Grant](t)(p.Acquire(t.Context(), c))
		c.TTL = time.Hour
		claims = append(claims, c)
	}
	claims[7].Token = "another's"
	var failed atomic.Int32
	p.(driver.BulkExtender).ExtendAll(t.Context(), claims, func(i int, _ driver.Grant, err error) {
		switch {
		case i == 7 && errors.Is(err, strategy.ErrLost):
			failed.Add(1)
		case i == 7 || err != nil:
			t.Errorf("lock %d: %v", i, err)
		}
	})
	if failed.Load() != 1 {
		t.Errorf("%d holders learned of a loss, want 1: whose lock is another's", failed.Load())
	}
	claims[7].Token = claims[7].Name
	for i, c := range claims {
		info := Must[strategy.Info](t)(p.Inspect(t.Context(), c))
		if extended := info.TTL > 2*Patient.TTL; extended != (i != 7) {
			t.Errorf("lock %d has %v left", i, info.TTL)
		}
		if _, err := p.Release(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
}
