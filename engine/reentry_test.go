// Re-entry: an owner gets in while others wait, and nobody else does.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// These tests have locks that their owner may acquire again.

func as(owner string) context.Context { return strategy.WithOwner(bg, owner) }

// takeAs acquires the lock called name for an owner that can have it at once.
func takeAs(t *testing.T, s strategy.Strategy, owner string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(as(owner))
	if err != nil {
		t.Fatalf("TryAcquire by %s = %v, want nil", owner, err)
	}
	return lease
}

func reentrant() *lockstest.Memory {
	m := &lockstest.Memory{}
	m.Reentrant = true
	return m
}

// TestOwnerGetsInBesideWaiters: behind those who wait for it, it would wait for itself.
func TestOwnerGetsInBesideWaiters(t *testing.T) {
	for what, hide := range map[string]func(*lockstest.Memory) driver.Protocol{
		"told of releases": func(m *lockstest.Memory) driver.Protocol { return m },
		"polling": func(m *lockstest.Memory) driver.Protocol {
			return struct {
				driver.Protocol
				driver.Reenterer
			}{m, m}
		},
		"polling, without Adopt": func(m *lockstest.Memory) driver.Protocol {
			return struct {
				noAdopt
				driver.Reenterer
			}{noAdopt{m}, m}
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := reentrant()
				s := open(t, hide(m), strategy.Options{})
				outer := takeAs(t, s, "me")
				var waiters []*waiter
				for range 3 {
					waiters = append(waiters, wait(bg, s))
				}
				asked, start := m.Requests(lockstest.OpAcquire), time.Now()
				inner := wait(as("me"), s)
				if !closed(inner.done) || inner.err != nil {
					t.Fatalf("Acquire by the owner = %v, done %v, want the lock at once", inner.err, closed(inner.done))
				}
				equal(t, "requests of a re-entry", m.Requests(lockstest.OpAcquire)-asked, 1)
				since(t, "time of a re-entry", start, 0)
				equal(t, "waiting", engine.Waiting(s, key), 3)
				release(t, outer)
				release(t, inner.lease)
				for i, w := range waiters {
					<-w.done
					is(t, "Acquire by a waiter", w.err)
					for _, later := range waiters[i+1:] {
						if closed(later.done) {
							t.Error("a waiter was served before its turn")
						}
					}
					release(t, w.lease)
				}
			})
		})
	}
}

// TestANameOvertakesNobody: the attempt that a named owner makes past a line takes no
// lock that is free, for others stand in line for it.
func TestANameOvertakesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{Wait: strategy.WaitNotification})
		holder := take(t, s)
		first := wait(bg, s)
		rec := record(m)
		rec.then(only(lockstest.OpAcquire, func(_ context.Context, r lockstest.Request, serve func() error) error {
			if r.Claims[0].Owner != "newcomer" {
				time.Sleep(100 * ms) // the head is slow to ask
			}
			return serve()
		}))
		release(t, holder)
		synctest.Wait()
		newcomer := wait(as("newcomer"), s)
		equal(t, "requests of the newcomer", len(rec.of(lockstest.OpAcquire)), 2)
		if closed(newcomer.done) {
			t.Fatalf("Acquire by a newcomer = %v while another stands in line, want it to wait", newcomer.err)
		}
		<-first.done
		is(t, "Acquire by the first", first.err)
		synctest.Wait()
		equal(t, "the newcomer is served", closed(newcomer.done), false)
		release(t, first.lease)
		<-newcomer.done
		is(t, "Acquire by the newcomer", newcomer.err)
		release(t, newcomer.lease)
	})
}

// TestALineThatGoesMeanwhile: who was refused only for the sake of a line asks again
// when that has gone.
func TestALineThatGoesMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{Backoff: func(int) time.Duration { return time.Hour }})
		holder := take(t, s)
		ctx, cancel := context.WithCancel(bg)
		first := wait(ctx, s)
		m.Intercept(only(lockstest.OpAcquire, slow(0, 50*ms)))
		release(t, holder) // wakes the head, which asks …
		cancel()           // … and leaves when it was granted; the grant is given back
		start := time.Now()
		newcomer := wait(as("newcomer"), s)
		<-first.done
		if first.err == nil { // its end came too late: it had heard of the grant already
			release(t, first.lease)
		}
		<-newcomer.done
		is(t, "Acquire by the newcomer", newcomer.err)
		if d := time.Since(start); d > time.Second {
			t.Errorf("Acquire by the newcomer took %v, want no sleep: nobody holds the lock", d)
		}
		release(t, newcomer.lease)
	})
}

