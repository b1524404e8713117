// Tests that a campaign ends with a term that is kept alive, that Lead begins again after a loss alone, that all see
// the leader, and that docs/use/leaders.md quotes compiled code. Time is virtual.
package election_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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

// A term outlasts the TTL. The next candidate leads as soon as the leader resigns, with a greater number.
func TestCampaign(t *testing.T) {
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		a, b := election.New(of("a"), "leader"), election.New(of("b"), "leader")
		ctx, cancel := context.WithCancel(t.Context())
		first, err := a.Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel() // it bounds the campaign, not the term
		began := time.Now()
		time.AfterFunc(5*ttl, func() {
			if err := first.Release(t.Context()); err != nil {
				t.Errorf("the first leader resigns: %v", err)
			}
		})
		second, err := b.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 5*ttl {
			t.Errorf("the second candidate leads after %v, want %v: when the first resigns", waited, 5*ttl)
		}
		earlier, _ := first.Fence()
		if later, ok := second.Fence(); !ok || later <= earlier {
			t.Errorf("the second term has the number %d, want more than %d", later, earlier)
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

// A campaign that ends without a term says why, and leaves nothing behind. A term that cannot be kept alive is none.
func TestCampaignEnds(t *testing.T) {
	b := &broken{}
	if term, err := election.New(b, "leader").Campaign(t.Context()); err != errBroken || term != nil || b.released != 1 {
		t.Errorf("Campaign = %v, %v and %d releases, want %v and one", term, err, b.released, errBroken)
	}
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		s := of("a")
		s.Close()
		if term, err := election.New(s, "leader").Campaign(t.Context()); term != nil || !errors.Is(err, strategy.ErrClosed) {
			t.Errorf("Campaign = %v, %v, want ErrClosed", term, err)
		}
	})
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

// A loss ends a term and not the campaign, however it is found and whatever reign returns: the next term begins at once. So
// it does when a reign resigns. An error of the reign ends both.
func TestLead(t *testing.T) {
	stopped, other := errors.New("stopped"), &strategy.LostError{Name: "other"}
	for name, reign := range map[string]struct {
		ends    func(server *lockstest.Memory, ctx context.Context)
		returns error
	}{
		"it resigns":               {func(*lockstest.Memory, context.Context) {}, nil},
		"seen, nil":                {func(server *lockstest.Memory, ctx context.Context) { evict(server); <-ctx.Done() }, nil},
		"seen, an error":           {func(server *lockstest.Memory, ctx context.Context) { evict(server); <-ctx.Done() }, stopped},
		"at the release, nil":      {func(server *lockstest.Memory, _ context.Context) { evict(server) }, nil},
		"at the release, an error": {func(server *lockstest.Memory, _ context.Context) { evict(server) }, stopped},
		"at the release, another":  {func(server *lockstest.Memory, _ context.Context) { evict(server) }, other},
		"the maximum hold is over": {func(_ *lockstest.Memory, ctx context.Context) { <-ctx.Done(); time.Sleep(time.Second) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
				locks, err := of("a").With(func(o *strategy.Options) { o.TTL, o.MaxHold = ttl, time.Hour })
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
					reign.ends(server, ctx)
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
		})
	}
}

func evict(server *lockstest.Memory) { server.Evict(context.Background(), "lock:{leader}") }

// The loss of another lock is the reign's own error: it ends Lead, as a failed release does, and a failed campaign.
func TestLeadFails(t *testing.T) {
	other, stopped := &strategy.LostError{Name: "other"}, errors.New("stopped")
	const none = lockstest.OpForceRelease // which nobody sends
	for name, c := range map[string]struct {
		returns error
		fails   lockstest.Op // what the servers refuse
		lost    bool         // before the release: then the reign's error is over with its term
	}{
		"the reign":             {stopped, none, false},
		"another lock":          {other, none, false},
		"another context":       {context.Canceled, none, false},
		"the release":           {nil, lockstest.OpRelease, false},
		"the reign and release": {stopped, lockstest.OpRelease, false},
		"the next campaign":     {stopped, lockstest.OpAcquire, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
				locks, err := of("a").With(func(o *strategy.Options) { o.RetryOnError = false }) // a campaign ends when the servers fail
				if err != nil {
					t.Fatal(err)
				}
				terms := 0
				err = election.New(locks, "leader").Lead(t.Context(), func(context.Context, strategy.Lease) error {
					if terms++; c.lost {
						evict(server)
					}
					server.Intercept(refuse(c.fails))
					return c.returns
				})
				server.Intercept(nil)
				if c.returns != nil && errors.Is(err, c.returns) == c.lost || c.fails != none && !errors.Is(err, strategy.ErrRefused) || terms != 1 {
					t.Errorf("Lead = %v after %d terms, want %v, and what the servers say, after one", err, terms, c.returns)
				}
			})
		})
	}
}

