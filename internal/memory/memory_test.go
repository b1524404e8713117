// What neither the suite nor package lockstest asks of a lock on a Server: that nothing is sent too late, what it refuses, when
// fences expire, and that kinds of locks do not mix.
package memory

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

func opened(t *testing.T, m *Server, o strategy.Options) strategy.Strategy {
	t.Helper()
	s, err := engine.New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestNothingIsSentTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Server
		done, cancel := context.WithCancel(t.Context())
		cancel()
		c := driver.Claim{Name: "n", Key: "k", Token: "t", Owner: "t", TTL: time.Second, Due: time.Now().Add(time.Second)}
		if _, err := m.Acquire(done, c); !errors.Is(err, strategy.ErrUnsent) || !errors.Is(err, context.Canceled) {
			t.Errorf("Acquire with a cancelled context = %v, want ErrUnsent and context.Canceled", err)
		}
		c.Due = time.Now()
		if _, err := m.Acquire(t.Context(), c); !errors.Is(err, strategy.ErrUnsent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire after its time-out = %v, want ErrUnsent and context.DeadlineExceeded", err)
		}
		if n := m.Requests(); n != 0 {
			t.Errorf("%d requests left, want 0", n)
		}
	})
}

// TestRefuses: what makes no sense is refused with what is allowed, or with what the options lack.
func TestRefuses(t *testing.T) {
	var m Server
	bad := strategy.Options{TTL: -time.Second}
	_, noPermits := m.Semaphore(0, strategy.Options{})
	_, badSemaphore := m.Semaphore(1, bad)
	_, badReadWriter := m.ReadWriter(bad)
	s, err := m.Semaphore(1, strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rw, err := m.ReadWriter(strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rw.Close()
	_, badWith := s.With(func(to *strategy.Options) { *to = bad })
	_, badWithRW := rw.With(func(to *strategy.Options) { *to = bad })
	_, tooMany := s.NewMultiPermitLock("lock", 1001).TryAcquire(t.Context())
	for what, err := range map[string]error{
		"a semaphore of no permits": noPermits, "a semaphore with a bad TTL": badSemaphore, "a read-write lock with a bad TTL": badReadWriter,
		"With of a semaphore": badWith, "With of a read-write lock": badWithRW,
		"SetPermits to less than none": s.SetPermits(t.Context(), "lock", -1), "more permits than a claim may have": tooMany,
	} {
		if err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s = %v, want an error that says what is allowed", what, err)
		}
	}
}

// TestFencesExpire: a fence is forgotten FenceTTL after the time that its number says. The next is greater all the same.
func TestFencesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Server
		s := opened(t, &m, strategy.Options{TTL: 10 * time.Second, FenceTTL: time.Minute})
		stored := func() uint64 {
			info, err := s.Inspect(t.Context(), "lock")
			if err != nil {
				t.Fatal(err)
			}
			return info.Fence
		}
		last := uint64(0)
		for range 2 {
			lease, err := s.NewLock("lock").TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			fence, ok := lease.Fence()
			if !ok || fence <= last || stored() != fence {
				t.Errorf("Fence = %d, %v, and %d is stored, want the same, greater than %d", fence, ok, stored(), last)
			}
			last = fence
			if err := lease.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := stored(); got != last {
				t.Errorf("the fence after a minute is %d, want %d", got, last)
			}
			time.Sleep(time.Millisecond)
			if got := stored(); got != 0 {
				t.Errorf("the fence after more than a minute is %d, want none", got)
			}
		}
	})
}

// TestKinds: on one name a lock of each kind refuses the others.
func TestKinds(t *testing.T) {
	var m Server
	one := opened(t, &m, strategy.Options{})
	permits, err := m.Semaphore(2, strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer permits.Close()
	rw, err := m.ReadWriter(strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer rw.Close()
	kinds := []strategy.Strategy{one, permits, rw}
	for i, s := range kinds {
		lease, err := s.NewLock("lock").TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for j, other := range kinds {
			_, acquired := other.NewLock("lock").TryAcquire(t.Context())
			_, inspected := other.Inspect(t.Context(), "lock")
			if refused := errors.Is(acquired, strategy.ErrRefused) && errors.Is(inspected, strategy.ErrRefused); refused != (i != j) {
				t.Errorf("kind %d on a lock of kind %d: TryAcquire = %v, Inspect = %v, want ErrRefused: %v", j, i, acquired, inspected, i != j)
			}
		}
		if err := m.Evict(t.Context(), strategy.DefaultKey("lock")); err != nil {
			t.Fatal(err)
		}
		lease.Release(t.Context())
	}
}