// TestWaitersSleepThroughInnerReleases: one request each for being refused, listening,
// and asking when the last hold has ended.
func TestWaitersSleepThroughInnerReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		a, b := open(t, m, strategy.Options{Wait: strategy.WaitNotification}), open(t, m, strategy.Options{Wait: strategy.WaitNotification})
		outer := takeAs(t, a, "me")
		w := wait(bg, b)
		rec := record(m)
		for range 3 {
			inner := takeAs(t, a, "me")
			release(t, inner)
			synctest.Wait()
		}
		equal(t, "requests of the holder and the waiter", rec.count(), 6)
		start := time.Now()
		release(t, outer)
		<-w.done
		is(t, "Acquire", w.err)
		since(t, "from the last release to the next holder", start, 0)
		equal(t, "requests of all", rec.count(), 8)
		release(t, w.lease)
	})
}

// TestTheNextKnowsTheOwner: the new head knows whose release to wait for, though
// its predecessor has the lock by a name.
func TestTheNextKnowsTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{Wait: strategy.WaitNotification, NoHandOver: true})
		holder := take(t, s)
		first, second := wait(as("first"), s), wait(bg, s)
		release(t, holder)
		<-first.done
		inner := takeAs(t, s, "first")
		synctest.Wait()
		asked := m.Requests(lockstest.OpAcquire)
		release(t, inner)
		synctest.Wait()
		start := time.Now()
		release(t, first.lease)
		<-second.done
		is(t, "Acquire", second.err)
		since(t, "from the last release to the next holder", start, 0)
		equal(t, "requests of the next", m.Requests(lockstest.OpAcquire)-asked, 1)
		release(t, second.lease)
	})
}

// TestSiblingsAreAdmitted: when one of an owner's contenders gets the lock, the others of
// its process do, too, wherever in the line they stand; those between them wait on.
func TestSiblingsAreAdmitted(t *testing.T) {
	for what, get := range map[string]func(t *testing.T, s strategy.Strategy, holder strategy.Lease) strategy.Lease{
		"by waiting": func(t *testing.T, s strategy.Strategy, holder strategy.Lease) strategy.Lease {
			return nil // the head is one of them
		},
		"by trying": func(t *testing.T, s strategy.Strategy, holder strategy.Lease) strategy.Lease {
			release(t, holder)
			return takeAs(t, s, "us") // before the head comes to ask
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := reentrant()
				s := open(t, m, strategy.Options{})
				holder := take(t, s)
				us1, other1, us2, other2, us3 := wait(as("us"), s), wait(bg, s), wait(as("us"), s), wait(as("other"), s), wait(as("us"), s)
				equal(t, "waiting", engine.Waiting(s, key), 5)
				tried := get(t, s, holder)
				if tried == nil {
					release(t, holder)
				}
				synctest.Wait()
				for i, w := range []*waiter{us1, us2, us3} {
					if !closed(w.done) || w.err != nil {
						t.Fatalf("Acquire by sibling %d: done %v, %v, want the lock", i+1, closed(w.done), w.err)
					}
				}
				if closed(other1.done) || closed(other2.done) {
					t.Fatal("another owner has the lock, too")
				}
				info, err := s.Inspect(bg, name)
				is(t, "Inspect", err)
				if want := 3; tried != nil {
					equal(t, "holds", info.Holds, want+1)
					release(t, tried)
				} else {
					equal(t, "holds", info.Holds, want)
				}
				for _, w := range []*waiter{us1, us2, us3} {
					release(t, w.lease)
				}
				for _, w := range []*waiter{other1, other2} {
					<-w.done
					is(t, "Acquire by another", w.err)
					release(t, w.lease)
				}
			})
		})
	}
}

// TestSiblingOfAFirstAttempt: an owner's contender that has come while another one's first attempt was under way, and has
// asked before that was granted, has the lock when it is.
func TestSiblingOfAFirstAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{})
		m.Intercept(slow(100*ms, 0))
		first := wait(as("us"), s)
		m.Intercept(nil)
		sibling := wait(as("us"), s)
		equal(t, "the sibling has ended", closed(sibling.done), false)
		first.got(t)
		release(t, sibling.got(t))
		equal(t, "it has the lock after", sibling.at.Sub(first.at), 0)
		release(t, first.lease)
		leftovers(t, m)
	})
}

