// Package multilock: several locks as one are acquired in order or not at all, and end together.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/testkit/ledger"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

// all is All of s's locks of those names.
func all(t *testing.T, s strategy.Strategy, names ...string) strategy.Lock {
	t.Helper()
	locks := make([]strategy.Lock, len(names))
	for i, name := range names {
		locks[i] = s.NewLock(name)
	}
	l, err := multilock.New(locks...)
	if err != nil {
		t.Fatalf("All(%q) = %v", names, err)
	}
	return l
}

// takeAll acquires l, which must be free.
func takeAll(t *testing.T, l strategy.Lock) strategy.Lease {
	t.Helper()
	lease, err := l.TryAcquire(bg)
	if err != nil {
		t.Fatalf("TryAcquire of free locks = %v", err)
	}
	return lease
}

// heldOf tells which of the names have a holder at the server.
func heldOf(m *lockstest.Memory, names ...string) string {
	var held []string
	for _, name := range names {
		if holds(m, strategy.DefaultKey(name)) != "" {
			held = append(held, name)
		}
	}
	return strings.Join(held, " ")
}

func evict(m *lockstest.Memory, name string) { m.Evict(bg, strategy.DefaultKey(name)) }

// await is an Acquire under way; it returns when that cannot go on by itself.
func await(ctx context.Context, l strategy.Lock) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Acquire(ctx)
		w.at = time.Now()
	}()
	synctest.Wait()
	return w
}

func TestAll(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"Refused":       allRefuses,
		"Order":         allInOrder,
		"OrNothing":     allOrNothing,
		"WhichFailed":   allTellsWhichFailed,
		"Wait":          allWaits,
		"GivesBack":     allGivesBack,
		"BeginsAgain":   allBeginsAgain,
		"GivesUp":       allGivesUp,
		"Loss":          allAreLost,
		"LossLapses":    allLapse,
		"ReleasedAlone": oneReleasedAlone,
		"Failing":       allFail,
		"MaxHold":       allForTheMaximumHold,
		"Reentry":       allReentrant,
		"Close":         oneCloses,
		"CloseInHand":   closeWaits,
		"MaxHoldBegins": allCountFromTheLast,
		"MaxHoldQueue":  allOutlastAQueue,
		"MaxHoldOption": allCountTheirOwnFromTheLast,
		"MaxHoldWaits":  allWaitUnbounded,
		"TriesAgain":    allTryAgain,
		"Events":        allAreObserved,
		"ReleaseFails":  oneReleaseFails,
	} {
		t.Run(name, test)
	}
}

func allRefuses(t *testing.T) {
	s := open(t, &lockstest.Memory{}, strategy.Options{})
	other := open(t, &lockstest.Memory{}, strategy.Options{})
	plain := open(t, &lockstest.Memory{}, strategy.Options{Key: func(name string) string { return name }})
	for want, locks := range map[string][]strategy.Lock{
		"one or more":                   {},
		"argument 2 is nil":             {s.NewLock("a"), nil},
		"names of 1 to 1024 bytes":      {s.NewLock("a"), s.NewLock("")},
		`xxx" has no key: allowed are `: {s.NewLock("a"), s.NewLock(strings.Repeat("x", contract.MaxNameLen+1))},
		`"a" and "a" have the same key`: {s.NewLock("a"), s.NewLock("b"), s.NewLock("a")},
		`the same key "lock:{a}"`:       {s.NewLock("a"), other.NewLock("a")},
		`"b" and "b" have the same key`: {all(t, s, "a", "b"), all(t, s, "b", "c")},
	} {
		if l, err := multilock.New(locks...); l != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("All = %v, %v, want an error with %q", l, err, want)
		}
	}
	// Other names of one key are one lock.
	_, err := multilock.New(s.NewLock("a"), plain.NewLock("lock:{a}"))
	if err == nil || !strings.Contains(err.Error(), "each key once") {
		t.Errorf("All of two names of one key = %v, want an error", err)
	}
}

func allInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m, elsewhere lockstest.Memory
		s := open(t, &m, strategy.Options{})
		far := open(t, &elsewhere, strategy.Options{Key: func(name string) string { return "kk:" + name }, TTL: 5 * time.Second})
		r := record(&m)
		inner, err := multilock.New(s.NewLock("c"), far.NewLock("b"))
		is(t, "All", err)
		l, err := multilock.New(s.NewLock("d"), inner, s.NewLock("a"))
		is(t, "All", err)
		equal(t, "Name", l.Name(), "b, a, c, d") // kk:b, lock:{a} …

		lease := takeAll(t, l)
		var asked []string
		for _, sent := range r.of(lockstest.OpAcquire) {
			asked = append(asked, sent.all[0].Name)
		}
		equal(t, "asked for", strings.Join(asked, " "), "a c d")
		parts := multilock.Parts(lease)
		equal(t, "Parts", len(parts), 4)
		for i, name := range []string{"b", "a", "c", "d"} {
			equal(t, "a part's name", parts[i].Name(), name)
			equal(t, "a part's owner", parts[i].Owner(), lease.Owner())
			if _, ok := parts[i].Fence(); !ok {
				t.Errorf("the fence of %q = none, want one", name)
			}
		}
		equal(t, "Deadline", lease.Deadline(), parts[0].Deadline()) // the one with the short TTL
		if lease.Owner() == "" {
			t.Error("Owner = none, want one that all parts have")
		}
		if _, ok := lease.Fence(); ok {
			t.Error("Fence of four locks: ok, want none")
		}
		if p := multilock.Parts(parts[0]); len(p) != 1 || p[0] != parts[0] {
			t.Errorf("Parts of one lock's lease = %v, want itself", p)
		}
		release(t, lease)
		equal(t, "held after the release", heldOf(&m, "a", "c", "d"), "")
		equal(t, "held elsewhere", holds(&elsewhere, "kk:b"), "")
		is(t, "the second Release", lease.Release(bg), strategy.ErrReleased)
		is(t, "a part's Err", parts[1].Err(), strategy.ErrReleased)
	})
}

func allOrNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, rival := open(t, &m, strategy.Options{}), open(t, &m, strategy.Options{})
		tsuccessors, err := rival.NewLock("b").TryAcquire(bg)
		is(t, "the rival", err)
		r := record(&m)
		lease, err := all(t, s, "a", "b", "c").TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrHeld)
		if lease != nil {
			t.Error("TryAcquire gave a lease and an error")
		}
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Name != "b" || held.Holder != tsuccessors.Token() {
			t.Errorf("TryAcquire = %v, want a HeldError of b", err)
		}
		var all *multilock.Error
		if !errors.As(err, &all) || all.Name != "a, b, c" || len(all.Names) != 1 || all.Names[0] != "b" {
			t.Errorf("TryAcquire = %v, want an multilock.Error with b", err)
		}
		equal(t, "the error", err.Error(), fmt.Sprintf(`lock "a, b, c": lock "b": held by %q for 10s unless renewed`, strategy.ShortToken(tsuccessors.Token())))
		equal(t, "acquires", len(r.of(lockstest.OpAcquire)), 2)
		equal(t, "held", heldOf(&m, "a", "b", "c"), "b")
	})
}

// All reports what the servers say of one lock with its name; that lock's strategy undoes it.
func allTellsWhichFailed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for what, fault := range map[string]struct {
			f    lockstest.Fault
			want error
		}{
			"refused": {refused, strategy.ErrRefused}, "unsent": {unsent, strategy.ErrUnsent},
			"the request is lost": {lostRequest, strategy.ErrUnknown}, "the reply is lost": {lostReply, strategy.ErrUnknown},
		} {
			var m, broken lockstest.Memory
			s := open(t, &m, strategy.Options{})
			b := open(t, &broken, strategy.Options{Key: func(name string) string { return "z:" + name }})
			broken.Intercept(only(lockstest.OpAcquire, fault.f))
			l, err := multilock.New(b.NewLock("b"), s.NewLock("a"))
			is(t, "All", err)
			for how, acquire := range map[string]func(context.Context) (strategy.Lease, error){"TryAcquire": l.TryAcquire, "Acquire": l.Acquire} {
				_, err := acquire(bg)
				is(t, how+", "+what, err, fault.want)
				isNot(t, how+", "+what, err, strategy.ErrHeld, strategy.ErrLost)
				if err != nil && !strings.HasPrefix(err.Error(), `lock "a, b": lock "b": memory: `) {
					t.Errorf("%s, %s = %v, want it to name b", how, what, err)
				}
				equal(t, "held after "+what, heldOf(&m, "a"), "")
				time.Sleep(ttl)
				equal(t, "held elsewhere after "+what, holds(&broken, "z:b"), "")
				broken.Intercept(only(lockstest.OpAcquire, fault.f))
			}
		}
	})
}

func allWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, rival := open(t, &m, strategy.Options{}), open(t, &m, strategy.Options{})
		tsuccessors, err := rival.NewLock("b").TryAcquire(bg)
		is(t, "the rival", err)
		is(t, "the rival's KeepAlive", tsuccessors.KeepAlive(0))
		w := await(bg, all(t, s, "c", "b", "a"))
		time.Sleep(5*ttl + 3*time.Second)
		equal(t, "held during the wait", heldOf(&m, "a", "b", "c"), "a b")
		if closed(w.done) {
			t.Fatalf("Acquire = %v while b is held", w.err)
		}
		released := time.Now()
		release(t, tsuccessors)
		<-w.done
		if w.err != nil {
			t.Fatalf("Acquire = %v", w.err)
		}
		since(t, "Acquire after the release", released, 0)
		// a, held for long, and b, a direct grant for a second, begin again.
		deadline := w.lease.Deadline()
		if deadline.Before(w.at.Add(valid / 10 * 9)) {
			t.Errorf("Deadline = %v after Acquire, want nine tenths of %v", deadline.Sub(w.at), valid)
		}
		equal(t, "held", heldOf(&m, "a", "b", "c"), "a b c")
		// The renewal that kept them alive during the wait has ended with it.
		time.Sleep(time.Until(deadline) - ms)
		is(t, "Err before the deadline", w.lease.Err())
		time.Sleep(ms)
		is(t, "Err at the deadline", w.lease.Err(), strategy.ErrLost)
		time.Sleep(ttl)
		equal(t, "held after the TTL", heldOf(&m, "a", "b", "c"), "")
		equal(t, "scheduled", engine.Scheduled(s), 0)
	})
}

func allGivesBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, rival := open(t, &m, strategy.Options{}), open(t, &m, strategy.Options{})
		tsuccessors, err := rival.NewLock("b").TryAcquire(bg)
		is(t, "the rival", err)
		is(t, "the rival's KeepAlive", tsuccessors.KeepAlive(0))
		why := errors.New("shop closed")
		ctx, cancel := context.WithTimeoutCause(bg, 25*time.Second, why)
		defer cancel()
		start := time.Now()
		w := await(ctx, all(t, s, "a", "b"))
		<-w.done
		since(t, "Acquire", start, 25*time.Second)
		is(t, "Acquire", w.err, strategy.ErrHeld, context.DeadlineExceeded, why)
		isNot(t, "Acquire", w.err, strategy.ErrLost)
		equal(t, "held", heldOf(&m, "a", "b"), "b")
		equal(t, "waiting", engine.Waiting(s, strategy.DefaultKey("b")), 0)
		equal(t, "scheduled", engine.Scheduled(s), 0)

		_, err = all(t, s, "a", "b").TryAcquire(ctx)
		is(t, "TryAcquire with a context that is done", err, context.DeadlineExceeded, why)
		_, err = all(t, s, "a", "b").Acquire(ctx)
		is(t, "Acquire with a context that is done", err, context.DeadlineExceeded, why)
		isNot(t, "Acquire with a context that is done", err, strategy.ErrHeld)
	})
}

// One that is lost during the wait is taken again in its order, not out of it.
func allBeginsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, rival := open(t, &m, strategy.Options{}), open(t, &m, strategy.Options{})
		tsuccessors, err := rival.NewLock("c").TryAcquire(bg)
		is(t, "the rival", err)
		is(t, "the rival's KeepAlive", tsuccessors.KeepAlive(0))
		w := await(bg, all(t, s, "a", "b", "c"))
		evict(&m, "a")
		thief, err := rival.NewLock("a").TryAcquire(bg)
		is(t, "the thief", err)
		time.Sleep(ttl/2 + ms) // a renewal later
		equal(t, "held after the loss", heldOf(&m, "a", "b", "c"), "a c")
		equal(t, "a's holder", holds(&m, strategy.DefaultKey("a")), thief.Token())
		release(t, thief)
		release(t, tsuccessors)
		<-w.done
		if w.err != nil {
			t.Fatalf("Acquire = %v", w.err)
		}
		is(t, "Err", w.lease.Err())
		equal(t, "held", heldOf(&m, "a", "b", "c"), "a b c")
		release(t, w.lease)
	})
}

// It begins again as often as a lock in hand is lost, until ctx ends.
func allGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{TTL: 3 * time.Second, OpTimeout: 2 * time.Second})
		asked := 0
		m.Intercept(only(lockstest.OpAcquire, func(ctx context.Context, r lockstest.Request, serve func() error) error {
			err := serve()
			if r.Claims[0].Name == "b" {
				asked++
				evict(&m, "a")
				time.Sleep(1500 * ms) // a's renewal finds it lost meanwhile
			}
			return err
		}))
		_, err := all(t, s, "a", "b").TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrLost)
		ctx, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		start := time.Now()
		w := await(ctx, all(t, s, "a", "b"))
		<-w.done
		since(t, "Acquire", start, 10*time.Second)
		is(t, "Acquire", w.err, context.DeadlineExceeded)
		if asked < 4 {
			t.Errorf("Acquire began %d times, want several", asked-1)
		}
		time.Sleep(3 * time.Second)
		equal(t, "held", heldOf(&m, "a", "b"), "")
	})
}

func allAreLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := takeAll(t, all(t, s, "a", "b"))
		is(t, "KeepAlive", lease.KeepAlive(0))
		ctx, cancel := lease.Context(bg)
		defer cancel()
		time.Sleep(30 * time.Second)
		is(t, "Err while kept alive", lease.Err())
		evict(&m, "b")
		start := time.Now()
		<-lease.Lost()
		if took := time.Since(start); took > ttl/2 {
			t.Errorf("the loss was reported after %v, want the next renewal", took)
		}
		var lost *strategy.LostError
		err := lease.Err()
		if !errors.As(err, &lost) || lost.Name != "a, b" || !errors.As(lost.Err, &lost) || lost.Name != "b" {
			t.Errorf("Err = %v, want a LostError of both with that of b", err)
		}
		equal(t, "the error", err.Error(), `lock "a, b": lost: lock "b": lost: the key is gone`)
		<-ctx.Done()
		equal(t, "the context's cause", context.Cause(ctx), err)
		is(t, "Extend", lease.Extend(bg), strategy.ErrLost)
		is(t, "KeepAlive", lease.KeepAlive(0), strategy.ErrLost)
		is(t, "Failing", lease.RenewalErr())

		// A caller that stops its work may take its time: the other is kept for as long.
		time.Sleep(ttl / 2)
		equal(t, "held before the release", heldOf(&m, "a", "b"), "a")
		is(t, "Release", lease.Release(bg), strategy.ErrLost)
		equal(t, "held after the release", heldOf(&m, "a", "b"), "")
		is(t, "the second Release", lease.Release(bg), strategy.ErrLost)
		equal(t, "scheduled", engine.Scheduled(s), 0)
	})
}

func allLapse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := takeAll(t, all(t, s, "a", "b"))
		is(t, "KeepAlive", lease.KeepAlive(0))
		evict(&m, "a")
		<-lease.Lost()
		time.Sleep(ttl + ms)
		equal(t, "held", heldOf(&m, "a", "b"), "")
		equal(t, "scheduled", engine.Scheduled(s), 0)
	})
}

func oneReleasedAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := takeAll(t, all(t, s, "a", "b"))
		release(t, multilock.Parts(lease)[0])
		if lease.Err() == nil {
			t.Fatal("Err = nil, want ErrLost")
		}
		is(t, "Err", lease.Err(), strategy.ErrLost)
		isNot(t, "Err", lease.Err(), strategy.ErrReleased)
		equal(t, "the error", lease.Err().Error(), `lock "a, b": lost: lock "a": released alone`)
		equal(t, "held", heldOf(&m, "a", "b"), "b")
		is(t, "Release", lease.Release(bg), strategy.ErrLost)
		equal(t, "held after the release", heldOf(&m, "a", "b"), "")

		err := strategy.Do(bg, all(t, s, "a", "b"), func(ctx context.Context, lease strategy.Lease) error {
			release(t, multilock.Parts(lease)[1])
			<-ctx.Done()
			return nil
		})
		is(t, "Do", err, strategy.ErrLost)
		equal(t, "held after Do", heldOf(&m, "a", "b"), "")

		lease = takeAll(t, all(t, s, "a", "b"))
		_, err = lease.Detach()
		is(t, "Detach", err, strategy.ErrUnsupported)
		is(t, "Err after it", lease.Err())
		release(t, lease)
	})
}

// One deadline: until then a renewal that fails is tried again, and says who failed.
func allFail(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m, flaky lockstest.Memory
		s := open(t, &m, strategy.Options{})
		b := open(t, &flaky, strategy.Options{TTL: 3 * time.Second, Key: func(name string) string { return "z:" + name }})
		l, err := multilock.New(s.NewLock("a"), b.NewLock("b"))
		is(t, "All", err)
		lease := takeAll(t, l)
		is(t, "KeepAlive", lease.KeepAlive(0))
		time.Sleep(time.Minute)
		is(t, "Err", lease.Err())
		deadline := lease.Deadline()
		flaky.Intercept(unsent)
		time.Sleep(time.Until(deadline) - ms)
		is(t, "Err before the deadline", lease.Err())
		var failed *multilock.Error
		failing := lease.RenewalErr()
		is(t, "Failing", failing, strategy.ErrUnsent)
		if !errors.As(failing, &failed) || len(failed.Names) != 1 || failed.Names[0] != "b" {
			t.Errorf("Failing = %v, want an multilock.Error with b", failing)
		}
		is(t, "Extend", lease.Extend(bg), strategy.ErrUnsent)
		equal(t, "Deadline", lease.Deadline(), deadline)
		<-lease.Lost()
		equal(t, "the loss", time.Now(), deadline)
		var lost *strategy.LostError
		if !errors.As(lease.Err(), &lost) || lost.Name != "a, b" || !errors.Is(lost.Err, strategy.ErrUnsent) || !errors.As(lost.Err, &lost) || !lost.Lapsed {
			t.Errorf("Err = %v, want a LostError of both, by the lapse of b, by ErrUnsent", lease.Err())
		}
		lease.Release(bg)
		equal(t, "held", heldOf(&m, "a"), "")
	})
}

func allForTheMaximumHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m, other lockstest.Memory
		s := open(t, &m, strategy.Options{})
		b := open(t, &other, strategy.Options{TTL: 3 * time.Second, Key: func(name string) string { return "z:" + name }})
		l, err := multilock.New(s.NewLock("a"), b.NewLock("b"))
		is(t, "All", err)
		lease := takeAll(t, l)
		start := time.Now()
		if err := lease.KeepAlive(5 * time.Second); err == nil || !strings.Contains(err.Error(), "the TTL of 10s or more") {
			t.Errorf("KeepAlive(5s) = %v, want what is allowed", err)
		}
		is(t, "KeepAlive", lease.KeepAlive(25*time.Second))
		for lease.Err() == nil { // if the process died now, no server would keep it for longer
			for server, key := range map[*lockstest.Memory]string{&m: "lock:{a}", &other: "z:b"} {
				info, err := server.Inspect(bg, driver.Claim{Key: key})
				is(t, "Inspect", err)
				if end := start.Add(25 * time.Second); time.Now().Add(info.TTL).After(end.Add(ms)) {
					t.Fatalf("%s is to last until %v after the maximum hold", key, time.Now().Add(info.TTL).Sub(end))
				}
			}
			time.Sleep(50 * ms)
		}
		if took := time.Since(start); took > 25*time.Second || took < 24*time.Second {
			t.Errorf("lost after %v, want a maximum hold of 25s", took)
		}
		if err := lease.Err(); !strings.Contains(err.Error(), "maximum hold") {
			t.Errorf("Err = %v, want the maximum hold", err)
		}
		time.Sleep(time.Until(start.Add(25*time.Second + ms)))
		equal(t, "held after the maximum hold", heldOf(&m, "a"), "")
		equal(t, "held elsewhere", holds(&other, "z:b"), "")

		// A bound that comes late, with servers that count beyond it.
		lease = takeAll(t, l)
		is(t, "KeepAlive", lease.KeepAlive(0))
		time.Sleep(12 * time.Second)
		is(t, "KeepAlive", lease.KeepAlive(10*time.Second), strategy.ErrLost)
		synctest.Wait()
		equal(t, "held after the bound", heldOf(&m, "a"), "")
		equal(t, "held elsewhere", holds(&other, "z:b"), "")
		is(t, "a part's Err", multilock.Parts(lease)[0].Err(), strategy.ErrLost)
	})
}

func allReentrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Reentrant = true
		s := open(t, &m, strategy.Options{})
		outer := takeAll(t, all(t, s, "a", "b"))
		ctx, cancel := outer.Context(bg)
		defer cancel()
		inner, err := s.NewLock("b").TryAcquire(ctx)
		if err != nil {
			t.Fatalf("re-entry with the lease's context = %v", err)
		}
		_, err = s.NewLock("b").TryAcquire(bg)
		is(t, "entry without it", err, strategy.ErrHeld)
		both, err := all(t, s, "a", "b").Acquire(ctx)
		is(t, "re-entry of both", err)
		release(t, inner)
		release(t, outer)
		equal(t, "held by the inner", heldOf(&m, "a", "b"), "a b")
		release(t, both)
		equal(t, "held", heldOf(&m, "a", "b"), "")

		named, err := all(t, s, "a", "b").TryAcquire(strategy.WithOwner(bg, "jane"))
		is(t, "TryAcquire", err)
		equal(t, "Owner", named.Owner(), "jane")
		release(t, named)
	})
}

