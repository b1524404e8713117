// Tests the queue by single calls of the protocol: whose turn it is, and what becomes of places that are lost.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// queue takes a place for a claim of that token, on a line of its own.
func queue(t *testing.T, p driver.Protocol, key, token string) (driver.Claim, <-chan driver.Notification) {
	t.Helper()
	c := claimOf(key, token)
	c.Line = "line of " + token
	heard := make(chan driver.Notification, 100)
	stop, err := p.(driver.Notifier).Watch(t.Context(), c, func(n driver.Notification) { heard <- n })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if g, err := p.Acquire(t.Context(), c); !errors.Is(err, strategy.ErrHeld) || g.Place == 0 || g.Kept {
		t.Fatalf("Acquire() of %s = place %d, kept: %v, %v, want a new place", token, g.Place, g.Kept, err)
	}
	c.Repeated = true
	return c, heard
}

func wantHeld(t *testing.T, what string, err error, holder string) {
	t.Helper()
	var held *strategy.HeldError
	if !errors.As(err, &held) || held.Holder != holder {
		t.Errorf("%s = %v, want held by %s", what, err, holder)
	}
}

func hears(t *testing.T, token string, heard <-chan driver.Notification) {
	t.Helper()
	select {
	case n := <-heard:
		if n.Token != token || !n.Grant.IsZero() {
			t.Fatalf("%s hears %+v, want that it is to ask", token, n)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s has heard nothing for a minute", token)
	}
}

// TestTurns: the lock is free, and still nobody overtakes the first in the queue.
func TestTurns(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c), keyOf(t)
	held := must(t, p, claimOf(key, "holder"))
	first, heardFirst := queue(t, p, key, "first")
	second, heardSecond := queue(t, p, key, "second")
	if _, err := p.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	hears(t, "first", heardFirst)
	_, err := p.Acquire(t.Context(), claimOf(key, "newcomer"))
	wantHeld(t, "Acquire() of a newcomer", err, "first")
	g, err := p.Acquire(t.Context(), second)
	wantHeld(t, "Acquire() of the second", err, "first")
	if g.Place != 2 || !g.Kept {
		t.Errorf("the second has place %d, kept: %v, want 2, kept", g.Place, g.Kept)
	}
	first = must(t, p, first)
	hears(t, "second", afterRelease(t, p, first, heardSecond))
	second = must(t, p, second)
	if second.Grant.Fence <= first.Grant.Fence || first.Grant.Fence <= held.Grant.Fence {
		t.Errorf("the fences are %d, %d, %d, want them to rise", held.Grant.Fence, first.Grant.Fence, second.Grant.Fence)
	}
	if _, err := p.Release(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	nothing(t, c, key, "after the last release")
}

func afterRelease(t *testing.T, p driver.Protocol, c driver.Claim, heard <-chan driver.Notification) <-chan driver.Notification {
	t.Helper()
	if _, err := p.Release(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return heard
}

// TestGivingUp: those who stand before a waiter give up, one after the other. The waiter is not woken until it is its turn, whether
// it asks meanwhile or not.
func TestGivingUp(t *testing.T) {
	t.Parallel()
	p := On(clientOf(t, endpoints(t)))
	for _, asks := range []bool{true, false} {
		t.Run(fmt.Sprintf("asks %v", asks), func(t *testing.T) {
			key := keyOf(t)
			held := must(t, p, claimOf(key, "holder"))
			first, _ := queue(t, p, key, "first")
			second, _ := queue(t, p, key, "second")
			last, heard := queue(t, p, key, "last")
			for _, c := range []driver.Claim{second, first} {
				if err := p.Undo(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			if asks {
				if g, err := p.Acquire(t.Context(), last); !errors.Is(err, strategy.ErrHeld) || g.Place != 1 {
					t.Errorf("Acquire() = place %d, %v, want held, and place 1", g.Place, err)
				}
			}
			select {
			case n := <-heard:
				t.Errorf("the last waiter hears %+v, want nothing: the lock is held", n)
			default:
			}
			hears(t, "last", afterRelease(t, p, held, heard))
			must(t, p, last)
		})
	}
}

// TestPassAfterLoss: a pass names a place that is lost, and nobody else queues.
func TestPassAfterLoss(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c), keyOf(t)
	held := must(t, p, claimOf(key, "holder"))
	next, _ := queue(t, p, key, "next")
	if _, err := c.Delete(t.Context(), keysOf(key).queue, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	held.Due = time.Now().Add(ample.OpTimeout)
	g, err := p.(driver.Queuer).Pass(t.Context(), held, next)
	if err != nil || g.Fence <= held.Grant.Fence {
		t.Fatalf("Pass() = fence %d, %v, want a grant", g.Fence, err)
	}
	next.Grant = g
	if _, err := p.Release(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	nothing(t, c, key, "after the last release")
}

// TestPassServes: a pass serves who queued before, and takes the next place.
func TestPassServes(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c), keyOf(t)
	held := must(t, p, claimOf(key, "holder"))
	first, heard := queue(t, p, key, "first")
	next := claimOf(key, "next")
	next.Line = "line of next"
	heardNext := make(chan driver.Notification, 100)
	stop, err := p.(driver.Notifier).Watch(t.Context(), next, func(n driver.Notification) { heardNext <- n })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	g, err := p.(driver.Queuer).Pass(t.Context(), held, next)
	wantHeld(t, "Pass()", err, "first")
	if g.Place != 2 {
		t.Errorf("Pass() = place %d, want 2", g.Place)
	}
	hears(t, "first", heard)
	first = must(t, p, first)
	hears(t, "next", afterRelease(t, p, first, heardNext))
	next.Repeated = true
	must(t, p, next)
}

// TestPlaceOfNoLock: what is no lock takes no place.
func TestPlaceOfNoLock(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	if _, err := c.Put(t.Context(), keysOf(key).holder, "somebody's"); err != nil {
		t.Fatal(err)
	}
	claim := claimOf(key, "token")
	claim.Line = "line"
	stop, err := p.Watch(t.Context(), claim, func(driver.Notification) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	g, err := p.Acquire(t.Context(), claim)
	if !errors.Is(err, strategy.ErrRefused) || !g.Partial {
		t.Fatalf("Acquire() = partial: %v, %v, want ErrRefused, and that the place is undone", g.Partial, err)
	}
	claim.Grant = g
	if err := p.Undo(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if info, err := p.Inspect(t.Context(), claim); !errors.Is(err, strategy.ErrRefused) {
		t.Errorf("Inspect() = %+v, %v, want ErrRefused", info, err)
	}
	if resp, err := c.Get(t.Context(), keysOf(key).queue, clientv3.WithPrefix()); err != nil || len(resp.Kvs) > 0 {
		t.Errorf("%d places are left, %v, want none", len(resp.Kvs), err)
	}
}

// TestPassOnLostPlace: the lease of the next place has ended before its time. The pass takes another.
func TestPassOnLostPlace(t *testing.T) {
	t.Parallel()
	c := clientOf(t, endpoints(t))
	p, key := On(c).(*protocol), keyOf(t)
	held := must(t, p, claimOf(key, "holder"))
	queue(t, p, key, "first")
	next := claimOf(key, "next")
	next.Line = "line of next"
	stop, err := p.Watch(t.Context(), next, func(driver.Notification) {})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	addDead(t, p, c, 5)
	g, err := p.Pass(t.Context(), held, next)
	wantHeld(t, "Pass()", err, "first")
	if g.Place != 2 {
		t.Errorf("Pass() = place %d, want 2", g.Place)
	}
}

// TestAdoptRace: the lock changes hands between the two requests of an adoption.
func TestAdoptRace(t *testing.T) {
	t.Parallel()
	var v valve
	sound := On(clientOf(t, endpoints(t)))
	p, key := On(clientOf(t, endpoints(t), gated(v.pass)...)).(*protocol), keyOf(t)
	held := must(t, sound, claimOf(key, "first"))
	var txns atomic.Int32
	v.set(func(request string, send func()) {
		if request == "Txn" && txns.Add(1) == 2 {
			if _, err := sound.Release(t.Context(), held); err != nil {
				t.Error(err)
			}
			if _, err := sound.Acquire(t.Context(), claimOf(key, "second")); err != nil {
				t.Error(err)
			}
		}
		send()
	})
	_, err := p.Adopt(t.Context(), claimOf(key, "third"), "first")
	var lost *strategy.LostError
	if !errors.As(err, &lost) || lost.Holder != "second" {
		t.Fatalf("Adopt() = %v, want lost to the second", err)
	}
	if _, ok := p.idle.take(60); !ok {
		t.Error("the lease that nothing hangs on is not idle")
	}
}

// TestRenewalUnconfirmed: an idle lease serves a hold, and nobody answers its renewal. So nobody knows how long the hold lasts.
func TestRenewalUnconfirmed(t *testing.T) {
	t.Parallel()
	var v valve
	c := clientOf(t, endpoints(t), gated(v.pass)...)
	p, key := On(c).(*protocol), keyOf(t)
	if _, err := p.Release(t.Context(), must(t, p, claimOf(key, "first"))); err != nil {
		t.Fatal(err)
	}
	l, _ := p.idle.take(60)
	l.start = l.start.Add(-5 * time.Second)
	p.idle.add(l)
	melt := v.holdUp(t, "LeaseKeepAlive")
	claim := claimOf(key, "second")
	claim.Due = time.Now().Add(time.Second)
	g, err := p.Acquire(t.Context(), claim)
	if !errors.Is(err, strategy.ErrUnknown) {
		t.Fatalf("Acquire() = %v, want ErrUnknown", err)
	}
	melt()
	claim.Grant, claim.Due = g, time.Now().Add(ample.OpTimeout)
	if err := p.Undo(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	nothing(t, c, key, "after the undo")
	if _, ok := p.idle.take(60); ok {
		t.Error("the lease is idle, want that it is never used again")
	}
}

// TestWatchUnconfirmed: Watch fails if nobody confirms the subscription in time.
func TestWatchUnconfirmed(t *testing.T) {
	t.Parallel()
	p := On(clientOf(t, []string{"127.0.0.1:1"})).(*protocol)
	c := claimOf("x", "")
	c.Due = time.Now().Add(100 * time.Millisecond)
	if _, err := p.Watch(t.Context(), c, func(n driver.Notification) { t.Errorf("heard %+v", n) }); !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("Watch() = %v, want ErrUnknown: no server has answered", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c.Line = range []string{"", "line"} {
		if _, err := p.Watch(over, c, func(driver.Notification) {}); !errors.Is(err, strategy.ErrUnsent) {
			t.Errorf("Watch() = %v, want ErrUnsent: ctx is done", err)
		}
	}
	if len(p.lines) > 0 {
		t.Errorf("the lines %v listen, want none", p.lines)
	}
}

// TestPool: an idle lease that has ended, or is about to, serves nobody.
func TestPool(t *testing.T) {
	t.Parallel()
	var p pool
	now := time.Now()
	for i, age := range []time.Duration{20 * time.Second, 5 * time.Second, 8 * time.Second, time.Second} {
		p.add(lease{id: clientv3.LeaseID(i + 1), asked: 10, ttl: 10 * time.Second, start: now.Add(-age)})
	}
	p.add(lease{id: 9, asked: 5, ttl: 10 * time.Second, start: now})
	var got []clientv3.LeaseID
	for {
		l, ok := p.take(10)
		if !ok {
			break
		}
		got = append(got, l.id)
	}
	if want := []clientv3.LeaseID{4, 2}; !slices.Equal(got, want) {
		t.Errorf("the pool gave %v, want %v", got, want)
	}
	if _, ok := p.take(5); !ok {
		t.Error("a lease is pooled by what was asked for, not by what etcd counts")
	}
}
