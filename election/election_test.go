// Tests that a campaign ends with a term that is kept alive, that Lead begins again after a loss alone, that all see
// the leader, and that docs/use/leaders.md quotes compiled code. Time is virtual.
package election_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/quotes"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

const ttl = 10 * time.Second

// bubble runs a test where time is virtual, with a strategy for each name. No test needs a day: one that waits for ever
// fails soon.
func bubble(t *testing.T, test func(t *testing.T, server *lockstest.Memory, of func(label string) strategy.Strategy)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tooLong := time.AfterFunc(24*time.Hour, func() { panic(t.Name() + " does not end") })
		t.Cleanup(func() { tooLong.Stop() })
		var server lockstest.Memory
		test(t, &server, func(label string) strategy.Strategy {
			s, err := engine.New(&server, strategy.Options{TTL: ttl, RetryOnError: true, Label: label})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		})
	})
}

// each runs a test for each row of a table, in a bubble of its own.
func each[T any](t *testing.T, rows map[string]T, test func(t *testing.T, server *lockstest.Memory, of func(label string) strategy.Strategy, row T)) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
				test(t, server, of, row)
			})
		})
	}
}

// A term outlasts the TTL, and the campaign's context. The next candidate leads as soon as the leader resigns.
func TestCampaign(t *testing.T) {
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		ctx, cancel := context.WithCancel(t.Context())
		first, err := election.New(of("a"), "leader").Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		began := time.Now()
		time.AfterFunc(5*ttl, func() { first.Release(t.Context()) })
		_, err = election.New(of("b"), "leader").Campaign(t.Context())
		if waited := time.Since(began); err != nil || waited != 5*ttl {
			t.Errorf("Campaign = %v after %v, want nil after %v: when the first resigns", err, waited, 5*ttl)
		}
	})
}

// broken is a Strategy, its only lock and its only lease, which cannot be kept alive.
type broken struct {
	strategy.Strategy
	strategy.Lock
	strategy.Lease
	released int
}

var errBroken = errors.New("broken")

func (b *broken) NewLock(string) strategy.Lock                    { return b }
func (b *broken) Acquire(context.Context) (strategy.Lease, error) { return b, nil }
func (b *broken) KeepAlive(time.Duration) error                   { return errBroken }
func (b *broken) Name() string                                    { return "leader" }
func (b *broken) Release(context.Context) error                   { b.released++; return nil }

// A term that cannot be kept alive is none: the campaign says why, and leaves nothing behind.
func TestCampaignEnds(t *testing.T) {
	b := &broken{}
	if term, err := election.New(b, "leader").Campaign(t.Context()); err != errBroken || term != nil || b.released != 1 {
		t.Errorf("Campaign = %v, %v and %d releases, want %v and one", term, err, b.released, errBroken)
	}
}

// refuse is a fault: the servers refuse a release, say.
func refuse(op lockstest.Op) lockstest.Fault {
	return func(_ context.Context, r lockstest.Request, serve func() error) error {
		if r.Op == op {
			return lockstest.Refused("READONLY")
		}
		return serve()
	}
}

func evict(server *lockstest.Memory) { server.Evict(context.Background(), "lock:{leader}") }

// A loss ends a term and not the campaign, however it is found and whatever reign returns: the next term begins at once. So
// it does when a reign resigns.
func TestLead(t *testing.T) {
	stopped, other := errors.New("stopped"), &strategy.LostError{Name: "other"}
	type row struct {
		evicts, waits bool // for the end of its context
		returns       error
	}
	each(t, map[string]row{
		"it resigns":               {},
		"seen, nil":                {evicts: true, waits: true},
		"seen, an error":           {evicts: true, waits: true, returns: stopped},
		"at the release, nil":      {evicts: true},
		"at the release, an error": {evicts: true, returns: stopped},
		"at the release, another":  {evicts: true, returns: other},
		"the maximum hold is over": {waits: true},
	}, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy, reign row) {
		locks, err := of("a").With(func(o *strategy.Options) { o.MaxHold = time.Hour })
		if err != nil {
			t.Fatal(err)
		}
		enough, terms, over, last := errors.New("enough"), 0, time.Now(), uint64(0)
		err = election.New(locks, "leader").Lead(t.Context(), func(ctx context.Context, term strategy.Lease) error {
			number, _ := term.Fence()
			if waited := time.Since(over); waited != 0 || number <= last {
				t.Errorf("term %d with the number %d begins %v after the last, want at once, and more than %d", terms, number, waited, last)
			}
			last = number
			if terms++; terms == 4 {
				return enough
			}
			if reign.evicts {
				evict(server)
			}
			if reign.waits {
				<-ctx.Done()
				time.Sleep(time.Second)
			}
			over = time.Now()
			return reign.returns
		})
		if err != enough || terms != 4 {
			t.Errorf("Lead = %v after %d terms, want the reign's error after 4", err, terms)
		}
		if _, err := locks.NewLock("leader").TryAcquire(t.Context()); err != nil {
			t.Errorf("TryAcquire after Lead = %v", err)
		}
	})
}

