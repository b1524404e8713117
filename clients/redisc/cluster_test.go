// Strategies on a node of redisc, on clusters of real servers: the exported suite, slots that move, masters that freeze
// or are replaced. Its requests go through clients/redigo, which package nodetest holds to the contract.
package rediscnode

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// open makes a Node that begins with the addresses; it ends with the test.
func open(t testing.TB, startup ...string) *node {
	t.Helper()
	n := New(&redisc.Cluster{StartupNodes: startup}).(*node)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

var (
	soon  = nodetest.Soon
	addrs = clienttest.Addrs
)

// locksOn is a strategy on a node of its own.
func locksOn(t testing.TB, addrs []string, on func([]driver.Node) driver.Protocol, o strategy.Options) strategy.Strategy {
	t.Helper()
	return clienttest.Strategy(t, on([]driver.Node{open(t, addrs...)}), o)
}

func fair(nodes []driver.Node) driver.Protocol { return fairqueue.On(nodes[0]) }

func try(t testing.TB, s strategy.Strategy, name string) strategy.Lease {
	t.Helper()
	return clienttest.Must[strategy.Lease](t)(s.NewLock(name).TryAcquire(t.Context()))
}

func TestConformance(t *testing.T) {
	clienttest.ClusterConformance(t, func(addrs []string) (driver.Node, error) {
		return New(&redisc.Cluster{StartupNodes: addrs}), nil
	}, "fairqueue", "setnxgetset-watch")
}

func TestHeldLockMoves(t *testing.T) {
	clienttest.HeldLockMoves(t, func(t testing.TB, addrs []string) driver.Node { return open(t, addrs...) })
}

func TestManyRenewedTogether(t *testing.T) { clienttest.ManyRenewedTogether(t, open(t, addrs(t)...)) }

func TestSubscriptionFollows(t *testing.T) { clienttest.SubscriptionFollows(t, open(t, addrs(t)...)) }

func TestReadme(t *testing.T) { clienttest.Readme(t) }

// TestMovesUnderLoad: while a slot goes to and fro, those who contend for a lock in it have it one
// at a time, in the order of the fences, all of them. None meets with an error, but that a
// release which a move cuts in two says so, and is repeated in the background.
func TestMovesUnderLoad(t *testing.T) {
	cl := clienttest.Cluster(t)
	for _, v := range clienttest.Variants(1, "luascript", "fairqueue", "setnxpx") {
		if v.Name == "setnxgetset-watch" {
			continue // what a session meets with is the caller's: see the package doc
		}
		t.Run(v.Name, func(t *testing.T) {
			const contenders, moves = 6, 15
			var inside, holds atomic.Int32
			var last atomic.Uint64 // fence
			done := make(chan struct{})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			hold := func(n driver.Node, l strategy.Lock) error {
				lease, err := l.Acquire(ctx)
				if err != nil {
					return err
				}
				if inside.Add(1) > 1 {
					t.Error("two hold the lock")
				}
				if fence, ok := lease.Fence(); ok {
					if before := last.Swap(fence); before >= fence {
						t.Errorf("fence %d after %d", fence, before)
					}
				}
				holds.Add(1)
				n.Do(ctx, soon(), "PING", "") //nolint:errcheck // its work: whatever takes a while
				inside.Add(-1)
				if err := lease.Release(t.Context()); !errors.Is(err, strategy.ErrUnknown) {
					return err
				}
				return nil
			}
			had := make([]int, contenders)
			var all sync.WaitGroup
			for i := range contenders {
				n := open(t, addrs(t)...)
				l := clienttest.Strategy(t, v.On([]driver.Node{n}), clienttest.Patient).NewLock(t.Name())
				all.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						if err := hold(n, l); err != nil {
							t.Error(err)
							return
						}
						had[i]++
					}
				})
			}
			for range moves {
				before := holds.Load()
				clienttest.MoveOf(t, cl, t.Name()).Whole()
				verdict.Eventually(t, "each contender could hold the lock", func() bool { return holds.Load() > before+contenders || t.Failed() })
			}
			close(done)
			all.Wait()
			for i, n := range had {
				if v.Fair && n == 0 {
					t.Errorf("contender %d never held the lock, want each to: the queue is fair", i)
				}
			}
		})
	}
}

