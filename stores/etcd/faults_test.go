// Tests what becomes of requests that arrive late, of leases, places and watches that end, and of keys that somebody else changes.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"google.golang.org/grpc"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// ample is for tests in which nothing expires.
var ample = strategy.Options{TTL: 60 * time.Second, OpTimeout: 30 * time.Second}

// keyOf is the key of a lock that no other test has.
func keyOf(t testing.TB) string { return fmt.Sprint(t.Name(), " ", time.Now().UnixNano()) }

// claimOf is a claim as the engine makes them.
func claimOf(key, token string) driver.Claim {
	return driver.Claim{Name: key, Key: key, Token: token, TTL: ample.TTL, Due: time.Now().Add(ample.OpTimeout)}
}

// must gets a claim the lock.
func must(t *testing.T, p driver.Protocol, c driver.Claim) driver.Claim {
	t.Helper()
	g, err := p.Acquire(t.Context(), c)
	if err != nil {
		t.Fatalf("Acquire() = %v, want nil", err)
	}
	c.Grant = g
	return c
}

// A valve is a gate that a test sets.
type valve struct {
	mu   sync.Mutex
	step func(request string, send func())
}

func (v *valve) pass(request string, send func()) {
	v.mu.Lock()
	step := v.step
	v.mu.Unlock()
	if step == nil {
		send()
		return
	}
	step(request, send)
}

func (v *valve) set(step func(request string, send func())) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.step = step
}

// holdUp lets requests of that name wait until melt is called, which returns when they have been answered.
func (v *valve) holdUp(t *testing.T, name string) (melt func()) {
	thaw := make(chan struct{})
	var under atomic.Int32
	v.set(func(request string, send func()) {
		if request == name {
			under.Add(1)
			defer under.Add(-1)
			<-thaw
		}
		send()
	})
	return func() {
		v.set(nil)
		close(thaw)
		verdict.Eventually(t, "what was held up has been answered", func() bool { return under.Load() == 0 })
	}
}

// nothing fails unless the servers have nothing of the lock.
func nothing(t *testing.T, c *clientv3.Client, key, after string) {
	t.Helper()
	resp, err := c.Get(t.Context(), keysOf(key).holder, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		t.Errorf("%s the servers have %q = %q, want nothing", after, kv.Key, kv.Value)
	}
}

// TestLateAcquire: what an acquisition wrote after its undo would be a lock that nobody holds. So etcd refuses it.
func TestLateAcquire(t *testing.T) {
	t.Parallel()
	var v valve
	c := clientOf(t, endpoints(t), gated(v.pass)...)
	p, key := On(c).(*protocol), keyOf(t)
	melt := v.holdUp(t, "Txn")
	claim := claimOf(key, "late")
	claim.Due = time.Now().Add(time.Second)
	g, err := p.Acquire(t.Context(), claim)
	if !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
		t.Fatalf("Acquire() = %v, want ErrUnknown: no server has answered", err)
	}
	claim.Grant, claim.Due = g, time.Now().Add(ample.OpTimeout)
	if err := p.Undo(t.Context(), claim); err != nil {
		t.Fatalf("Undo() = %v, want nil", err)
	}
	melt()
	nothing(t, c, key, "after its undo a late acquisition")
	if _, ok := p.idle.take(60); ok {
		t.Error("the lease of an acquisition that nobody has answered is idle, want that it is never used again")
	}
}

// TestLatePass: likewise, where the request also takes a place in the queue. It arrives before or after the undo of the last hold.
func TestLatePass(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"after both undos": false, "between the undos": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var v valve
			c := clientOf(t, endpoints(t), gated(v.pass)...)
			p, key := On(c).(*protocol), keyOf(t)
			held := must(t, p, claimOf(key, "first"))
			next := claimOf(key, "second")
			next.Line = "line"
			stop, err := p.Watch(t.Context(), next, func(driver.Notification) {})
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			melt := v.holdUp(t, "Txn")
			held.Due = time.Now().Add(2 * time.Second)
			if _, err := p.Pass(t.Context(), held, next); !errors.Is(err, strategy.ErrUnknown) {
				t.Fatalf("Pass() = %v, want ErrUnknown: no server has answered", err)
			}
			undo := func(c driver.Claim) {
				c.Due = time.Now().Add(ample.OpTimeout)
				if err := p.Undo(t.Context(), c); err != nil {
					t.Fatalf("Undo(%s) = %v, want nil", c.Token, err)
				}
			}
			undo(next)
			if early {
				melt()
			}
			undo(held)
			if !early {
				melt()
			}
			nothing(t, c, key, "after the undo a late pass")
			if len(p.places) > 0 {
				t.Errorf("%d places are left after the undo, want none", len(p.places))
			}
		})
	}
}

