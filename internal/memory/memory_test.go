// What the suite does not ask of a lock on a Server: faults on request, late requests, broken watches, bulk renewal, what it
// refuses, what Advance does to holds and fences.
package memory

import (
	"context"
	"errors"
	"slices"
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

func TestInterceptorsMakeFaults(t *testing.T) {
	for name, fault := range map[string]struct {
		intercept Fault
		want      error
		holds     bool // the request took effect
	}{
		"the reply is lost": {
			func(_ context.Context, _ Request, serve func() error) error { serve(); return Unknown() }, strategy.ErrUnknown, true,
		},
		"the request is lost": {
			func(context.Context, Request, func() error) error { return Unknown() }, strategy.ErrUnknown, false,
		},
		"nobody is there": {
			func(context.Context, Request, func() error) error { return Unsent() }, strategy.ErrUnsent, false,
		},
		"the server says no": {
			func(context.Context, Request, func() error) error { return Refused("READONLY") }, strategy.ErrRefused, false,
		},
		"the reply is slow": {
			func(_ context.Context, _ Request, serve func() error) error {
				err := serve()
				time.Sleep(100 * time.Millisecond)
				return err
			}, nil, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m Server
				m.Intercept(fault.intercept)
				c := driver.Claim{Name: "n", Key: "k", Token: "t", Owner: "t", TTL: time.Second, Due: time.Now().Add(time.Second)}
				_, err := m.Acquire(t.Context(), c)
				var server *strategy.ServerError
				if !errors.Is(err, fault.want) || err != nil && !errors.As(err, &server) {
					t.Errorf("Acquire = %v, want %v, from a server", err, fault.want)
				}
				if left, _ := m.Leftovers(t.Context(), "k"); len(left) > 0 != fault.holds {
					t.Errorf("the server keeps %q, want it to hold: %v", left, fault.holds)
				}
			})
		})
	}
}

// A frozen server: the caller gives up when its time-out comes, and the request
// takes effect later. An undo that finds nothing must not be believed before that.
func TestLateRequestsAreUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Server
		thaw := make(chan struct{})
		m.Intercept(func(_ context.Context, r Request, serve func() error) error {
			if r.Op == OpAcquire {
				<-thaw
			}
			return serve()
		})
		s := opened(t, &m, strategy.Options{TTL: 10 * time.Second, OpTimeout: time.Second})
		began := time.Now()
		_, err := s.NewLock("n").TryAcquire(t.Context())
		if took := time.Since(began); !errors.Is(err, strategy.ErrUnknown) || took != time.Second {
			t.Errorf("TryAcquire = %v after %v, want ErrUnknown after the time-out of 1s", err, took)
		}
		time.Sleep(3100 * time.Millisecond) // between two tries of the undo, a quarter of the time-out apart
		undone := m.Requests(OpUndo)
		if undone < 2 {
			t.Errorf("%d undos in 3.1s, want the undo repeated while the acquire may arrive", undone)
		}
		close(thaw)
		synctest.Wait()
		if left, _ := m.Leftovers(t.Context(), strategy.DefaultKey("n")); len(left) == 0 {
			t.Errorf("the server keeps %q, want the late lock", left)
		}
		time.Sleep(time.Second)
		if left, _ := m.Leftovers(t.Context(), strategy.DefaultKey("n")); len(left) != 0 {
			t.Errorf("the server keeps %q, want nothing: the late lock is undone", left)
		}
	})
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

func TestBrokenWatchesSaySoOnce(t *testing.T) {
	var m Server
	var heard []driver.Notification
	c := driver.Claim{Name: "n", Key: "k", Token: "t", Owner: "t", TTL: time.Hour}
	stop, err := m.Watch(t.Context(), c, func(n driver.Notification) { heard = append(heard, n) })
	if err != nil {
		t.Fatal(err)
	}
	cycle := func() {
		t.Helper()
		if _, err := m.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	m.BreakWatches()
	m.BreakWatches()
	cycle()
	if want := []driver.Notification{{Holder: "t"}, {}}; !slices.Equal(heard, want) {
		t.Errorf("heard %v, want %v: a release, and the end", heard, want)
	}
	stop()
	if left, _ := m.Leftovers(t.Context(), "k"); len(left) != 0 {
		t.Errorf("the server keeps %q, want nothing", left)
	}
}

func TestABulkRenewalIsOneRequest(t *testing.T) {
	var m Server
	var cs []driver.Claim
	for _, key := range []string{"a", "b", "c"} {
		c := driver.Claim{Name: key, Key: key, Token: "t", Owner: "t", TTL: time.Hour}
		c.Grant.Start = time.Now()
		cs = append(cs, c)
		if key != "c" {
			m.Acquire(t.Context(), c)
		}
	}
	errs := make([]error, len(cs))
	m.ExtendAll(t.Context(), cs, func(i int, _ driver.Grant, err error) { errs[i] = err })
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], strategy.ErrLost) {
		t.Errorf("ExtendAll = %v, want two renewed and one lost", errs)
	}
	if n := m.Requests(OpExtendAll); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
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

// TestAdvance: the server's clock ends holds earlier, and later if it is set back. Later grants have their
// whole TTL.
func TestAdvance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Server
		s := opened(t, &m, strategy.Options{TTL: 10 * time.Second})
		left := func() time.Duration {
			info, err := s.Inspect(t.Context(), "lock")
			if err != nil {
				t.Fatal(err)
			}
			return info.TTL
		}
		for range 2 {
			lease, err := s.NewLock("lock").TryAcquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m.Advance(7 * time.Second)
			m.Advance(-time.Second)
			if got, want := left(), 4*time.Second; got != want {
				t.Errorf("the TTL is %v, want %v", got, want)
			}
			m.Advance(4 * time.Second)
			if got, want := left(), time.Millisecond; got != want {
				t.Errorf("the TTL is %v in its last millisecond, want %v", got, want)
			}
			m.Advance(time.Millisecond)
			if got := left(); got != 0 || lease.Err() != nil {
				t.Errorf("the TTL is %v, the holder has %v, want 0, nil: it does not know", got, lease.Err())
			}
		}
	})
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
