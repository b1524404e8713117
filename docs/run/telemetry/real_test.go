package telemetry

// Logs, metrics and spans of locks on a real server, set up as docs/run/telemetry.md says.

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestOnRedis wires all as the page says, and takes locks on a real server.
func TestOnRedis(t *testing.T) {
	registry, spans := prometheus.NewRegistry(), tracetest.NewSpanRecorder()
	meters, tracers, err := SetUp(registry, spans)
	redistest.Must(t, err)
	var log bytes.Buffer
	locks, err := Open(redigonode.New(redistest.Shared(t).Pool()), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	redistest.Must(t, err)
	ctx, request := tracers.Tracer("test").Start(t.Context(), "request")
	lock := locks.NewLock("telemetry/" + rand.Text())
	c := clerk{t: t}
	c.want(strategy.Do(ctx, lock, func(ctx context.Context, _ strategy.Lease) error {
		_, err := lock.TryAcquire(ctx)
		c.want(err, strategy.ErrHeld)
		return nil
	}), nil)
	request.End()

	told := c.exposition(registry)
	for _, want := range []string{
		`lock_acquire_duration_seconds_count{lock_strategy="fairqueue"} 1`,
		`lock_acquire_duration_seconds_count{error_type="held",lock_strategy="fairqueue"} 1`,
		`lock_hold_duration_seconds_count{lock_strategy="fairqueue"} 1`,
	} {
		if !strings.Contains(told, want+"\n") {
			t.Errorf("metrics\n%s\nwant %s", told, want)
		}
	}
	below := 0
	for _, s := range spans.Ended() {
		if s.Parent().SpanID() == request.SpanContext().SpanID() {
			below++
		}
	}
	if below != 2+1 {
		t.Errorf("%d spans are below the request's, want 2 calls and a lease", below)
	}
	if n := strings.Count(log.String(), "\n"); n != 1+1+1+1 {
		t.Errorf("%d lines are logged, want acquired, held, missed, released:\n%s", n, log.String())
	}
	c.want(locks.Close(), nil)
	c.want(errors.Join(meters.Shutdown(t.Context()), tracers.Shutdown(t.Context())), nil)
}
