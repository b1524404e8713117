// Which line each event gives in a log, at which level, and what a line costs that is not written.
package lockslog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockslog"
)

const (
	token = "7f3c9a52-4d1e-4b8f-9a66-0c1d2e3f4a5b"
	other = "0b7de1c4-88f2-4a0e-8f3b-5d6c7b8a9e0f"
	ms    = time.Millisecond
)

// timeless leaves out when it was.
func timeless(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// logger writes lines from the level on.
func logger(b *bytes.Buffer, from slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: from, ReplaceAttr: timeless}))
}

var (
	held      = &strategy.HeldError{Name: "n", Holder: other, TTL: 2 * time.Second}
	lost      = &strategy.LostError{Name: "n", Holder: other}
	unsent    = &strategy.ServerError{Node: "redis:6379", Kind: strategy.ErrUnsent, Err: errors.New("connection refused")}
	errGaveUp = fmt.Errorf("%w; gave up after 2ms: %w", held, context.Canceled)
	outage    = &strategy.QuorumError{Name: "n", Need: 2, Nodes: []strategy.NodeAnswer{{Node: "redis:6379", Err: unsent}, {Node: "b"}, {Node: "c", Err: unsent}}}
	outvote   = &strategy.QuorumError{Name: "n", Need: 2, Nodes: []strategy.NodeAnswer{{Node: "redis:6379", Err: unsent}, {Node: "b", Err: held}, {Node: "c", Err: held}}, Held: held}
)