func oneCloses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m, other lockstest.Memory
		s := open(t, &m, strategy.Options{})
		b := open(t, &other, strategy.Options{Key: func(name string) string { return "z:" + name }})
		rival := open(t, &other, strategy.Options{Key: func(name string) string { return "z:" + name }})
		l, err := multilock.New(s.NewLock("a"), b.NewLock("b"))
		is(t, "All", err)

		tsuccessors, err := rival.NewLock("b").TryAcquire(bg)
		is(t, "the rival", err)
		is(t, "the rival's KeepAlive", tsuccessors.KeepAlive(0))

		// Whose lock is in hand, or whose lock is waited for.
		first := open(t, &m, strategy.Options{})
		l1, err := multilock.New(first.NewLock("a"), b.NewLock("b"))
		is(t, "All", err)
		w := await(bg, l1)
		equal(t, "held during the wait", heldOf(&m, "a"), "a")
		start := time.Now()
		is(t, "Close", first.Close())
		since(t, "Close", start, 0)
		<-w.done // at the deadline of a, which nobody renews any more
		if took := time.Since(start); took > ttl {
			t.Errorf("Acquire ended %v after Close, want a's TTL at most", took)
		}
		time.Sleep(drift + ms)
		equal(t, "held after Close", heldOf(&m, "a"), "")
		is(t, "Acquire", w.err, strategy.ErrClosed)
		isNot(t, "Acquire", w.err, context.Canceled, strategy.ErrHeld, strategy.ErrLost)
		if !strings.Contains(w.err.Error(), `lock "a": strategy closed`) {
			t.Errorf("Acquire = %v, want that it is a's", w.err)
		}

		w = await(bg, l)
		equal(t, "held during the wait", heldOf(&m, "a"), "a")
		b.Close()
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
		equal(t, "held after Close", heldOf(&m, "a"), "")
		release(t, tsuccessors)
		_, err = l.TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrClosed)
		equal(t, "held", heldOf(&m, "a"), "")

		b = open(t, &other, strategy.Options{Key: func(name string) string { return "z:" + name }})
		l, err = multilock.New(s.NewLock("a"), b.NewLock("b"))
		is(t, "All", err)
		lease := takeAll(t, l)
		deadline := lease.Deadline()
		b.Close()
		is(t, "KeepAlive", lease.KeepAlive(0), strategy.ErrClosed)
		is(t, "Extend", lease.Extend(bg), strategy.ErrClosed)
		<-lease.Lost()
		equal(t, "the loss", time.Now(), deadline)
		lease.Release(bg)
		time.Sleep(drift + ms)

		// The lock of the open strategy is released though the other cannot be.
		c := open(t, &other, strategy.Options{Key: func(name string) string { return "z:" + name }})
		l, err = multilock.New(s.NewLock("a"), c.NewLock("c"))
		is(t, "All", err)
		lease = takeAll(t, l)
		c.Close()
		is(t, "Release", lease.Release(bg), strategy.ErrClosed)
		equal(t, "held after the release", heldOf(&m, "a"), "")
		is(t, "Err", lease.Err(), strategy.ErrReleased)
	})
}

func closeWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, rival := open(t, &m, strategy.Options{}), open(t, &m, strategy.Options{})
		tsuccessors, err := rival.NewLock("c").TryAcquire(bg)
		is(t, "the rival", err)
		is(t, "the rival's KeepAlive", tsuccessors.KeepAlive(0))
		w := await(bg, all(t, s, "a", "b", "c"))
		start := time.Now()
		is(t, "Close", s.Close())
		<-w.done
		since(t, "Acquire", start, 0)
		is(t, "Acquire", w.err, strategy.ErrClosed)
		time.Sleep(ttl + ms) // as any lock that is held when its strategy is closed
		equal(t, "held a TTL after Close", heldOf(&m, "a", "b", "c"), "c")
		release(t, tsuccessors)
	})
}

// The maximum hold counts from when all are held.
func allCountFromTheLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		m.Intercept(only(lockstest.OpAcquire, slow(300*ms, 0)))
		lease := takeAll(t, all(t, s, "a", "b", "c"))
		start := time.Now()
		is(t, "KeepAlive", lease.KeepAlive(20*time.Second))
		<-lease.Lost()
		// Counted from the last request, less the drift; the last renewal asks for whole milliseconds.
		if took := time.Since(start); took < 20*time.Second-300*ms-drift-ms {
			t.Errorf("lost after %v, want a maximum hold of 20s", took)
		}
	})
}

// The maximum hold of Options begins with the last grant, however long the locks in hand have been waiting for it.
func allWaitUnbounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{MaxHold: ttl})
		other := open(t, &m, strategy.Options{})
		holder := takeNamed(t, other, "b")
		is(t, "KeepAlive", holder.KeepAlive(0))
		var lease strategy.Lease
		done := make(chan struct{})
		go func() {
			defer close(done)
			lease, _ = all(t, s, "a", "b").Acquire(bg)
		}()
		time.Sleep(35 * time.Second) // three times the maximum hold
		release(t, holder)
		<-done
		start := time.Now()
		is(t, "KeepAlive", lease.KeepAlive(0))
		<-lease.Lost()
		if took := time.Since(start); took > ttl || took < ttl-drift-ms {
			t.Errorf("lost after %v, want a maximum hold of %v", took, ttl)
		}
		if err := lease.Err(); !strings.Contains(err.Error(), "maximum hold") {
			t.Errorf("Err = %v, want the maximum hold", err)
		}
	})
}

