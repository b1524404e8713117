// Tests that a campaign ends with a term that is kept alive, that Lead begins again after a loss alone, that all see
// the leader, and that docs/election.md quotes compiled code. Time is virtual. Leaders are killed in lab/election.
package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/quotes"
	"github.com/lockstrategies/locks/strategy"
)

const ttl = 10 * time.Second

// bubble runs a test where time is virtual, with a strategy for each name.
func bubble(t *testing.T, test func(t *testing.T, server *conformance.Memory, of func(label string) strategy.Strategy)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var server conformance.Memory
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
	bubble(t, func(t *testing.T, _ *conformance.Memory, of func(string) strategy.Strategy) {
		a, b := election.New(of("a"), "leader"), election.New(of("b"), "leader")
		first, err := a.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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

// A term that cannot be kept alive is none.
func TestCampaignBroken(t *testing.T) {
	b := &broken{}
	if term, err := election.New(b, "leader").Campaign(t.Context()); err != errBroken || term != nil || b.released != 1 {
		t.Errorf("Campaign = %v, %v and %d releases, want %v and one", term, err, b.released, errBroken)
	}
}

// A campaign that ends without a term leaves nothing behind.
func TestCampaignEnds(t *testing.T) {
	t.Run("with its context", func(t *testing.T) {
		bubble(t, func(t *testing.T, server *conformance.Memory, of func(string) strategy.Strategy) {
			term, err := election.New(of("a"), "leader").Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*ttl)
			defer cancel()
			if _, err := election.New(of("b"), "leader").Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, strategy.ErrHeld) {
				t.Errorf("Campaign = %v, want the end of its context, and that another leads", err)
			}
			if err := term.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left, err := server.Leftovers(t.Context(), "lock:{leader}"); err != nil || len(left) > 0 {
				t.Errorf("the server keeps %q (%v), want nothing", left, err)
			}
		})
	})
	t.Run("at Close", func(t *testing.T) {
		bubble(t, func(t *testing.T, _ *conformance.Memory, of func(string) strategy.Strategy) {
			s := of("a")
			s.Close()
			if _, err := election.New(s, "leader").Campaign(t.Context()); !errors.Is(err, strategy.ErrClosed) {
				t.Errorf("Campaign = %v, want ErrClosed", err)
			}
		})
	})
	t.Run("as its term is over at once", func(t *testing.T) {
		if term, err := election.New(brief{}, "leader").Campaign(t.Context()); term != nil || !errors.Is(err, strategy.ErrLost) {
			t.Errorf("Campaign = %v, %v, want ErrLost", term, err)
		}
	})
}

// brief is a strategy whose leases are lost when their holder gets them: the process was paused.
type brief struct{ strategy.Strategy }

func (brief) NewLock(string) strategy.Lock { return briefLock{} }

type briefLock struct{ strategy.Lock }

func (briefLock) Acquire(context.Context) (strategy.Lease, error) { return briefLease{}, nil }

type briefLease struct{ strategy.Lease }

func (briefLease) KeepAlive(time.Duration) error { return strategy.ErrLost }
func (briefLease) Release(context.Context) error { return strategy.ErrLost }

// A loss ends a term and not the campaign, whatever reign returns; an error of the reign ends both.
func TestLead(t *testing.T) {
	bubble(t, func(t *testing.T, server *conformance.Memory, of func(string) strategy.Strategy) {
		locks, enough, terms := of("a"), errors.New("enough"), 0
		err := election.New(locks, "leader").Lead(t.Context(), func(ctx context.Context, _ strategy.Lease) error {
			if terms++; terms == 3 {
				return enough
			}
			server.Evict(ctx, "lock:{leader}")
			<-ctx.Done()
			return []error{nil, ctx.Err()}[terms-1]
		})
		if !errors.Is(err, enough) || terms != 3 {
			t.Errorf("Lead = %v after %d terms, want the reign's error after 3", err, terms)
		}
		if _, err := locks.NewLock("leader").TryAcquire(t.Context()); err != nil {
			t.Errorf("TryAcquire after Lead = %v", err)
		}
	})
}

// The loss of another lock is the reign's own error: it ends Lead.
func TestLeadLosesAnotherLock(t *testing.T) {
	bubble(t, func(t *testing.T, _ *conformance.Memory, of func(string) strategy.Strategy) {
		other, terms := &strategy.LostError{Name: "other"}, 0
		err := election.New(of("a"), "leader").Lead(t.Context(), func(context.Context, strategy.Lease) error {
			if terms++; terms > 1 {
				return errors.New("enough")
			}
			return other
		})
		if !errors.Is(err, other) || terms != 1 {
			t.Errorf("Lead = %v after %d terms, want %v after one", err, terms, other)
		}
	})
}

// Once its context has ended, the error says so, also if the reply to the release is lost.
func TestLeadSaysThatItsContextEnded(t *testing.T) {
	bubble(t, func(t *testing.T, server *conformance.Memory, of func(string) strategy.Strategy) {
		ctx, cancel := context.WithCancel(t.Context())
		err := election.New(of("a"), "leader").Lead(ctx, func(context.Context, strategy.Lease) error {
			server.Intercept(func(_ context.Context, r conformance.Request, serve func() error) error {
				if err := serve(); err != nil || r.Op != conformance.OpRelease {
					return err
				}
				return conformance.Unknown()
			})
			cancel()
			return nil
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, strategy.ErrUnknown) {
			t.Errorf("Lead = %v, want the end of its context, and that the release is unknown", err)
		}
		server.Intercept(nil)
	})
}

// Lead ends also in the context of another lock that is lost: the loss is the cause of its end.
func TestLeadEndsWithAnotherLock(t *testing.T) {
	bubble(t, func(t *testing.T, _ *conformance.Memory, of func(string) strategy.Strategy) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(&strategy.LostError{Name: "other"})
		err := election.New(of("a"), "leader").Lead(ctx, func(context.Context, strategy.Lease) error { return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Lead = %v, want the end of its context", err)
		}
	})
}

// The end of its context ends Lead, in a term and in a campaign.
func TestLeadEnds(t *testing.T) {
	bubble(t, func(t *testing.T, _ *conformance.Memory, of func(string) strategy.Strategy) {
		ctx, cancel := context.WithCancel(t.Context())
		terms := 0
		reign := func(ctx context.Context, _ strategy.Lease) error {
			terms++
			<-ctx.Done()
			return nil
		}
		ends := make(chan error)
		for _, label := range []string{"a", "b"} {
			e := election.New(of(label), "leader")
			go func() { ends <- e.Lead(ctx, reign) }()
		}
		time.Sleep(3 * ttl)
		cancel()
		for range 2 {
			if err := <-ends; !errors.Is(err, context.Canceled) {
				t.Errorf("Lead = %v, want the end of its context", err)
			}
		}
		if terms != 1 {
			t.Errorf("there were %d terms, want 1", terms)
		}
	})
}

// With RetryOnError a campaign outlasts an outage.
func TestLeadOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, server *conformance.Memory, of func(string) strategy.Strategy) {
		server.Intercept(func(context.Context, conformance.Request, func() error) error { return conformance.Unsent() })
		time.AfterFunc(time.Minute, func() { server.Intercept(nil) })
		began, enough := time.Now(), errors.New("enough")
		err := election.New(of("a"), "leader").Lead(t.Context(), func(context.Context, strategy.Lease) error { return enough })
		if waited := time.Since(began); !errors.Is(err, enough) || waited < time.Minute {
			t.Errorf("Lead = %v after %v, want a term after the outage of a minute", err, waited)
		}
	})
}

