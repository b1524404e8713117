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

	redigonode "github.com/lockstrategies/locks/clients/redigo"
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

// TestEvictedServerByServer holds the trials that take a lock away, where that takes as long as a renewal:
// none may call the lock revived that a renewal in between has brought back.
func TestEvictedServerByServer(t *testing.T) {
	servers := redistest.Nodes(t, 5)
	known(t, servers)
	all := subjects.All()
	s := all[slices.IndexFunc(all, func(v subjects.Variant) bool { return v.Name == "redlock-fenced" })].Subject(servers)
	s.Evict = func(_ context.Context, key string) error {
		for _, server := range servers {
			redistest.Do(t, server, "DEL", key)
			<-time.After(60 * time.Millisecond) // so slow is the eviction
		}
		return nil
	}
	for _, p := range conformance.Properties() {
		if slices.Contains([]string{"LossNoticed", "RenewsAfterLoss", "FenceKept", "NoGoroutines"}, p.Name) {
			t.Run(p.Name, func(t *testing.T) {
				if !p.Alone {
					t.Parallel()
				}
				r := conformance.Check(t.Context(), s, p)
				if r.Status == conformance.Skipped && strings.HasPrefix(r.Reason, "INCONCLUSIVE") {
					t.Skip(r.Reason)
				}
				if r.Status != conformance.Kept {
					t.Error(r)
				}
			})
		}
	}
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

// TestRoundTrips: what the package doc says of the wire, as the servers count it.
func TestRoundTrips(t *testing.T) {
	servers := ownServers(t, 5)
	locks := open(t, servers, calm, unhurried)
	for range 2 { // dials, and loads the scripts
		lease := acquire(t, locks, lockOf(t, "warm"))
		settled(t, servers, lease)
		if err := lease.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		release(t, lease)
	}
	counts := func() (n []int64) {
		for _, s := range servers {
			calls, err := s.Calls(t.Context())
			if err != nil {
				redistest.Skip(t, err, "how many round trips a lock costs")
			}
			n = append(n, calls["evalsha"]+calls["eval"])
		}
		return n
	}
	count := func(what string, want int64, f func()) {
		t.Helper()
		before := counts()
		f()
		wanted := slices.Clone(before)
		for i := range wanted {
			wanted[i] += want
		}
		verdict.Eventually(t, fmt.Sprintf("%s is %d requests to each server", what, want), func() bool { return slices.Equal(counts(), wanted) })
	}
	var lease strategy.Lease
	count("Acquire", 1, func() { lease = acquire(t, locks, lockOf(t, "counted")) })
	count("Extend", 1, func() {
		if err := lease.Extend(t.Context()); err != nil {
			t.Error(err)
		}
	})
	count("Release", 1, func() { release(t, lease) })

	lease = acquire(t, locks, lockOf(t, "counted"))
	settled(t, servers, lease)
	before := counts()
	_, err := locks.NewLock(lockOf(t, "counted")).TryAcquire(t.Context())
	is(t, "TryAcquire()", err, strategy.ErrHeld)
	twice := 0
	for i, n := range counts() { // the quorum's refusal calls off the requests to a minority: not sent, or sent and undone
		if n -= before[i]; n > 2 {
			t.Errorf("a held TryAcquire is %d requests to server %d, want 2 at most", n, i+1)
		} else if n == 2 {
			twice++
		}
	}
	if twice > 2 {
		t.Errorf("a held TryAcquire is two requests to %d servers, want a minority at most", twice)
	}
	release(t, lease)

	fencing := open(t, servers, calm, unhurried, redlock.WithFences())
	verdict.Eventually(t, "all servers know the scripts", func() bool {
		release(t, acquire(t, fencing, lockOf(t, "warm"))) // also of those that were not needed
		return !slices.ContainsFunc(servers, func(s *redistest.Server) bool { return noted(t, s, lockOf(t, "warm")) == "" })
	})
	before = counts()
	lease = acquire(t, fencing, lockOf(t, "fenced"))
	twice = 0
	for i, n := range counts() {
		if n -= before[i]; n > 2 {
			t.Errorf("Acquire with fences is %d requests to server %d, want 2 at most", n, i+1)
		} else if n == 2 {
			twice++
		}
	}
	if twice < 3 {
		t.Errorf("Acquire with fences is two requests to %d servers, want a majority", twice)
	}
	release(t, lease)
}

// TestServersKilled: a minority is not missed. Without a majority nobody knows, and
// nobody waits.
func TestServersKilled(t *testing.T) {
	servers := append(redistest.Nodes(t, 2), ownServers(t, 3)...)
	imitation(t, servers[0], "that what was undone is gone when servers that were killed are back: it is back at once")
	locks := open(t, servers, calm, unhurried)
	before, last := acquire(t, locks, lockOf(t, "before")), acquire(t, locks, lockOf(t, "last"))
	settled(t, servers, before)
	settled(t, servers, last)
	must(t, servers[2].Kill(t.Context()))
	must(t, servers[3].Kill(t.Context()))
	if err := before.Extend(t.Context()); err != nil {
		t.Errorf("Extend() with a minority down = %v, want nil", err)
	}
	release(t, before)
	for range 20 {
		lease := acquire(t, locks, lockOf(t, "minority"))
		_, err := locks.NewLock(lockOf(t, "minority")).TryAcquire(t.Context())
		is(t, "TryAcquire() of a held lock with a minority down", err, strategy.ErrHeld, strategy.ErrNoQuorum)
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Holder != lease.Token() {
			t.Errorf("TryAcquire() = %v, want held by %q", err, lease.Token())
		}
		release(t, lease)
	}
	must(t, servers[4].Kill(t.Context()))
	_, err := locks.NewLock(lockOf(t, "last")).Acquire(t.Context()) // does not wait: see calm
	is(t, "Acquire() with a majority down", err, strategy.ErrNoQuorum, strategy.ErrUnsent)
	isNot(t, "Acquire() with a majority down", err, strategy.ErrHeld, strategy.ErrLost)
	err = last.Extend(t.Context())
	is(t, "Extend() with a majority down", err, strategy.ErrNoQuorum)
	isNot(t, "Extend() with a majority down", err, strategy.ErrHeld, strategy.ErrLost)
	if err := last.Err(); err != nil {
		t.Errorf("Err() with validity left = %v, want nil", err)
	}
	is(t, "Release() with a majority down", last.Release(t.Context()), strategy.ErrNoQuorum)
	if err := locks.Check(t.Context()); err == nil || strings.Count(err.Error(), "not sent") < 3 {
		t.Errorf("Check() = %v, want the three that are down", err)
	}
	for i, s := range servers[2:] {
		if err := s.Restart(t.Context()); err != nil {
			t.Fatalf("server %d: %v", i, err)
		}
	}
	empty(t, servers, lockOf(t, "last"))
	if err := bootstrap(t.Context(), pools(servers)...); err != nil { // there is nothing that they could have forgotten
		t.Fatal(err)
	}
	verdict.Eventually(t, "the lock is granted when all servers are back", func() bool { // dials that failed are not repeated at once
		lease, err := locks.NewLock(lockOf(t, "last")).TryAcquire(t.Context())
		if err == nil {
			release(t, lease)
		}
		return err == nil
	})
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

// TestServerFrozen: a server that is paused delays no acquisition, and what it does
// when it goes on is undone.
func TestServerFrozen(t *testing.T) {
	servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{}))
	o := calm
	o.OpTimeout = 50 * time.Second // longer than the test may take
	locks := open(t, servers, o, unhurried)
	release(t, acquire(t, locks, lockOf(t, "warm")))
	must(t, servers[4].Freeze(t.Context()))
	lease := acquire(t, locks, lockOf(t, "frozen")) // its request lies in the frozen server's socket
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend() with a minority frozen = %v, want nil", err)
	}
	must(t, servers[4].Thaw(t.Context()))
	release(t, lease)
	empty(t, servers, lockOf(t, "frozen"))

	hasty := open(t, servers, strategy.Options{TTL: time.Minute}, redlock.WithNodeTimeout(100*time.Millisecond))
	release(t, acquire(t, hasty, lockOf(t, "warm")))
	must(t, servers[4].Freeze(t.Context()))
	for range 5 {
		release(t, acquire(t, hasty, lockOf(t, "hasty")))
	}
	must(t, servers[4].Thaw(t.Context()))
	empty(t, servers, lockOf(t, "hasty"))
}

// TestCold: many callers of many processes begin at the same moment, and none fails, though a connection takes longer to
// make than an answer may take later.
func TestCold(t *testing.T) {
	servers := redistest.Nodes(t, 5)
	known(t, servers)
	var callers sync.WaitGroup
	for i := range 8 {
		var cold []*redis.Pool
		for _, s := range servers {
			pool := &redis.Pool{MaxIdle: 13, Dial: func() (redis.Conn, error) {
				<-time.After(300 * time.Millisecond)
				return redis.DialURL(s.URL())
			}}
			t.Cleanup(func() { pool.Close() })
			cold = append(cold, pool)
		}
		locks, err := redlock.New(locktest.Nodes(cold...), calm)
		opened(t, locks, err)
		for j := range 13 {
			callers.Go(func() {
				lease, err := locks.NewLock(lockOf(t, fmt.Sprint(i, " ", j))).Acquire(t.Context())
				if err == nil {
					err = lease.Release(t.Context())
				}
				is(t, "Acquire() and Release()", err)
			})
		}
	}
	callers.Wait()
}

// TestHeldError: who holds the lock and until when, as a majority sees it.
func TestHeldError(t *testing.T) {
	servers := redistest.Nodes(t, 5)
	locks := open(t, servers, calm, unhurried)
	for i, test := range []struct {
		tokens []string // "": free
		holder string
		least  time.Duration // the TTLs are 10, 20 … s
		most   time.Duration
	}{
		{[]string{"x", "x", "x", "x", "x"}, "x", 20 * time.Second, 30 * time.Second},
		{[]string{"x", "x", "x", "", ""}, "x", 0, 10 * time.Second},
		{[]string{"x", "y", "x", "y", "x"}, "x", 20 * time.Second, 30 * time.Second},
		{[]string{"x", "x", "y", "y", ""}, "", 10 * time.Second, 20 * time.Second},
		{[]string{"x", "x", "y", "y", "z"}, "", 20 * time.Second, 30 * time.Second},
	} {
		name := fmt.Sprintf("%s/%d", lockOf(t), i)
		for j, s := range servers {
			if test.tokens[j] != "" {
				redistest.Do(t, s, "SET", strategy.DefaultKey(name), test.tokens[j], "PX", (j+1)*10000)
			}
		}
		_, err := locks.NewLock(name).TryAcquire(t.Context())
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Holder != test.holder {
			t.Errorf("%v: TryAcquire() = %v, want held by %q", test.tokens, err, test.holder)
			continue
		}
		// Not all servers are waited for: a quorum of answers gives a bound.
		if held.TTL <= test.least || held.TTL > 50*time.Second || test.holder == "" && held.TTL > test.most {
			t.Errorf("%v: TTL = %v, want %v … %v", test.tokens, held.TTL, test.least, test.most)
		}
		for j, s := range servers {
			if got := token(t, s, name); got != test.tokens[j] {
				t.Errorf("%v: server %d has %q afterwards, want %q", test.tokens, j+1, got, test.tokens[j])
			}
		}
		info, err := locks.Inspect(t.Context(), name)
		if err != nil || info.Held != (test.holder != "") || info.Token != test.holder {
			t.Errorf("%v: Inspect() = %+v, %v, want held by %q", test.tokens, info, err, test.holder)
		}
	}
}

