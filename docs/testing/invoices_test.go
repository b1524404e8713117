// How to test code that holds locks: on a server in memory, in a bubble where time is virtual, and
// with fakes of Lock and Lease. docs/testing.md quotes these tests.
package invoices

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// process returns a strategy on a server in memory. Each is as independent as a process of its own.
func process(t *testing.T, server *conformance.Memory) strategy.Strategy {
	t.Helper()
	locks, err := engine.New(server, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks
}

func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server conformance.Memory
		rival, err := process(t, &server).NewLock("invoice/42").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer rival.Release(t.Context())

		begin := time.Now()
		err = (&Service{Locks: process(t, &server)}).Pay(t.Context(), "42")
		if took := time.Since(begin); err != ErrBusy || took != 2*time.Second {
			t.Errorf("Pay = %v after %v, want ErrBusy after 2s", err, took)
		}
	})
}

func TestDeadRival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server conformance.Memory
		if _, err := process(t, &server).NewLock("invoice/42").TryAcquire(t.Context()); err != nil {
			t.Fatal(err) // the rival neither renews nor releases
		}
		time.Sleep(9 * time.Second) // of its TTL of 10 s
		paid := 0
		service := Service{process(t, &server), func(context.Context, string, uint64) error { paid++; return nil }}
		if err := service.Pay(t.Context(), "42"); err != nil || paid != 1 {
			t.Errorf("Pay = %v, paid %d times, want once", err, paid)
		}
	})
}

func TestLostLockStopsTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server conformance.Memory
		service := Service{process(t, &server), func(ctx context.Context, _ string, _ uint64) error {
			if err := server.Evict(ctx, strategy.DefaultKey("invoice/42")); err != nil {
				t.Error(err)
			}
			<-ctx.Done() // the next renewal finds that the lock is gone
			return context.Cause(ctx)
		}}
		if err := service.Pay(t.Context(), "42"); !errors.Is(err, strategy.ErrLost) {
			t.Errorf("Pay = %v, want ErrLost", err)
		}
	})
}

func TestLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server conformance.Memory
		service := Service{Locks: process(t, &server)}
		server.Intercept(func(_ context.Context, r conformance.Request, serve func() error) error {
			err := serve()
			if r.Op == conformance.OpAcquire {
				return conformance.Unknown() // the server has granted it, and nobody hears of it
			}
			return err
		})
		if err := service.Pay(t.Context(), "42"); !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Pay = %v, want ErrUnknown", err)
		}
		server.Intercept(nil)
		time.Sleep(time.Second) // the engine undoes the grant in the background
		if _, err := process(t, &server).NewLock("invoice/42").TryAcquire(t.Context()); err != nil {
			t.Errorf("the lock is not free: %v", err)
		}
	})
}

// fakeLocks gives one lock for each name. A test says what each call returns.
type fakeLocks struct {
	strategy.Lock // nil: a call that the test does not expect panics
	lease         strategy.Lease
	err           error
}

func (f fakeLocks) NewLock(string) strategy.Lock                    { return f }
func (f fakeLocks) Acquire(context.Context) (strategy.Lease, error) { return f.lease, f.err }

func TestRedisIsDown(t *testing.T) {
	service := Service{Locks: fakeLocks{err: strategy.ErrUnsent}}
	if err := service.Pay(t.Context(), "42"); !errors.Is(err, strategy.ErrUnsent) {
		t.Errorf("Pay = %v, want ErrUnsent", err)
	}
}

// fakeLease is a lease with a fence of the test's choice.
type fakeLease struct {
	strategy.Lease // nil, as above
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
