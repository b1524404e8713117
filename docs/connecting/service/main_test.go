package connecting

// Tests what Handler answers when the lock is free, held or lost, when the server is away, and when the
// release is not confirmed; and that Stop lets requests end. A server in memory plays the faults, in
// virtual time.

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	works := func(context.Context, string, uint64) error { return nil }
	lasts := func(ctx context.Context, _ string, _ uint64) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	outlasts := func(ctx context.Context, _ string, _ uint64) error {
		<-ctx.Done()
		return nil
	}
	// fails returns what happens to requests of one kind.
	fails := func(op conformance.Op, with func() error) func(*conformance.Memory) {
		return func(m *conformance.Memory) {
			m.Intercept(func(_ context.Context, r conformance.Request, serve func() error) error {
				if r.Op == op {
					return with()
				}
				return serve()
			})
		}
	}
	for name, c := range map[string]struct {
		before func(m *conformance.Memory)
		held   bool // by another process
		work   func(ctx context.Context, id string, fence uint64) error
		status int
		after  time.Duration // less than a second more is for requests
	}{
		"free":                {work: works, status: http.StatusOK},
		"held":                {held: true, work: works, status: http.StatusConflict, after: 2 * time.Second},
		"away":                {before: fails(conformance.OpAcquire, conformance.Unsent), work: works, status: http.StatusServiceUnavailable},
		"no answer":           {before: fails(conformance.OpAcquire, conformance.Unknown), work: works, status: http.StatusServiceUnavailable},
		"work fails":          {work: func(context.Context, string, uint64) error { return errors.New("no") }, status: http.StatusInternalServerError},
		"work takes too long": {work: lasts, status: http.StatusInternalServerError, after: 30 * time.Second},
		"lost":                {before: fails(conformance.OpExtendAll, conformance.Unsent), work: lasts, status: http.StatusInternalServerError, after: 9 * time.Second},
		"lost, work done":     {before: fails(conformance.OpExtendAll, conformance.Unsent), work: outlasts, status: http.StatusInternalServerError, after: 9 * time.Second},
		"release lost":        {before: fails(conformance.OpRelease, conformance.Unknown), work: works, status: http.StatusOK},
		"release unsent":      {before: fails(conformance.OpRelease, conformance.Unsent), work: works, status: http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var server conformance.Memory
				open := func() strategy.Strategy {
					s, err := engine.New(&server, strategy.Options{TTL: 10 * time.Second, MaxHold: 40 * time.Second})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { s.Close() })
					return s
				}
				if c.held {
					if _, err := open().NewLock("invoice/42").TryAcquire(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if c.before != nil {
					c.before(&server)
				}
				r, w := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/invoices/42/pay", nil), httptest.NewRecorder()
				r.SetPathValue("id", "42")
				began := time.Now()
				Handler(open(), c.work)(w, r)
				if took := time.Since(began); w.Code != c.status || took < c.after || took > c.after+time.Second {
					t.Errorf("status %d after %v, want %d after %v", w.Code, took, c.status, c.after)
				}
			})
		})
	}
}

// TestStop: a request that runs finishes its work and releases its lock before Stop closes the locks,
// and Stop closes the client last.
func TestStop(t *testing.T) {
	t.Parallel()
	var server conformance.Memory
	open := func() strategy.Strategy {
		s, err := engine.New(&server, strategy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	locks, rival := open(), open()
	defer rival.Close()
	began, finish := make(chan struct{}), make(chan struct{})
	web := httptest.NewServer(Handler(locks, func(context.Context, string, uint64) error {
		close(began)
		<-finish
		return nil
	}))
	defer web.Close()
	status := make(chan int, 1)
	go func() {
		r, err := http.Post(web.URL, "", nil)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		r.Body.Close()
		status <- r.StatusCode
	}()
	<-began
	web.Config.RegisterOnShutdown(func() { close(finish) }) // the work ends after Stop has begun

	last := closerFunc(func() error {
		if _, err := locks.NewLock("any").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrClosed) {
			t.Errorf("TryAcquire when the client is closed = %v, want ErrClosed", err)
		}
		return nil
	})
	if err := Stop(web.Config, locks, last); err != nil {
		t.Errorf("Stop() = %v, want nil", err)
	}
	if got := <-status; got != http.StatusOK {
		t.Errorf("the request that ran: status %d, want 200", got)
	}
	if _, err := rival.NewLock("invoice/").TryAcquire(t.Context()); err != nil {
		t.Errorf("TryAcquire of another process = %v, want the lock, which Stop has left free", err)
	}
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }
