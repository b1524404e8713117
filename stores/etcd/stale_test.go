// Tests leases that end before their time, and members that answer some requests only: what is idle, what queues, and what counts.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// refusing refuses transactions when left is used up.
func refusing(left *atomic.Int32) grpc.DialOption {
	left.Store(math.MaxInt32)
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if strings.HasSuffix(method, "/Txn") && left.Add(-1) < 0 {
			return rpctypes.ErrGRPCNoLeader
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

// silentFor lets renewals of this lease get no answer.
func silentFor(id *atomic.Int64) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		return silentStream{stream, id}, err
	})
}

type silentStream struct {
	grpc.ClientStream
	id *atomic.Int64
}

func (s silentStream) SendMsg(m any) error {
	if r, ok := m.(*etcdserverpb.LeaseKeepAliveRequest); ok && r.ID == s.id.Load() {
		return nil
	}
	return s.ClientStream.SendMsg(m)
}

// addDead makes a lease idle that has ended, and nobody said so.
func addDead(t *testing.T, p *protocol, c *clientv3.Client, seconds int64) {
	t.Helper()
	dead, err := c.Grant(t.Context(), seconds)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(t.Context(), dead.ID); err != nil {
		t.Fatal(err)
	}
	p.idle.add(lease{id: dead.ID, asked: seconds, ttl: time.Duration(seconds) * time.Second, start: time.Now().Add(time.Hour)}) // fresh, however slow the machine is
}

// TestExtendAllSilent: one renewal gets no answer. The others count.
func TestExtendAllSilent(t *testing.T) {
	t.Parallel()
	var silent atomic.Int64
	p, key := On(clientOf(t, endpoints(t), silentFor(&silent))).(*protocol), keyOf(t)
	cs := []driver.Claim{must(t, p, claimOf(key+"a", "a")), must(t, p, claimOf(key+"b", "b")), must(t, p, claimOf(key+"c", "c"))}
	silent.Store(int64(holdOf(cs[1]).lease.id))
	due := time.Now().Add(6 * time.Second)
	for i := range cs {
		cs[i].Due = due
	}
	p.ExtendAll(t.Context(), cs, func(i int, g driver.Grant, err error) {
		if i == 1 && !errors.Is(err, strategy.ErrUnknown) || i != 1 && err != nil {
			t.Errorf("hold %d: %v, want ErrUnknown of 1 alone", i, err)
		}
	})
}