// TestForeignHolder: other libraries publish no release, and a waiter does not sleep until their TTL
// ends.
func TestForeignHolder(t *testing.T) {
	servers := redistest.Nodes(t, 3)
	name := lockOf(t)
	for _, s := range servers { // as redsync does
		redistest.Do(t, s, "SET", strategy.DefaultKey(name), "d2hhdGV2ZXIgaXQgaXMhIQ==", "NX", "PX", 60_000)
	}
	held := make(chan struct{}, 1000)
	o := calm
	o.Observe = func(e strategy.Event) {
		if e.Kind == strategy.EventHeld {
			held <- struct{}{}
		}
	}
	locks := open(t, servers, o, unhurried)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // far more than Backoff, far less than the TTL
	defer cancel()
	got := make(chan error)
	go func() {
		lease, err := locks.NewLock(name).Acquire(ctx)
		if err == nil {
			err = lease.Release(ctx)
		}
		got <- err
	}()
	for range 3 { // the first attempt, the one after the subscription, and one more: it polls
		select {
		case <-held:
		case err := <-got:
			t.Fatalf("Acquire() of a lock that a foreign holder has = %v, want it to ask again", err)
		}
	}
	for _, s := range servers {
		redistest.Do(t, s, "DEL", strategy.DefaultKey(name))
	}
	is(t, "Acquire() and Release() after the foreign holder", <-got)
}

