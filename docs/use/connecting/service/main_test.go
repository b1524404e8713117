package main

// Tests what the service answers and logs when the lock is free, held or lost, when the server is away, when
// the release is not confirmed, and when the client hangs up; that it becomes ready when Redis comes; and
// that it lets requests end when it stops. A server in memory plays the faults, in virtual time.

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(catcher{slog.DiscardHandler}))
	redistest.Main(m)
}

// A catcher writes each request's log lines to the builder in its context.
type catcher struct{ slog.Handler }

type lineKey struct{}

func (catcher) Enabled(context.Context, slog.Level) bool { return true }

func (catcher) Handle(ctx context.Context, r slog.Record) error {
	if lines, ok := ctx.Value(lineKey{}).(*strings.Builder); ok {
		return slog.NewTextHandler(lines, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains([]string{slog.TimeKey, slog.LevelKey, "error"}, a.Key) {
				return slog.Attr{}
			}
			return a
		}}).Handle(ctx, r)
	}
	return nil
}

// process returns the locks of one more process.
func process(t *testing.T, server *lockstest.Memory) strategy.Strategy {
	t.Helper()
	s, err := engine.New(server, strategy.Options{TTL: 10 * time.Second, OpTimeout: opTimeout, MaxHold: workTime + 10*time.Second})
	redistest.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// bubble runs a test where time is virtual, with a server.
func bubble(t *testing.T, test func(t *testing.T, server *lockstest.Memory)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, new(lockstest.Memory)) })
}

// hold has another process hold the lock of invoice 42.
func hold(t *testing.T, server *lockstest.Memory) strategy.Lease {
	t.Helper()
	lease, err := process(t, server).NewLock("invoice/42").TryAcquire(t.Context())
	redistest.Must(t, err)
	return lease
}

// request is a request for invoice 42, as the routes give it to the handler.
func request(ctx context.Context, lines *strings.Builder) *http.Request {
	r := httptest.NewRequestWithContext(context.WithValue(ctx, lineKey{}, lines), http.MethodPost, "/invoices/42/pay", nil)
	r.SetPathValue("id", "42")
	return r
}

// fails returns what happens to requests of one kind.
func fails(op lockstest.Op, with func() error) func(*lockstest.Memory) {
	return func(m *lockstest.Memory) {
		m.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
			if r.Op == op {
				return with()
			}
			return serve()
		})
	}
}

// unfenced is a lease of a lock that issues no fences.
type unfenced struct{ strategy.Lease }

func (unfenced) Fence() (uint64, bool) { return 0, false }

func works(context.Context, string, strategy.Lease) error { return nil }

