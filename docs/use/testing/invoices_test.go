// How to test code that holds locks: with lockstest, mostly in a bubble where time is virtual, and
// with a fake of Lease. docs/use/testing.md quotes these tests.
package invoices

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		locks.Hold("invoice/42") // another process has the lock
		begin := time.Now()
		service := Service{Locks: locks}
		err := service.Pay(t.Context(), "42")
		if d := time.Since(begin); err != ErrBusy || d != 2*time.Second {
			t.Errorf("Pay = %v after %v, want ErrBusy after 2s", err, d)
		}
	})
}

func TestDeadRival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		rival := locks.Process(strategy.Options{TTL: 10 * time.Second})
		if _, err := rival.NewLock("invoice/42").TryAcquire(t.Context()); err != nil {
			t.Fatal(err) // the rival neither renews nor releases
		}
		time.Sleep(9 * time.Second) // of its TTL of 10 s
		paid := 0
		service := Service{locks, func(context.Context, string, uint64) error { paid++; return nil }}
		if err := service.Pay(t.Context(), "42"); err != nil || paid != 1 {
			t.Errorf("Pay = %v, paid %d times, want once", err, paid)
		}
	})
}

func TestLostLockStopsTheWork(t *testing.T) {
	locks := lockstest.New(t)
	s := Service{locks, func(ctx context.Context, _ string, _ uint64) error {
		locks.Lose("invoice/42")
		return context.Cause(ctx) // nil: the work goes on without the lock
	}}
	err := s.Pay(t.Context(), "42")
	if !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Pay = %v, want ErrLost", err)
	}
}

func TestPausedHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		var fences []uint64 // in the order in which the bank gets them
		next := Service{locks.Process(strategy.Options{}), func(_ context.Context, _ string, fence uint64) error {
			fences = append(fences, fence)
			return nil
		}}
		paused := Service{locks, func(ctx context.Context, id string, fence uint64) error {
			locks.Advance(time.Minute) // past its TTL
			if err := next.Pay(ctx, id); err != nil {
				t.Error(err)
			}
			fences = append(fences, fence)
			return nil
		}}
		if err := paused.Pay(t.Context(), "42"); !errors.Is(err, strategy.ErrLost) {
			t.Errorf("Pay = %v, want ErrLost", err)
		}
		if len(fences) != 2 || fences[1] >= fences[0] {
			t.Errorf("the bank gets the fences %d, want two, and that it can refuse the late one", fences)
		}
	})
}

func TestRedisIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		locks.Fail(lockstest.Unreachable)
		if err := (&Service{Locks: locks}).Pay(t.Context(), "42"); !errors.Is(err, strategy.ErrUnsent) {
			t.Errorf("Pay = %v, want ErrUnsent", err)
		}
	})
}

func TestLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		locks.FailNext(lockstest.LostReply) // granted, and nobody hears of it
		service := Service{Locks: locks}
		err := service.Pay(t.Context(), "42")
		if !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Pay = %v, want ErrUnknown", err)
		}
	})
}

func TestNoPermitIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := lockstest.New(t)
		service := Service{Locks: locks.Semaphore(2, strategy.Options{})}
		others := locks.Semaphore(2, strategy.Options{}).NewMultiPermitLock("invoice/42", 2) // both permits
		err := strategy.Do(t.Context(), others, func(ctx context.Context, _ strategy.Lease) error {
			return service.Pay(ctx, "42")
		})
		if err != ErrBusy {
			t.Errorf("Pay = %v, want ErrBusy", err)
		}
	})
}

// fakeLease is a lease with a fence of the test's choice.
type fakeLease struct {
	strategy.Lease // nil: a call that the test does not expect panics
	fence          uint64
}

func (f fakeLease) Fence() (uint64, bool) { return f.fence, f.fence > 0 }

func TestSend(t *testing.T) {
	var sent uint64
	service := Service{Send: func(_ context.Context, _ string, fence uint64) error { sent = fence; return nil }}
	if err := service.send(t.Context(), "42", fakeLease{fence: 7}); err != nil || sent != 7 {
		t.Errorf("send = %v, with fence %d, want 7", err, sent)
	}
	if err := service.send(t.Context(), "42", fakeLease{}); err == nil {
		t.Error("send = nil without a fence")
	}
}