// TestWrongType: a key that is no lock costs a vote, and a majority of such is refused.
func TestWrongType(t *testing.T) {
	servers := redistest.Nodes(t, 5)
	locks := open(t, servers, calm, unhurried)
	key := strategy.DefaultKey(lockOf(t))
	for i, s := range servers[:3] {
		redistest.Do(t, s, "LPUSH", key, "not a lock")
		lease, err := locks.NewLock(lockOf(t)).TryAcquire(t.Context())
		if i < 2 {
			if err != nil {
				t.Fatalf("TryAcquire() with %d of 5 = %v, want nil", i+1, err)
			}
			release(t, lease)
			continue
		}
		is(t, "TryAcquire() with a majority", err, strategy.ErrNoQuorum, strategy.ErrRefused)
		isNot(t, "TryAcquire() with a majority", err, strategy.ErrHeld)
	}
	for _, s := range servers[:3] {
		if n := redistest.Do(t, s, "LLEN", key); n != int64(1) {
			t.Errorf("LLEN = %v, want 1: left alone", n)
		}
		redistest.Do(t, s, "DEL", key)
	}
	empty(t, servers, lockOf(t))
}

// TestCancelled: an attempt that is called off while it is under way leaves nothing.
func TestCancelled(t *testing.T) {
	servers := redistest.Nodes(t, 5)
	for k := range 5 { // so many servers have answered when it is
		ctx, cancel := context.WithCancelCause(t.Context())
		called := errors.New("called off")
		var answered atomic.Int64
		var first atomic.Int64
		go1 := make(chan struct{})
		gate := func(_ string, send func()) {
			if first.Add(1) > 5 { // the undo
				send()
				return
			}
			send()
			if answered.Add(1) == int64(k+1) {
				cancel(called)
				close(go1)
			}
			<-go1
		}
		locks := gated(t, servers, []conformance.Gate{gate, gate, gate, gate, gate}, calm, unhurried)
		name := fmt.Sprintf("%s/%d", lockOf(t), k)
		lease, err := locks.NewLock(name).Acquire(ctx)
		if err == nil {
			release(t, lease) // it had all it needed by then
		} else {
			is(t, "Acquire()", err, called)
		}
		empty(t, servers, name)
		cancel(nil)
	}
}