func TestHandler(t *testing.T) {
	t.Parallel()
	lasts := func(ctx context.Context, _ string, _ strategy.Lease) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	outlasts := func(ctx context.Context, _ string, _ strategy.Lease) error {
		<-ctx.Done()
		return nil
	}
	for name, c := range map[string]struct {
		before func(m *lockstest.Memory)
		held   bool // by another process
		work   Work
		status int
		after  time.Duration // less than a second more is for requests
		log    string
	}{
		"free":                 {work: works, status: http.StatusOK},
		"held":                 {held: true, work: works, status: http.StatusConflict, after: waitTime, log: `began=false done=false outcome="held by another" status=409`},
		"away":                 {before: fails(lockstest.OpAcquire, lockstest.Unsent), work: works, status: http.StatusServiceUnavailable, log: `began=false done=false outcome="not sent" status=503`},
		"no answer":            {before: fails(lockstest.OpAcquire, lockstest.Unknown), work: works, status: http.StatusServiceUnavailable, log: `began=false done=false outcome="outcome unknown" status=503`},
		"no fence":             {work: func(ctx context.Context, id string, l strategy.Lease) error { return pay(ctx, id, unfenced{l}) }, status: http.StatusInternalServerError, log: `began=true done=false outcome=other status=500`},
		"work fails":           {work: func(context.Context, string, strategy.Lease) error { return errors.New("no") }, status: http.StatusInternalServerError, log: `began=true done=false outcome=other status=500`},
		"another lock is lost": {work: func(context.Context, string, strategy.Lease) error { return &strategy.LostError{Name: "stock"} }, status: http.StatusInternalServerError, log: `began=true done=false outcome=other status=500`},
		"another lock is held": {before: fails(lockstest.OpRelease, lockstest.Unsent), work: func(context.Context, string, strategy.Lease) error { return &strategy.HeldError{Name: "stock"} },
			status: http.StatusInternalServerError, log: `began=true done=false outcome="not sent" status=500`},
		"work takes too long": {work: lasts, status: http.StatusInternalServerError, after: workTime, log: `began=true done=false outcome=other status=500`},
		"lost":                {before: fails(lockstest.OpExtendAll, lockstest.Unsent), work: lasts, status: http.StatusInternalServerError, after: 9 * time.Second, log: `began=true done=false outcome="lock lost" status=500`},
		"lost, work done":     {before: fails(lockstest.OpExtendAll, lockstest.Unsent), work: outlasts, status: http.StatusInternalServerError, after: 9 * time.Second, log: `began=true done=true outcome="lock lost" status=500`},
		"release lost":        {before: fails(lockstest.OpRelease, lockstest.Unknown), work: works, status: http.StatusOK, log: `began=true done=true outcome="outcome unknown" status=200`},
		"release unsent":      {before: fails(lockstest.OpRelease, lockstest.Unsent), work: works, status: http.StatusOK, log: `began=true done=true outcome="not sent" status=200`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				if c.held {
					hold(t, server)
				}
				if c.before != nil {
					c.before(server)
				}
				var lines strings.Builder
				w, began := httptest.NewRecorder(), time.Now()
				handler(process(t, server), c.work)(w, request(t.Context(), &lines))
				if took := time.Since(began); w.Code != c.status || took < c.after || took > c.after+time.Second {
					t.Errorf("status %d after %v, want %d after %v", w.Code, took, c.status, c.after)
				}
				tryLater := c.status == http.StatusConflict || c.status == http.StatusServiceUnavailable
				if got := w.Header().Get("Retry-After"); (got == retryAfter) != tryLater {
					t.Errorf("Retry-After = %q with status %d", got, c.status)
				}
				want := ""
				if c.log != "" {
					want = "msg=invoice id=42 " + c.log + "\n"
				}
				if got := lines.String(); got != want {
					t.Errorf("the log has %q, want %q", got, want)
				}
			})
		})
	}
}

// TestHangUp: a client that hangs up ends the wait, and not the work.
func TestHangUp(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		rival := process(t, server).NewLock("invoice/42")
		held, err := rival.TryAcquire(t.Context())
		redistest.Must(t, err)
		locks := process(t, server)
		ask := func(after time.Duration, work Work) (took time.Duration, log string) {
			ctx, hangUp := context.WithCancel(t.Context())
			defer time.AfterFunc(after, hangUp).Stop()
			var lines strings.Builder
			start := time.Now()
			handler(locks, work)(httptest.NewRecorder(), request(ctx, &lines))
			return time.Since(start), lines.String()
		}
		if took, log := ask(time.Second, works); took != time.Second || !strings.Contains(log, "began=false") {
			t.Errorf("a client that hangs up after a second of waiting: %v, %q; want a second, and that no work began", took, log)
		}
		redistest.Must(t, held.Release(t.Context()))
		took, log := ask(time.Second, func(ctx context.Context, _ string, _ strategy.Lease) error {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			if _, err := rival.TryAcquire(t.Context()); !errors.Is(err, strategy.ErrHeld) {
				t.Errorf("TryAcquire of another process during the work = %v, want ErrHeld", err)
			}
			return ctx.Err()
		})
		if took != 20*time.Second || log != "" {
			t.Errorf("a client that hangs up after a second of work: %v, %q; want all 20 s of work, and no complaint", took, log)
		}
		if _, err := rival.TryAcquire(t.Context()); err != nil {
			t.Errorf("TryAcquire of another process after the work = %v, want the lock", err)
		}
	})
}

