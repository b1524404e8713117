// Tests that a campaign ends with a term that is kept alive, that Lead begins again after a loss alone, that all see
// the leader, and that docs/use/leaders.md quotes compiled code. Time is virtual. Leaders are killed in lab/election.
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
		bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
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
		bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
			s := of("a")
			s.Close()
			if _, err := election.New(s, "leader").Campaign(t.Context()); !errors.Is(err, strategy.ErrClosed) {
				t.Errorf("Campaign = %v, want ErrClosed", err)
			}
		})
	})
	t.Run("as its term is over at once", func(t *testing.T) {
		cancelled, cancel := context.WithCancel(t.Context()) // at the same instant
		cancel()
		for _, ctx := range []context.Context{t.Context(), cancelled} {
			if term, err := election.New(brief{}, "leader").Campaign(ctx); term != nil || !errors.Is(err, strategy.ErrLost) {
				t.Errorf("Campaign = %v, %v, want ErrLost", term, err)
			}
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

// A loss ends a term and not the campaign, however it is found and whatever reign returns: the next term begins at once.
// An error of the reign ends both.
func TestLead(t *testing.T) {
	stopped, other := errors.New("stopped"), &strategy.LostError{Name: "other"}
	seen := func(server *lockstest.Memory, ctx context.Context) {
		server.Evict(ctx, "lock:{leader}")
		<-ctx.Done()
	}
	for name, loses := range map[string]func(server *lockstest.Memory, ctx context.Context) error{
		"seen, nil":                 func(server *lockstest.Memory, ctx context.Context) error { seen(server, ctx); return nil },
		"seen, the context's error": func(server *lockstest.Memory, ctx context.Context) error { seen(server, ctx); return ctx.Err() },
		"seen, the context's cause": func(server *lockstest.Memory, ctx context.Context) error {
			seen(server, ctx)
			return context.Cause(ctx)
		},
		"seen, an error":      func(server *lockstest.Memory, ctx context.Context) error { seen(server, ctx); return stopped },
		"seen, another lock":  func(server *lockstest.Memory, ctx context.Context) error { seen(server, ctx); return other },
		"at the release, nil": func(server *lockstest.Memory, ctx context.Context) error { return server.Evict(ctx, "lock:{leader}") },
		"at the release, an error": func(server *lockstest.Memory, ctx context.Context) error {
			server.Evict(ctx, "lock:{leader}")
			return stopped
		},
		"at the release, other lock": func(server *lockstest.Memory, ctx context.Context) error {
			server.Evict(ctx, "lock:{leader}")
			return other
		},
		"at the deadline": func(server *lockstest.Memory, ctx context.Context) error {
			server.Intercept(func(context.Context, lockstest.Request, func() error) error { return lockstest.Unsent() })
			<-ctx.Done()
			server.Intercept(nil)
			time.Sleep(time.Second) // the servers drop the lock a little later
			return nil
		},
		"the maximum hold is over": func(_ *lockstest.Memory, ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			return nil
		},
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
					err := loses(server, ctx)
					over = time.Now()
					return err
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

// The loss of another lock is the reign's own error: it ends Lead, as a failed release does, and a failed campaign.
func TestLeadFails(t *testing.T) {
	other, stopped := &strategy.LostError{Name: "other"}, errors.New("stopped")
	for name, tt := range map[string]struct {
		returns error
		fails   error // the release; nil: it does not
		lost    bool  // before the release, and the next campaign fails: then the reign's error is over with its term
	}{
		"the reign":             {stopped, nil, false},
		"another lock":          {other, nil, false},
		"another context":       {context.Canceled, nil, false},
		"the release":           {nil, strategy.ErrRefused, false},
		"the release, unknown":  {nil, strategy.ErrUnknown, false},
		"the reign and release": {stopped, strategy.ErrRefused, false},
		"the lock and release":  {other, strategy.ErrRefused, false},
		"the next campaign":     {stopped, strategy.ErrRefused, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
				locks, err := of("a").With(func(o *strategy.Options) { o.RetryOnError = false }) // a campaign ends when the servers fail
				if err != nil {
					t.Fatal(err)
				}
				terms := 0
				err = election.New(locks, "leader").Lead(t.Context(), func(ctx context.Context, _ strategy.Lease) error {
					if terms++; terms > 1 {
						return errors.New("a second term")
					}
					if tt.lost {
						server.Evict(ctx, "lock:{leader}")
					}
					server.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
						switch {
						case tt.fails == nil || r.Op == lockstest.OpRelease == tt.lost:
							return serve()
						case tt.fails == strategy.ErrUnknown:
							return lockstest.Unknown()
						}
						return lockstest.Refused("READONLY")
					})
					return tt.returns
				})
				server.Intercept(nil)
				if tt.returns != nil && errors.Is(err, tt.returns) == tt.lost || tt.fails != nil && !errors.Is(err, tt.fails) || terms != 1 {
					t.Errorf("Lead = %v after %d terms, want %v and %v after one", err, terms, tt.returns, tt.fails)
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
	lostReply := func(_ context.Context, r lockstest.Request, serve func() error) error {
		if err := serve(); err != nil || r.Op != lockstest.OpRelease {
			return err
		}
		return lockstest.Unknown()
	}
	evict := func(server *lockstest.Memory) { server.Evict(context.Background(), "lock:{leader}") }
	for name, reign := range map[string]struct {
		does func(server *lockstest.Memory, ctx context.Context, term strategy.Lease) error
		want []error
	}{
		"it resigns": {func(*lockstest.Memory, context.Context, strategy.Lease) error { return nil }, nil},
		"it waits": {func(_ *lockstest.Memory, ctx context.Context, _ strategy.Lease) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil},
		"it fails": {func(*lockstest.Memory, context.Context, strategy.Lease) error { return stopped }, []error{stopped}},
		"unknown": {func(server *lockstest.Memory, _ context.Context, _ strategy.Lease) error {
			server.Intercept(lostReply)
			return nil
		}, []error{strategy.ErrUnknown}},
		"it fails, unknown": {func(server *lockstest.Memory, _ context.Context, _ strategy.Lease) error {
			server.Intercept(lostReply)
			return stopped
		}, []error{stopped, strategy.ErrUnknown}},
		"lost at the release": {func(server *lockstest.Memory, _ context.Context, _ strategy.Lease) error { evict(server); return nil }, []error{strategy.ErrLost}},
		"lost and it fails": {func(server *lockstest.Memory, _ context.Context, _ strategy.Lease) error {
			evict(server)
			return stopped
		}, []error{stopped, strategy.ErrLost}},
		"it says it is lost": {func(server *lockstest.Memory, _ context.Context, term strategy.Lease) error {
			evict(server)
			return fmt.Errorf("%w: %w", stopped, term.Extend(context.Background()))
		}, []error{stopped, strategy.ErrLost}},
	} {
		for how, end := range map[string]struct {
			begin func(parent context.Context) (ctx context.Context, stop func())
			want  []error // why comes with the end of the context
		}{
			"cancelled": {func(parent context.Context) (context.Context, func()) {
				ctx, cancel := context.WithCancelCause(parent)
				return ctx, func() { cancel(why) }
			}, []error{context.Canceled, why}},
			"deadline": {func(parent context.Context) (context.Context, func()) {
				ctx, cancel := context.WithTimeoutCause(parent, time.Second, why)
				return ctx, func() { <-ctx.Done(); cancel() }
			}, []error{context.DeadlineExceeded, why}},
			"deadline, and no timer runs": {func(parent context.Context) (context.Context, func()) {
				ctx, cancel := context.WithTimeout(parent, time.Hour)
				t.Cleanup(cancel)
				return late{ctx, time.Now().Add(time.Second)}, func() { time.Sleep(time.Second) }
			}, []error{context.DeadlineExceeded}},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
					ctx, stop := end.begin(t.Context())
					terms := 0
					err := election.New(of("a"), "leader").Lead(ctx, func(ctx context.Context, term strategy.Lease) error {
						terms++
						stop()
						return reign.does(server, ctx, term)
					})
					want := append(slices.Clone(reign.want), end.want[0])
					if name == "it resigns" {
						want = append(want, end.want...)
					}
					for _, want := range want {
						if !errors.Is(err, want) {
							t.Errorf("Lead = %v, want %v", err, want)
						}
					}
					if strings.Count(err.Error(), "the key is gone") > 1 {
						t.Errorf("Lead = %v, want that the loss is said once", err)
					}
					if terms != 1 {
						t.Errorf("there were %d terms, want 1", terms)
					}
					server.Intercept(nil)
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

// Where the lock is re-entrant, candidates of one owner are one candidate, whether they campaign or lead.
func TestOneOwner(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
		server.Reentrant = true
		a, b := election.New(of("a"), "leader"), election.New(of("b"), "leader")
		ctx, cancel := context.WithTimeout(strategy.WithOwner(t.Context(), "shop"), ttl)
		defer cancel()
		term, err := a.Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		if err := b.Lead(ctx, func(context.Context, strategy.Lease) error { return enough }); err != enough {
			t.Errorf("Lead of the same owner = %v, want the reign's error", err)
		}
		if _, err := b.Campaign(strategy.WithOwner(ctx, "another")); !errors.Is(err, strategy.ErrHeld) {
			t.Errorf("Campaign of another owner = %v, want ErrHeld", err)
		}
		if err := term.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The end of its context ends Lead, in a term and in a campaign. A reign that resigns by itself does not.
func TestLeadEnds(t *testing.T) {
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
		ctx, cancel := context.WithCancel(t.Context())
		terms := 0
		reign := func(ctx context.Context, term strategy.Lease) error {
			if terms++; terms == 1 {
				return term.Release(ctx)
			}
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
		if terms != 2 {
			t.Errorf("there were %d terms, want 2", terms)
		}
	})
}

// With RetryOnError a campaign outlasts an outage.
func TestLeadOutlastsAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory, of func(string) strategy.Strategy) {
		server.Intercept(func(context.Context, lockstest.Request, func() error) error { return lockstest.Unsent() })
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
	bubble(t, func(t *testing.T, _ *lockstest.Memory, of func(string) strategy.Strategy) {
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
		began := time.Now()
		for info, err := range voters.Observe(ctx, 8*time.Second) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, fmt.Sprintf("%v %s", time.Since(began), info.Label))
			if info.Held && info.Fence <= last {
				t.Errorf("%s leads by the number %d, want more than %d", info.Label, info.Fence, last)
			}
			last = info.Fence
		}
		if want := "0s ,8s a,32s ,1m4s b,1m36s "; strings.Join(seen, ",") != want {
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
