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
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

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

func strategyOn(t *testing.T, p driver.Protocol, o strategy.Options) strategy.Strategy {
	t.Helper()
	s := must[strategy.Strategy](t)(engine.New(p, o))
	t.Cleanup(func() { s.Close() })
	return s
}

// a move is the slot of a lock, and the master that it is to go to.
type move struct {
	t    *testing.T
	cl   *redistest.Cluster
	slot int
	to   *redistest.Server
}

func moveOf(t *testing.T, cl *redistest.Cluster, key string) move {
	t.Helper()
	slot := must[int](t)(cl.Slot(t.Context(), key))
	from := must[*redistest.Server](t)(cl.Owner(t.Context(), slot))
	return move{t, cl, slot, must[*redistest.Server](t)(cl.Other(t.Context(), from))}
}

func (m move) whole() {
	m.t.Helper()
	if err := m.cl.Move(m.t.Context(), m.slot, m.to); err != nil {
		m.t.Fatal(err)
	}
}

func (m move) begin() *redistest.Move {
	m.t.Helper()
	return must[*redistest.Move](m.t)(m.cl.BeginMove(m.t.Context(), m.slot, m.to))
}

func finish(t *testing.T, m *redistest.Move) {
	t.Helper()
	if err := m.Keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestHeldLockMoves: the slot of a lock that is held goes to another master. Its holder goes on,
// others are refused, and who comes after the release gets it.
func TestHeldLockMoves(t *testing.T) {
	cl := cluster(t)
	for _, v := range singles() {
		t.Run(v.Name, func(t *testing.T) {
			n := open(t, addrs(t)...)
			holder := strategyOn(t, v.On([]driver.Node{n}), patient)
			other := strategyOn(t, v.On([]driver.Node{open(t, addrs(t)...)}), patient)
			lease := must[strategy.Lease](t)(holder.NewLock(t.Name()).TryAcquire(t.Context()))
			if !n.Ordered() {
				t.Error("unordered before anything moved")
			}
			moveOf(t, cl, t.Name()).whole()
			if err := lease.Extend(t.Context()); err != nil {
				t.Errorf("Extend: %v", err)
			}
			if n.Ordered() {
				t.Error("ordered still: nobody asks the old server what it has yet to read")
			}
			if _, err := other.NewLock(t.Name()).TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
				t.Errorf("another gets %v, want ErrHeld", err)
			}
			moveOf(t, cl, t.Name()).whole() // and back, or on
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("Release: %v", err)
			}
			lease = must[strategy.Lease](t)(other.NewLock(t.Name()).TryAcquire(t.Context()))
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhileMoving: what is asked for while the keys of a lock are on their way is answered when
// they have arrived, or before.
func TestWhileMoving(t *testing.T) {
	cl := cluster(t)
	for _, v := range singles() {
		t.Run(v.Name, func(t *testing.T) {
			s := strategyOn(t, v.On([]driver.Node{open(t, addrs(t)...)}), patient)
			held := must[strategy.Lease](t)(s.NewLock(t.Name()).TryAcquire(t.Context()))
			// Another lock in the same slot, which nobody has.
			free := strategyOn(t, v.On([]driver.Node{open(t, addrs(t)...)}), strategy.Options{
				TTL: patient.TTL, OpTimeout: patient.OpTimeout, Key: func(string) string { return key(t, ":free") },
			})
			m := moveOf(t, cl, t.Name()).begin()

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
			time.Sleep(20 * time.Millisecond) // to meet with whatever refuses them; or not, to no harm
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
	cl := cluster(t)
	n := open(t, addrs(t)...)
	o := patient
	o.OpTimeout = 300 * time.Millisecond
	s := strategyOn(t, fairqueue.On(n), o)
	lease := must[strategy.Lease](t)(s.NewLock(t.Name()).TryAcquire(t.Context()))
	m := moveOf(t, cl, t.Name()).begin()
	p, c := fairqueue.On(n), driver.Claim{Name: t.Name(), Key: "lock:{" + t.Name() + "}", Token: "another", TTL: time.Second}
	began := time.Now()
	c.Due = began.Add(o.OpTimeout)
	_, err := p.Acquire(t.Context(), c)
	if !errors.Is(err, strategy.ErrRefused) || !strings.Contains(err.Error(), "TRYAGAIN") {
		t.Errorf("%v, want ErrRefused, TRYAGAIN", err)
	}
	if took := time.Since(began); took < o.OpTimeout/2 || took > o.OpTimeout+5*time.Second {
		t.Errorf("it took %v, due was %v", took, o.OpTimeout)
	}
	finish(t, m)
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAsk: a key that has moved already is found where it is, before the slot has.
func TestAsk(t *testing.T) {
	cl := cluster(t)
	n := open(t, addrs(t)...)
	at := key(t)
	s := strategyOn(t, setnxpx.On(n), strategy.Options{TTL: time.Minute, Key: func(string) string { return at }})
	watch := strategyOn(t, setnxgetset.On(n, setnxgetset.WatchTakeOver()), strategy.Options{TTL: time.Minute, Key: func(string) string { return key(t, "watch") }})
	script := driver.NewScript("get", "return redis.call('GET', KEYS[1])")
	lease := must[strategy.Lease](t)(s.NewLock("a").TryAcquire(t.Context()))
	watched := must[strategy.Lease](t)(watch.NewLock("a").TryAcquire(t.Context()))
	mv := moveOf(t, cl, at)
	m := mv.begin()
	if err := m.Keys(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := func() int64 { return must[map[string]int64](t)(mv.to.Calls(t.Context()))["asking"] }
	before := calls()
	if got := must[any](t)(n.Eval(t.Context(), soon(), script, []string{at})); string(got.([]byte)) != lease.Token() {
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
	cl := cluster(t)
	for _, v := range singles() {
		if !v.Fair {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			own := func() strategy.Lock {
				return strategyOn(t, v.On([]driver.Node{open(t, addrs(t)...)}), patient).NewLock(t.Name())
			}
			first := must[strategy.Lease](t)(own().TryAcquire(t.Context()))
			const waiters = 4
			var inside atomic.Int32
			ended := make(chan error, waiters)
			ctx, cancel := context.WithTimeout(t.Context(), patient.TTL/2)
			defer cancel()
			for range waiters {
				l := own()
				go func() {
					lease, err := l.Acquire(ctx)
					if err != nil {
						ended <- err
						return
					}
					if inside.Add(1) > 1 {
						t.Error("two hold the lock")
					}
					time.Sleep(20 * time.Millisecond) // at work
					inside.Add(-1)
					ended <- lease.Release(t.Context())
				}()
			}
			queue := driver.SiblingKey("lock:{"+t.Name()+"}", "queue")
			at := must[*redistest.Server](t)(cl.OwnerOf(t.Context(), queue))
			eventually(t, "all queue", func() bool {
				return must[int](t)(redis.Int(cl.Do(t.Context(), at, "LLEN", queue))) == waiters
			})
			moveOf(t, cl, t.Name()).whole()
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

// TestSubscriptionFollows: a subscription ends when its slot is found to have moved, and the next
// is at the new server, where scripts see it.
func TestSubscriptionFollows(t *testing.T) {
	cl := cluster(t)
	n := open(t, addrs(t)...)
	channel := key(t)
	heard, broken := make(chan string, 10), make(chan error, 10)
	subscribe := func() func() {
		return must[func()](t)(n.Subscribe(t.Context(), channel, func(msg []byte, err error) {
			if err != nil {
				broken <- err
			} else {
				heard <- string(msg)
			}
		}))
	}
	publish := func(text string) int64 {
		return must[any](t)(n.Do(t.Context(), soon(), "PUBLISH", channel, text)).(int64)
	}
	stop := subscribe()
	if publish("here") != 1 || <-heard != "here" {
		t.Error("not heard")
	}
	moveOf(t, cl, channel).whole()
	must[any](t)(n.Do(t.Context(), soon(), "GET", channel)) // MOVED
	if err := <-broken; !errors.Is(err, errMoved) || !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("it ended with %v", err)
	}
	stop()
	stop = subscribe()
	if publish("there") != 1 || <-heard != "there" {
		t.Error("not heard at the new server")
	}
	stop()
	stop()
	eventually(t, "nobody listens", func() bool { return publish("nobody") == 0 })
	if len(broken)+len(heard) != 0 {
		t.Error("told after the end")
	}
}

// TestManyRenewedTogether: locks in many slots are renewed, all of them, whether acknowledged or
// not.
func TestManyRenewedTogether(t *testing.T) {
	p := fairqueue.On(open(t, addrs(t)...))
	const locks = 300
	var claims []driver.Claim
	for i := range locks {
		name := fmt.Sprint(t.Name(), i)
		c := driver.Claim{Name: name, Key: "lock:{" + name + "}", Token: name, TTL: 10 * time.Second, Due: soon()}
		must[driver.Grant](t)(p.Acquire(t.Context(), c))
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
		t.Error("nobody was told of the one that is another's")
	}
	claims[7].Token = claims[7].Name
	for i, c := range claims {
		info := must[strategy.Info](t)(p.(driver.Inspector).Inspect(t.Context(), c))
		if extended := info.TTL > time.Minute; extended != (i != 7) {
			t.Errorf("lock %d has %v left", i, info.TTL)
		}
		if err := p.Release(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
}

// TestWithoutClusterSlots: a user who may not ask who serves what is told slot by slot.
func TestWithoutClusterSlots(t *testing.T) {
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	for _, s := range cl.Servers() {
		redistest.Do(t, s, "ACL", "SETUSER", "default", "-cluster")
	}
	n := open(t, cl.Addrs()[0])
	s := strategyOn(t, fairqueue.On(n), patient)
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
