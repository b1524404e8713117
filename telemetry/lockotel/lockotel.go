// Package lockotel reports to OpenTelemetry what happens to locks: in metrics, and in spans below
// the caller's span. It needs the API alone; the program's SDK decides where the telemetry goes.
//
//	observe, err := lockotel.New(lockotel.Options{Strategy: "luascript"})
//	if err != nil { … }
//	locks, err := luascript.New(node, strategy.Options{Observe: observe})
//
// # Metrics
//
//	lock.acquire.duration  histogram      s          calls that asked for a lock, waiting included
//	lock.waiting_calls     updowncounter  {call}     calls that ask for a lock now
//	lock.attempts          counter        {attempt}  requests to acquire
//	lock.active_leases     updowncounter  {lease}    leases held now
//	lock.hold.duration     histogram      s          leases that have ended, from the request that got them
//	lock.renew.duration    histogram      s          renewals
//	lock.losses            counter        {lease}    leases that were lost
//	lock.failed_undos      counter        {undo}     undos that Close ended before they succeeded
//
// The calls are TryAcquire, Acquire and Adopt. lock.waiting_calls is how many callers wait, for a lock or for the servers'
// reply. Contention is the attempts whose error.type is held.
// Only the head of a process's wait line asks the servers, so the waiters behind it make no attempts.
// A lease counts as lost even if only its release finds the loss. Without LockName the counter of losses
// begins at zero, so that a monitor sees the first loss of a process, too. Names and units follow the semantic conventions, which
// have none for locks: https://opentelemetry.io/docs/specs/semconv/general/naming/.
//
// Attributes are few, and none is the lock's name unless [Options].LockName says so:
//
//	lock.strategy     all: Options.Strategy
//	lock.name         all: what Options.LockName makes of it
//	error.type        durations, attempts and failed undos, if there was an error: see below
//	lock.loss.reason  losses: lapsed (the deadline came), taken (another has it), missing (the key is)
//
// error.type is the first of these that the error is:
//
//	held         somebody else holds the lock
//	lost         the lease, or the grant, was over
//	closed       the Strategy was closed
//	no_quorum    too few of several servers agreed, and not because the lock is held
//	unknown      an answer was lost
//	refused      a server said no
//	unsent       no server was reached
//	unsupported  the algorithm or the server cannot do that
//	timeout      the context's deadline came, before anything else was known
//	canceled     the context was cancelled, before anything else was known
//	_OTHER       anything else: a name that is not allowed
//
// # Spans
//
// "acquire lock" is a call that asked for the lock, waiting included; it is made when the call
// ends. "hold lock" is a lease, from its beginning to its end. Both are children of the span
// in the caller's context, and internal. Spans of the holder's work are not their children, because
// an observer cannot change the holder's context.
//
// Their attributes are those above, with the lock's whole name as lock.name, and the end of the token
// as lock.token ([strategy.ShortToken]): the whole token would be enough to take the lock.
// "acquire lock" has lock.attempts, the number of requests, if it got the lock.
//
// A hold has an event "lock.renewal_failed" for each renewal that failed, with error.type and
// lock.error, the error's words. The status is Error where somebody should
// act: the lock was lost, its release was not confirmed, or a server failed the call. It is not Error
// if the lock is held by another, or the caller stopped waiting.
package lockotel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstrategies/locks/strategy"
)

const scope = "github.com/lockstrategies/locks/telemetry/lockotel"

// Attributes of metrics and spans.
const (
	keyStrategy = attribute.Key("lock.strategy")
	keyName     = attribute.Key("lock.name")
	keyToken    = attribute.Key("lock.token")
	keyAttempts = attribute.Key("lock.attempts")
	keyReason   = attribute.Key("lock.loss.reason")
	keyError    = attribute.Key("lock.error")
	keyType     = attribute.Key("error.type")
)

// Options says what is reported, and to which providers. The zero value is the default.
type Options struct {
	// Strategy is the attribute lock.strategy: your name for the strategy, such as fairqueue. One
	// for all locks of an observer. Empty: there is no such attribute.
	Strategy string

	// LockName gives the attribute lock.name of metrics from a lock's name. Each value is a
	// time series of its own, in every metric, for as long as the process lives: so give back
	// the name itself only if there are few locks, and otherwise what kind of lock it is
	// (invoice for invoice/42), or nothing. It must be fast and pure: if it gave different values
	// for one name, active leases would not be counted down again. Default: no such attribute.
	LockName func(name string) string

	// MeterProvider makes the metrics. Default: the global one ([otel.GetMeterProvider]);
	// if your program sets none, nothing is measured. The one of package metric/noop turns
	// metrics off.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans. Default: the global one ([otel.GetTracerProvider]).
	// The one of package trace/noop turns spans off.
	TracerProvider trace.TracerProvider
}

