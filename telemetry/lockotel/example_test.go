package lockotel_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockotel"
)

// A request that takes a lock leaves this in metrics and traces. In your program the SDK's
// readers and processors export them, and the strategy is luascript.New(node, …) or another;
// here the server is one in memory.
func ExampleNew() {
	metrics, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(spans))
	observe, err := lockotel.New(lockotel.Options{
		Strategy:       "luascript",
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(metrics)),
		TracerProvider: tracers,
	})
	if err != nil {
		log.Fatal(err)
	}
	var server lockstest.Memory
	locks, err := engine.New(&server, strategy.Options{Observe: observe})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx, request := tracers.Tracer("shop").Start(context.Background(), "POST /invoice/42")
	err = strategy.Do(ctx, locks.NewLock("invoice/42"), func(context.Context, strategy.Lease) error {
		printCounts(metrics)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	request.End()
	fmt.Println()
	for _, s := range spans.Ended() {
		fmt.Println(s.Name(), "is below a span:", s.Parent().IsValid())
	}
	// Output:
	// lock.acquire.duration in s: 1
	// lock.active_leases in {lease}: 1
	// lock.attempts in {attempt}: 1
	// lock.losses in {lease}: 0
	// lock.waiting_calls in {call}: 0
	//
	// acquire lock is below a span: true
	// hold lock is below a span: true
	// POST /invoice/42 is below a span: false
}

// Metrics for each kind of lock: there may be millions of invoices.
func ExampleOptions() {
	observe, err := lockotel.New(lockotel.Options{
		Strategy: "luascript",
		LockName: func(name string) string {
			kind, _, _ := strings.Cut(name, "/")
			return kind // invoice, of invoice/42
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	var server lockstest.Memory
	locks, err := engine.New(&server, strategy.Options{Observe: observe})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(locks.Close())
	// Output: <nil>
}

func printCounts(reader metric.Reader) {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	var lines []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			lines = append(lines, fmt.Sprintf("%s in %s: %d", m.Name, m.Unit, d.DataPoints[0].Count))
		case metricdata.Sum[int64]:
			lines = append(lines, fmt.Sprintf("%s in %s: %d", m.Name, m.Unit, d.DataPoints[0].Value))
		}
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
}