// TestPassOtherTTL: the next hold lasts as long as it asks for, not as long as the one before it.
func TestPassOtherTTL(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	held, next := must(t, p, claimOf(key, "first")), claimOf(key, "second")
	next.TTL = 30 * time.Second
	g, err := p.Pass(t.Context(), held, next)
	if err != nil || g.TTL != next.TTL || g.Fence <= held.Grant.Fence {
		t.Fatalf("Pass() = TTL %v, fence %d, %v, want %v and more than %d", g.TTL, g.Fence, err, next.TTL, held.Grant.Fence)
	}
	if l, ok := p.idle.take(60); !ok || l.id != holdOf(held).lease.id {
		t.Error("the lease of the first hold is not idle, want that it serves again")
	}
	next.Grant = g
	if _, err := p.Release(t.Context(), next); err != nil {
		t.Fatalf("Release() = %v, want nil", err)
	}
	if l, _ := p.idle.take(30); l.id != holdOf(next).lease.id {
		t.Error("the lease of the second hold is not idle after its release")
	}
}

// TestLeaseServesAgain: an idle lease serves the next hold, and a hold whose end nobody confirmed leaves none.
func TestLeaseServesAgain(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	var first clientv3.LeaseID
	for i := range 3 {
		held := must(t, p, claimOf(key, fmt.Sprint(i)))
		if _, err := p.Acquire(t.Context(), claimOf(key, "refused")); !errors.Is(err, strategy.ErrHeld) {
			t.Fatalf("Acquire() = %v, want ErrHeld", err)
		}
		if i == 0 {
			first = holdOf(held).lease.id
		}
		if _, err := p.Release(t.Context(), held); err != nil {
			t.Fatalf("Release() = %v, want nil", err)
		}
	}
	if n := len(p.idle.idle[60]); n != 2 {
		t.Errorf("%d leases are idle, want 2: that of the holder, and that of who was refused", n)
	}
	for _, l := range slices.Clone(p.idle.idle[60]) { // they end, and nobody says so
		if _, err := c.Revoke(t.Context(), l.id); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	held := must(t, p, claimOf(key, "after"))
	if id := holdOf(held).lease.id; id == first {
		t.Error("the hold hangs on a lease that has ended")
	}
	if _, err := p.Extend(t.Context(), held); err != nil {
		t.Errorf("Extend() = %v, want nil", err)
	}

	p.idle.add(lease{id: first, asked: 60, ttl: ample.TTL, start: time.Now()}) // which has ended, as a restored etcd forgets leases
	adopter := claimOf(key, "adopter")
	if adopter.Grant, err = p.Adopt(t.Context(), adopter, "after"); err != nil {
		t.Fatalf("Adopt() = %v, want nil", err)
	}
	if _, err := p.Release(t.Context(), adopter); err != nil {
		t.Errorf("Release() = %v, want nil", err)
	}
}

// TestLostBehindTheBack: a lease that lives does not make a holder of one whose key is another's, or nobody's.
func TestLostBehindTheBack(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	held := must(t, p, claimOf(key, "first"))
	if _, err := c.Delete(t.Context(), keysOf(key).holder); err != nil {
		t.Fatal(err)
	}
	wantLost := func(what, holder string, err error) {
		t.Helper()
		var lost *strategy.LostError
		if !errors.As(err, &lost) || lost.Holder != holder {
			t.Errorf("%s = %v, want a LostError with the holder %q", what, err, holder)
		}
	}
	_, err := p.Extend(t.Context(), held)
	wantLost("Extend() of a deleted lock", "", err)
	next := must(t, p, claimOf(key, "second"))
	_, err = p.Extend(t.Context(), held)
	wantLost("Extend()", "second", err)
	_, err = p.Release(t.Context(), held)
	wantLost("Release()", "second", err)
	_, err = p.Pass(t.Context(), held, claimOf(key, "third"))
	wantLost("Pass()", "second", err)
	_, err = p.ForceRelease(t.Context(), held)
	wantLost("ForceRelease()", "second", err)
	_, err = p.Adopt(t.Context(), claimOf(key, "third"), "first")
	wantLost("Adopt()", "second", err)
	if err := p.Undo(t.Context(), held); err != nil {
		t.Errorf("Undo() = %v, want nil", err)
	}
	if _, err := p.Extend(t.Context(), next); err != nil {
		t.Errorf("Extend() of the holder = %v, want nil: all that came before was another's", err)
	}
}

// TestLostLease: a lease that was revoked, or has ended.
func TestLostLease(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	held := must(t, p, claimOf(key, "first"))
	if _, err := c.Revoke(t.Context(), holdOf(held).lease.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Pass(t.Context(), held, claimOf(key, "second")); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Pass() = %v, want ErrLost", err)
	}
	if _, err := p.Extend(t.Context(), held); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Extend() = %v, want ErrLost", err)
	}
}

