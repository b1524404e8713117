// Memory's own behaviour, which the trials do not ask of a lock: faults on request, late requests,
// broken watches, bulk renewal.
package conformance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

func opened(t *testing.T, m *Memory, o strategy.Options) strategy.Strategy {
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
		intercept Interceptor
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
				var m Memory
				m.Intercept(fault.intercept)
				c := driver.Claim{Name: "n", Key: "k", Token: "t", Owner: "t", TTL: time.Second, Due: time.Now().Add(time.Second)}
				_, err := m.Acquire(t.Context(), c)
				var server *strategy.ServerError
				if !matches(err, fault.want) || err != nil && !errors.As(err, &server) {
					t.Errorf("Acquire = %v, want %v, from a server", err, fault.want)
				}
				if left, _ := m.Leftovers(t.Context(), "k"); len(left) > 0 != fault.holds {
					t.Errorf("the server keeps %q, want it to hold: %v", left, fault.holds)
				}
			})
		})
	}
}

// A frozen server: the caller is let go when its time-out comes, and the request
// takes effect later. An undo that finds nothing must not be believed before that.
func TestLateRequestsAreUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Memory
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
		undone := m.Requests(OpRelease)
		if undone < 2 {
			t.Errorf("%d releases in 3.1s, want the undo repeated while the acquire may arrive", undone)
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
		var m Memory
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
	var m Memory
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
		if err := m.Release(t.Context(), c); err != nil {
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
	var m Memory
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