// The maximum hold of a lock in hand does not run while All waits for the next: however many come first, All is
// served in its turn.
func allOutlastAQueue(t *testing.T) {
	for what, in := range makes {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				o := strategy.Options{MaxHold: ttl}
				s := open(t, &m, o)
				start := time.Now()
				var all sync.WaitGroup
				for range 6 {
					other := open(t, &m, o).NewLock("b")
					all.Go(func() {
						is(t, "Do", strategy.Do(bg, other, func(context.Context, strategy.Lease) error {
							time.Sleep(ttl / 2)
							return nil
						}))
					})
					synctest.Wait()
				}
				l, err := multilock.New(in(s.NewLock("a")), in(s.NewLock("b")))
				is(t, "All", err)
				ctx, cancel := context.WithTimeout(bg, 10*ttl)
				defer cancel()
				is(t, "Do of both", strategy.Do(ctx, l, func(context.Context, strategy.Lease) error {
					since(t, "All is served after", start, 6*ttl/2)
					time.Sleep(ttl / 2)
					return nil
				}))
				all.Wait()
				time.Sleep(drift)
				equal(t, "held", heldOf(&m, "a", "b"), "")
			})
		})
	}
}

// decorated is a lock around another: its leases are of a type of their own.
type decorated struct{ strategy.Lock }

func (d decorated) Acquire(ctx context.Context) (strategy.Lease, error) {
	l, err := d.Lock.Acquire(ctx)
	return struct{ strategy.Lease }{l}, err
}

// makes are the makes of a lock that All is given.
var makes = map[string]func(strategy.Lock) strategy.Lock{
	"the engine's": func(l strategy.Lock) strategy.Lock { return l },
	"decorated":    func(l strategy.Lock) strategy.Lock { return decorated{l} },
	"All, decorated": func(l strategy.Lock) strategy.Lock {
		inner, _ := multilock.New(l)
		return decorated{inner}
	},
}

// Options.MaxHold, too, counts from when all are held, for each lock with its own. Nothing is kept for longer than
// that, also if nobody calls KeepAlive, and also of a lock that cannot end its renewal.
func allCountTheirOwnFromTheLast(t *testing.T) {
	for what, in := range makes {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m, other lockstest.Memory
				s := open(t, &m, strategy.Options{MaxHold: 30 * time.Second})
				b := open(t, &other, strategy.Options{MaxHold: 20 * time.Second, Key: func(name string) string { return "z:" + name }})
				rival := open(t, &other, strategy.Options{Key: func(name string) string { return "z:" + name }})
				holder, err := rival.NewLock("b").TryAcquire(bg)
				is(t, "the rival", err)
				is(t, "its KeepAlive", holder.KeepAlive(0))
				l, err := multilock.New(in(s.NewLock("a")), in(b.NewLock("b")))
				is(t, "All", err)
				w := await(bg, l)
				time.Sleep(40 * time.Second)
				release(t, holder)
				lease := w.got(t)
				start := time.Now()
				is(t, "KeepAlive", lease.KeepAlive(0))
				<-lease.Lost()
				if took := time.Since(start); took > 20*time.Second || took < 20*time.Second-2*drift {
					t.Errorf("lost after %v, want the lesser maximum hold of 20s", took)
				}
				if err := lease.Err(); !strings.Contains(err.Error(), "maximum hold") {
					t.Errorf("Err = %v, want the maximum hold", err)
				}
				time.Sleep(30*time.Second - time.Since(start) + ms)
				equal(t, "held after the greater", heldOf(&m, "a"), "")
				equal(t, "held elsewhere", holds(&other, "z:b"), "")
			})
		})
	}
}

// A renewal without an answer leaves time for another try, though the operation time-out
// does not.
func allTryAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{TTL: 3 * time.Second, OpTimeout: 2900 * ms})
		lease := takeAll(t, all(t, s, "a", "b"))
		is(t, "KeepAlive", lease.KeepAlive(0))
		var asked atomic.Int32
		m.Intercept(only(lockstest.OpExtend, func(ctx context.Context, r lockstest.Request, serve func() error) error {
			if asked.Add(1) > 2 {
				return serve()
			}
			return slow(4*time.Second, 0)(ctx, r, serve)
		}))
		time.Sleep(6 * time.Second)
		is(t, "Err", lease.Err())
		release(t, lease)
	})
}

// The events are those of each lock.
func allAreObserved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		s := open(t, &lockstest.Memory{}, strategy.Options{Observe: func(e strategy.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind != strategy.EventAttempt {
				seen = append(seen, e.Kind.String()+" "+e.Name)
			}
		}})
		lease := takeAll(t, all(t, s, "a", "b"))
		is(t, "Extend", lease.Extend(bg))
		release(t, lease)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(seen)
		equal(t, "events", strings.Join(seen, ", "), "acquired a, acquired b, asked a, asked b, released a, released b, renewed a, renewed b")
	})
}