// TestMinority: a minority's word does not make a lock held, or lost.
func TestMinority(t *testing.T) {
	servers := redistest.Nodes(t, 5)
	var pending atomic.Pointer[sync.WaitGroup] // what the minority has not answered yet, for which the others wait; nil: nobody waits
	gates := make([]conformance.Gate, 5)
	for i := range gates {
		gates[i] = func(_ string, send func()) {
			minority := pending.Load()
			switch {
			case minority == nil:
				send()
			case i < 2:
				send()
				minority.Done()
			default:
				minority.Wait() // so that all that can be said has been
			}
		}
	}
	locks := gated(t, servers, gates, calm, unhurried)
	cut := func() {
		var two sync.WaitGroup
		two.Add(2)
		pending.Store(&two)
	}
	t.Run("Held", func(t *testing.T) {
		lease := acquire(t, open(t, servers, calm, unhurried), lockOf(t))
		settled(t, servers, lease)
		cut()
		_, err := locks.NewLock(lockOf(t)).TryAcquire(t.Context())
		pending.Store(nil)
		is(t, "TryAcquire()", err, strategy.ErrNoQuorum, strategy.ErrUnsent)
		isNot(t, "TryAcquire()", err, strategy.ErrHeld)
		release(t, lease)
	})
	t.Run("Inspected", func(t *testing.T) {
		lease := acquire(t, open(t, servers, calm, unhurried), lockOf(t))
		settled(t, servers, lease)
		cut()
		_, err := locks.Inspect(t.Context(), lockOf(t))
		pending.Store(nil)
		is(t, "Inspect()", err, strategy.ErrNoQuorum, strategy.ErrUnsent)
		if err != nil && strings.Contains(err.Error(), `lock ""`) {
			t.Errorf("Inspect() = %v, want the lock by its name", err)
		}
		release(t, lease)
	})
	t.Run("Lost", func(t *testing.T) {
		lease := acquire(t, locks, lockOf(t))
		settled(t, servers, lease)
		for _, s := range servers[:2] {
			redistest.Do(t, s, "DEL", strategy.DefaultKey(lockOf(t)))
		}
		cut()
		var err error
		verdict.Eventually(t, "nobody counts again", func() bool { // when all who can have said so: it does not wait for the last
			err = lease.Extend(t.Context())
			isNot(t, "Extend()", err, nil, strategy.ErrLost)
			return !errors.Is(err, strategy.ErrUnknown)
		})
		pending.Store(nil)
		is(t, "Extend()", err, strategy.ErrNoQuorum, strategy.ErrUnsent)
		if err := lease.Err(); err != nil {
			t.Errorf("Err() = %v, want nil", err)
		}
		release(t, lease)
	})
	// Some count again: "not sent" alone would say that nothing has changed.
	t.Run("Extended", func(t *testing.T) {
		lease := acquire(t, locks, lockOf(t))
		settled(t, servers, lease)
		cut()
		err := lease.Extend(t.Context())
		pending.Store(nil)
		is(t, "Extend()", err, strategy.ErrNoQuorum, strategy.ErrUnsent, strategy.ErrUnknown)
		isNot(t, "Extend()", err, strategy.ErrLost)
		release(t, lease)
	})
	empty(t, servers, lockOf(t))
}

// TestTwins: one server under two names would vote twice.
func TestTwins(t *testing.T) {
	servers := redistest.Nodes(t, 3)
	imitation(t, servers[0], "that a server under two names is named: it has no run_id")
	known(t, servers)
	url := servers[0].URL()
	alias := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer alias.Close()

	t.Run("Refused", func(t *testing.T) {
		locks, err := redlock.New(locktest.Nodes(servers[0].Pool(), alias), calm, unhurried)
		opened(t, locks, err)
		_, err = locks.NewLock(lockOf(t)).TryAcquire(t.Context())
		is(t, "TryAcquire()", err, strategy.ErrRefused)
		for _, word := range []string{"node 1 (", "node 2 (", "give each server once"} {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("TryAcquire() = %v, want it to say %q", err, word)
			}
		}
		empty(t, servers, lockOf(t))
	})

	// Where a quorum is found without the twin, its answer comes too late for that
	// attempt; the next learns it.
	t.Run("Late", func(t *testing.T) {
		aliased := redigonode.New(alias)
		reached, found := make(chan struct{}), make(chan struct{})
		var asked atomic.Bool
		nodes := []driver.Node{nil, nil, conformance.GateNode(aliased, func(_ string, send func()) {
			if !asked.Swap(true) {
				close(reached)
				<-found
				send()
			} // and later requests are lost: only the first can be what gives it away
		})}
		for i, s := range servers[:2] {
			nodes[i] = redigonode.New(s.Pool())
		}
		locks, err := redlock.New(nodes, calm, unhurried)
		opened(t, locks, err)
		lease := acquire(t, locks, lockOf(t))
		<-reached // or the next attempt's request might come first
		close(found)
		verdict.Eventually(t, "an attempt is refused", func() bool {
			_, err := locks.NewLock(lockOf(t)).TryAcquire(t.Context())
			return errors.Is(err, strategy.ErrRefused)
		})
		release(t, lease)
		empty(t, servers, lockOf(t))
	})

	t.Run("Check", func(t *testing.T) {
		locks, err := redlock.New(locktest.Nodes(servers[0].Pool(), alias), calm, unhurried)
		opened(t, locks, err)
		if err := locks.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "are one server") {
			t.Errorf("Check() = %v, want that they are one server", err)
		}
		if err := open(t, servers, calm, unhurried).Check(t.Context()); err != nil {
			t.Errorf("Check() of three servers = %v, want nil", err)
		}
	})
}

