// What goredis adds to the suite on a cluster: ASK, several slots, a lost master.
package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/strategy"
)

func clusterOptions(addrs []string) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true}
}

func clusterClient(t testing.TB, addrs []string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(clusterOptions(addrs))
	closeWith(t, c)
	return c
}

// TestClusterAsks: while a slot is on its way, and its key gone ahead or not there, commands
// follow ASK; a session is refused in the server's words.
func TestClusterAsks(t *testing.T) {
	cl := clienttest.Cluster(t)
	n := nodeOf(t, clusterClient(t, cl.Addrs()))
	scripts := clienttest.Strategy(t, fairqueue.On(n), clienttest.Patient)
	lease, err := scripts.NewLock(t.Name()).TryAcquire(t.Context())
	redistest.Must(t, err)
	move := clienttest.MoveOf(t, cl, t.Name()).Begin()
	key := strategy.DefaultKey(t.Name())
	redistest.Must(t, move.Keys(t.Context()))
	if got, err := n.Do(t.Context(), soon(), "GET", key); err != nil || string(got.([]byte)) != lease.Token() {
		t.Errorf("GET = %s, %v, want the token", got, err)
	}
	if err := lease.Extend(t.Context()); err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
		t.Errorf("Extend = %v, want nil, or TRYAGAIN while keys of the script are on both sides", err)
	}
	watching := clienttest.Strategy(t, setnxgetset.On(n, setnxgetset.WithWatchTakeOver()), clienttest.Patient)
	other, err := watching.NewLock(t.Name() + "x").TryAcquire(t.Context())
	redistest.Must(t, err)
	redistest.Must(t, other.Release(t.Context()))
	err = n.Session(t.Context(), soon(), key, func(c driver.Conn) error { _, err := c.Do("WATCH", key); return err })
	want(t, "a session for a key that has gone ahead", err, strategy.ErrRefused)
	if !strings.Contains(fmt.Sprint(err), "ASK ") {
		t.Errorf("Session = %v, want the server's words", err)
	}
	redistest.Must(t, move.Finish(t.Context()))
	if err := lease.Extend(t.Context()); err != nil {
		t.Errorf("Extend after the move = %v, want nil", err)
	}
	err = n.Session(t.Context(), soon(), key, func(c driver.Conn) error { _, err := c.Do("WATCH", key); return err })
	if err != nil {
		t.Errorf("Session after the move = %v, want nil", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release = %v, want nil", err)
	}
}

func TestClusterSubscriptionFollows(t *testing.T) {
	clienttest.SubscriptionFollows(t, nodeOf(t, clusterClient(t, clienttest.Cluster(t).Addrs())))
}

// TestClusterSlots: a script over several slots is refused in the server's words.
func TestClusterSlots(t *testing.T) {
	cl := clienttest.Cluster(t)
	n := nodeOf(t, clusterClient(t, cl.Addrs()))
	_, err := n.Eval(t.Context(), soon(), driver.NewScript("two", "return 1"), []string{"a", "b"})
	want(t, "a script over two slots", err, strategy.ErrRefused)
	if !rediskit.SeveralSlots(err) {
		t.Errorf("Eval = %v, want CROSSSLOT", err)
	}
}

// TestClusterMasterLost: when a master is lost and its replica has taken over, who holds a lock
// that the replica has heard of goes on, and others get theirs.
func TestClusterMasterLost(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{Replicas: 1})
	livesOn(t, nodeOf(t, clusterClient(t, cl.Addrs())), func() {
		master, err := cl.OwnerOf(t.Context(), strategy.DefaultKey(t.Name()))
		redistest.Must(t, err)
		redistest.Must(t, cl.Stall(t.Context(), master)) // which waits until the replica has the lock
		_, err = cl.FailOver(t.Context(), master)
		redistest.Must(t, err)
	})
}

// livesOn has a lock held, and its channel heard, while another server becomes the master. The holder goes on, others get
// the lock after it, and hear.
func livesOn(t *testing.T, n *node, failOver func()) {
	t.Helper()
	s := clienttest.Strategy(t, fairqueue.On(n), strategy.Options{TTL: 5 * time.Minute, OpTimeout: 2 * time.Second, RetryOnError: true})
	lease, err := s.NewLock(t.Name()).TryAcquire(t.Context())
	redistest.Must(t, err)
	h, _ := nodetest.Subscribe(t, n, strategy.DefaultKey(t.Name()))
	failOver()
	want(t, "the end of the subscription", await(t, "the end of the subscription", h.Ends), strategy.ErrUnknown)
	verdict.Eventually(t, "the holder reaches the new master", func() bool {
		err := lease.Extend(t.Context())
		if errors.Is(err, strategy.ErrLost) {
			t.Fatalf("Extend = %v, want the lock kept", err)
		}
		return err == nil
	})
	_, err = s.NewLock(t.Name()).TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrHeld) {
		t.Errorf("another's TryAcquire = %v, want %v", err, strategy.ErrHeld)
	}
	redistest.Must(t, lease.Release(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), nodetest.Generous)
	defer cancel()
	next, err := s.NewLock(t.Name()).Acquire(ctx)
	redistest.Must(t, err)
	redistest.Must(t, next.Release(t.Context()))
	_, stop := nodetest.Subscribe(t, n, strategy.DefaultKey(t.Name()))
	stop()
}
