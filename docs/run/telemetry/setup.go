package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
)

// SetUp makes the program's metrics go to Prometheus, and its spans to the processor. It comes
// before Open. Shut both providers down at the end: they send what is still to be sent.
func SetUp(to prometheus.Registerer, processor trace.SpanProcessor) (*metric.MeterProvider, *trace.TracerProvider, error) {
	reader, err := exporter.New(exporter.WithRegisterer(to), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, nil, err
	}
	meters := metric.NewMeterProvider(metric.WithReader(reader))
	tracers := trace.NewTracerProvider(trace.WithSpanProcessor(processor))
	otel.SetMeterProvider(meters)
	otel.SetTracerProvider(tracers)
	return meters, tracers, nil
}
