// Which metrics and spans the life of a lock gives, on fake time.
package lockotel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

const (
	name = "invoice/42"
	key  = "lock:{invoice/42}"
	ms   = time.Millisecond
	ttl  = 10 * time.Second
)

// A stage is a lock on a server in memory, and what its observer has told.
type stage struct {
	*testing.T
	server lockstest.Memory
	s      strategy.Strategy
	ob     *observer
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
}

// play plays a story in fake time, on a stage of its own.
func play(t *testing.T, o Options, story func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st := &stage{T: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
		st.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(st.spans))
		o.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(st.reader))
		if o.TracerProvider == nil {
			o.TracerProvider = st.tracer
		}
		var err error
		if st.ob, err = newObserver(o); err != nil {
			t.Fatal(err)
		}
		if st.s, err = engine.New(&st.server, strategy.Options{Observe: st.ob.observe}); err != nil {
			t.Fatal(err)
		}
		defer st.s.Close()
		story(st)
	})
}

func (st *stage) take() strategy.Lease {
	st.Helper()
	lease, err := st.s.NewLock(name).TryAcquire(st.Context())
	st.is(err, nil)
	return lease
}

func (st *stage) is(err, want error) {
	st.Helper()
	if !errors.Is(err, want) {
		st.Fatalf("error = %v, want %v", err, want)
	}
}

// metrics are as lines: name, attributes, values, once all that goes on at this moment has
// told its own.
func (st *stage) metrics() []string {
	st.Helper()
	synctest.Wait()
	var all metricdata.ResourceMetrics
	if err := st.reader.Collect(st.Context(), &all); err != nil {
		st.Fatal(err)
	}
	var lines []string
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					lines = append(lines, fmt.Sprintf("%s{%s} %d in %g s", m.Name, set(p.Attributes), p.Count, p.Sum))
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					lines = append(lines, fmt.Sprintf("%s{%s} %d", m.Name, set(p.Attributes), p.Value))
				}
			default:
				st.Fatalf("%s is %T", m.Name, m.Data)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func set(as attribute.Set) string { return attributes(as.ToSlice()) }