// Anybody sees who leads, by which number, and that nobody does.
func TestObserve(t *testing.T) {
	bubble(t, func(t *testing.T, _ *conformance.Memory, of func(string) strategy.Strategy) {
		voters := election.New(of(""), "leader")
		if info, err := voters.Leader(t.Context()); err != nil || info.Held {
			t.Errorf("Leader = %+v, %v, want that nobody leads", info, err)
		}
		for i, label := range []string{"a", "b"} {
			e := election.New(of(label), "leader")
			time.AfterFunc(time.Duration(i)*time.Minute+time.Second, func() {
				term, err := e.Campaign(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(30 * time.Second)
				fence, _ := term.Fence()
				if info, err := voters.Leader(t.Context()); err != nil || !info.Held || info.Label != label || info.Fence != fence {
					t.Errorf("Leader = %+v, %v, want %s with the number %d", info, err, label, fence)
				}
				term.Release(t.Context())
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var seen []string
		var last uint64
		for info, err := range voters.Observe(ctx, time.Second) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, info.Label)
			if info.Held && info.Fence <= last {
				t.Errorf("%s leads by the number %d, want more than %d", info.Label, info.Fence, last)
			}
			last = info.Fence
		}
		if want := ",a,,b,"; strings.Join(seen, ",") != want {
			t.Errorf("the leaders seen are %q, want %q", strings.Join(seen, ","), want)
		}
	})
}

func TestDocQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../docs/election.md")
	if err != nil {
		t.Error(err)
	}
	if from["../election/example_test.go"] == 0 {
		t.Errorf("docs/election.md quotes %v, want example_test.go", from)
	}
}