// late is a context whose timer does not run for an hour after its deadline, as in a process that is short of CPU.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

// An error of the reign ends Lead, also the loss of another lock, and so does that of a release or of a campaign. Once its context has
// ended, or its deadline has passed, Lead ends, and the error says so. It says each cause once.
func TestLeadEnds(t *testing.T) {
	stopped, other := errors.New("stopped"), &strategy.LostError{Name: "other"}
	const none = lockstest.OpForceRelease // which nobody sends
	type row struct {
		over    bool // the context is, in either way, before the reign returns
		evicts  bool // before that, too
		returns error
		refuses lockstest.Op // what the servers do
		want    []error
	}
	rows := map[string]row{
		"the reign":             {false, false, stopped, none, []error{stopped}},
		"another lock":          {false, false, other, none, []error{other}},
		"another context":       {false, false, context.Canceled, none, []error{context.Canceled}},
		"the release":           {false, false, nil, lockstest.OpRelease, []error{strategy.ErrRefused}},
		"the reign and release": {false, false, stopped, lockstest.OpRelease, []error{stopped, strategy.ErrRefused}},
		"the next campaign":     {false, true, stopped, lockstest.OpAcquire, []error{strategy.ErrRefused}},
		"over, it resigns":      {true, false, nil, none, nil},
		"over, it fails":        {true, false, stopped, none, []error{stopped}},
		"over, its release":     {true, false, stopped, lockstest.OpRelease, []error{stopped, strategy.ErrRefused}},
		"over, it is lost":      {true, true, nil, none, []error{strategy.ErrLost}},
		"over, it says so":      {true, true, strategy.ErrLost, none, []error{strategy.ErrLost}},
	}
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		each(t, rows, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy, c row) {
			locks, err := of("a").With(func(o *strategy.Options) { o.RetryOnError = false }) // a campaign ends when the servers fail
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.over && end == context.DeadlineExceeded {
				ctx = late{ctx, time.Now().Add(time.Second)}
			}
			terms := 0
			err = election.New(locks, "leader").Lead(ctx, func(_ context.Context, term strategy.Lease) error {
				if terms++; c.over && end == context.Canceled {
					cancel(errors.New("shop closed"))
				}
				time.Sleep(time.Second)
				if c.evicts {
					evict(server)
				}
				server.Intercept(refuse(c.refuses))
				if c.returns == strategy.ErrLost {
					return fmt.Errorf("%w: %w", stopped, term.Extend(context.Background()))
				}
				return c.returns
			})
			server.Intercept(nil)
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("Lead = %v, want %v", err, want)
				}
			}
			if c.over && !errors.Is(err, end) {
				t.Errorf("Lead = %v, want %v", err, end)
			}
			if c.refuses == lockstest.OpAcquire && errors.Is(err, stopped) || strings.Count(err.Error(), "the key is gone") > 1 || terms != 1 {
				t.Errorf("Lead = %v after %d terms, want one term, a loss said once, and no error of a term that was lost", err, terms)
			}
		})
	}
}

// In a context that is over nobody is asked, and nobody leads: also in that of another lock, whose loss is the cause of its
// end, and where a deadline has passed and no timer has run.
func TestContextIsOver(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(&strategy.LostError{Name: "other"})
	each(t, map[string]context.Context{"cancelled": cancelled, "late": late{context.Background(), time.Time{}}},
		func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy, ctx context.Context) {
			e, want := election.New(of("a"), "leader"), cmp.Or(ctx.Err(), context.DeadlineExceeded)
			err := e.Lead(ctx, func(context.Context, strategy.Lease) error { t.Error("there is a term"); return nil })
			if !errors.Is(err, want) {
				t.Errorf("Lead = %v, want %v", err, want)
			}
			if term, err := e.Campaign(ctx); term != nil || !errors.Is(err, want) {
				t.Errorf("Campaign = %v, %v, want %v", term, err, want)
			}
			if n := server.Requests(); n > 0 {
				t.Errorf("there were %d requests, want none", n)
			}
		})
}

// Anybody sees who leads, and that nobody does.
func TestObserve(t *testing.T) {
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		time.AfterFunc(time.Second, func() { election.New(of("a"), "leader").Campaign(t.Context()) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began, seen := time.Now(), ""
		for info, err := range election.New(of(""), "leader").Observe(ctx, 8*time.Second) {
			seen += fmt.Sprintf("%v %s %v, ", time.Since(began), info.Label, err)
		}
		if want := "0s  <nil>, 8s a <nil>, "; seen != want {
			t.Errorf("the leaders seen are %q, want %q", seen, want)
		}
	})
}

func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../docs/use/leaders.md")
	if err != nil || from["../../election/example_test.go"] == 0 {
		t.Errorf("docs/use/leaders.md quotes %v, want example_test.go: %v", from, err)
	}
}