func attributes(as []attribute.KeyValue) string {
	var words []string
	for _, a := range as {
		words = append(words, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// has looks for single metrics.
func (st *stage) has(want ...string) {
	st.Helper()
	got := st.metrics()
	for _, line := range want {
		if !slices.Contains(got, line) {
			st.Errorf("metrics\n%s\nwant %s", strings.Join(got, "\n"), line)
		}
	}
}

// wantMetrics are all metrics, but for losses of which there are none: TestNoLossYet.
func (st *stage) wantMetrics(want ...string) {
	st.Helper()
	none := func(l string) bool { return strings.HasPrefix(l, "lock.losses") && strings.HasSuffix(l, "} 0") }
	st.same("metrics", slices.DeleteFunc(st.metrics(), none), want)
}

func (st *stage) same(what string, got, want []string) {
	st.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		st.Errorf("%s\n%s\nwant\n%s", what, g, w)
	}
}

var aToken = regexp.MustCompile(`…[0-9a-f]{6}`)

// wantSpans compares the spans that have ended, in that order: name, parent, duration,
// attributes, status, and below it its events. Of two that end at the same moment, in two
// goroutines, the one that began first is first.
func (st *stage) wantSpans(want ...string) {
	st.Helper()
	synctest.Wait()
	var lines []string
	names := map[string]string{}
	ended := st.spans.Ended()
	slices.SortStableFunc(ended, func(a, b sdktrace.ReadOnlySpan) int {
		return cmp.Or(a.EndTime().Compare(b.EndTime()), a.StartTime().Compare(b.StartTime()))
	})
	for _, s := range ended {
		names[s.SpanContext().SpanID().String()] = s.Name()
	}
	for _, s := range ended {
		line := s.Name()
		if s.Parent().IsValid() {
			line += " of " + names[s.Parent().SpanID().String()]
		}
		line += fmt.Sprintf(" %v {%s} %v", s.EndTime().Sub(s.StartTime()), attributes(s.Attributes()), s.Status().Code)
		if d := s.Status().Description; d != "" {
			line += ": " + d
		}
		lines = append(lines, line)
		for _, e := range s.Events() {
			lines = append(lines, fmt.Sprintf("  %s after %v {%s}", e.Name, e.Time.Sub(s.StartTime()), attributes(e.Attributes)))
		}
	}
	for i := range lines {
		lines[i] = aToken.ReplaceAllString(lines[i], "…T")
	}
	st.same("spans", lines, want)
}

func unsent(context.Context, lockstest.Request, func() error) error {
	return &strategy.ServerError{Node: "redis:6379", Kind: strategy.ErrUnsent, Err: errors.New("connection refused")}
}

// A round trip that takes a while.
func slow(d time.Duration) lockstest.Fault {
	return func(_ context.Context, _ lockstest.Request, serve func() error) error {
		time.Sleep(d)
		return serve()
	}
}

// Spans are below their caller's, also that of a lease which outlives it.
func TestReleased(t *testing.T) {
	play(t, Options{Strategy: "luascript"}, func(st *stage) {
		st.server.Intercept(slow(2 * ms))
		ctx, request := st.tracer.Tracer("test").Start(st.Context(), "request")
		lease, err := st.s.NewLock(name).TryAcquire(ctx)
		st.is(err, nil)
		request.End()
		st.wantMetrics(
			"lock.acquire.duration{lock.strategy=luascript} 1 in 0.002 s",
			"lock.active_leases{lock.strategy=luascript} 1",
			"lock.attempts{lock.strategy=luascript} 1",
			"lock.waiting_calls{lock.strategy=luascript} 0",
		)
		time.Sleep(time.Second)
		st.is(lease.Extend(st.Context()), nil)
		st.is(lease.Release(st.Context()), nil)
		st.wantMetrics(
			"lock.acquire.duration{lock.strategy=luascript} 1 in 0.002 s",
			"lock.active_leases{lock.strategy=luascript} 0",
			"lock.attempts{lock.strategy=luascript} 1",
			"lock.hold.duration{lock.strategy=luascript} 1 in 1.006 s",
			"lock.renew.duration{lock.strategy=luascript} 1 in 0.002 s",
			"lock.waiting_calls{lock.strategy=luascript} 0",
		)
		st.wantSpans(
			"acquire lock of request 2ms {lock.attempts=1 lock.name=invoice/42 lock.strategy=luascript lock.token=…T} Unset",
			"request 2ms {} Unset",
			"hold lock of request 1.004s {lock.name=invoice/42 lock.strategy=luascript lock.token=…T} Unset",
		)
	})
}

// An undo that Close ends is counted by what it failed with.
func TestFailedUndo(t *testing.T) {
	play(t, Options{Strategy: "luascript"}, func(st *stage) {
		lease := st.take()
		st.server.Intercept(unsent)
		st.is(lease.Release(st.Context()), strategy.ErrUnsent)
		st.is(st.s.Close(), nil)
		st.has("lock.failed_undos{error.type=unsent lock.strategy=luascript} 1")
	})
}

// What there has been none of is zero, not absent: or else nobody would see it rise to one.
func TestNoLossYet(t *testing.T) {
	play(t, Options{Strategy: "luascript"}, func(st *stage) {
		st.same("metrics", st.metrics(), []string{
			"lock.losses{lock.loss.reason=lapsed lock.strategy=luascript} 0",
			"lock.losses{lock.loss.reason=missing lock.strategy=luascript} 0",
			"lock.losses{lock.loss.reason=taken lock.strategy=luascript} 0",
		})
	})
}

// A call counts as waiting until it has the lock, or gives up.
func TestWaiting(t *testing.T) {
	play(t, Options{}, func(st *stage) {
		lease := st.take()
		st.has("lock.waiting_calls{} 0")
		impatient, cancel := context.WithTimeout(st.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{st.Context(), impatient} {
			go func() {
				if lease, err := st.s.NewLock(name).Acquire(ctx); err == nil {
					lease.Release(ctx)
				}
			}()
		}
		synctest.Wait()
		st.has("lock.waiting_calls{} 2")
		time.Sleep(2 * time.Second)
		st.has("lock.waiting_calls{} 1")
		st.is(lease.Release(st.Context()), nil)
		synctest.Wait()
		st.has("lock.waiting_calls{} 0")
	})
}

func TestHeld(t *testing.T) {
	play(t, Options{}, func(st *stage) {
		lease := st.take()
		_, err := st.s.NewLock(name).TryAcquire(st.Context())
		st.is(err, strategy.ErrHeld)
		ctx, cancel := context.WithTimeout(st.Context(), time.Second)
		defer cancel()
		_, err = st.s.NewLock(name).Acquire(ctx)
		st.is(err, strategy.ErrHeld)
		synctest.Wait() // the line has given up its place; until then the next waiter would take it over
		time.AfterFunc(time.Second, func() { lease.Release(st.Context()) })
		next, err := st.s.NewLock(name).Acquire(st.Context())
		st.is(err, nil)
		st.wantMetrics(
			"lock.acquire.duration{error.type=held} 2 in 1 s",
			"lock.acquire.duration{} 2 in 1 s",
			"lock.active_leases{} 1",
			"lock.attempts{error.type=held} 5", // one, and one for a place in the queue, each time
			"lock.attempts{} 1",
			"lock.hold.duration{} 1 in 2 s",
			"lock.waiting_calls{} 0",
		)
		st.is(next.Release(st.Context()), nil)
		st.wantSpans(
			"acquire lock 0s {lock.attempts=1 lock.name=invoice/42 lock.token=…T} Unset",
			"acquire lock 0s {error.type=held lock.name=invoice/42} Unset",
			"acquire lock 1s {error.type=held lock.name=invoice/42} Unset",
			"hold lock 2s {lock.name=invoice/42 lock.token=…T} Unset",
			"acquire lock 1s {lock.attempts=2 lock.name=invoice/42 lock.token=…T} Unset",
			"hold lock 0s {lock.name=invoice/42 lock.token=…T} Unset",
		)
	})
}

func TestLost(t *testing.T) {
	for _, tt := range []struct {
		what, reason string
		held         float64 // seconds
		lose         func(st *stage, lease strategy.Lease)
		span         []string
	}{
		{"lapsed", "lapsed", 9.898, func(st *stage, _ strategy.Lease) {
			time.Sleep(ttl)
		}, []string{`hold lock 9.898s {error.type=lost lock.loss.reason=lapsed lock.name=invoice/42 lock.token=…T} Error: lock "invoice/42": lost: its deadline came`}},

		{"missing", "missing", 1, func(st *stage, lease strategy.Lease) {
			time.Sleep(time.Second)
			st.server.Evict(st.Context(), key)
			st.is(lease.Extend(st.Context()), strategy.ErrLost)
		}, []string{`hold lock 1s {error.type=lost lock.loss.reason=missing lock.name=invoice/42 lock.token=…T} Error: lock "invoice/42": lost: the key is gone`}},

		{"taken, and found so by its release", "taken", 1, func(st *stage, lease strategy.Lease) {
			time.Sleep(time.Second)
			st.server.Evict(st.Context(), key)
			_, err := st.server.Acquire(st.Context(), driver.Claim{Key: key, Token: "7f3c9a52-4d1e-4b8f-9a66-0c1d2e3f4a5b", TTL: ttl})
			st.is(err, nil)
			st.is(lease.Release(st.Context()), strategy.ErrLost)
		}, []string{`hold lock 1s {error.type=lost lock.loss.reason=taken lock.name=invoice/42 lock.token=…T} Error: lock "invoice/42": lost: now held by "…T"`}},

		{"failing before", "lapsed", 9.898, func(st *stage, lease strategy.Lease) {
			time.Sleep(ttl - 700*ms)
			st.server.Intercept(unsent)
			st.is(lease.KeepAlive(0), nil)
			time.Sleep(ttl)
			st.server.Intercept(nil)
		}, []string{
			`hold lock 9.898s {error.type=lost lock.loss.reason=lapsed lock.name=invoice/42 lock.token=…T} Error: lock "invoice/42": lost: its deadline came: redis:6379: not sent: connection refused`,
			"  lock.renewal_failed after 9.3s {error.type=unsent lock.error=redis:6379: not sent: connection refused}",
			"  lock.renewal_failed after 9.8s {error.type=unsent lock.error=redis:6379: not sent: connection refused}",
		}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			play(t, Options{}, func(st *stage) {
				tt.lose(st, st.take())
				want := []string{
					"lock.acquire.duration{} 1 in 0 s",
					"lock.active_leases{} 0",
					"lock.attempts{} 1",
					fmt.Sprintf("lock.hold.duration{error.type=lost} 1 in %g s", tt.held),
					"lock.losses{lock.loss.reason=" + tt.reason + "} 1",
				}
				if len(tt.span) > 1 {
					want = append(want, "lock.renew.duration{error.type=unsent} 2 in 0 s")
				}
				st.wantMetrics(append(want, "lock.waiting_calls{} 0")...)
				st.wantSpans(append([]string{"acquire lock 0s {lock.attempts=1 lock.name=invoice/42 lock.token=…T} Unset"}, tt.span...)...)
			})
		})
	}
}

// A call and a release that the servers fail are errors, and the hold learns of them, too.
func TestServersFail(t *testing.T) {
	play(t, Options{}, func(st *stage) {
		lease := st.take()
		st.server.Intercept(unsent)
		_, err := st.s.NewLock("other").TryAcquire(st.Context())
		st.is(err, strategy.ErrUnsent)
		st.is(lease.Release(st.Context()), strategy.ErrUnsent)
		st.server.Intercept(nil)
		st.wantMetrics(
			"lock.acquire.duration{error.type=unsent} 1 in 0 s",
			"lock.acquire.duration{} 1 in 0 s",
			"lock.active_leases{} 0",
			"lock.attempts{error.type=unsent} 1",
			"lock.attempts{} 1",
			"lock.hold.duration{error.type=unsent} 1 in 0 s",
			"lock.waiting_calls{} 0",
		)
		st.wantSpans(
			"acquire lock 0s {lock.attempts=1 lock.name=invoice/42 lock.token=…T} Unset",
			"acquire lock 0s {error.type=unsent lock.name=other} Error: redis:6379: not sent: connection refused",
			"hold lock 0s {error.type=unsent lock.name=invoice/42 lock.token=…T} Error: redis:6379: not sent: connection refused",
		)
	})
}

func TestLockName(t *testing.T) {
	kind := func(name string) string {
		kind, _, ok := strings.Cut(name, "/")
		if !ok {
			return ""
		}
		return kind
	}
	play(t, Options{LockName: kind}, func(st *stage) {
		for _, name := range []string{"invoice/42", "invoice/43", "report"} {
			lease, err := st.s.NewLock(name).TryAcquire(st.Context())
			st.is(err, nil)
			if name != "report" {
				st.is(lease.Release(st.Context()), nil)
			}
		}
		st.wantMetrics(
			"lock.acquire.duration{lock.name=invoice} 2 in 0 s",
			"lock.acquire.duration{} 1 in 0 s",
			"lock.active_leases{lock.name=invoice} 0",
			"lock.active_leases{} 1",
			"lock.attempts{lock.name=invoice} 2",
			"lock.attempts{} 1",
			"lock.hold.duration{lock.name=invoice} 2 in 0 s",
			"lock.waiting_calls{lock.name=invoice} 0",
			"lock.waiting_calls{} 0",
		)
	})
}

// However leases end, as many are counted down as were counted up, and no span is kept.
func TestNobodyHoldsInTheEnd(t *testing.T) {
	play(t, Options{Strategy: "memory", LockName: func(n string) string { return n }}, func(st *stage) {
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for j := range 20 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+(i+j)%5)*time.Second)
					lease, err := st.s.NewLock(name).Acquire(ctx)
					cancel()
					if err != nil {
						continue
					}
					switch (i + j) % 5 {
					case 0: // lapses
					case 1:
						st.server.Evict(ctx, key)
						lease.Release(context.Background())
					case 2:
						if token, err := lease.Detach(); err == nil {
							if again, err := st.s.Adopt(context.Background(), name, token); err == nil {
								again.Release(context.Background())
							}
						}
					default:
						lease.Release(context.Background())
					}
				}
			})
		}
		all.Wait()
		st.is(st.s.Close(), nil)
		time.Sleep(2 * ttl)
		synctest.Wait()
		st.has("lock.active_leases{lock.name=invoice/42 lock.strategy=memory} 0", "lock.waiting_calls{lock.name=invoice/42 lock.strategy=memory} 0")
		if n := len(st.ob.holds); n != 0 {
			st.Errorf("%d spans are kept, want 0", n)
		}
		started, ended := st.spans.Started(), st.spans.Ended()
		if len(started) != len(ended) || len(ended) < 40 {
			st.Errorf("%d spans began and %d ended, want as many, and more than 40", len(started), len(ended))
		}
	})
}