// Each kind of event with its line, as everybody's log has it, and as it is with whole tokens.
func TestLines(t *testing.T) {
	for _, tt := range []struct {
		e    strategy.Event
		want string
	}{
		{strategy.Event{Kind: strategy.EventAsked}, ""},
		{strategy.Event{Kind: strategy.EventAttempt, Attempt: 1, Elapsed: ms}, ""},
		{strategy.Event{Kind: strategy.EventAttempt, Attempt: 1, Elapsed: ms, Err: unsent}, ""},
		{strategy.Event{Kind: strategy.EventHeld, Attempt: 2, Err: held},
			`level=DEBUG msg="lock held by another" lock=n token=…3f4a5b attempt=2 holder=…8a9e0f ttl=2s`},
		{strategy.Event{Kind: strategy.EventHeld, Attempt: 2, Err: &strategy.HeldError{Name: "n", TTL: -1}},
			`level=DEBUG msg="lock held by another" lock=n token=…3f4a5b attempt=2`},
		{strategy.Event{Kind: strategy.EventHeld, Attempt: 2, Err: &strategy.HeldError{Name: "n"}},
			`level=DEBUG msg="lock held by another" lock=n token=…3f4a5b attempt=2`},
		{strategy.Event{Kind: strategy.EventHeld, Attempt: 2, Err: &strategy.HeldError{Name: "n", TTL: time.Second, Taken: 4, Permits: 5}},
			`level=DEBUG msg="lock held by another" lock=n token=…3f4a5b attempt=2 ttl=1s taken=4 permits=5`},
		{strategy.Event{Kind: strategy.EventHeld, Attempt: 2, Err: outvote},
			`level=DEBUG msg="lock held by another" lock=n token=…3f4a5b attempt=2 holder=…8a9e0f ttl=2s`},
		{strategy.Event{Kind: strategy.EventAcquired, Attempt: 3, Elapsed: ms},
			`level=DEBUG msg="lock acquired" lock=n token=…3f4a5b attempt=3 waited=1ms`},
		{strategy.Event{Kind: strategy.EventAcquired, Elapsed: ms},
			`level=DEBUG msg="lock acquired" lock=n token=…3f4a5b waited=1ms`},
		{strategy.Event{Kind: strategy.EventRetry, Attempt: 40, Elapsed: time.Minute, Err: unsent},
			`level=WARN msg="lock servers fail" lock=n attempt=40 waited=1m0s error="redis:6379: not sent: connection refused"`},
		{strategy.Event{Kind: strategy.EventMissed, Elapsed: 2 * ms, Err: errGaveUp},
			`level=DEBUG msg="lock not acquired" lock=n waited=2ms error="lock \"n\": held by \"…8a9e0f\" for 2s unless renewed; gave up after 2ms: context canceled"`},
		{strategy.Event{Kind: strategy.EventMissed, Err: outvote},
			`level=DEBUG msg="lock not acquired" lock=n waited=0s error="lock \"n\": held by \"…8a9e0f\" for 2s unless renewed; no quorum: 0 of 3 servers agreed, needed are 2; redis:6379: not sent: connection refused; b: held by \"…8a9e0f\" for 2s unless renewed; c: held by \"…8a9e0f\" for 2s unless renewed"`},
		{strategy.Event{Kind: strategy.EventMissed, Err: unsent},
			`level=WARN msg="lock not acquired" lock=n waited=0s error="redis:6379: not sent: connection refused"`},
		{strategy.Event{Kind: strategy.EventMissed, Err: outage},
			`level=WARN msg="lock not acquired" lock=n waited=0s error="lock \"n\": no quorum: 1 of 3 servers agreed, needed are 2; redis:6379: not sent: connection refused; c: redis:6379: not sent: connection refused"`},
		{strategy.Event{Kind: strategy.EventRenewed, Elapsed: ms}, `level=DEBUG msg="lock renewed" lock=n token=…3f4a5b took=1ms`},
		{strategy.Event{Kind: strategy.EventRenewalFailed, Elapsed: ms, Err: unsent},
			`level=WARN msg="lock renewal failed" lock=n token=…3f4a5b took=1ms error="redis:6379: not sent: connection refused"`},
		{strategy.Event{Kind: strategy.EventLost, Elapsed: time.Second, Err: lost},
			`level=ERROR msg="lock lost" lock=n token=…3f4a5b held=1s error="lock \"n\": lost: now held by \"…8a9e0f\""`},
		{strategy.Event{Kind: strategy.EventReleased, Elapsed: time.Second}, `level=DEBUG msg="lock released" lock=n token=…3f4a5b held=1s`},
		{strategy.Event{Kind: strategy.EventReleased, Elapsed: time.Second, Err: unsent},
			`level=WARN msg="lock released" lock=n token=…3f4a5b held=1s error="redis:6379: not sent: connection refused"`},
		{strategy.Event{Kind: strategy.EventUndoFailed, Elapsed: time.Second, Err: unsent},
			`level=WARN msg="lock undo failed" lock=n token=…3f4a5b took=1s error="redis:6379: not sent: connection refused"`},
		{strategy.Event{Kind: strategy.EventReleased, Elapsed: time.Second, Err: lost},
			`level=ERROR msg="lock released" lock=n token=…3f4a5b held=1s error="lock \"n\": lost: now held by \"…8a9e0f\""`},
	} {
		tt.e.Name, tt.e.Context = "n", context.Background()
		if tt.e.Kind != strategy.EventMissed && tt.e.Kind != strategy.EventRetry {
			tt.e.Token = token
		}
		t.Run(fmt.Sprint(tt.e.Kind, " ", tt.e.Err), func(t *testing.T) {
			var short, whole bytes.Buffer
			lockslog.New(logger(&short, slog.LevelDebug), lockslog.Options{})(tt.e)
			lockslog.New(logger(&whole, slog.LevelDebug), lockslog.Options{WholeTokens: true})(tt.e)
			if got := strings.TrimSuffix(short.String(), "\n"); got != tt.want {
				t.Errorf("logged\n got %s\nwant %s", got, tt.want)
			}
			want := strings.NewReplacer("token=…3f4a5b", "token="+token, "holder=…8a9e0f", "holder="+other).Replace(tt.want)
			if got := strings.TrimSuffix(whole.String(), "\n"); got != want {
				t.Errorf("logged, WholeTokens\n got %s\nwant %s", got, want)
			}
		})
	}
}