// TestPassUncounted: the next hold is granted, its renewal may not count, and nobody can look. So nobody knows what has become of
// either hold: an error of another kind would say that the last one still has the lock.
func TestPassUncounted(t *testing.T) {
	t.Parallel()
	var left, old atomic.Int32
	c := clientOf(t, endpoints(t), refusing(&left), oldTerm(&old))
	p, key := On(c).(*protocol), keyOf(t)
	held, next := must(t, p, claimOf(key, "holder")), claimOf(key, "next")
	other, err := c.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	p.idle.add(lease{id: other.ID, asked: 60, ttl: ample.TTL, start: time.Now().Add(-2 * time.Second)}) // it has to be renewed
	old.Store(1)
	left.Store(1)
	_, err = p.Pass(t.Context(), held, next)
	var server *strategy.ServerError
	if !errors.As(err, &server) || server.Kind != strategy.ErrUnknown {
		t.Fatalf("Pass() = %v, want ErrUnknown", err)
	}
	left.Store(math.MaxInt32)
	for _, claim := range []driver.Claim{held, next} { // the engine knows only the token of the next
		if err := p.Undo(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	nothing(t, c, key, "after the undo")
	if len(p.places) > 0 {
		t.Errorf("%d places are left, want none", len(p.places))
	}
}

// TestPassUndone: the release of a pass succeeds, and then the next claim fails. The engine undoes both, so the lease of the last hold
// must not serve others.
func TestPassUndone(t *testing.T) {
	t.Parallel()
	var left atomic.Int32
	c := clientOf(t, endpoints(t), refusing(&left))
	p, key := On(c).(*protocol), keyOf(t)
	held := must(t, p, claimOf(key, "holder"))
	next, _ := queue(t, p, key, "next")
	if _, err := c.Delete(t.Context(), keysOf(key).queue, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	left.Store(1)
	if _, err := p.Pass(t.Context(), held, next); !errors.Is(err, strategy.ErrUnknown) {
		t.Fatalf("Pass() = %v, want ErrUnknown", err)
	}
	left.Store(math.MaxInt32)
	other := must(t, p, claimOf(key+" other", "other"))
	if err := p.Undo(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Extend(t.Context(), other); err != nil {
		t.Errorf("Extend() of another lock = %v, want nil: the undo was not for it", err)
	}
}

// TestFirstGetsDeadLease: the first in the queue gets an idle lease that has ended. It gets the lock by another.
func TestFirstGetsDeadLease(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	held := must(t, p, claimOf(key, "holder"))
	first, heard := queue(t, p, key, "first")
	hears(t, "first", afterRelease(t, p, held, heard))
	p.idle.drop()
	addDead(t, p, c, 60)
	first = must(t, p, first)
	if _, err := p.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	nothing(t, c, key, "after the release")
}

// TestUndoOfTwoPlaces: a claim that queues gets a lease that has ended, and then the members refuse it. Its undo ends its first place,
// too.
func TestUndoOfTwoPlaces(t *testing.T) {
	t.Parallel()
	var left atomic.Int32
	c := clientOf(t, endpoints(t), refusing(&left))
	p, key := On(c).(*protocol), keyOf(t)
	held := must(t, p, claimOf(key, "holder"))
	first, heard := queue(t, p, key, "first")
	hears(t, "first", afterRelease(t, p, held, heard))
	p.idle.drop()
	addDead(t, p, c, 60)
	left.Store(1)
	if _, err := p.Acquire(t.Context(), first); !errors.Is(err, strategy.ErrRefused) {
		t.Fatalf("Acquire() = %v, want ErrRefused", err)
	}
	left.Store(math.MaxInt32)
	if err := p.Undo(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	nothing(t, c, key, "after the undo")
}

// TestPlaceReplaced: a place whose lease has ended gets another. That ends what followed the old one, and the undo knows all leases.
func TestPlaceReplaced(t *testing.T) {
	t.Parallel()
	p := On(clientOf(t, []string{"127.0.0.1:1"})).(*protocol)
	c := claimOf("x", "token")
	c.Line = "line"
	stop, err := p.Watch(t.Context(), c, func(driver.Notification) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	d, end, err := p.begin(t.Context(), c.Due)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	followed := true
	p.places["token"] = &place{also: []lease{{id: 1}}, unfollow: func() { followed = false }}
	p.idle.add(lease{id: 2, asked: 5, ttl: 5 * time.Second, start: time.Now().Add(time.Hour)})
	if _, err := d.place(c); err != nil {
		t.Fatal(err)
	}
	if followed {
		t.Error("the place is still followed by its old lease")
	}
	if ids := p.leasesOf(c); len(ids) != 2 {
		t.Errorf("the undo knows the leases %v, want 1 and 2", ids)
	}
	p.renewed("token", lease{id: 3}) // who still follows an older lease has renewed it
	if pl := p.places["token"]; pl.lease.id != 2 {
		t.Errorf("the place has the lease %d, want 2", pl.lease.id)
	}
}

// TestReleaseWithoutGrant: the lock is free, and that does not make a holder of a claim without a grant.
func TestReleaseWithoutGrant(t *testing.T) {
	t.Parallel()
	p, key := On(clientOf(t, endpoints(t))).(*protocol), keyOf(t)
	if _, err := p.Release(t.Context(), claimOf(key, "token")); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Release() = %v, want ErrLost", err)
	}
	if _, ok := p.idle.take(0); ok {
		t.Error("the lease of no hold is idle")
	}
}

// TestHeldAtOnce: the lock is held, so nobody waits for the renewal of the lease that the claim would have got.
func TestHeldAtOnce(t *testing.T) {
	t.Parallel()
	var silent atomic.Int64
	c := clientOf(t, endpoints(t), silentFor(&silent))
	p, key := On(c).(*protocol), keyOf(t)
	must(t, p, claimOf(key, "holder"))
	other, err := c.Grant(t.Context(), 60)
	if err != nil {
		t.Fatal(err)
	}
	silent.Store(int64(other.ID))
	p.idle.add(lease{id: other.ID, asked: 60, ttl: ample.TTL, start: time.Now().Add(-2 * time.Second)}) // it has to be renewed
	claim, began := claimOf(key, "another"), time.Now()
	claim.Due = began.Add(4 * time.Minute)
	_, err = p.Acquire(t.Context(), claim)
	wantHeld(t, "Acquire()", err, "holder")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("Acquire() took %v, want no wait for the renewal", took)
	}
}

// TestAwaitEnd: a key that was deleted before the watch began has ended, also if it is there again.
func TestAwaitEnd(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p := On(c).(*protocol)
	for _, again := range []bool{false, true} {
		key := fmt.Sprint(keyOf(t), again)
		put, err := c.Put(t.Context(), key, "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if again {
			if _, err := c.Put(t.Context(), key, ""); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- p.awaitEnd(t.Context(), key, put.Header.Revision) }()
		wait(t, "the end", ended)
	}
}
