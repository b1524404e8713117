// Tests what a client gets that sends a request with a key once, twice, twice at the same time, or while locks, the
// store or the handler fail; and how often the handler then runs. Time is virtual.
package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/docs/use/idempotency"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A till is a service whose handler counts its runs, in two processes.
type till struct {
	locks   *lockstest.Locks
	store   *flaky
	runs    int
	during  func(w http.ResponseWriter, r *http.Request) // run n, if it does anything special
	a, b    http.Handler
	options strategy.Options
}

func open(t *testing.T) *till {
	s := &till{locks: lockstest.New(t), store: &flaky{Store: inMemory()}}
	s.a = s.process(s.locks)
	s.b = s.process(s.locks.Process(s.options))
	return s
}

func (s *till) process(locks strategy.Strategy) http.Handler {
	caller := func(r *http.Request) string { return r.Header.Get("Caller") }
	return once(locks, s.store).Handler(caller, http.HandlerFunc(s.serve))
}

func (s *till) serve(w http.ResponseWriter, r *http.Request) {
	s.runs++
	run := s.runs
	if s.during != nil {
		s.during(w, r)
	}
	w.Header().Set("Location", fmt.Sprint("/payments/", run))
	w.WriteHeader(http.StatusCreated)
	w.Header().Set("Late", "has no effect")
	io.WriteString(w, "payment ")
	fmt.Fprint(w, run)
}

const lock = "idempotency/ann/k1" // of the key that post uses

func post(h http.Handler, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments?currency=eur", strings.NewReader("10"))
	r.Header.Set("Caller", "ann")
	r.Header.Set("Idempotency-Key", "k1")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// paid checks that the answer is that of run n.
func paid(t *testing.T, w *httptest.ResponseRecorder, n int) {
	t.Helper()
	header := http.Header{"Location": {fmt.Sprint("/payments/", n)}}
	if w.Code != http.StatusCreated || w.Body.String() != fmt.Sprint("payment ", n) || !maps.EqualFunc(w.Result().Header, header, slices.Equal) {
		t.Errorf("the answer is %d %v %q, want that of run %d", w.Code, w.Result().Header, w.Body, n)
	}
}

// refused checks a refusal, and whether it says when to come again.
func refused(t *testing.T, w *httptest.ResponseRecorder, status int, words string) {
	t.Helper()
	again := w.Header().Get("Retry-After")
	if w.Code != status || !strings.Contains(w.Body.String(), words) || (again == "1") != (status == 409 || status == 503) {
		t.Errorf("the answer is %d %q, Retry-After %q, want %d %q", w.Code, w.Body, again, status, words)
	}
}

func (s *till) ran(t *testing.T, want int) {
	t.Helper()
	if s.runs != want {
		t.Errorf("the handler ran %d times, want %d", s.runs, want)
	}
}

func TestTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		paid(t, post(s.a), 1)
		paid(t, post(s.a), 1)
		paid(t, post(s.b), 1)
		quoted := func(r *http.Request) { r.Header.Set("Idempotency-Key", `"k1"`) }
		paid(t, post(s.b, quoted), 1)
		s.ran(t, 1)
	})
}

// TestOthers: another key, and the key of another caller, are other requests.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		paid(t, post(s.a), 1)
		paid(t, post(s.a, func(r *http.Request) { r.Header.Set("Idempotency-Key", "k2") }), 2)
		paid(t, post(s.a, func(r *http.Request) { r.Header.Set("Caller", "bob") }), 3)
		// Without escapes these two were the same.
		paid(t, post(s.a, func(r *http.Request) { r.Header.Set("Caller", "a/b"); r.Header.Set("Idempotency-Key", "c") }), 4)
		paid(t, post(s.a, func(r *http.Request) { r.Header.Set("Caller", "a"); r.Header.Set("Idempotency-Key", "b/c") }), 5)
	})
}

// TestReused: a key that comes with another request is refused, and the kept answer stays.
func TestReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		paid(t, post(s.a), 1)
		for what, change := range map[string]func(*http.Request){
			"method": func(r *http.Request) { r.Method = http.MethodPatch },
			"path":   func(r *http.Request) { r.URL.Path = "/refunds" },
			"query":  func(r *http.Request) { r.URL.RawQuery = "currency=usd" },
			"body":   func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("11")) },
			"where the body begins": func(r *http.Request) {
				r.URL.RawQuery, r.Body = "currency=eur1", io.NopCloser(strings.NewReader("0"))
			},
		} {
			t.Log(what)
			refused(t, post(s.a, change), 422, "new key")
		}
		paid(t, post(s.a), 1)
		s.ran(t, 1)
	})
}

