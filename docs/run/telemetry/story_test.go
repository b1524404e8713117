package telemetry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockotel"
	"github.com/lockstrategies/locks/telemetry/lockslog"
)

const ms = time.Millisecond

// told is what a story has left.
type told struct{ log, metrics string }

// A clerk takes locks in the story, in requests to two processes.
type clerk struct {
	t             *testing.T
	locks, others strategy.Strategy
	request       api.Tracer
}

func (c clerk) begin(what string) (context.Context, api.Span) {
	return c.request.Start(c.t.Context(), what)
}

func (c clerk) want(err, want error) {
	c.t.Helper()
	if !errors.Is(err, want) {
		c.t.Errorf("error = %v, want %v", err, want)
	}
}

// A desk has what the locks of one strategy tell.
type desk struct {
	log      bytes.Buffer
	registry *prometheus.Registry
	tracers  api.TracerProvider
	observe  func(strategy.Event)
}

func newDesk(t *testing.T, name string, o slog.HandlerOptions) *desk {
	d := &desk{registry: prometheus.NewRegistry()}
	meters, tracers, err := SetUp(d.registry, tracetest.NewSpanRecorder())
	redistest.Must(t, err)
	logs := lockslog.New(slog.New(slog.NewTextHandler(&d.log, &o)), lockslog.Options{})
	telemetry, err := lockotel.New(lockotel.Options{Strategy: name, MeterProvider: meters, TracerProvider: tracers})
	redistest.Must(t, err)
	d.tracers, d.observe = tracers, func(e strategy.Event) {
		logs(e)
		telemetry(e)
	}
	return d
}

// story is what docs/run/telemetry.md tells: two requests for one invoice, of which the second
// waits and has its lock taken away; and a report, for which somebody waits in vain, and which
// loses its lock as the server cannot be reached. Time is made up: a round trip takes 0.4 ms.
// Both processes write to one log.
func story(t *testing.T) (all told) {
	synctest.Test(t, func(t *testing.T) {
		desk := newDesk(t, "luascript", slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: timeOfDay})
		var server lockstest.Memory
		var down atomic.Bool
		server.Intercept(func(_ context.Context, _ lockstest.Request, serve func() error) error {
			if down.Load() {
				return &strategy.ServerError{Node: "redis:6379", Kind: strategy.ErrUnsent, Err: errors.New("dial tcp: connection refused")}
			}
			time.Sleep(200 * time.Microsecond)
			err := serve()
			time.Sleep(200 * time.Microsecond)
			return err
		})
		open := func(host string) strategy.Strategy {
			locks, err := engine.New(&server, strategy.Options{Label: host, Observe: desk.observe})
			redistest.Must(t, err)
			return locks
		}
		c := clerk{t, open("shop-1"), open("shop-2"), desk.tracers.Tracer("shop")}
		c.invoice(&server)
		c.report(&down)
		all.metrics = c.exposition(desk.registry)
		c.want(c.locks.Close(), nil)
		c.want(c.others.Close(), nil)
		all.log = desk.log.String()
	})
	return all
}

func (c clerk) invoice(server *lockstest.Memory) {
	const name = "invoice/42"
	second := make(chan struct{})
	time.AfterFunc(20*ms, func() {
		defer close(second)
		ctx, request := c.begin("POST /invoice/42/cancel")
		defer request.End()
		lease, err := c.others.NewLock(name).Acquire(ctx)
		c.want(err, nil)
		time.Sleep(50 * ms)
		server.Evict(ctx, strategy.DefaultKey(name))
		c.want(lease.Release(ctx), strategy.ErrLost)
	})
	ctx, request := c.begin("POST /invoice/42/pay")
	c.want(strategy.Do(ctx, c.locks.NewLock(name), func(context.Context, strategy.Lease) error {
		time.Sleep(120 * ms)
		return nil
	}), nil)
	request.End()
	<-second
}

func (c clerk) report(down *atomic.Bool) {
	ctx, request := c.begin("nightly report")
	report, err := c.locks.NewLock("report").TryAcquire(ctx)
	c.want(err, nil)

	patience, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	_, err = c.others.NewLock("report").Acquire(patience)
	c.want(err, strategy.ErrHeld)

	c.want(report.Extend(ctx), nil)
	down.Store(true)
	defer down.Store(false)
	time.Sleep(5 * time.Second)
	c.want(report.Extend(ctx), strategy.ErrUnsent)
	_, err = c.locks.NewLock("invoice/43").TryAcquire(c.t.Context())
	c.want(err, strategy.ErrUnsent)
	<-report.Lost()
	request.End()
	synctest.Wait()
}

// exposition is what Prometheus is given, but for the buckets of histograms.
func (c clerk) exposition(registry *prometheus.Registry) string {
	families, err := registry.Gather()
	if err != nil {
		c.t.Fatal(err)
	}
	var all bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&all, f); err != nil {
			c.t.Fatal(err)
		}
	}
	lines := slices.Collect(strings.Lines(all.String()))
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.Contains(l, "_bucket{") }), "")
}

// timeOfDay writes a time without its date.
func timeOfDay(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.String(a.Key, a.Value.Time().UTC().Format("15:04:05.000"))
	}
	return a
}
