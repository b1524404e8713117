package goredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/nodetest"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/strategy"
)

// clusterVar names the nodes of the cluster to a child process.
const clusterVar = "LOCKS_GOREDIS_CLUSTER"

var calm struct {
	sync.Mutex
	cl *redistest.Cluster
}

// calmCluster is for all tests whose keys are their own, and which leave all masters alive.
func calmCluster(t *testing.T) *redistest.Cluster {
	t.Helper()
	calm.Lock()
	defer calm.Unlock()
	if calm.cl == nil {
		cl, err := redistest.ForTests(t).StartCluster(context.Background(), redistest.ClusterConfig{})
		redistest.Must(t, err)
		calm.cl = cl // ends with the farm
	}
	return calm.cl
}

func clusterOptions(addrs []string) *redis.ClusterOptions {
	return &redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true}
}

func clusterClient(t *testing.T, addrs []string) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(clusterOptions(addrs))
	closeWith(t, c)
	return c
}

// singles are the strategies on one server.
func singles() (vs []subjects.Variant) {
	for _, v := range subjects.All() {
		if v.Servers == 1 && !v.Aside {
			vs = append(vs, v)
		}
	}
	return vs
}

// patient are options by which nobody gets a lock by waiting for its TTL.
var patient = strategy.Options{TTL: time.Minute, OpTimeout: 10 * time.Second}

func locksOn(t *testing.T, p driver.Protocol, o strategy.Options) strategy.Strategy {
	t.Helper()
	s, err := engine.New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestClusterConformance holds the suite on all strategies on one server, on a cluster of three.
func TestClusterConformance(t *testing.T) {
	var addrs []string
	if told := os.Getenv(clusterVar); told != "" {
		addrs = strings.Split(told, ",")
	} else {
		addrs = calmCluster(t).Addrs()
	}
	look := clusterClient(t, addrs)
	for _, v := range singles() {
		open := func(o strategy.Options, on func([]driver.Node) driver.Protocol, around func(driver.Node) driver.Node) (strategy.Strategy, error) {
			n, err := owned(redis.NewClusterClient(clusterOptions(addrs)))
			if err != nil {
				return nil, err
			}
			return engine.New(on([]driver.Node{around(n)}), o)
		}
		plainly := func(n driver.Node) driver.Node { return n }
		conformance.Run(t, conformance.Subject{
			Name: v.Name + "-cluster",
			Open: func(o strategy.Options) (strategy.Strategy, error) { return open(o, v.On, plainly) },
			OpenGated: func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
				return open(o, v.On, func(n driver.Node) driver.Node { return conformance.GateNode(n, g) })
			},
			OpenSkewed: func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
				on := v.On
				if v.Skewed != nil {
					on = func(nodes []driver.Node) driver.Protocol { return v.Skewed(nodes, ahead) }
				}
				return open(o, on, plainly)
			},
			Evict: func(ctx context.Context, key string) error { return look.Del(ctx, key).Err() },
			Spoil: func(ctx context.Context, key string) error {
				if v.Foreign != "" {
					return look.Set(ctx, key, v.Foreign, 0).Err()
				}
				return errors.Join(look.Del(ctx, key).Err(), look.LPush(ctx, key, "not a lock").Err())
			},
			Leftovers: func(ctx context.Context, key string) ([]string, error) { return clusterLeftovers(ctx, look, key) },
			ChildEnv: []string{
				clusterVar + "=" + strings.Join(addrs, ","),
				"REDIS_ADDRS=" + strings.Join(addrs, ","), "REDIS_KIND=" + string(redistest.Given),
			},
			Fenced: v.Fenced, Fair: v.Fair, Reentrant: v.Reentrant, Except: v.Except,
		})
	}
}

// clusterLeftovers finds the keys and channels whose name has the lock's in it, on all
// masters. The fence counter is meant to stay.
func clusterLeftovers(ctx context.Context, look *redis.ClusterClient, key string) (left []string, err error) {
	pattern := "*" + strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(key) + "*"
	var mu sync.Mutex
	err = look.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		var here []string
		keys := master.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			if k := keys.Val(); k != driver.SiblingKey(key, "fence") {
				here = append(here, "key "+k)
			}
		}
		channels, err := master.PubSubChannels(ctx, pattern).Result()
		for _, ch := range channels {
			here = append(here, "a subscription to "+ch)
		}
		mu.Lock()
		defer mu.Unlock()
		left = append(left, here...)
		return errors.Join(keys.Err(), err)
	})
	return left, err
}

// other returns the slot of a lock's key, and a master that has it not.
func other(t *testing.T, cl *redistest.Cluster, name string) (slot int, to *redistest.Server) {
	t.Helper()
	slot, err := cl.Slot(t.Context(), strategy.DefaultKey(name))
	if err != nil {
		t.Fatal(err)
	}
	from, err := cl.Owner(t.Context(), slot)
	if err != nil {
		t.Fatal(err)
	}
	if to, err = cl.Other(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	return slot, to
}

func moveAway(t *testing.T, cl *redistest.Cluster, name string) {
	t.Helper()
	slot, to := other(t, cl, name)
	if err := cl.Move(t.Context(), slot, to); err != nil {
		t.Fatal(err)
	}
}

// TestClusterMoves: the slot of a lock that is held goes to another master. Its holder goes
// on, others are refused, and who comes after the release gets it.
func TestClusterMoves(t *testing.T) {
	cl := calmCluster(t)
	for _, v := range singles() {
		t.Run(v.Name, func(t *testing.T) {
			holder := locksOn(t, v.On([]driver.Node{nodeOf(t, clusterClient(t, cl.Addrs()))}), patient)
			rival := locksOn(t, v.On([]driver.Node{nodeOf(t, clusterClient(t, cl.Addrs()))}), patient)
			lease, err := holder.NewLock(t.Name()).TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			moveAway(t, cl, t.Name())
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend = %v, want nil", err)
			}
			_, err = rival.NewLock(t.Name()).TryAcquire(t.Context())
			if !errors.Is(err, strategy.ErrHeld) {
				t.Errorf("another's TryAcquire = %v, want %v", err, strategy.ErrHeld)
			}
			moveAway(t, cl, t.Name()) // and back, or on
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release = %v, want nil", err)
			}
			lease, err = rival.NewLock(t.Name()).TryAcquire(t.Context())
			if err != nil {
				t.Fatalf("TryAcquire = %v, want nil", err)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release = %v, want nil", err)
			}
		})
	}
}