// TestExtendAll: each of many holds gets its own answer.
func TestExtendAll(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	const n = 150
	cs := make([]driver.Claim, n)
	for i := range cs {
		cs[i] = must(t, p, claimOf(fmt.Sprint(key, "/", i), "token"))
		switch {
		case i%10 == 3:
			if _, err := c.Revoke(t.Context(), holdOf(cs[i]).lease.id); err != nil {
				t.Fatal(err)
			}
		case i%10 == 7:
			if _, err := c.Put(t.Context(), keysOf(cs[i].Key).holder, "somebody's"); err != nil {
				t.Fatal(err)
			}
		}
	}
	due := time.Now().Add(ample.OpTimeout)
	for i := range cs {
		if cs[i].Due = due; i%10 == 5 {
			cs[i].Due = time.Now() // its time is over, and that is no reason for the others to fail
		}
	}
	answers := make([]atomic.Int32, n)
	p.ExtendAll(t.Context(), cs, func(i int, g driver.Grant, err error) {
		answers[i].Add(1)
		switch {
		case i%10 == 3 && errors.Is(err, strategy.ErrLost):
		case i%10 == 7 && errors.Is(err, strategy.ErrRefused):
		case i%10 == 5 && errors.Is(err, strategy.ErrUnsent):
		case i%10 == 3, i%10 == 5, i%10 == 7, err != nil:
			t.Errorf("hold %d: %v", i, err)
		case !g.Start.After(cs[i].Grant.Start) || g.TTL != ample.TTL:
			t.Errorf("hold %d is renewed from %v for %v, want from after %v for %v", i, g.Start, g.TTL, cs[i].Grant.Start, ample.TTL)
		}
	})
	for i := range answers {
		if got := answers[i].Load(); got != 1 {
			t.Errorf("hold %d got %d answers, want 1", i, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.ExtendAll(ctx, cs, func(i int, _ driver.Grant, err error) {
		if !errors.Is(err, strategy.ErrUnsent) || !errors.Is(err, context.Canceled) {
			t.Errorf("hold %d: %v, want ErrUnsent: ctx was done", i, err)
		}
	})
}

// oldTerm makes the next replies to renewals those of a leader of an earlier term.
func oldTerm(times *atomic.Int32) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		return oldTermStream{stream, times}, err
	})
}

type oldTermStream struct {
	grpc.ClientStream
	times *atomic.Int32
}

func (s oldTermStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*etcdserverpb.LeaseKeepAliveResponse); ok && err == nil && s.times.Add(-1) >= 0 {
		resp.Header.RaftTerm--
	}
	return err
}