// TestRequestTime: no request takes longer than the time that stop leaves it. Redis does not answer any
// more while a request waits, or while the lease is renewed and the work ends.
func TestRequestTime(t *testing.T) {
	t.Parallel()
	t.Run("wait", func(t *testing.T) {
		bubble(t, func(t *testing.T, server *lockstest.Memory) {
			t.Cleanup(func() { time.Sleep(time.Hour) }) // until all requests have ended
			hold(t, server)
			time.AfterFunc(waitTime/2, func() { mute(server, "") })
			start := time.Now()
			handler(process(t, server), works)(httptest.NewRecorder(), request(t.Context(), new(strings.Builder)))
			if took := time.Since(start); took < waitTime || took > waitTime+opTimeout {
				t.Errorf("the wait took %v, want %v to %v", took, waitTime, waitTime+opTimeout)
			}
		})
	})
	t.Run("work", func(t *testing.T) {
		bubble(t, func(t *testing.T, server *lockstest.Memory) {
			t.Cleanup(func() { time.Sleep(time.Hour) }) // until all requests have ended
			held := hold(t, server)
			time.AfterFunc(waitTime-100*time.Millisecond, func() {
				redistest.Must(t, held.Release(t.Context()))
			})
			var ended time.Time
			renewed := make(chan struct{})
			w, start := httptest.NewRecorder(), time.Now()
			handler(process(t, server), func(context.Context, string, strategy.Lease) error {
				time.Sleep(workTime - 6*time.Second)
				mute(server, lockstest.OpExtendAll, func() { close(renewed) })
				<-renewed // the renewal has begun, and gets no answer
				ended = time.Now()
				return nil
			})(w, request(t.Context(), new(strings.Builder)))
			if took := time.Since(ended); took <= opTimeout || took > 2*opTimeout {
				t.Errorf("the release took %v, want more than %v, and %v at most", took, opTimeout, 2*opTimeout)
			}
			if took := time.Since(start); w.Code != http.StatusOK || took > requestTime {
				t.Errorf("status %d after %v, want 200 within %v", w.Code, took, requestTime)
			}
		})
	})
}

// mute has the server answer nothing from now on. begun is called at the first request of that kind.
func mute(m *lockstest.Memory, op lockstest.Op, begun ...func()) {
	var once atomic.Bool
	m.Intercept(func(_ context.Context, r lockstest.Request, _ func() error) error {
		if r.Op == op && len(begun) > 0 && !once.Swap(true) {
			begun[0]()
		}
		time.Sleep(time.Minute)
		return lockstest.Unknown()
	})
}

// TestChecked: a service that starts before Redis is not ready, asks again after growing pauses, and is
// ready when Redis has come.
func TestChecked(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		fails(lockstest.OpCheck, lockstest.Unsent)(server)
		time.AfterFunc(time.Minute, func() { server.Intercept(nil) })
		start := time.Now()
		if err := checked(t.Context(), process(t, server)); err != nil {
			t.Errorf("checked() = %v, want nil", err)
		}
		if took := time.Since(start); took < time.Minute || took > time.Minute+10*time.Second {
			t.Errorf("it noticed after %v, want a minute, and 10 s at most", took)
		}
		if n := server.Requests(lockstest.OpCheck); n < 5 || n > 20 {
			t.Errorf("%d checks in a minute, want few", n)
		}

		fails(lockstest.OpCheck, lockstest.Unsent)(server)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := checked(ctx, process(t, server)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("checked() of a service that stops = %v, want why", err)
		}
	})
}