// TestWhileMoving: what is asked for while the keys of a lock are on their way is answered when
// they have arrived, or before.
func TestWhileMoving(t *testing.T) {
	cl := clienttest.Cluster(t)
	for _, v := range clienttest.Variants(1, "setnxpx", "setnxgetset-watch", "fairqueue", "reentrant") {
		t.Run(v.Name, func(t *testing.T) {
			o := clienttest.Patient
			held := try(t, locksOn(t, addrs(t), v.On, o), t.Name())
			// Another lock in the same slot, which nobody has.
			o.Key = func(string) string { return "{" + t.Name() + "}:free" }
			free := locksOn(t, addrs(t), v.On, o)
			move := clienttest.MoveOf(t, cl, t.Name())
			before := move.TryAgains()
			m := move.Begin()
			ended := make(chan error, 2)
			go func() { ended <- held.Release(t.Context()) }()
			go func() {
				lease, err := free.NewLock("free").TryAcquire(t.Context())
				if err == nil {
					err = errors.Join(lease.Extend(t.Context()), lease.Release(t.Context()))
				}
				ended <- err
			}()
			verdict.Eventually(t, "both are answered, or one is refused", func() bool {
				return len(ended) == 2 || move.TryAgains() > before
			})
			if err := errors.Join(m.Keys(t.Context()), m.Finish(t.Context()), <-ended, <-ended); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestFailOver: a replica takes over. A lock that it knows of is held on; one that it had not heard
// of is granted again.
func TestFailOver(t *testing.T) {
	t.Parallel()
	for name, heard := range map[string]bool{"replicated": true, "not replicated": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := redistest.OwnCluster(t, redistest.ClusterConfig{Replicas: 1})
			s, rival := locksOn(t, cl.Addrs(), fair, clienttest.Patient), locksOn(t, cl.Addrs(), fair, clienttest.Patient)
			synced := locksOn(t, cl.Addrs(), fair, strategy.Options{
				TTL: time.Minute, OpTimeout: time.Second, Acks: strategy.Acks{Replicas: 1},
				Key: func(name string) string { return "lock:{" + t.Name() + "}:" + name }, // in the same slot
			})
			if err := errors.Join(try(t, s, t.Name()).Release(t.Context()), synced.Check(t.Context())); err != nil { // so that all have met
				t.Fatal(err)
			}
			master := clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), t.Name()))
			if !heard {
				if err := cl.Stall(t.Context(), master); err != nil {
					t.Fatal(err)
				}
			}
			var acks *strategy.AcksError
			_, err := synced.NewLock("synced").TryAcquire(t.Context())
			if heard && err != nil || !heard && (!errors.As(err, &acks) || !errors.Is(err, strategy.ErrUnknown)) {
				t.Errorf("with Acks TryAcquire = %v, want it confirmed: %v", err, heard)
			}
			first := try(t, s, t.Name())
			if heard { // for the replica to hear of it, too
				clienttest.Must[any](t)(cl.Do(t.Context(), master, "WAIT", 1, 0))
			}
			clienttest.Must[*redistest.Server](t)(cl.FailOver(t.Context(), master))
			second, err := rival.NewLock(t.Name()).TryAcquire(t.Context())
			extended := first.Extend(t.Context())
			if errors.Is(extended, strategy.ErrUnknown) { // sent to the one that was dying
				extended = first.Extend(t.Context())
			}
			if heard {
				if !errors.Is(err, strategy.ErrHeld) || extended != nil {
					t.Errorf("a rival gets %v, and Extend = %v, want ErrHeld, nil", err, extended)
				}
				return
			}
			if err != nil || !errors.Is(extended, strategy.ErrLost) {
				t.Fatalf("a rival gets %v, and Extend = %v, want the lock, ErrLost", err, extended)
			}
			a, _ := first.Fence()
			if b, _ := second.Fence(); b <= a {
				t.Errorf("the second's fence is %d, the first's %d", b, a)
			}
		})
	}
}

// TestMasterFreezesAndDies: an acquire that a frozen master does not answer is undone when it thaws, while the other masters
// are of use all the time. One that dies is not available, and when it is back, with nothing on disk, has forgotten what it held.
func TestMasterFreezesAndDies(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	s := locksOn(t, cl.Addrs(), fair, strategy.Options{TTL: time.Minute, OpTimeout: 500 * time.Millisecond})
	release := func(name string) {
		if err := try(t, s, name).Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	release(t.Name()) // so that the connection is there
	frozen := clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), t.Name()))
	redistest.Skip(t, frozen.Freeze(t.Context()), "what becomes of a lost reply")
	if _, err := s.NewLock(t.Name()).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("%v, want ErrUnknown", err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		if clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), name)) != frozen {
			release(name)
		}
	}
	if err := frozen.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	rival := locksOn(t, cl.Addrs(), fair, clienttest.Patient)
	verdict.Eventually(t, "the lock is free", func() bool {
		lease, err := rival.NewLock(t.Name()).TryAcquire(t.Context())
		return err == nil && lease.Release(t.Context()) == nil
	})
	held := try(t, rival, t.Name())
	if err := frozen.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := held.Extend(t.Context()); !errors.Is(err, strategy.ErrUnsent) && !errors.Is(err, strategy.ErrUnknown) || held.Err() != nil {
		t.Errorf("Extend at a dead master: %v, and the lease says %v, want ErrUnsent or ErrUnknown, nil", err, held.Err())
	}
	if _, err := s.NewLock(t.Name()).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("TryAcquire at a dead master: %v, want ErrUnsent", err)
	}
	if err := frozen.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	verdict.Eventually(t, "the cluster grants the lock a second time", func() bool {
		again, err := s.NewLock(t.Name()).TryAcquire(t.Context())
		return err == nil && again.Release(t.Context()) == nil
	})
	if err := held.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Extend: %v, want ErrLost", err)
	}
}