func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		keys := func(all ...string) func(*http.Request) {
			return func(r *http.Request) { r.Header["Idempotency-Key"] = all }
		}
		for what, change := range map[string]func(*http.Request){
			"none": keys(), "two": keys("a", "b"), "empty": keys(""), "quotes alone": keys(`""`), "half a quote": keys(`"`), "a quote inside": keys(`"a"b"`),
			"a backslash": keys(`a\b`), "a space": keys("a b"), "a letter that is not ASCII": keys("é"), "a control character": keys("a\x7f"),
			"too long": keys(strings.Repeat("k", 256)),
		} {
			t.Log(what)
			refused(t, post(s.a, change), 400, "allowed is one key of 1 to 255")
		}
		refused(t, post(s.a, func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(errStore)) }), 400, "away")
		large := func(n int) func(*http.Request) {
			return func(r *http.Request) {
				r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", n)))
			}
		}
		refused(t, post(s.a, large(idempotency.MaxBody+1)), 413, "too large")
		s.ran(t, 0)
		paid(t, post(s.a, large(idempotency.MaxBody), keys(strings.Repeat("k", 255))), 1)
	})
}

// TestOtherMethods: they are idempotent of themselves.
func TestOtherMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		for n, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			w := post(s.a, func(r *http.Request) { r.Method = method; r.Header.Del("Idempotency-Key") })
			if s.ran(t, n+1); w.Code != http.StatusCreated {
				t.Errorf("the answer to %s is %d", method, w.Code)
			}
		}
	})
}

// TestTheHandlerReads: it gets the request whole, and the lease.
func TestTheHandlerReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.during = func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if string(body) != "10" || err != nil || r.Header.Get("Caller") != "ann" {
				t.Errorf("the handler reads %q, %v, of %q", body, err, r.Header.Get("Caller"))
			}
			lease := idempotency.LeaseFrom(r.Context())
			if fence, ok := lease.Fence(); lease.Name() != lock || !ok || fence == 0 {
				t.Errorf("the lease is of %q, fence %d", lease.Name(), fence)
			}
		}
		paid(t, post(s.a), 1)
		if lease := idempotency.LeaseFrom(t.Context()); lease != nil {
			t.Errorf("outside a handler the lease is %v", lease)
		}
	})
}

// TestAtTheSameTime: a duplicate waits for the answer, for 2 s at most.
func TestAtTheSameTime(t *testing.T) {
	for takes, want := range map[time.Duration]func(*testing.T, *httptest.ResponseRecorder){
		time.Second: func(t *testing.T, w *httptest.ResponseRecorder) { paid(t, w, 1) },
		time.Minute: func(t *testing.T, w *httptest.ResponseRecorder) { refused(t, w, 409, "under way") },
	} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				s.during = func(http.ResponseWriter, *http.Request) { time.Sleep(takes) }
				first := make(chan *httptest.ResponseRecorder)
				go func() { first <- post(s.a) }()
				synctest.Wait() // it works
				begin := time.Now()
				want(t, post(s.b))
				if took := time.Since(begin); took != min(takes, 2*time.Second) {
					t.Errorf("the duplicate waits for %v, want %v", took, min(takes, 2*time.Second))
				}
				paid(t, <-first, 1)
				s.ran(t, 1)
			})
		})
	}
}

func TestLostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.during = func(_ http.ResponseWriter, r *http.Request) {
			s.locks.Lose(lock)
			if cause := context.Cause(r.Context()); !errors.Is(cause, strategy.ErrLost) {
				t.Errorf("the handler's context has ended with %v, want ErrLost", cause)
			}
		}
		refused(t, post(s.a), 503, "nobody knows")
		s.during = nil
		paid(t, post(s.b), 2)
		paid(t, post(s.a), 2)
	})
}

// TestTooLong: a handler that works for longer than Options.MaxHold is stopped.
func TestTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		locks, err := s.locks.With(func(o *strategy.Options) { o.MaxHold = time.Minute })
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		s.during = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
		refused(t, post(s.process(locks)), 503, "nobody knows")
		if took := time.Since(begin); took > time.Minute || took < 50*time.Second {
			t.Errorf("the handler worked for %v, want a minute", took)
		}
	})
}

// TestLateWriter: the holder was paused past its TTL, and a second request was done meanwhile. The store refuses the
// first one's answer, because its fence is smaller.
func TestLateWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.during = func(http.ResponseWriter, *http.Request) {
			s.during = nil
			s.locks.Advance(time.Minute) // past its TTL
			paid(t, post(s.b), 2)
		}
		refused(t, post(s.a), 503, "nobody knows")
		paid(t, post(s.a), 2)
		s.ran(t, 2)
	})
}

