// Tests what stands on a strategy (election, telemetry, gocron) on PostgreSQL and etcd.
package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/storetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/stores/etcd"
	"github.com/lockstrategies/locks/stores/postgres"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockotel"
	"github.com/lockstrategies/locks/telemetry/lockslog"
)

// An opener makes a strategy, as another process would.
type opener func(t *testing.T, o strategy.Options) strategy.Strategy

func onPostgres(t *testing.T, o strategy.Options) strategy.Strategy {
	pool, err := pgxpool.New(t.Context(), storetest.PostgresURL(t))
	redistest.Must(t, err)
	t.Cleanup(pool.Close)
	redistest.Must(t, pool.AcquireFunc(t.Context(), func(c *pgxpool.Conn) error { return postgres.Migrate(t.Context(), c.Conn()) }))
	s, err := postgres.New(pool, o)
	redistest.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func onEtcd(t *testing.T, o strategy.Options) strategy.Strategy {
	client, err := clientv3.New(clientv3.Config{Endpoints: storetest.EtcdEndpoints(t), Logger: zap.NewNop()})
	redistest.Must(t, err)
	t.Cleanup(func() { client.Close() })
	s, err := etcd.New(client, o)
	redistest.Must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// TestOnStores: what stands on a strategy does on PostgreSQL and etcd what it does on Redis.
func TestOnStores(t *testing.T) {
	for name, open := range map[string]opener{"postgres": onPostgres, "etcd": onEtcd} {
		t.Run(name+"/election", func(t *testing.T) { t.Parallel(); elects(t, open) })
		t.Run(name+"/gocron", func(t *testing.T) { t.Parallel(); runsTicksOnce(t, open) })
	}
}

// ample is for tests in which nothing expires.
var ample = strategy.Options{TTL: time.Minute, OpTimeout: 30 * time.Second}

// elects: of two candidates one leads at a time, and the other sees who it is. The next term begins when the first resigns,
// and again after a loss. The log of one candidate and the metrics of the other have all of that.
func elects(t *testing.T, open opener) {
	name := fmt.Sprint("leader ", time.Now().UnixNano())
	var log bytes.Buffer
	logs, measures := ample, ample
	logs.Observe = lockslog.New(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), lockslog.Options{})
	reader := sdkmetric.NewManualReader()
	var err error
	measures.Observe, err = lockotel.New(lockotel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	redistest.Must(t, err)
	a, b := open(t, logs), open(t, measures)

	first, err := election.New(a, name).Campaign(t.Context())
	redistest.Must(t, err)
	candidate := election.New(b, name)
	leader, err := candidate.Leader(t.Context())
	if err != nil || leader.Token != first.Token() {
		t.Errorf("Leader = %+v, %v, want the first candidate", leader, err)
	}
	terms, resigns := make(chan strategy.Lease), errors.New("it resigns")
	led := make(chan error, 1)
	go func() {
		reigns := 0
		led <- candidate.Lead(t.Context(), func(ctx context.Context, term strategy.Lease) error {
			terms <- term
			if reigns++; reigns == 2 {
				return resigns
			}
			<-ctx.Done()
			return nil
		})
	}()
	verdict.Eventually(t, "the second candidate queues", func() bool {
		info, err := candidate.Leader(t.Context())
		redistest.Must(t, err)
		return len(info.Queue) == 1
	})
	redistest.Must(t, first.Release(t.Context()))
	second := <-terms
	leader, err = election.New(a, name).Leader(t.Context())
	redistest.Must(t, err)
	redistest.Must(t, a.ForceRelease(t.Context(), leader))
	if err := second.Extend(t.Context()); !errors.Is(err, strategy.ErrLost) {
		t.Errorf("Extend of a term that was taken = %v, want ErrLost", err)
	}
	third := <-terms
	if err := <-led; err != resigns {
		t.Errorf("Lead = %v, want what reign returned", err)
	}
	fences := [3]uint64{}
	for i, term := range []strategy.Lease{first, second, third} {
		fences[i], _ = term.Fence()
	}
	if fences[0] == 0 || fences[1] <= fences[0] || fences[2] <= fences[1] {
		t.Errorf("the terms have the fences %d, want them to rise", fences)
	}

	a.Close()
	for _, line := range []string{"lock acquired", "lock released"} {
		if !strings.Contains(log.String(), `msg="`+line+`" lock="`+name+`"`) {
			t.Errorf("there is no line %q in the log\n%s", line, &log)
		}
	}
	b.Close()
	var metrics metricdata.ResourceMetrics
	redistest.Must(t, reader.Collect(t.Context(), &metrics))
	counts := map[string]int64{}
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range d.DataPoints {
				counts[m.Name] += int64(p.Count)
			}
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				counts[m.Name] += p.Value
			}
		}
	}
	for name, want := range map[string]int64{"lock.acquire.duration": 2, "lock.hold.duration": 2, "lock.losses": 1, "lock.active_leases": 0} {
		if counts[name] != want {
			t.Errorf("%s = %d, want %d", name, counts[name], want)
		}
	}
}

// runsTicksOnce: two instances have the same job. Each tick runs on one of them, once.
func runsTicksOnce(t *testing.T, open opener) {
	var mu sync.Mutex
	runs := map[time.Time]int{}
	for range 2 {
		locker, err := gocronlocks.NewLocker(open(t, ample), gocronlocks.Options{})
		redistest.Must(t, err)
		s, err := gocron.NewScheduler(gocron.WithLocation(time.UTC), gocron.WithDistributedLocker(locker))
		redistest.Must(t, err)
		t.Cleanup(func() { s.Shutdown() }) //nolint:errcheck // the test has ended
		redistest.Must(t, locker.KeyPerTick(s, time.Minute))
		_, err = s.NewJob(gocron.CronJob("* * * * * *", true), locker.Task(func(ctx context.Context, _ strategy.Lease) error {
			tick, ok := gocronlocks.Tick(ctx)
			mu.Lock()
			defer mu.Unlock()
			if runs[tick]++; !ok || runs[tick] > 1 {
				t.Errorf("the tick %v (%v) runs %d times", tick, ok, runs[tick])
			}
			return nil
		}), gocron.WithName(t.Name()))
		redistest.Must(t, err)
		s.Start()
	}
	verdict.Eventually(t, "three ticks run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs) >= 3
	})
}