// Of what nobody samples nothing is kept.
func TestUnsampled(t *testing.T) {
	never := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	play(t, Options{TracerProvider: never}, func(st *stage) {
		lease := st.take()
		if n := len(st.ob.holds); n != 0 {
			st.Errorf("%d spans are kept, want 0", n)
		}
		st.is(lease.Release(st.Context()), nil)
	})
}

// A renewal's event that comes after the end, or of what was never acquired, changes nothing.
func TestLate(t *testing.T) {
	play(t, Options{}, func(st *stage) {
		st.ob.observe(strategy.Event{Kind: strategy.EventAsked, Name: name})
		e := strategy.Event{Kind: strategy.EventAcquired, Name: name, Token: "t", Attempt: 1}
		st.ob.observe(e)
		e.Kind, e.Attempt = strategy.EventReleased, 0
		st.ob.observe(e)
		e.Kind, e.Err = strategy.EventRenewalFailed, strategy.ErrUnknown
		st.ob.observe(e)
		st.wantSpans(
			"acquire lock 0s {lock.attempts=1 lock.name=invoice/42 lock.token=…} Unset",
			"hold lock 0s {lock.name=invoice/42 lock.token=…} Unset",
		)
		st.wantMetrics(
			"lock.acquire.duration{} 1 in 0 s",
			"lock.active_leases{} 0",
			"lock.hold.duration{} 1 in 0 s",
			"lock.renew.duration{error.type=unknown} 1 in 0 s",
			"lock.waiting_calls{} 0",
		)
	})
}