// TestAReentryThatFails: what the servers say then is what the caller gets.
func TestAReentryThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{Wait: strategy.WaitNotification})
		holder := take(t, s)
		first, second := wait(bg, s), wait(as("us"), s)
		m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, r lockstest.Request, serve func() error) error {
			switch c := r.Claims[0]; {
			case c.Again:
				return lockstest.Refused("LOADING")
			case c.Owner == c.Token:
				time.Sleep(50 * ms) // the head is slow to ask
			}
			return serve()
		}))
		release(t, holder)
		lease := takeAs(t, s, "us")
		<-second.done
		is(t, "Acquire of who may re-enter", second.err, strategy.ErrRefused)
		release(t, lease)
		<-first.done
		is(t, "Acquire", first.err)
		release(t, first.lease)
	})
}

// TestAnUnconfirmedReentryIsRepeated: with RetryOnError, an owner whose question got no answer
// asks again while it stands in line, or it would wait for those who wait for it.
func TestAnUnconfirmedReentryIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{RetryOnError: true})
		outer := takeAs(t, s, "me")
		is(t, "KeepAlive", outer.KeepAlive(0))
		other := wait(bg, s)
		failures := 3
		m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
			if failures--; failures >= 0 {
				return lockstest.Refused("LOADING")
			}
			return serve()
		}))
		start := time.Now()
		inner := wait(as("me"), s)
		<-inner.done
		is(t, "Acquire by the owner", inner.err)
		if d := time.Since(start); d > time.Second {
			t.Errorf("Acquire by the owner took %v, want no more than a few short pauses", d)
		}
		release(t, inner.lease)
		release(t, outer)
		<-other.done
		is(t, "Acquire by the other", other.err)
		release(t, other.lease)
	})
}

// TestAnOwnerAtTheHeadAsks: a waiter that comes to the head of a line and hears there that its
// own owner has the lock does not wait for that, whatever kept it from hearing so before.
func TestAnOwnerAtTheHeadAsks(t *testing.T) {
	for what, get := range map[string]func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) (outer strategy.Lease, inner *waiter, leave func()){
		"its question got no answer": func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) (strategy.Lease, *waiter, func()) {
			outer := takeAs(t, s, "me")
			ctx, cancel := context.WithCancel(bg)
			head := wait(ctx, s)
			m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
				m.Intercept(nil)
				return lockstest.Refused("LOADING")
			}))
			inner := wait(as("me"), s)
			return outer, inner, func() { cancel(); <-head.done }
		},
		"another process got it": func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) (strategy.Lease, *waiter, func()) {
			away := open(t, m, strategy.Options{Wait: strategy.WaitNotification})
			holder := take(t, away)
			ctx, cancel := context.WithCancel(bg)
			head := wait(ctx, s)
			inner := wait(as("me"), s)
			m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, r lockstest.Request, serve func() error) error {
				if r.Claims[0].Owner != "me" {
					time.Sleep(time.Millisecond) // the head is slow to ask
				}
				return serve()
			}))
			release(t, holder)
			outer := takeAs(t, away, "me")
			time.Sleep(2 * time.Millisecond)
			return outer, inner, func() { cancel(); <-head.done }
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := reentrant()
				s := open(t, m, strategy.Options{Wait: strategy.WaitNotification, RetryOnError: true, Backoff: func(int) time.Duration { return time.Hour }})
				outer, inner, leave := get(t, m, s)
				is(t, "KeepAlive", outer.KeepAlive(0))
				if closed(inner.done) {
					t.Fatal("the owner has the lock already, want that it stands in line")
				}
				start := time.Now()
				leave()
				<-inner.done
				is(t, "Acquire by the owner", inner.err)
				since(t, "Acquire by the owner at the head", start, 0)
				release(t, inner.lease)
				release(t, outer)
			})
		})
	}
}