// TestLateWriterMeetsAReader: the store refuses it also if the second request is still under way.
func TestLateWriterMeetsAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		var late *httptest.ResponseRecorder
		inner := s.process(s.locks.Process(strategy.Options{}))
		s.during = func(http.ResponseWriter, *http.Request) {
			s.during = nil
			s.locks.Advance(time.Minute)
			second := make(chan struct{})
			goOn := make(chan struct{})
			s.during = func(http.ResponseWriter, *http.Request) { close(second); <-goOn }
			done := make(chan struct{})
			go func() { late = post(inner); close(done) }()
			<-second
			t.Cleanup(func() {
				close(goOn)
				<-done
				paid(t, late, 2)
			})
		}
		refused(t, post(s.a), 503, "nobody knows")
	})
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.during = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("the server gets the panic %v, want the handler's", p)
				}
			}()
			post(s.a)
		}()
		s.locks.AssertFree()
		s.during = nil
		paid(t, post(s.b), 2) // nothing was kept
	})
}

func TestLocksAway(t *testing.T) {
	for fault, f := range map[string]lockstest.Fault{
		"unreachable": lockstest.Unreachable, "refused": lockstest.Refuse("LOADING"), "unknown": lockstest.LostReply,
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				s.locks.FailNext(f)
				refused(t, post(s.a), 503, "not begun")
				s.ran(t, 0)
			})
		})
	}
}

// TestReleaseFails: the answer is kept, so it is the caller's.
func TestReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.during = func(http.ResponseWriter, *http.Request) { s.locks.FailNext(lockstest.LostReply) }
		paid(t, post(s.a), 1)
		paid(t, post(s.b), 1)
	})
}

func TestStoreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.store.read = errStore
		refused(t, post(s.a), 503, "not begun")
		s.ran(t, 0)
		s.store.read, s.store.write = nil, errStore
		refused(t, post(s.a), 503, "nobody knows")
		s.ran(t, 1)
		s.store.write = nil
		paid(t, post(s.a), 2)
	})
}

// TestLog: what is no fault of the caller is logged, with the reason, which the caller does not get.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		defer slog.SetDefault(before)
		s := open(t)
		paid(t, post(s.a), 1)
		refused(t, post(s.a, func(r *http.Request) { r.Header.Del("Idempotency-Key") }), 400, "allowed")
		if log.Len() > 0 {
			t.Errorf("the log has %s", &log)
		}
		s.store.read = errStore
		w := post(s.a)
		if !strings.Contains(log.String(), errStore.Error()) || strings.Contains(w.Body.String(), errStore.Error()) {
			t.Errorf("the log has %s, the caller %s, want %v in the log alone", &log, w.Body, errStore)
		}
	})
}

// TestUnreadable: what the store has was not written by this package.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		s.store.Store = foreign{}
		refused(t, post(s.a), 503, "not begun")
		s.ran(t, 0)
	})
}

// TestNoFence: without fences a late writer would not be refused, so nothing begins.
func TestNoFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		h := (&idempotency.Once{Locks: unfenced{s.locks}, Answers: s.store}).Handler(func(*http.Request) string { return "ann" }, http.HandlerFunc(s.serve))
		refused(t, post(h), 503, "not begun")
		s.ran(t, 0)
	})
}

// TestNothingDone: a handler that answers 503 has done nothing, so its answer is not kept. Every other answer is.
func TestNothingDone(t *testing.T) {
	for _, status := range []int{200, 404, 500, 502, 503} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := open(t)
				s.during = func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusEarlyHints) // for the first answer alone: not kept
					w.WriteHeader(status)
				}
				for range 2 {
					if w := post(s.a); w.Code != status || !strings.HasPrefix(w.Body.String(), "payment ") {
						t.Errorf("the answer is %d %q, want the handler's %d", w.Code, w.Body, status)
					}
				}
				if status == http.StatusServiceUnavailable {
					s.ran(t, 2)
				} else {
					s.ran(t, 1)
				}
			})
		})
	}
}

// TestSilentHandler: an answer of nothing is 200.
func TestSilentHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := once(lockstest.New(t), inMemory()).Handler(func(*http.Request) string { return "" }, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 2 {
			if w := post(h); w.Code != http.StatusOK || w.Body.Len() > 0 {
				t.Errorf("the answer is %d %q, want 200 and nothing", w.Code, w.Body)
			}
		}
	})
}

// TestCallerLeft: a caller that goes before the handler runs makes it not run. One that goes later does not stop it.
func TestCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		leaves := func(r *http.Request) { *r = *r.WithContext(ctx) }
		s.during = func(_ http.ResponseWriter, r *http.Request) {
			cancel()
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's context has ended: %v", err)
			}
		}
		paid(t, post(s.a, leaves), 1)
		s.during = nil
		refused(t, post(s.a, leaves, func(r *http.Request) { r.Header.Set("Idempotency-Key", "k2") }), 503, "not begun")
		paid(t, post(s.a), 1)
		s.ran(t, 1)
	})
}