// TestDeposedLeader: a renewal counts only if its leader is still the leader afterwards.
func TestDeposedLeader(t *testing.T) {
	t.Parallel()
	var old atomic.Int32
	p, key := On(clientOf(t, endpoints(t), oldTerm(&old))).(*protocol), keyOf(t)
	held := must(t, p, claimOf(key, "first"))
	old.Store(1)
	if _, err := p.Extend(t.Context(), held); err != nil {
		t.Errorf("Extend() = %v, want nil: the second renewal counts", err)
	}
	old.Store(2)
	if _, err := p.Extend(t.Context(), held); !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("Extend() = %v, want ErrUnknown: nobody knows that either renewal counts", err)
	}
	if _, err := p.Release(t.Context(), held); err != nil {
		t.Fatalf("Release() = %v, want nil", err)
	}

	// An idle lease that has to be renewed before it serves again.
	age := func() {
		l, ok := p.idle.take(60)
		if !ok {
			t.Fatal("no lease is idle")
		}
		l.start = l.start.Add(-2 * time.Second)
		p.idle.add(l)
	}
	age()
	old.Store(1)
	held = must(t, p, claimOf(key, "second"))
	if l := holdOf(held).lease; !l.renewed || held.Grant.Start != l.start {
		t.Errorf("the grant counts from %v, want from the renewal that counts, %v", held.Grant.Start, l.start)
	}
	if _, err := p.Release(t.Context(), held); err != nil {
		t.Fatalf("Release() = %v, want nil", err)
	}
	age()
	old.Store(3)
	third := claimOf(key, "third")
	g, err := p.Acquire(t.Context(), third)
	if !errors.Is(err, strategy.ErrUnknown) || !g.Partial {
		t.Fatalf("Acquire() = %v, partial: %v, want ErrUnknown, and that it is undone: nobody knows for how long it holds", err, g.Partial)
	}
	third.Grant = g
	if err := p.Undo(t.Context(), third); err != nil {
		t.Fatalf("Undo() = %v, want nil", err)
	}
	must(t, p, claimOf(key, "fourth"))
}

// queues starts an Acquire of s, and returns when n claims queue.
func queues(t *testing.T, s strategy.Strategy, name string, n int) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		_, err := s.NewLock(name).Acquire(ctx)
		done <- err
	}()
	verdict.Eventually(t, "the claim queues", func() bool {
		info, err := s.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		return len(info.Queue) == n
	})
	return done
}

// wait is for what comes some time.
func wait(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("not within a minute: %s", what)
	}
}

// TestCompaction: the revision from which a waiter is to watch is compacted before the watch begins. It asks again.
func TestCompaction(t *testing.T) {
	t.Parallel()
	var v valve
	c := clientOf(t, endpoints(t))
	a := strategyOf(t, c, ample)
	b := strategyOf(t, clientOf(t, endpoints(t), gated(v.pass)...), ample)
	name := keyOf(t)
	lease, err := a.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	thaw, watches := make(chan struct{}), make(chan struct{}, 100)
	v.set(func(request string, send func()) {
		if request == "Watch" {
			watches <- struct{}{}
			<-thaw
		}
		send()
	})
	done := queues(t, b, name, 1)
	<-watches
	var rev int64
	for range 3 {
		resp, err := c.Put(t.Context(), name+" other", "")
		if err != nil {
			t.Fatal(err)
		}
		rev = resp.Header.Revision
	}
	if err := lease.Release(t.Context()); err != nil { // which B will not hear of
		t.Fatal(err)
	}
	if resp, err := c.Put(t.Context(), name+" other", ""); err == nil {
		rev = resp.Header.Revision
	}
	if _, err := c.Compact(t.Context(), rev); err != nil && !strings.Contains(err.Error(), "compacted") {
		t.Fatal(err)
	}
	v.set(nil)
	close(thaw)
	wait(t, "B has the lock, though nobody can know any more when it was released", done)
}

// TestPlaceLost: somebody revokes the leases of all who queue. They take new places.
func TestPlaceLost(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	a, b := strategyOf(t, c, ample), strategyOf(t, clientOf(t, endpoints(t)), ample)
	name := keyOf(t)
	lease, err := a.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := queues(t, b, name, 1)
	queue := func() []*mvccpb.KeyValue {
		resp, err := c.Get(t.Context(), keysOf(strategy.DefaultKey(name)).queue, clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Kvs
	}
	old := queue()[0]
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(old.Lease)); err != nil {
		t.Fatal(err)
	}
	verdict.Eventually(t, "B has another place", func() bool {
		kvs := queue()
		return len(kvs) == 1 && kvs[0].CreateRevision > old.CreateRevision
	})
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "B has the lock", done)
}

