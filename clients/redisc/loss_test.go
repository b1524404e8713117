// Tests what becomes of locks when a master of the cluster dies, freezes, or is replaced.
package rediscnode

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// TestMasterDies: without a replica the slots of a master that dies are not available, and what
// it held is forgotten with it. When it is back they are served again.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := open(t, cl.Addrs()...)
	o := strategy.Options{TTL: time.Minute, OpTimeout: 2 * time.Second}
	s := clienttest.Strategy(t, fairqueue.On(n), o)
	lease := clienttest.Must[strategy.Lease](t)(s.NewLock(t.Name()).TryAcquire(t.Context()))
	master := clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), t.Name()))
	if err := master.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := lease.Extend(t.Context())
	if !errors.Is(err, strategy.ErrUnsent) && !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("Extend: %v, want ErrUnsent or ErrUnknown", err)
	}
	if _, err := s.NewLock(t.Name()).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("TryAcquire: %v, want ErrUnsent", err)
	}
	if lease.Err() != nil {
		t.Errorf("nobody has said so, and it is lost: %v", lease.Err())
	}
	if err := master.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It had nothing on disk: a second holder, while the first believes itself to be one.
	verdict.Eventually(t, "the cluster serves again", func() bool {
		again, err := s.NewLock(t.Name()).TryAcquire(t.Context())
		if err != nil {
			return false
		}
		return again.Release(t.Context()) == nil
	})
	if err := lease.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Extend: %v, want ErrLost", err)
	}
}

// TestFailOver: a replica takes over. A lock that it knows of is held on; one that it had not heard
// of is granted again.
func TestFailOver(t *testing.T) {
	t.Parallel()
	for _, heard := range []bool{true, false} {
		name := "replicated"
		if !heard {
			name = "not replicated"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := redistest.OwnCluster(t, redistest.ClusterConfig{Replicas: 1})
			n := open(t, cl.Addrs()...)
			s := clienttest.Strategy(t, fairqueue.On(n), clienttest.Patient)
			synced := clienttest.Strategy(t, fairqueue.On(open(t, cl.Addrs()...)), strategy.Options{
				TTL: time.Minute, OpTimeout: time.Second, Acks: strategy.Acks{Replicas: 1},
				Key: func(name string) string { return "lock:{" + t.Name() + "}:" + name }, // in the same slot
			})
			rival := clienttest.Strategy(t, fairqueue.On(open(t, cl.Addrs()...)), clienttest.Patient)
			other := clienttest.Must[strategy.Lease](t)(s.NewLock(t.Name()).TryAcquire(t.Context())) // so that all have met
			if err := other.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := synced.Check(t.Context()); err != nil {
				t.Errorf("Check: %v", err)
			}
			master := clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), t.Name()))
			if !heard {
				if err := cl.Stall(t.Context(), master); err != nil {
					t.Fatal(err)
				}
			}
			var acks *strategy.AcksError
			switch sure, err := synced.NewLock("synced").TryAcquire(t.Context()); {
			case heard && err != nil:
				t.Error(err)
			case heard:
				if err := sure.Extend(t.Context()); err != nil {
					t.Error(err)
				}
			case !errors.As(err, &acks) || !errors.Is(err, strategy.ErrUnknown):
				t.Errorf("Acknowledged: %v, want ErrUnknown, for nobody has confirmed it", err)
			}
			lease := clienttest.Must[strategy.Lease](t)(s.NewLock(t.Name()).TryAcquire(t.Context()))
			if heard { // for the replica to hear of it, too
				clienttest.Must[any](t)(cl.Do(t.Context(), master, "WAIT", 1, 0))
			}
			clienttest.Must[*redistest.Server](t)(cl.FailOver(t.Context(), master))

			second, err := rival.NewLock(t.Name()).TryAcquire(t.Context())
			if heard {
				if !errors.Is(err, strategy.ErrHeld) {
					t.Errorf("a rival gets %v, want ErrHeld", err)
				}
				extended := lease.Extend(t.Context())
				if errors.Is(extended, strategy.ErrUnknown) { // sent to the one that was dying
					extended = lease.Extend(t.Context())
				}
				if extended != nil {
					t.Error(extended)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatalf("a rival gets %v: the matrix of faults says that it is granted the lock", err)
			}
			if lease.Err() != nil {
				t.Errorf("the first has heard of it: %v", lease.Err())
			}
			a, _ := lease.Fence()
			if b, _ := second.Fence(); b <= a {
				t.Errorf("the second's fence is %d, the first's %d", b, a)
			}
			extended := lease.Extend(t.Context())
			if errors.Is(extended, strategy.ErrUnknown) {
				extended = lease.Extend(t.Context())
			}
			if !errors.Is(extended, strategy.ErrLost) {
				t.Errorf("Extend: %v, want ErrLost", extended)
			}
			if err := second.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLostReply: an acquire that a frozen master does not answer is undone when it thaws, while
// the other masters are of use all the time.
func TestLostReply(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := open(t, cl.Addrs()...)
	o := strategy.Options{TTL: time.Minute, OpTimeout: 500 * time.Millisecond}
	s := clienttest.Strategy(t, fairqueue.On(n), o)
	release := func(name string) {
		lease := clienttest.Must[strategy.Lease](t)(s.NewLock(name).TryAcquire(t.Context()))
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	release(t.Name()) // so that the connection is there
	frozen := clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), t.Name()))
	if err := frozen.Freeze(t.Context()); err != nil {
		redistest.Skip(t, err, "what becomes of a lost reply")
	}
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
	rival := clienttest.Strategy(t, fairqueue.On(open(t, cl.Addrs()...)), clienttest.Patient)
	verdict.Eventually(t, "the lock is free", func() bool {
		lease, err := rival.NewLock(t.Name()).TryAcquire(t.Context())
		return err == nil && lease.Release(t.Context()) == nil
	})
	if !n.Ordered() {
		t.Error("nothing has moved, and the order is lost")
	}
}