// late is a context whose timer does not run for an hour after its deadline, as in a process that is short of CPU.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

// Once its context has ended, or its deadline has passed, Lead ends, and the error says so, and once what else there is to say.
func TestLeadSaysThatItsContextEnded(t *testing.T) {
	stopped, why := errors.New("stopped"), errors.New("shop closed")
	for name, reign := range map[string]struct {
		does func(server *lockstest.Memory, term strategy.Lease) error
		want []error
	}{
		"it resigns": {func(*lockstest.Memory, strategy.Lease) error { return nil }, nil},
		"it fails":   {func(*lockstest.Memory, strategy.Lease) error { return stopped }, []error{stopped}},
		"its release": {func(server *lockstest.Memory, _ strategy.Lease) error {
			server.Intercept(refuse(lockstest.OpRelease))
			return stopped
		}, []error{stopped, strategy.ErrRefused}},
		"it is lost": {func(server *lockstest.Memory, _ strategy.Lease) error { evict(server); return nil }, []error{strategy.ErrLost}},
		"it says it is lost": {func(server *lockstest.Memory, term strategy.Lease) error {
			evict(server)
			return fmt.Errorf("%w: %w", stopped, term.Extend(context.Background()))
		}, []error{stopped, strategy.ErrLost}},
	} {
		for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
			t.Run(fmt.Sprint(name, ", ", end), func(t *testing.T) {
				bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if end == context.DeadlineExceeded {
						ctx = late{ctx, time.Now().Add(time.Second)}
					}
					terms := 0
					err := election.New(of("a"), "leader").Lead(ctx, func(_ context.Context, term strategy.Lease) error {
						if terms++; end == context.Canceled {
							cancel(why)
						}
						time.Sleep(time.Second)
						return reign.does(server, term)
					})
					server.Intercept(nil)
					for _, want := range append(slices.Clone(reign.want), end) {
						if !errors.Is(err, want) {
							t.Errorf("Lead = %v, want %v", err, want)
						}
					}
					if strings.Count(err.Error(), "the key is gone") > 1 || terms != 1 {
						t.Errorf("Lead = %v after %d terms, want one term, and that a loss is said once", err, terms)
					}
				})
			})
		}
	}
}

// In a context that is over nobody is asked, and nobody leads: also in that of another lock, whose loss is the cause of its
// end, and where a deadline has passed and no timer has run.
func TestContextIsOver(t *testing.T) {
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(&strategy.LostError{Name: "other"})
	for name, ctx := range map[string]context.Context{"cancelled": cancelled, "late": late{context.Background(), time.Time{}}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
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
		})
	}
}

// Anybody sees who leads, by which number, and that nobody does.
func TestObserve(t *testing.T) {
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		voters, e := election.New(of(""), "leader"), election.New(of("a"), "leader")
		time.AfterFunc(time.Second, func() {
			term, err := e.Campaign(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			fence, _ := term.Fence()
			if info, err := voters.Leader(t.Context()); err != nil || !info.Held || info.Label != "a" || info.Fence != fence {
				t.Errorf("Leader = %+v, %v, want a with the number %d", info, err, fence)
			}
			time.Sleep(30 * time.Second)
			term.Release(t.Context())
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var seen []string
		began := time.Now()
		for info, err := range voters.Observe(ctx, 8*time.Second) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, fmt.Sprintf("%v %s", time.Since(began), info.Label))
		}
		if want := "0s ,8s a,32s "; strings.Join(seen, ",") != want {
			t.Errorf("the leaders seen are %q, want %q", strings.Join(seen, ","), want)
		}
	})
}

func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../docs/use/leaders.md")
	if err != nil {
		t.Error(err)
	}
	if from["../../election/example_test.go"] == 0 {
		t.Errorf("docs/use/leaders.md quotes %v, want example_test.go", from)
	}
}