// TestNamedContendersWait: a name that does not hold the lock waits like any other, and
// ctx and Close end its wait.
func TestNamedContendersWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{})
		holder := takeAs(t, s, "holder")
		first := wait(bg, s)
		ctx, cancel := context.WithCancelCause(as("other"))
		asked := m.Requests(lockstest.OpAcquire)
		second := wait(ctx, s)
		equal(t, "requests of a caller that comes to a line", m.Requests(lockstest.OpAcquire)-asked, 1)
		off := errors.New("called off")
		cancel(off)
		start := time.Now()
		<-second.done
		since(t, "from the cancel to the end of the wait", start, 0)
		is(t, "Acquire", second.err, strategy.ErrHeld, context.Canceled, off)
		var held *strategy.HeldError
		if !errors.As(second.err, &held) || held.Holder != "holder" {
			t.Errorf("Acquire = %v, want held by the owner", second.err)
		}
		third := wait(as("third"), s)
		s.Close()
		<-first.done
		<-third.done
		is(t, "Acquire", first.err, strategy.ErrClosed)
		is(t, "Acquire", third.err, strategy.ErrClosed)
		equal(t, "Err of the holder", holder.Err(), nil)
	})
}

// TestNobodyReentersUnnamed: an empty owner is none.
func TestNobodyReentersUnnamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, reentrant(), strategy.Options{})
		lease, err := s.NewLock(name).TryAcquire(strategy.WithOwner(as("me"), ""))
		is(t, "TryAcquire", err)
		equal(t, "Owner", lease.Owner(), lease.Token())
		_, err = s.NewLock(name).TryAcquire(as(""))
		is(t, "TryAcquire", err, strategy.ErrHeld)
		w := wait(as(""), s)
		equal(t, "an unnamed contender has the lock", closed(w.done), false)
		release(t, lease)
		<-w.done
		release(t, w.lease)
	})
}

// TestNestedDo: each Do hands out a context by which the next gets in; the waiter gets in
// after the outermost.
func TestNestedDo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{})
		lock := s.NewLock(name)
		var w *waiter
		var fences []uint64
		err := strategy.Do(bg, lock, func(ctx context.Context, outer strategy.Lease) error {
			w = wait(bg, s)
			err := strategy.Do(ctx, lock, func(ctx context.Context, inner strategy.Lease) error {
				equal(t, "Owner of the inner", inner.Owner(), outer.Owner())
				for _, l := range []strategy.Lease{outer, inner} {
					n, _ := l.Fence()
					fences = append(fences, n)
				}
				time.Sleep(3 * ttl) // both are kept alive
				return strategy.Do(ctx, lock, func(context.Context, strategy.Lease) error { return nil })
			})
			time.Sleep(3 * ttl)
			equal(t, "the waiter has the lock", closed(w.done), false)
			return errors.Join(err, outer.Err())
		})
		is(t, "Do", err)
		equal(t, "fence of the inner", fences[1], fences[0])
		<-w.done
		is(t, "Acquire", w.err)
		release(t, w.lease)
		if left, _ := m.Leftovers(bg, key); len(left) != 0 {
			t.Errorf("the server keeps %q, want nothing", left)
		}
	})
}

// TestLossIsEverybodys: when the lock is lost all leases on it are lost, and the owner
// waits for its new holder like anybody else; when one hold lapses the others go on.
func TestLossIsEverybodys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{})
		outer, inner := takeAs(t, s, "me"), takeAs(t, s, "me")
		is(t, "KeepAlive", outer.KeepAlive(0))
		time.Sleep(valid)
		synctest.Wait()
		is(t, "Err of a hold that nobody renews", inner.Err(), strategy.ErrLost)
		is(t, "Err of one that is kept alive", outer.Err())
		time.Sleep(drift)
		inner = takeAs(t, s, "me")
		is(t, "KeepAlive", inner.KeepAlive(0))

		m.Evict(bg, key)
		rival := takeAs(t, s, "rival")
		<-outer.Lost()
		<-inner.Lost()
		var lost *strategy.LostError
		if !errors.As(outer.Err(), &lost) || lost.Holder != "rival" {
			t.Errorf("Err = %v, want lost to the rival", outer.Err())
		}
		again := wait(as("me"), s)
		equal(t, "the owner has the lock", closed(again.done), false)
		release(t, rival)
		<-again.done
		is(t, "Acquire", again.err)
		old, _ := outer.Fence()
		if now, _ := again.lease.Fence(); now <= old {
			t.Errorf("Fence of the new hold = %d, want more than %d", now, old)
		}
		release(t, again.lease)
	})
}

// TestAnUndoEndsOneHold: a re-entry whose reply was lost is undone, and nothing else; so
// is a release that is repeated.
func TestAnUndoEndsOneHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{})
		outer, inner := takeAs(t, s, "me"), takeAs(t, s, "me")
		m.Intercept(only(lockstest.OpAcquire, lostReply))
		_, err := s.NewLock(name).TryAcquire(as("me"))
		is(t, "TryAcquire", err, strategy.ErrUnknown)
		synctest.Wait()
		m.Intercept(lostReply)
		is(t, "Release", inner.Release(bg), strategy.ErrUnknown)
		time.Sleep(2 * op)
		if n := m.Requests(lockstest.OpRelease, lockstest.OpUndo); n < 4 {
			t.Errorf("%d releases were sent, want the undo, the release, and its repetitions", n)
		}
		m.Intercept(nil)
		time.Sleep(op)
		info, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		equal(t, "holds", info.Holds, 1)
		equal(t, "token", info.Token, outer.Token())
		is(t, "Extend", outer.Extend(bg))
		release(t, outer)
	})
}

// TestForceEndsAllHolds: and the waiters are notified.
func TestForceEndsAllHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{})
		outer, inner := takeAs(t, s, "me"), takeAs(t, s, "me")
		w := wait(bg, s)
		seen, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		equal(t, "owner", seen.Owner, "me")
		equal(t, "holds", seen.Holds, 2)
		is(t, "ForceRelease", s.ForceRelease(bg, seen))
		<-w.done
		is(t, "Acquire", w.err)
		is(t, "ForceRelease of a hold that is over", s.ForceRelease(bg, seen), strategy.ErrLost)
		is(t, "Extend", outer.Extend(bg), strategy.ErrLost)
		is(t, "Release", inner.Release(bg), strategy.ErrLost)
		release(t, w.lease)
	})
}

// TestAdoptBesideAnother: the lease says whose it has become, and its context re-enters.
func TestAdoptBesideAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, reentrant(), strategy.Options{})
		outer, inner := takeAs(t, s, "me"), takeAs(t, s, "me")
		token, err := inner.Detach()
		is(t, "Detach", err)
		adopted, err := s.Adopt(as("you"), name, token)
		is(t, "Adopt", err)
		equal(t, "Owner", adopted.Owner(), "me")
		ctx, cancel := adopted.Context(bg)
		defer cancel()
		third, err := s.NewLock(name).TryAcquire(ctx)
		is(t, "TryAcquire with the adopted lease's context", err)
		release(t, third)
		release(t, outer)
		is(t, "Extend", adopted.Extend(bg))
		release(t, adopted)
	})
}

// TestReentryUnderChaos: whatever is lost on the way, owners exclude each other, and
// nothing is left.
func TestReentryUnderChaos(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { chaoticReentry(t, seed) })
		})
	}
}

func chaoticReentry(t *testing.T, seed uint64) {
	m := reentrant()
	m.Intercept(chaos(seed))
	s := open(t, m, strategy.Options{RetryOnError: true})
	done := make(chan struct{})
	var mu sync.Mutex
	inside := map[strategy.Lease]string{}
	enter := func(l strategy.Lease, owner string) {
		mu.Lock()
		defer mu.Unlock()
		for other, whose := range inside {
			if whose != owner && l.Err() == nil && other.Err() == nil {
				t.Errorf("%s and %s hold the lock, want one owner", owner, whose)
			}
		}
		inside[l] = owner
	}
	leave := func(l strategy.Lease) {
		mu.Lock()
		defer mu.Unlock()
		delete(inside, l)
	}
	owners := []string{"a", "b", "c"}
	for _, owner := range owners {
		for range 2 { // siblings
			go func() {
				defer func() { done <- struct{}{} }()
				for range 10 {
					ctx, cancel := context.WithTimeout(as(owner), 5*time.Minute)
					outer, err := s.NewLock(name).Acquire(ctx)
					if err == nil {
						enter(outer, owner)
						outer.KeepAlive(0)
						if inner, err := s.NewLock(name).Acquire(ctx); err == nil {
							enter(inner, owner)
							time.Sleep(ms)
							leave(inner)
							inner.Release(bg)
						}
						leave(outer)
						outer.Release(bg)
					} else if !errors.Is(err, strategy.ErrHeld) {
						t.Errorf("Acquire = %v, want nil or ErrHeld", err)
					}
					cancel()
				}
			}()
		}
	}
	for range 2 * len(owners) {
		<-done
	}
	m.Intercept(nil)
	time.Sleep(3 * ttl)
	if left, _ := m.Leftovers(bg, key); len(left) != 0 {
		t.Errorf("the server keeps %q, want nothing", left)
	}
}