// TestProbe: a master that closes its connections may have restarted.
func TestProbe(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	n := open(t, cl.Addrs()...)
	for i := range 50 { // on all masters
		clienttest.Must[any](t)(n.Do(t.Context(), soon(), "GET", fmt.Sprint(i)))
	}
	probe := func() uint64 { return n.Probe(t.Context(), soon()) }
	before := probe()
	if got := probe(); got != before {
		t.Errorf("Probe = %d although nobody was away, want %d as before", got, before)
	}
	for _, s := range cl.Servers() {
		redistest.Do(t, s, "CLIENT", "KILL", "TYPE", "normal")
		verdict.Eventually(t, "the node reports the return", func() bool { return probe() > before })
		before = probe()
	}
}

// TestDemotion: a master becomes a replica, and its connections stay open. A probe finds that, also where nobody
// asks for a key: subscriptions end, and begin again at the new master.
func TestDemotion(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{Replicas: 1})
	n := open(t, cl.Addrs()...)
	clienttest.Must[any](t)(n.Do(t.Context(), soon(), "SET", t.Name(), "v"))
	h, stop := nodetest.Subscribe(t, n, t.Name())
	defer stop()
	old := clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), t.Name()))
	promoted := clienttest.Must[*redistest.Server](t)(cl.Demote(t.Context(), old))
	verdict.Eventually(t, "the probe ends the subscription", func() bool {
		n.Probe(t.Context(), soon())
		return len(h.Ends) > 0
	})
	verdict.Eventually(t, "a subscription is counted at the new master", func() bool {
		again, stop := nodetest.Subscribe(t, n, t.Name())
		defer stop()
		told := clienttest.Must[any](t)(cl.Do(t.Context(), promoted, "PUBLISH", t.Name(), "x"))
		return told == int64(1) && nodetest.Receive(t, "the message", again.Msgs) == "x"
	})
}
