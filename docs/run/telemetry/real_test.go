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
	"time"

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
	server := redistest.Shared(t)
	pool := server.Pool()
	var log bytes.Buffer
	locks, err := Open(redigonode.New(pool), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	redistest.Must(t, err)
	ctx, request := tracers.Tracer("test").Start(t.Context(), "request")
	name := "telemetry/" + rand.Text()
	c := clerk{t: t}
	for range 3 {
		c.want(strategy.Do(ctx, locks.NewLock(name), func(ctx context.Context, _ strategy.Lease) error {
			_, err := locks.NewLock(name).TryAcquire(ctx)
			c.want(err, strategy.ErrHeld)
			return nil
		}), nil)
	}
	lease, err := locks.NewLock(name).TryAcquire(ctx)
	c.want(err, nil)
	redistest.Do(t, server, "DEL", strategy.DefaultKey(name))
	c.want(lease.Release(ctx), strategy.ErrLost)
	request.End()

	told := c.exposition(registry)
	for _, want := range []string{
		`lock_acquire_duration_seconds_count{lock_strategy="fairqueue"} 4`,
		`lock_acquire_duration_seconds_count{error_type="held",lock_strategy="fairqueue"} 3`,
		`lock_active_leases{lock_strategy="fairqueue"} 0`,
		`lock_attempts_total{error_type="held",lock_strategy="fairqueue"} 3`,
		`lock_hold_duration_seconds_count{lock_strategy="fairqueue"} 3`,
		`lock_losses_total{lock_loss_reason="missing",lock_strategy="fairqueue"} 1`,
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
	if below != 7+4 {
		t.Errorf("%d spans are below the request's, want 7 calls and 4 leases", below)
	}
	if n := strings.Count(log.String(), "\n"); n != 4+3+3+4 {
		t.Errorf("%d lines are logged, want 4 acquired, 3 held, 3 missed, 4 released:\n%s", n, log.String())
	}
	c.want(locks.Close(), nil)
	stop, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c.want(errors.Join(meters.Shutdown(stop), tracers.Shutdown(stop)), nil)
}
