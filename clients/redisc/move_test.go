// Tests what becomes of locks, waiters and subscriptions when slots move to another master.
package rediscnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

func finish(t *testing.T, m *redistest.Move) {
	t.Helper()
	if err := m.Keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestWhileMoving: what is asked for while the keys of a lock are on their way is answered when
// they have arrived, or before.
func TestWhileMoving(t *testing.T) {
	cl := clienttest.Cluster(t)
	for _, v := range clienttest.Variants(1, "setnxpx", "setnxgetset-watch", "fairqueue", "reentrant") {
		t.Run(v.Name, func(t *testing.T) {
			s := clienttest.Strategy(t, v.On([]driver.Node{open(t, addrs(t)...)}), clienttest.Patient)
			held := clienttest.Must[strategy.Lease](t)(s.NewLock(t.Name()).TryAcquire(t.Context()))
			// Another lock in the same slot, which nobody has.
			free := clienttest.Strategy(t, v.On([]driver.Node{open(t, addrs(t)...)}), strategy.Options{
				TTL: clienttest.Patient.TTL, OpTimeout: clienttest.Patient.OpTimeout, Key: func(string) string { return key(t, ":free") },
			})
			move := clienttest.MoveOf(t, cl, t.Name())
			before := move.TryAgains()
			m := move.Begin()

			ended := make(chan error, 2)
			go func() { ended <- held.Release(t.Context()) }()
			go func() {
				lease, err := free.NewLock("free").TryAcquire(t.Context())
				if err == nil {
					err = lease.Extend(t.Context())
				}
				if err == nil {
					err = lease.Release(t.Context())
				}
				ended <- err
			}()
			verdict.Eventually(t, "both are answered, or one is refused", func() bool {
				return len(ended) == 2 || move.TryAgains() > before
			})
			finish(t, m)
			for range 2 {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestMovingForEver: keys that do not arrive until due are the caller's to know of, and nothing
// has changed.
func TestMovingForEver(t *testing.T) {
	cl := clienttest.Cluster(t)
	n := open(t, addrs(t)...)
	o := clienttest.Patient
	o.OpTimeout = 300 * time.Millisecond
	s := clienttest.Strategy(t, fairqueue.On(n), o)
	lease := clienttest.Must[strategy.Lease](t)(s.NewLock(t.Name()).TryAcquire(t.Context()))
	m := clienttest.MoveOf(t, cl, t.Name()).Begin()
	p, c := fairqueue.On(n), driver.Claim{Name: t.Name(), Key: "lock:{" + t.Name() + "}", Token: "another", TTL: time.Second}
	verdict.Conclusive(t, func() verdict.Slow {
		began := time.Now()
		c.Due = began.Add(o.OpTimeout)
		_, err := p.Acquire(t.Context(), c)
		if errors.Is(err, strategy.ErrUnknown) {
			return verdict.Slowf("the last answer took longer than %v: %v", mostPause, err)
		}
		if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("%v, want ErrRefused, TRYAGAIN", err)
		}
		if took := time.Since(began); took < o.OpTimeout/2 || took > o.OpTimeout+nodetest.Generous/2 {
			t.Errorf("it took %v, due was %v", took, o.OpTimeout)
		}
		return ""
	})
	finish(t, m)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAsk: a key that has moved already is found where it is, before the slot has.
func TestAsk(t *testing.T) {
	cl := clienttest.Cluster(t)
	n := open(t, addrs(t)...)
	at := key(t)
	s := clienttest.Strategy(t, setnxpx.On(n), strategy.Options{TTL: time.Minute, Key: func(string) string { return at }})
	watch := clienttest.Strategy(t, setnxgetset.On(n, setnxgetset.WithWatchTakeOver()), strategy.Options{TTL: time.Minute, Key: func(string) string { return key(t, "watch") }})
	script := driver.NewScript("get", "return redis.call('GET', KEYS[1])")
	lease := clienttest.Must[strategy.Lease](t)(s.NewLock("a").TryAcquire(t.Context()))
	watched := clienttest.Must[strategy.Lease](t)(watch.NewLock("a").TryAcquire(t.Context()))
	mv := clienttest.MoveOf(t, cl, at)
	m := mv.Begin()
	if err := m.Keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := func() int64 { return clienttest.Must[map[string]int64](t)(mv.To.Calls(t.Context()))["asking"] }
	before := calls()
	if got := clienttest.Must[any](t)(n.Eval(t.Context(), soon(), script, []string{at})); string(got.([]byte)) != lease.Token() {
		t.Errorf("Eval: %s, want %s", got, lease.Token())
	}
	if err := lease.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	if err := watched.Release(t.Context()); err != nil { // WATCH, GET, MULTI, DEL, EXEC
		t.Error(err)
	}
	if calls() == before {
		t.Error("nobody has been asked with ASKING")
	}
	finish(t, m)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWaitersFollow: those who wait for a lock whose slot moves get it, one at a time, as soon as
// it is released.
func TestWaitersFollow(t *testing.T) {
	cl := clienttest.Cluster(t)
	for _, v := range clienttest.Variants(1, "setnxpx", "setnxgetset-watch", "fairqueue", "reentrant") {
		if !v.Fair {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			own := func() (*node, strategy.Lock) {
				n := open(t, addrs(t)...)
				return n, clienttest.Strategy(t, v.On([]driver.Node{n}), clienttest.Patient).NewLock(t.Name())
			}
			_, lock := own()
			first := clienttest.Must[strategy.Lease](t)(lock.TryAcquire(t.Context()))
			const waiters = 4
			var inside atomic.Int32
			ended := make(chan error, waiters)
			ctx, cancel := context.WithTimeout(t.Context(), clienttest.Patient.TTL/2)
			defer cancel()
			for range waiters {
				n, l := own()
				go func() {
					lease, err := l.Acquire(ctx)
					if err != nil {
						ended <- err
						return
					}
					if inside.Add(1) > 1 {
						t.Error("two hold the lock")
					}
					n.Do(ctx, soon(), "PING", "") //nolint:errcheck // its work: whatever takes a while
					inside.Add(-1)
					ended <- lease.Release(t.Context())
				}()
			}
			queue := driver.SiblingKey("lock:{"+t.Name()+"}", "queue")
			at := clienttest.Must[*redistest.Server](t)(cl.OwnerOf(t.Context(), queue))
			verdict.Eventually(t, "all queue", func() bool {
				return clienttest.Must[int](t)(redis.Int(cl.Do(t.Context(), at, "LLEN", queue))) == waiters
			})
			clienttest.MoveOf(t, cl, t.Name()).Whole()
			if err := first.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range waiters {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestSubscriptionFollows(t *testing.T) {
	clienttest.SubscriptionFollows(t, open(t, addrs(t)...))
}

// TestWithoutClusterSlots: a user who may not ask who serves what learns it slot by slot.
func TestWithoutClusterSlots(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	for _, s := range cl.Servers() {
		redistest.Do(t, s, "ACL", "SETUSER", "default", "-cluster")
	}
	n := open(t, cl.Addrs()[0])
	s := clienttest.Strategy(t, fairqueue.On(n), clienttest.Patient)
	for i := range 20 {
		lease, err := s.NewLock(fmt.Sprint(t.Name(), i)).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, s := range cl.Servers() { // for those who stop it
		redistest.Do(t, s, "ACL", "SETUSER", "default", "+cluster")
	}
}