// A release is answered by each: what one does not confirm is undone by its strategy.
func oneReleaseFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m, broken lockstest.Memory
		s := open(t, &m, strategy.Options{})
		b := open(t, &broken, strategy.Options{Key: func(name string) string { return "z:" + name }})
		l, err := multilock.New(s.NewLock("a"), b.NewLock("b"))
		is(t, "All", err)
		lease := takeAll(t, l)
		r := record(&broken)
		r.then(only(lockstest.OpRelease, lostRequest))
		err = lease.Release(bg)
		is(t, "Release", err, strategy.ErrUnknown)
		var failed *multilock.Error
		if !errors.As(err, &failed) || len(failed.Names) != 1 || failed.Names[0] != "b" {
			t.Errorf("Release = %v, want an multilock.Error with b", err)
		}
		equal(t, "held", heldOf(&m, "a"), "")
		r.then(nil)
		time.Sleep(op)
		equal(t, "held elsewhere", holds(&broken, "z:b"), "")
	})
}

// contention lets contenders take random ones of six names, in whatever order, by All, and
// holds every name to one holder at a time.
func contention(t *testing.T, seed uint64, contenders, rounds int, intercept lockstest.Fault, o strategy.Options) {
	t.Helper()
	names := []string{"a", "b", "c", "d", "e", "f"}
	var m lockstest.Memory
	m.Intercept(intercept)
	holders := make(map[string]strategy.Lease)
	var mu sync.Mutex
	enter := func(lease strategy.Lease, names []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, name := range names {
			if other := holders[name]; other != nil && other.Err() == nil && lease.Err() == nil {
				t.Errorf("%q is held twice: by %s and %s", name, other.Token(), lease.Token())
			}
			holders[name] = lease
		}
	}
	leave := func(lease strategy.Lease) {
		mu.Lock()
		defer mu.Unlock()
		for name, holder := range holders {
			if holder == lease {
				delete(holders, name)
			}
		}
	}
	var events ledger.Ledger
	o.Observe = events.Observe
	processes := make([]strategy.Strategy, 5)
	for i := range processes {
		processes[i] = open(t, &m, o)
	}
	var acquired, failed int
	ctx, cancel := context.WithTimeout(bg, time.Hour) // a deadlock would take as long
	defer cancel()
	var everybody sync.WaitGroup
	for i := range contenders {
		everybody.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for range rounds {
				picked := slices.Clone(names)
				random.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
				picked = picked[:1+random.IntN(4)]
				l := all(t, processes[i%len(processes)], picked...)
				lease, err := l.Acquire(ctx)
				mu.Lock()
				if err == nil {
					acquired++
				} else {
					failed++
				}
				mu.Unlock()
				if err != nil {
					if intercept == nil {
						t.Errorf("Acquire of %v = %v", picked, err)
					}
					continue
				}
				is(t, "KeepAlive", lease.KeepAlive(0))
				enter(lease, picked)
				time.Sleep(time.Duration(random.IntN(20)) * ms)
				leave(lease)
				if err := lease.Release(bg); err != nil && intercept == nil {
					t.Errorf("Release = %v", err)
				}
			}
		})
	}
	everybody.Wait()
	if acquired < contenders*rounds/2 {
		t.Errorf("acquired %d times of %d, failed %d times", acquired, contenders*rounds, failed)
	}
	for _, s := range processes {
		s.Close()
	}
	m.Intercept(nil)
	time.Sleep(o.TTL)
	equal(t, "held in the end", heldOf(&m, names...), "")
	equal(t, "held in the end, by the events", events.Held(), 0)
	equal(t, "asking in the end, by the events", events.Asking(), 0)
	is(t, "events", events.Err())
	for _, name := range names {
		if left, err := m.Leftovers(bg, strategy.DefaultKey(name)); err != nil || len(left) != 0 {
			t.Errorf("left of %q = %q, %v", name, left, err)
		}
	}
}

func TestManyTakeSomeOfSix(t *testing.T) {
	for _, o := range []strategy.Options{
		{TTL: ttl},
		{TTL: ttl, Wait: strategy.WaitNotification},
		{TTL: ttl, Wait: strategy.WaitPoll},
		{TTL: ttl, NoHandOver: true},
	} {
		t.Run(fmt.Sprintf("%v, hand-over %t", o.Wait, !o.NoHandOver), func(t *testing.T) {
			bubble(t, func(t *testing.T) { contention(t, 7, 50, 8, nil, o) })
		})
	}
}

func TestManyTakeSomeOfSixOnABadNetwork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		contention(t, 11, 50, 4, chaos(11), strategy.Options{TTL: time.Second, RetryOnError: true})
	})
}
