package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/nodetest"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// clusterVar tells a child process of the suite where its parent's cluster is.
const clusterVar = "RUEIDISNODE_CLUSTER"

func clusterClient(t testing.TB, addrs []string) rueidis.Client {
	t.Helper()
	o := small(rueidis.ClientOption{InitAddress: addrs})
	o.ForceSingleClient, o.PipelineMultiplex = false, 0 // the client's default: one connection to each master
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if client.Mode() != rueidis.ClientModeCluster {
		t.Fatalf("Mode() = %s, want a cluster's", client.Mode())
	}
	return client
}

func clusterNode(t testing.TB, addrs []string) *Node {
	t.Helper()
	n, err := New(clusterClient(t, addrs))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// TestClusterConformance holds the suite on all strategies on one server, on a cluster of
// three masters.
func TestClusterConformance(t *testing.T) {
	addrs := strings.FieldsFunc(os.Getenv(clusterVar), func(r rune) bool { return r == ',' })
	if len(addrs) == 0 {
		addrs = redistest.OwnCluster(t, redistest.ClusterConfig{}).Addrs()
	}
	client := clusterClient(t, addrs)
	// The client's pipelines get goroutines when they are first shared, and keep them: no
	// strategy has left those. A context that can be cancelled makes that so.
	for addr, c := range client.Nodes() {
		ctx, cancel := context.WithCancel(t.Context())
		if err := c.Do(ctx, c.B().Ping().Build()).Error(); err != nil {
			t.Fatalf("PING %s = %v", addr, err)
		}
		cancel()
	}
	for _, v := range subjects.All() {
		if v.Servers == 1 && !v.Aside {
			conformance.Run(t, clusterSubject(client, v, addrs))
		}
	}
}

func clusterSubject(client rueidis.Client, v subjects.Variant, addrs []string) conformance.Subject {
	open := func(o strategy.Options, on func([]driver.Node) driver.Protocol, around func(driver.Node) driver.Node) (strategy.Strategy, error) {
		n, err := New(client)
		if err != nil {
			return nil, err
		}
		return engine.New(on([]driver.Node{around(n)}), o)
	}
	bare := func(n driver.Node) driver.Node { return n }
	do := func(ctx context.Context, key, cmd string, args ...string) error {
		return client.Do(ctx, client.B().Arbitrary(cmd).Keys(key).Args(args...).Build()).Error()
	}
	return conformance.Subject{
		Name: v.Name,
		Open: func(o strategy.Options) (strategy.Strategy, error) { return open(o, v.On, bare) },
		OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
			return open(o, v.On, func(n driver.Node) driver.Node { return conformance.GateNode(n, g) })
		},
		OpenSkewed: func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
			on := v.On
			if v.Skewed != nil {
				on = func(nodes []driver.Node) driver.Protocol { return v.Skewed(nodes, ahead) }
			}
			return open(o, on, bare)
		},
		Evict: func(ctx context.Context, key string) error { return do(ctx, key, "DEL") },
		Spoil: func(ctx context.Context, key string) error {
			if v.Foreign != "" {
				return do(ctx, key, "SET", v.Foreign)
			}
			return errors.Join(do(ctx, key, "DEL"), do(ctx, key, "LPUSH", "not a lock"))
		},
		Leftovers: func(ctx context.Context, key string) ([]string, error) { return clusterLeftovers(ctx, client, key) },
		ChildEnv: []string{
			clusterVar + "=" + strings.Join(addrs, ","),
			"REDIS_ADDRS=" + strings.Join(addrs, ","), "REDIS_KIND=" + string(redistest.Given),
		},
		Fenced:    v.Fenced,
		Fair:      v.Fair,
		Reentrant: v.Reentrant,
		Except:    v.Except,
	}
}

// clusterLeftovers finds the keys and channels whose name has the lock's in it, on all
// masters. The fence counter is meant to stay.
func clusterLeftovers(ctx context.Context, client rueidis.Client, key string) (left []string, err error) {
	pattern := "*" + strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(key) + "*"
	for addr, c := range client.Nodes() {
		keys, err := c.Do(ctx, c.B().Keys().Pattern(pattern).Build()).AsStrSlice()
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			if k != driver.SiblingKey(key, "fence") {
				left = append(left, fmt.Sprintf("key %s at %s", k, addr))
			}
		}
		channels, err := c.Do(ctx, c.B().PubsubChannels().Pattern(pattern).Build()).AsStrSlice()
		if err != nil {
			return nil, err
		}
		for _, ch := range channels {
			left = append(left, fmt.Sprintf("a subscription to %s at %s", ch, addr))
		}
	}
	return left, nil
}

func TestClusterKeepsNoOrderAndSaysSo(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := clusterNode(t, cl.Addrs())
	if n.Ordered() {
		t.Error("Ordered() = true before the first request, want false")
	}
	if !strings.HasPrefix(n.Name(), "cluster of ") {
		t.Errorf("Name() = %s", n.Name())
	}
	// Every key is found, and what has none is asked of anybody.
	for i := range 50 {
		key := fmt.Sprint("k", i)
		if _, err := n.Do(t.Context(), soon(), "SET", key, key); err != nil {
			t.Fatal(err)
		}
		if reply, err := n.Do(t.Context(), soon(), "GET", key); err != nil || fmt.Sprintf("%s", reply) != key {
			t.Errorf("GET %s = %s, %v", key, reply, err)
		}
		if err := n.Session(t.Context(), soon(), key, func(c driver.Conn) error {
			if _, err := c.Do("WATCH", key); err != nil {
				return err
			}
			reply, err := c.Do("GET", key)
			if fmt.Sprintf("%s", reply) != key {
				t.Errorf("GET %s in a session = %s, %v", key, reply, err)
			}
			return err
		}); err != nil {
			t.Errorf("Session(%s) = %v", key, err)
		}
	}
	// And at once: nobody had to say that it has moved.
	for _, srv := range cl.Servers() {
		if said := fmt.Sprintf("%s", redistest.Do(t, srv, "INFO", "errorstats")); strings.Contains(said, "MOVED") {
			t.Errorf("%s has said MOVED: %s", srv.Addr(), said)
		}
	}
	echo(t, n, "anybody")
	// Keys of several slots are refused, not a panic.
	script := driver.NewScript("two", "return 1")
	_, err := n.Eval(t.Context(), soon(), script, []string{"a", "b", "c"})
	want(t, "keys of several slots", err, strategy.ErrRefused)
	if !strings.Contains(fmt.Sprint(err), "CROSSSLOT") {
		t.Errorf("Eval = %v, want the server's words", err)
	}
	// A done context sends nothing.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = n.Do(ctx, soon(), "SET", "k0", "changed")
	want(t, "SET with a done context", err, strategy.ErrUnsent, context.Canceled)
	n.Close()
	_, err = n.Do(t.Context(), soon(), "SET", "k0", "changed")
	want(t, "SET after Close", err, strategy.ErrUnsent, strategy.ErrClosed)
}

// A lock goes on through the resharding of its slot: the holder extends and releases, who
// waits gets it, and who comes later finds it.
func TestClusterMovesALock(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := clusterNode(t, cl.Addrs())
	locks, err := engine.New(fairqueue.On(n), strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	const name = "moved"
	key := "lock:{" + name + "}"
	lock := locks.NewLock(name)
	lease, err := lock.TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		next, err := lock.Acquire(t.Context())
		if err == nil {
			err = next.Release(t.Context())
		}
		waited <- err
	}()
	move := func() {
		t.Helper()
		slot, err := cl.Slot(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		from, err := cl.Owner(t.Context(), slot)
		if err != nil {
			t.Fatal(err)
		}
		to, err := cl.Other(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.Move(t.Context(), slot, to); err != nil {
			t.Fatal(err)
		}
	}
	move()
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend after the move = %v", err)
	}
	_, err = clusterLocks(t, cl).NewLock(name).TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("another's TryAcquire = %v, want ErrHeld", err)
	}
	move()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release after another move = %v", err)
	}
	if err := receive(t, "the waiter", waited); err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

// While keys are on their way a cluster refuses what asks for several of them: that has changed
// nothing, and is asked again until it is answered, or due. Who asks for one goes on.
func TestClusterTriesAgain(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := clusterNode(t, cl.Addrs())
	both := driver.NewScript("both", "return redis.call('EXISTS', KEYS[1], KEYS[2])")
	keys := []string{"{t}here", "{t}nowhere"}
	if _, err := n.Do(t.Context(), soon(), "SET", keys[0], "v"); err != nil {
		t.Fatal(err)
	}
	slot, err := cl.Slot(t.Context(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	from, err := cl.Owner(t.Context(), slot)
	if err != nil {
		t.Fatal(err)
	}
	to, err := cl.Other(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", redistest.Do(t, from, "CLUSTER", "MYID"))
	redistest.Do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", redistest.Do(t, to, "CLUSTER", "MYID"))
	began := time.Now()
	_, err = n.Eval(t.Context(), began.Add(200*time.Millisecond), both, keys)
	// The last try may have been refused, not have left, or be under way.
	if took := time.Since(began); err == nil || errors.Is(err, context.DeadlineExceeded) || took < 100*time.Millisecond {
		t.Errorf("Eval of two keys, one of which is not there = %v after %v, want an error when its time is up", err, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = n.Eval(ctx, soon(), both, keys)
	if err == nil || time.Since(began) > generous/2 {
		t.Errorf("Eval = %v after %v, want an error when its context ends", err, time.Since(began))
	}
	if reply, err := n.Do(t.Context(), soon(), "GET", keys[0]); err != nil || fmt.Sprintf("%s", reply) != "v" {
		t.Errorf("GET = %s, %v", reply, err)
	}
	answered := make(chan error, 1)
	go func() {
		reply, err := n.Eval(t.Context(), soon(), both, keys)
		if err == nil && reply != int64(1) {
			err = fmt.Errorf("Eval = %v, want 1", reply)
		}
		answered <- err
	}()
	time.Sleep(5 * tryAgainAfter) // it has been refused by then
	if len(answered) > 0 {
		t.Errorf("Eval = %v while the keys are on their way", <-answered)
	}
	redistest.Do(t, to, "CLUSTER", "SETSLOT", slot, "STABLE")
	redistest.Do(t, from, "CLUSTER", "SETSLOT", slot, "STABLE")
	if err := receive(t, "the answer", answered); err != nil {
		t.Error(err)
	}
}

func clusterLocks(t *testing.T, cl *redistest.Cluster) strategy.Strategy {
	t.Helper()
	s, err := engine.New(fairqueue.On(clusterNode(t, cl.Addrs())), strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// A frozen master: who asks it leaves in time, and its locks are unknown; the others' go on.
func TestClusterFrozenMaster(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := clusterNode(t, cl.Addrs())
	const frozen = "a"
	at, err := cl.OwnerOf(t.Context(), frozen)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		if _, err := n.Do(t.Context(), soon(), "SET", key, "before"); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Skip(t, at.Freeze(t.Context()), "what a frozen master is to its callers")
	const op = 300 * time.Millisecond
	var wg sync.WaitGroup
	for range 100 { // more than the client's pipeline has places for
		wg.Go(func() {
			began := time.Now()
			_, err := n.Do(t.Context(), began.Add(op), "SET", frozen, "late")
			if took := time.Since(began); took > op+3*time.Second {
				t.Errorf("SET took %v, want %v", took, op)
			}
			if !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("SET on a frozen master = %v, want unknown or unsent, and no end of the caller's context", err)
			}
		})
	}
	wg.Wait()
	for _, key := range []string{"a", "b", "c"} {
		if owner, err := cl.OwnerOf(t.Context(), key); err != nil || owner == at {
			continue
		}
		if _, err := n.Do(t.Context(), soon(), "SET", key, "meanwhile"); err != nil {
			t.Errorf("SET %s at another master = %v", key, err)
		}
	}
	if err := at.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an answer", func() bool {
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "GET", frozen)
		return err == nil
	})
}

// Who waits is listened to where the lock is: one connection to each master serves all.
func TestClusterListensWhereTheLockIs(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := clusterNode(t, cl.Addrs())
	masters := map[string]bool{}
	var stops []func()
	for i := range 20 {
		channel := fmt.Sprintf("lock:{%d}:queue:line", i)
		h, stop := nodetest.Subscribe(t, n, channel)
		stops = append(stops, stop)
		at, err := cl.OwnerOf(t.Context(), channel)
		if err != nil {
			t.Fatal(err)
		}
		masters[at.Addr()] = true
		if heard, err := cl.Do(t.Context(), at, "PUBLISH", channel, "x"); err != nil || heard != int64(1) {
			t.Errorf("PUBLISH where %s is = %v, %v, want 1 who hears it there", channel, heard, err)
		}
		if got := receive(t, "a message", h.Msgs); got != "x" {
			t.Errorf("heard %q", got)
		}
	}
	n.sub.mu.Lock()
	if len(n.sub.lines) != len(masters) {
		t.Errorf("%d connections for %d masters", len(n.sub.lines), len(masters))
	}
	n.sub.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}