// TestClusterAsks: while a slot is on its way, and its key gone ahead or not there, commands
// follow ASK; a session is refused in the server's words.
func TestClusterAsks(t *testing.T) {
	cl := calmCluster(t)
	n := nodeOf(t, clusterClient(t, cl.Addrs()))
	scripts := locksOn(t, fairqueue.On(n), patient)
	lease, err := scripts.NewLock(t.Name()).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slot, to := other(t, cl, t.Name())
	move, err := cl.BeginMove(t.Context(), slot, to)
	if err != nil {
		t.Fatal(err)
	}
	key := strategy.DefaultKey(t.Name())
	if err := move.Keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Do(t.Context(), soon(), "GET", key); err != nil || string(got.([]byte)) != lease.Token() {
		t.Errorf("GET = %s, %v, want the token", got, err)
	}
	if err := lease.Extend(t.Context()); err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
		t.Errorf("Extend = %v, want nil, or TRYAGAIN while keys of the script are on both sides", err)
	}
	watching := locksOn(t, setnxgetset.On(n, setnxgetset.WatchTakeOver()), patient)
	_, err = watching.NewLock(t.Name() + "x").TryAcquire(t.Context())
	if err != nil {
		t.Errorf("TryAcquire of another slot = %v, want nil", err)
	}
	err = n.Session(t.Context(), soon(), key, func(c driver.Conn) error { _, err := c.Do("WATCH", key); return err })
	want(t, "a session for a key that has gone ahead", err, strategy.ErrRefused)
	if !strings.Contains(fmt.Sprint(err), "ASK ") {
		t.Errorf("Session = %v, want the server's words", err)
	}
	if err := move.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
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

// TestClusterSlots: locks in several slots that are due at the same time are renewed all the
// same; and a script over several slots is refused in the server's words.
func TestClusterSlots(t *testing.T) {
	cl := calmCluster(t)
	n := nodeOf(t, clusterClient(t, cl.Addrs()))
	_, err := n.Eval(t.Context(), soon(), driver.NewScript("two", "return 1"), []string{"a", "b"})
	want(t, "a script over two slots", err, strategy.ErrRefused)
	if !driver.SeveralSlots(err) {
		t.Errorf("Eval = %v, want CROSSSLOT", err)
	}
	const ttl = 3 * time.Second
	s := locksOn(t, fairqueue.On(n), strategy.Options{TTL: ttl, OpTimeout: ttl / 3})
	var leases []strategy.Lease
	for i := range 20 {
		lease, err := s.NewLock(fmt.Sprint(t.Name(), i)).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.KeepAlive(time.Minute); err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	end := time.Now().Add(2 * ttl)
	eventually(t, "all outlive their TTL", func() bool {
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatalf("%s: %v, want it held", l.Name(), err)
			}
		}
		return time.Now().After(end)
	})
	for _, l := range leases {
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release = %v, want nil", err)
		}
	}
}

// TestClusterMasterLost: when a master is lost and its replica has taken over, who holds a lock
// that the replica has heard of goes on, and others get theirs.
func TestClusterMasterLost(t *testing.T) {
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{Replicas: 1})
	n := nodeOf(t, clusterClient(t, cl.Addrs()))
	s := locksOn(t, fairqueue.On(n), strategy.Options{TTL: time.Minute, OpTimeout: 2 * time.Second, RetryOnError: true})
	lease, err := s.NewLock(t.Name()).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan error, 1)
	if _, err = n.Subscribe(t.Context(), strategy.DefaultKey(t.Name()), func(_ []byte, err error) { heard <- err }); err != nil {
		t.Fatal(err)
	}
	master, err := cl.OwnerOf(t.Context(), strategy.DefaultKey(t.Name()))
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.Stall(t.Context(), master); err != nil { // which waits until the replica has the lock
		t.Fatal(err)
	}
	if _, err := cl.FailOver(t.Context(), master); err != nil {
		t.Fatal(err)
	}
	if err := await(t, "the end of the subscription", heard); err == nil {
		t.Error("a message was heard, want the end")
	}
	eventually(t, "the holder reaches the new master", func() bool {
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
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("Release = %v, want nil", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), nodetest.Generous)
	defer cancel()
	next, err := s.NewLock(t.Name()).Acquire(ctx)
	if err != nil {
		t.Fatalf("Acquire = %v, want nil", err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Errorf("Release = %v, want nil", err)
	}
	if stop, err := n.Subscribe(t.Context(), strategy.DefaultKey(t.Name()), func([]byte, error) {}); err != nil {
		t.Errorf("Subscribe = %v, want nil", err)
	} else {
		stop()
	}
}