// A call and an attempt have a line, too, for users who want it.
func TestLevels(t *testing.T) {
	var b bytes.Buffer
	observe := lockslog.New(logger(&b, slog.LevelInfo), lockslog.Options{Level: func(e strategy.Event) slog.Level {
		switch e.Kind {
		case strategy.EventAsked, strategy.EventAttempt:
			return slog.LevelInfo
		case strategy.EventLost:
			return lockslog.Never
		case strategy.EventReleased:
			return slog.LevelDebug
		}
		return lockslog.DefaultLevel(e)
	}})
	for _, e := range []strategy.Event{
		{Kind: strategy.EventAsked},
		{Kind: strategy.EventAttempt, Attempt: 1, Elapsed: ms, Err: lost},
		{Kind: strategy.EventLost},
		{Kind: strategy.EventReleased, Err: lost},
		{Kind: strategy.EventRenewalFailed, Err: unsent},
		{Kind: 99},
	} {
		e.Name = "n" // without a context, as in a test of one's own
		observe(e)
	}
	const want = `level=INFO msg="lock asked" lock=n
level=INFO msg="lock attempt" lock=n attempt=1 took=1ms error="lock \"n\": lost: now held by \"…8a9e0f\""
level=WARN msg="lock renewal failed" lock=n took=0s error="redis:6379: not sent: connection refused"
`
	if b.String() != want {
		t.Errorf("logged\n%s\nwant\n%s", b.String(), want)
	}
}

// traceHandler adds what the context has, as those that know of traces do.
type traceHandler struct{ slog.Handler }

type traceKey struct{}

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		r.AddAttrs(slog.String("trace", id))
	}
	return h.Handler.Handle(ctx, r)
}

// The life of a lock, in the words of the log; with the caller's trace where there is a caller.
func TestStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		var server lockstest.Memory
		log := slog.New(traceHandler{logger(&b, slog.LevelDebug).Handler()})
		s, err := engine.New(&server, strategy.Options{Label: "host-7", Observe: lockslog.New(log, lockslog.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx := context.WithValue(t.Context(), traceKey{}, "4bf92f35")
		lease, err := s.NewLock("invoice/42").TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		server.Evict(t.Context(), "lock:{invoice/42}")
		if err := lease.Extend(ctx); !errors.Is(err, strategy.ErrLost) {
			t.Fatalf("Extend = %v, want ErrLost", err)
		}
		short := "…" + lease.Token()[30:]
		want := "level=DEBUG msg=\"lock acquired\" lock=invoice/42 token=" + short + " attempt=1 waited=0s trace=4bf92f35\n" +
			"level=ERROR msg=\"lock lost\" lock=invoice/42 token=" + short + " held=1s error=\"lock \\\"invoice/42\\\": lost: the key is gone\"\n"
		if b.String() != want {
			t.Errorf("logged\n%s\nwant\n%s", b.String(), want)
		}
	})
}

// Without a logger it is the default one.
func TestDefaultLogger(t *testing.T) {
	var b bytes.Buffer
	was := slog.Default()
	defer slog.SetDefault(was)
	slog.SetDefault(logger(&b, slog.LevelWarn))
	lockslog.New(nil, lockslog.Options{})(strategy.Event{Kind: strategy.EventLost, Name: "n", Err: lost})
	if !strings.Contains(b.String(), "lock lost") {
		t.Errorf("logged %q, want the loss", b.String())
	}
}

// An event that is not logged costs next to nothing.
func TestAllocations(t *testing.T) {
	var b bytes.Buffer
	observe := lockslog.New(logger(&b, slog.LevelWarn), lockslog.Options{})
	for _, e := range []strategy.Event{
		{Kind: strategy.EventAsked}, {Kind: strategy.EventAttempt}, {Kind: strategy.EventHeld, Err: held}, {Kind: strategy.EventAcquired}, {Kind: strategy.EventRenewed}, {Kind: strategy.EventReleased},
	} {
		e.Context, e.Name, e.Token = context.Background(), "n", token
		if n := testing.AllocsPerRun(100, func() { observe(e) }); n > 0 {
			t.Errorf("%v makes %v allocations, want 0", e.Kind, n)
		}
	}
	if b.Len() > 0 {
		t.Errorf("logged %q, want nothing", b.String())
	}
}