func TestErrorTypes(t *testing.T) {
	held := &strategy.HeldError{Name: name}
	for want, err := range map[string]error{
		"held":        fmt.Errorf("%w; gave up: %w", held, context.DeadlineExceeded),
		"lost":        &strategy.LostError{Name: name, Err: strategy.ErrClosed},
		"closed":      strategy.ErrClosed,
		"no_quorum":   &strategy.QuorumError{Nodes: []strategy.NodeAnswer{{Node: "a", Err: strategy.ErrUnknown}}},
		"unknown":     fmt.Errorf("%w: %w", strategy.ErrUnknown, context.Canceled),
		"refused":     strategy.ErrRefused,
		"unsent":      strategy.ErrUnsent,
		"unsupported": strategy.ErrUnsupported,
		"timeout":     fmt.Errorf("lock %q: %w", name, context.DeadlineExceeded),
		"canceled":    fmt.Errorf("lock %q: %w", name, context.Canceled),
		"_OTHER":      errors.New("locks: the lock's name has 0 bytes"),
	} {
		if got := typeOf(err); got != want {
			t.Errorf("type of %v is %s, want %s", err, got, want)
		}
	}
	if got := typeOf(&strategy.QuorumError{Held: held}); got != "held" {
		t.Errorf("type of a quorum that held the lock is %s, want held", got)
	}
	if got := typeOf(nil); got != "" {
		t.Errorf("type of no error is %s, want none", got)
	}
}

// A MeterProvider that refuses an instrument refuses the observer.
func TestRefusedInstrument(t *testing.T) {
	for _, bad := range []string{"lock.attempts", "lock.losses", "lock.failed_undos"} {
		observe, err := New(Options{MeterProvider: picky{bad: bad}})
		if err == nil || !strings.Contains(err.Error(), bad) || observe != nil {
			t.Errorf("New, where %s is refused = %v, want an error that says so", bad, err)
		}
	}
}

// picky refuses the counter called bad.
type picky struct {
	metricnoop.MeterProvider
	bad string
}

type pickyMeter struct {
	metricnoop.Meter
	picky
}

func (p picky) Meter(string, ...metric.MeterOption) metric.Meter { return pickyMeter{picky: p} }

func (m pickyMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	if name == m.bad {
		return nil, fmt.Errorf("%s is refused", name)
	}
	return metricnoop.Int64Counter{}, nil
}