// TestPartsLost: a lock lives as long as a quorum keeps it, and no longer; whom another
// holds is left alone.
func TestPartsLost(t *testing.T) {
	servers := redistest.Nodes(t, 5)
	locks := open(t, servers, calm, unhurried)
	key := strategy.DefaultKey(lockOf(t))
	lease := acquire(t, locks, lockOf(t))
	settled(t, servers, lease)
	for _, s := range servers[:2] {
		redistest.Do(t, s, "SET", key, "another", "PX", 60000)
	}
	for range 2 {
		if err := lease.Extend(t.Context()); err != nil {
			t.Errorf("Extend() of a lock that a minority lost = %v, want nil", err)
		}
		for _, s := range servers[:2] {
			if got := token(t, s, lockOf(t)); got != "another" {
				t.Errorf("after Extend() the other's vote is %q, want it left alone", got)
			}
		}
	}
	redistest.Do(t, servers[2], "DEL", key)
	is(t, "Extend() of a lock that a majority lost", lease.Extend(t.Context()), strategy.ErrLost)
	is(t, "Err()", lease.Err(), strategy.ErrLost)
	for _, s := range servers[:2] {
		redistest.Do(t, s, "DEL", key)
	}
	empty(t, servers, lockOf(t)) // what was left of it is in nobody's way

	lease = acquire(t, locks, lockOf(t))
	settled(t, servers, lease)
	for _, s := range servers[:2] {
		redistest.Do(t, s, "DEL", key)
	}
	release(t, lease)
	lease = acquire(t, locks, lockOf(t))
	settled(t, servers, lease)
	for _, s := range servers[:3] {
		redistest.Do(t, s, "DEL", key)
	}
	err := lease.Release(t.Context())
	is(t, "Release() of a lock that a majority lost", err, strategy.ErrLost)
	isNot(t, "Release() of a lock that a majority lost", err, strategy.ErrUnknown, strategy.ErrNoQuorum)
	empty(t, servers, lockOf(t))
}

// TestSettings: what is not allowed is refused, and the error says what is.
func TestSettings(t *testing.T) {
	servers := redistest.Nodes(t, 1)
	p := servers[0].Pool()
	a := named("10.0.0.1:6379")
	for what, call := range map[string]func() (strategy.Strategy, error){
		"a nil pool": func() (strategy.Strategy, error) { return redlock.New(locktest.Nodes(p, nil), calm) },
		"no nodes":   func() (strategy.Strategy, error) { return redlock.New(nil, calm) },
		"a nil node": func() (strategy.Strategy, error) { return redlock.New([]driver.Node{nil}, calm) },
		"a node twice": func() (strategy.Strategy, error) {
			return redlock.New([]driver.Node{a, a}, calm)
		},
		"a short NodeTimeout": func() (strategy.Strategy, error) {
			return redlock.New(locktest.Nodes(p), calm, redlock.WithNodeTimeout(time.Microsecond))
		},
		"a negative MinValidity": func() (strategy.Strategy, error) {
			return redlock.New(locktest.Nodes(p), calm, redlock.WithMinValidity(-1))
		},
		"a MinValidity of the TTL": func() (strategy.Strategy, error) {
			return redlock.New(locktest.Nodes(p), calm, redlock.WithMinValidity(calm.TTL))
		},
	} {
		s, err := call()
		if err == nil {
			s.Close()
			t.Errorf("%s: New() = nil, want an error", what)
		} else if !strings.Contains(err.Error(), "allowed") && !strings.Contains(err.Error(), "nil") {
			t.Errorf("%s: New() = %v, want what is allowed", what, err)
		}
	}
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