// New returns an observer for [strategy.Options].Observe. It may serve several strategies at
// once, if one Options.Strategy will do for them. The error is the MeterProvider's, if it
// refuses an instrument.
func New(o Options) (func(strategy.Event), error) {
	ob, err := newObserver(o)
	if err != nil {
		return nil, err
	}
	return ob.observe, nil
}

type observer struct {
	o      Options
	tracer trace.Tracer

	acquire, hold, renew metric.Float64Histogram
	attempts, losses     metric.Int64Counter
	undos                metric.Int64Counter
	waiting, active      metric.Int64UpDownCounter

	made sync.Map // of labels, by labelsOf

	mu    sync.Mutex
	holds map[string]trace.Span // that are recorded, by token, until they end
}

// Upper bounds of histograms, in seconds: from a round trip to a wait of minutes, and for
// what is held to hours.
var (
	waits = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	trips = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
)

func newObserver(o Options) (*observer, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	ob := &observer{o: o, tracer: o.TracerProvider.Tracer(scope), holds: map[string]trace.Span{}}
	m := o.MeterProvider.Meter(scope)
	var errs [8]error
	ob.acquire, errs[0] = m.Float64Histogram("lock.acquire.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(waits...),
		metric.WithDescription("Duration of calls that asked for a lock, waiting included."))
	ob.attempts, errs[1] = m.Int64Counter("lock.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("Number of requests to acquire a lock."))
	ob.active, errs[2] = m.Int64UpDownCounter("lock.active_leases", metric.WithUnit("{lease}"),
		metric.WithDescription("Number of leases that are held."))
	ob.hold, errs[3] = m.Float64Histogram("lock.hold.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(holds...),
		metric.WithDescription("Duration of leases, from the request that got them to their release or loss."))
	ob.renew, errs[4] = m.Float64Histogram("lock.renew.duration", metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(trips...),
		metric.WithDescription("Duration of renewals of leases."))
	ob.losses, errs[5] = m.Int64Counter("lock.losses", metric.WithUnit("{lease}"),
		metric.WithDescription("Number of leases that were lost before their release."))
	ob.waiting, errs[6] = m.Int64UpDownCounter("lock.waiting_calls", metric.WithUnit("{call}"),
		metric.WithDescription("Number of calls that ask for a lock and have no answer yet."))
	ob.undos, errs[7] = m.Int64Counter("lock.failed_undos", metric.WithUnit("{undo}"),
		metric.WithDescription("Number of undos that Close ended before they succeeded."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("lockotel: %w", err)
	}
	if o.LockName == nil { // or else nobody knows yet which there will be
		for _, reason := range reasons {
			ob.losses.Add(context.Background(), 0, ob.labels(strategy.Event{}, keyReason, reason).add...)
		}
	}
	return ob, nil
}

func (ob *observer) observe(e strategy.Event) {
	if e.Context == nil {
		e.Context = context.Background()
	}
	switch e.Kind {
	case strategy.EventAsked:
		ob.waiting.Add(e.Context, 1, ob.labels(e, "", "").add...)
	case strategy.EventAttempt:
		ob.attempts.Add(e.Context, 1, ob.labels(e, keyType, typeOf(e.Err)).add...)
	case strategy.EventAcquired:
		plain := ob.labels(e, "", "")
		ob.acquire.Record(e.Context, e.Elapsed.Seconds(), plain.record...)
		ob.waiting.Add(e.Context, -1, plain.add...)
		ob.active.Add(e.Context, 1, plain.add...)
		ob.called(e)
		ob.begin(e)
	case strategy.EventMissed:
		ob.waiting.Add(e.Context, -1, ob.labels(e, "", "").add...)
		ob.acquire.Record(e.Context, e.Elapsed.Seconds(), ob.labels(e, keyType, typeOf(e.Err)).record...)
		ob.called(e)
	case strategy.EventRenewed:
		ob.renew.Record(e.Context, e.Elapsed.Seconds(), ob.labels(e, "", "").record...)
	case strategy.EventRenewalFailed:
		ob.renew.Record(e.Context, e.Elapsed.Seconds(), ob.labels(e, keyType, typeOf(e.Err)).record...)
		ob.renewalFailed(e)
	case strategy.EventLost, strategy.EventReleased:
		ob.active.Add(e.Context, -1, ob.labels(e, "", "").add...)
		ob.hold.Record(e.Context, e.Elapsed.Seconds(), ob.labels(e, keyType, typeOf(e.Err)).record...)
		if errors.Is(e.Err, strategy.ErrLost) {
			ob.losses.Add(e.Context, 1, ob.labels(e, keyReason, reason(e.Err)).add...)
		}
		ob.end(e)
	case strategy.EventUndoFailed:
		ob.undos.Add(e.Context, 1, ob.labels(e, keyType, typeOf(e.Err)).add...)
	}
}

// labels are a measurement's attributes, as its instrument wants them.
type labels struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// labelsOf is the key by which labels are found: what LockName gives, and the label of their own.
type labelsOf struct {
	name  string
	key   attribute.Key
	value string
}

// labels returns those of all, and key=value, if there is a value. They are made once: there
// are no more of them than time series.
func (ob *observer) labels(e strategy.Event, key attribute.Key, value string) labels {
	of := labelsOf{key: key, value: value}
	if value == "" {
		of.key = ""
	}
	if ob.o.LockName != nil {
		of.name = ob.o.LockName(e.Name)
	}
	if made, ok := ob.made.Load(of); ok {
		return made.(labels)
	}
	var as []attribute.KeyValue
	if of.value != "" {
		as = append(as, of.key.String(of.value))
	}
	if of.name != "" {
		as = append(as, keyName.String(of.name))
	}
	if ob.o.Strategy != "" {
		as = append(as, keyStrategy.String(ob.o.Strategy))
	}
	option := metric.WithAttributeSet(attribute.NewSet(as...))
	made := labels{[]metric.AddOption{option}, []metric.RecordOption{option}}
	ob.made.Store(of, made)
	return made
}

// called makes the span of a call that has just ended.
func (ob *observer) called(e strategy.Event) {
	now := time.Now()
	_, span := ob.span(e, "acquire lock", now.Add(-e.Elapsed))
	if e.Attempt > 0 {
		span.SetAttributes(keyAttempts.Int(e.Attempt))
	}
	finish(span, e, failed(e.Err), now)
}

// begin makes the span of a lease, which ends with it.
func (ob *observer) begin(e strategy.Event) {
	_, span := ob.span(e, "hold lock", time.Now())
	if !span.IsRecording() {
		return // nobody would see the span, so it need not be kept
	}
	ob.mu.Lock()
	defer ob.mu.Unlock()
	ob.holds[e.Token] = span
}

func (ob *observer) span(e strategy.Event, name string, start time.Time) (context.Context, trace.Span) {
	as := make([]attribute.KeyValue, 0, 3)
	as = append(as, keyName.String(e.Name))
	if ob.o.Strategy != "" {
		as = append(as, keyStrategy.String(ob.o.Strategy))
	}
	if e.Token != "" {
		as = append(as, keyToken.String(strategy.ShortToken(e.Token)))
	}
	return ob.tracer.Start(e.Context, name, trace.WithTimestamp(start), trace.WithAttributes(as...))
}

func (ob *observer) renewalFailed(e strategy.Event) {
	ob.mu.Lock()
	span := ob.holds[e.Token]
	ob.mu.Unlock()
	if span != nil { // it may have ended just now: then it takes in nothing
		span.AddEvent("lock.renewal_failed", trace.WithAttributes(keyType.String(typeOf(e.Err)), keyError.String(e.Err.Error())))
	}
}

func (ob *observer) end(e strategy.Event) {
	ob.mu.Lock()
	span := ob.holds[e.Token]
	delete(ob.holds, e.Token)
	ob.mu.Unlock()
	if span == nil {
		return
	}
	if errors.Is(e.Err, strategy.ErrLost) {
		span.SetAttributes(keyReason.String(reason(e.Err)))
	}
	finish(span, e, e.Err != nil, time.Now())
}

// finish ends a span as the event says.
func finish(span trace.Span, e strategy.Event, bad bool, now time.Time) {
	if e.Err != nil {
		span.SetAttributes(keyType.String(typeOf(e.Err)))
	}
	if bad {
		span.SetStatus(codes.Error, e.Err.Error())
	}
	span.End(trace.WithTimestamp(now))
}

// failed reports whether the servers failed the call. Otherwise it found the lock held, its caller
// ended it, or it was not allowed.
func failed(err error) bool {
	var server *strategy.ServerError
	return errors.As(err, &server)
}

// types are the values of error.type. The first that an error is counts: a wait that was
// cancelled has found the lock held, too.
var types = []struct {
	err  error
	name string
}{
	{strategy.ErrHeld, "held"},
	{strategy.ErrLost, "lost"},
	{strategy.ErrClosed, "closed"},
	{strategy.ErrNoQuorum, "no_quorum"},
	{strategy.ErrUnknown, "unknown"},
	{strategy.ErrRefused, "refused"},
	{strategy.ErrUnsent, "unsent"},
	{strategy.ErrUnsupported, "unsupported"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
}

// typeOf is the attribute error.type; empty if there is no error.
func typeOf(err error) string {
	if err == nil {
		return ""
	}
	for _, t := range types {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	return "_OTHER"
}

// reasons are the values of lock.loss.reason.
var reasons = []string{lapsed, taken, missing}

const lapsed, taken, missing = "lapsed", "taken", "missing"

// reason says how a lease was lost.
func reason(err error) string {
	var lost *strategy.LostError
	switch errors.As(err, &lost); {
	case lost != nil && lost.Lapsed:
		return lapsed
	case lost != nil && lost.Holder != "":
		return taken
	}
	return missing
}