// TestDeadWaiter: one that dies first in the queue delays the next for seconds, and not for a TTL.
func TestDeadWaiter(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	a, b := strategyOf(t, c, ample), strategyOf(t, clientOf(t, endpoints(t)), ample)
	dying := clientOf(t, endpoints(t))
	name := keyOf(t)
	lease, err := a.NewLock(name).TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queues(t, strategyOf(t, dying, ample), name, 1)
	done := queues(t, b, name, 2)
	dying.Close()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(ample.TTL / 2):
		t.Fatal("B has no lock after half a TTL, want it when the place of the dead waiter ends")
	}
}

// TestInspectFence: Inspect shows the last fence that is reserved, and one that is released is less than the next.
func TestInspectFence(t *testing.T) {
	t.Parallel()
	p, key := On(clientOf(t, endpoints(t))), keyOf(t)
	c := claimOf(key, "first")
	c.Fences = 16
	held := must(t, p, c)
	if held.Grant.Fences != 16 || held.Grant.Fence%driver.MaxFences != 0 {
		t.Errorf("Acquire() = %d fences from %d, want 16 from a multiple of %d", held.Grant.Fences, held.Grant.Fence, driver.MaxFences)
	}
	info, err := p.Inspect(t.Context(), driver.Claim{Name: key, Key: key, Due: time.Now().Add(ample.OpTimeout)})
	if err != nil || info.Fence != held.Grant.Fence+15 || info.Token != "first" {
		t.Errorf("Inspect() = fence %d, token %q, %v, want %d of first", info.Fence, info.Token, err, held.Grant.Fence+15)
	}
}

// TestList: the keys of the locks that are held, whatever their bytes, and neither those of queues nor those of others.
func TestList(t *testing.T) {
	t.Parallel()
	c, prefix := clientOf(t, endpoints(t)), keyOf(t)+"//"
	s := strategyOf(t, c, strategy.Options{TTL: ample.TTL, OpTimeout: ample.OpTimeout, Key: func(name string) string { return prefix + name }})
	var held []strategy.Lease
	for _, name := range []string{"b", "released", "//\xff", "/%"} {
		lease, err := s.NewLock(name).TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lease)
	}
	done := queues(t, s, "b", 1)
	if _, err := c.Put(t.Context(), escape(prefix+"another's"), "1 of no lock"); err != nil {
		t.Fatal(err)
	}
	if err := held[1].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := List(t.Context(), c, prefix); err != nil || !slices.Equal(got, []string{prefix + "/%", prefix + "//\xff", prefix + "b"}) {
		t.Errorf("List = %q, %v, want the three that are held", got, err)
	}
	if err := held[0].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "the waiter has the lock", done)
	if _, err := List(t.Context(), nil, prefix); err == nil || !strings.Contains(err.Error(), "clientv3.New") {
		t.Errorf("List without a client = %v, want what is allowed", err)
	}
}

// TestNamespace: a client of etcd's package namespace puts its prefix before all keys.
func TestNamespace(t *testing.T) {
	t.Parallel()
	name := keyOf(t)
	inside := func() *clientv3.Client {
		c := clientOf(t, endpoints(t))
		c.KV, c.Watcher = namespace.NewKV(c.KV, name+"/"), namespace.NewWatcher(c.Watcher, name+"/")
		return c
	}
	a, b := strategyOf(t, inside(), ample), strategyOf(t, inside(), ample)
	lease, err := a.NewLock("x").TryAcquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := queues(t, b, "x", 1)
	outside := clientOf(t, endpoints(t))
	if resp, err := outside.Get(t.Context(), name+"/lock:{x}", clientv3.WithPrefix()); err != nil || len(resp.Kvs) != 2 {
		t.Errorf("%d keys lie in the namespace, %v, want the holder's and the waiter's", len(resp.Kvs), err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait(t, "B has the lock", done)
}