// TestServe: the service becomes ready, and answers by its routes. When it stops, a request that runs
// finishes its work and releases its lock before the locks close; the client closes last.
func TestServe(t *testing.T) {
	t.Parallel()
	var server lockstest.Memory
	locks, rival := process(t, &server), process(t, &server)
	listener, err := net.Listen("tcp", "localhost:0")
	redistest.Must(t, err)
	at := "http://" + listener.Addr().String()
	ask := func(method, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, at+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		io.Copy(io.Discard, reply.Body)
		reply.Body.Close()
		return reply.StatusCode
	}
	began, finish := make(chan string, 1), make(chan struct{})
	last := closerFunc(func() error {
		if _, err := locks.NewLock("any").TryAcquire(t.Context()); !errors.Is(err, strategy.ErrClosed) {
			t.Errorf("TryAcquire when the client is closed = %v, want ErrClosed", err)
		}
		return nil
	})
	ctx, sigterm := context.WithCancel(t.Context())
	defer sigterm()
	served, status := make(chan error, 1), make(chan int, 1)
	go func() {
		served <- serve(ctx, listener, locks, last, func(_ context.Context, id string, _ strategy.Lease) error {
			began <- id
			<-finish
			return nil
		})
	}()
	verdict.Eventually(t, "the service is ready", func() bool { return ask(http.MethodGet, "/readyz") == http.StatusOK })
	if got := ask(http.MethodGet, "/livez"); got != http.StatusOK {
		t.Errorf("/livez: status %d, want 200", got)
	}
	if got := ask(http.MethodPost, "/invoices/pay"); got != http.StatusNotFound {
		t.Errorf("an invoice without a number: status %d, want 404", got)
	}
	go func() { status <- ask(http.MethodPost, "/invoices/42/pay") }()
	if id := <-began; id != "42" {
		t.Errorf("the work is for invoice %q, want 42", id)
	}
	sigterm()
	verdict.Eventually(t, "no new requests", func() bool {
		c, err := net.Dial("tcp", listener.Addr().String())
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(finish)
	if got := <-status; got != http.StatusOK {
		t.Errorf("the request that ran: status %d, want 200", got)
	}
	if err := <-served; err != nil {
		t.Errorf("serve() = %v, want nil", err)
	}
	if _, err := rival.NewLock("invoice/42").TryAcquire(t.Context()); err != nil {
		t.Errorf("TryAcquire of another process = %v, want the lock, which the service has left free", err)
	}
}

// TestStopsInOrder: a service that ends at SIGTERM has not failed because no server has confirmed a release: the lock
// ends with its TTL.
func TestStopsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		locks := process(t, server)
		lease, err := locks.NewLock("invoice/42").TryAcquire(t.Context())
		redistest.Must(t, err)
		server.Intercept(func(context.Context, lockstest.Request, func() error) error { return lockstest.Unknown() })
		if err := lease.Release(t.Context()); !errors.Is(err, strategy.ErrUnknown) {
			t.Fatalf("Release = %v, want ErrUnknown", err)
		}
		if err := stop(&http.Server{}, locks, closerFunc(func() error { return nil })); err != nil {
			t.Errorf("stop() = %v, want nil", err)
		}
	})
}

// TestPort: a service without its port ends, and closes its locks and its client.
func TestPort(t *testing.T) {
	t.Parallel()
	var server lockstest.Memory
	listener, err := net.Listen("tcp", "localhost:0")
	redistest.Must(t, err)
	listener.Close()
	closed := false
	err = serve(t.Context(), listener, process(t, &server), closerFunc(func() error { closed = true; return nil }), works)
	if !errors.Is(err, net.ErrClosed) || !closed {
		t.Errorf("serve() = %v, client closed: %t; want ErrClosed, true", err, closed)
	}
}

// TestOpen: with the variables of the environment the service reaches a real Redis.
func TestOpen(t *testing.T) {
	server := redistest.Shared(t)
	at, err := url.Parse(server.URL())
	redistest.Must(t, err)
	password, _ := at.User.Password()
	t.Setenv("REDIS_ADDR", server.Addr())
	t.Setenv("REDIS_USER", at.User.Username())
	t.Setenv("REDIS_PASSWORD", password)
	locks, client, err := open()
	redistest.Must(t, err)
	defer client.Close()
	defer locks.Close()
	redistest.Must(t, checked(t.Context(), locks))
	w := httptest.NewRecorder()
	handler(locks, pay)(w, request(t.Context(), new(strings.Builder)))
	if w.Code != http.StatusOK {
		t.Errorf("status %d, want 200", w.Code)
	}
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }
