// What rueidis adds to the suite on a cluster: routing, TRYAGAIN, a frozen master, where it listens.
package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func clusterClient(t testing.TB, addrs []string) rueidis.Client {
	t.Helper()
	return clusterClientOf(t, rueidis.ClientOption{InitAddress: addrs})
}

func clusterClientOf(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	o = small(o)
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

func clusterNode(t testing.TB, addrs []string) *node {
	t.Helper()
	n := New(clusterClient(t, addrs)).(*node)
	t.Cleanup(func() { n.Close() })
	return n
}

func TestClusterKeepsNoOrderAndSaysSo(t *testing.T) {
	cl := clienttest.Cluster(t)
	for _, srv := range cl.Servers() {
		redistest.Do(t, srv, "CONFIG", "RESETSTAT")
	}
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

// While keys are on their way a cluster refuses a request for several of them: that has changed
// nothing, and goes again until it is answered, or due. A request for one key goes on.
func TestClusterTriesAgain(t *testing.T) {
	cl := clienttest.Cluster(t)
	n := clusterNode(t, cl.Addrs())
	both := driver.NewScript("both", "return redis.call('EXISTS', KEYS[1], KEYS[2])")
	keys := []string{"{t}here", "{t}nowhere"}
	if _, err := n.Do(t.Context(), soon(), "SET", keys[0], "v"); err != nil {
		t.Fatal(err)
	}
	move := clienttest.MoveOf(t, cl, keys[0])
	begun := move.Begin()
	began := time.Now()
	_, err := n.Eval(t.Context(), began.Add(200*time.Millisecond), both, keys)
	// The last try may have been refused, not have left, or be under way.
	if took := time.Since(began); err == nil || errors.Is(err, context.DeadlineExceeded) || took < 100*time.Millisecond {
		t.Errorf("Eval of two keys, one of which is not there = %v after %v, want an error when its time is up", err, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err = n.Eval(ctx, soon(), both, keys)
	if err == nil {
		t.Error("Eval = nil, want an error when its context ends")
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
	before := move.TryAgains()
	verdict.Eventually(t, "it is refused again and again", func() bool { return move.TryAgains() > before+1 })
	if len(answered) > 0 {
		t.Errorf("Eval = %v while the keys are on their way", <-answered)
	}
	if err := errors.Join(begun.Keys(t.Context()), begun.Finish(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, "the answer", answered); err != nil {
		t.Error(err)
	}
}

// A frozen master: its callers leave in time, and its locks are unknown. The other masters go on.
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
			if took := time.Since(began); took > generous/2 {
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
	verdict.Eventually(t, "an answer", func() bool {
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "GET", frozen)
		return err == nil
	})
}

// Who waits is listened to where the lock is: one connection to each master serves all.
func TestClusterListensWhereTheLockIs(t *testing.T) {
	cl := clienttest.Cluster(t)
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
	if conns, _ := n.sub.Connections(); conns != len(masters) {
		t.Errorf("%d connections for %d masters", conns, len(masters))
	}
	for _, stop := range stops {
		stop()
	}
}

func TestClusterSubscriptionFollows(t *testing.T) {
	n := clusterNode(t, clienttest.Cluster(t).Addrs())
	n.sub.PingEvery = 50 * time.Millisecond
	clienttest.SubscriptionFollows(t, n)
}
