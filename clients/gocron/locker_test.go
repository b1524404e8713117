// Tests what a Locker keeps, for how long, and what it leaves after a refusal. Time is virtual.
package gocronlocks_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// heldBy returns the name of the lock that an instance found held; empty: the error says something else.
func heldBy(err error) string {
	var held *strategy.HeldError
	if !errors.As(err, &held) {
		return ""
	}
	return held.Name
}

// No other instance runs the job while it runs, nor for AtLeast after its start, also if the job has ended or its
// instance has died.
func TestAtLeast(t *testing.T) {
	for name, end := range map[string]func(context.Context, gocron.Lock, strategy.Strategy) error{
		"the job ends":      func(ctx context.Context, run gocron.Lock, _ strategy.Strategy) error { return run.Unlock(ctx) },
		"the instance dies": func(_ context.Context, _ gocron.Lock, locks strategy.Strategy) error { return locks.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				const atLeast = time.Minute
				mine := open(t, server)
				a := newLocker(t, mine, gocronlocks.Options{AtLeast: atLeast})
				b := newLocker(t, open(t, server), gocronlocks.Options{AtLeast: atLeast})
				run, err := a.Lock(t.Context(), "report")
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if err := end(t.Context(), run, mine); err != nil {
					t.Fatal(err)
				}
				for time.Since(began) < atLeast-time.Second {
					if _, err := b.Lock(t.Context(), "report"); heldBy(err) != "report/at-least" {
						t.Fatalf("%v after the start: Lock = %v, want that the mark is held", time.Since(began), err)
					}
					time.Sleep(time.Second)
				}
				if _, err := b.Lock(t.Context(), "other"); err != nil {
					t.Errorf("Lock of another job = %v", err)
				}
				time.Sleep(time.Second + time.Millisecond)
				if _, err := b.Lock(t.Context(), "report"); err != nil {
					t.Errorf("%v after the start: Lock = %v, want nil", time.Since(began), err)
				}
			})
		})
	}
}

// A job that runs longer than AtLeast and the TTL keeps its hold. When it ends it is free at once.
func TestHold(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		o := gocronlocks.Options{AtLeast: ttl / 2}
		a, b := newLocker(t, open(t, server), o), newLocker(t, open(t, server), o)
		run, err := a.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ttl)
		if _, err := b.Lock(t.Context(), "report"); heldBy(err) != "report" {
			t.Errorf("Lock while the job runs = %v, want that the hold is held", err)
		}
		if err := run.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
		// Its refusal above has left no mark.
		run, err = b.Lock(t.Context(), "report")
		if err != nil {
			t.Fatalf("Lock when the job has ended = %v", err)
		}
		if err := run.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock = %v", err)
		}
	})
}

// Without options a Locker is a lock for the time of the job.
func TestPlain(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		l := newLocker(t, open(t, server), gocronlocks.Options{})
		for range 2 {
			run, err := l.Lock(t.Context(), "report")
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Unlock(t.Context()); err != nil {
				t.Errorf("Unlock = %v", err)
			}
		}
		if n := l.Runs(); n > 0 {
			t.Errorf("the Locker remembers %d runs that are over", n)
		}
		if left, err := server.Leftovers(t.Context(), "lock:{report}"); err != nil || len(left) > 0 {
			t.Errorf("the server keeps %q (%v), want nothing", left, err)
		}
	})
}

// A run asks for its marks first, each for its own time, and for its hold last. The marks have the user's options: Label,
// Observe. They lapse, and nobody is notified of that as of a loss.
func TestAsks(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		var mu sync.Mutex
		var asked []driver.Claim
		server.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
			if r.Op == lockstest.OpAcquire {
				mu.Lock()
				asked = append(asked, r.Claims[0])
				mu.Unlock()
			}
			return serve()
		})
		var granted, lost []string
		locks, err := engine.New(server, strategy.Options{TTL: ttl, Label: "mine", Observe: func(e strategy.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case strategy.EventAcquired:
				granted = append(granted, e.Name)
			case strategy.EventLost:
				lost = append(lost, e.Name)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locks.Close() })
		l := newLocker(t, locks, gocronlocks.Options{AtLeast: time.Minute})
		start(t, func(s gocron.Scheduler) {
			if err := l.KeyPerTick(s, 7*time.Minute); err != nil {
				t.Fatal(err)
			}
			add(t, s, everyMinute(), l.Task(func(ctx context.Context, _ strategy.Lease) error {
				time.Sleep(10 * time.Minute)
				return nil
			}), gocron.WithName("report"))
		}, gocron.WithDistributedLocker(l))
		time.Sleep(time.Minute + time.Second)
		mu.Lock()
		got := slices.Clone(asked)
		mu.Unlock()
		want := []struct {
			name          string
			ttl, fenceTTL time.Duration
			label         string
		}{
			{"report@2000-01-01T00:01:00Z", 7 * time.Minute, 14 * time.Minute, "mine"},
			{"report/at-least", time.Minute, 2 * time.Minute, "mine"},
			{"report", ttl, 0, "mine"},
		}
		if len(got) != len(want) {
			t.Fatalf("the run asks for %+v, want %+v", got, want)
		}
		for i, w := range want {
			c := got[i]
			if c.Name != w.name || c.TTL != w.ttl || w.fenceTTL != 0 && c.FenceTTL != w.fenceTTL || w.label != labelOf(c.Token) {
				t.Errorf("the run asks for %+v, want %+v", c, w)
			}
		}
		time.Sleep(20 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if lost != nil {
			t.Errorf("lost are %q, want none", lost)
		}
		if want := []string{want[0].name, want[1].name, want[2].name}; len(granted) < 3 || !slices.Equal(granted[:3], want) {
			t.Errorf("the user's Observe hears of the grants of %q, want %q", granted, want)
		}
	})
}

func labelOf(token string) string {
	_, label, _ := strings.Cut(token, ":")
	return label
}

// Unlock says that the hold was lost, or that nobody knows, and the run is over for the Locker all the same.
func TestUnlockFails(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(server *lockstest.Memory)
		want   error
	}{
		"lost": {func(server *lockstest.Memory) { server.Evict(context.Background(), "lock:{report}") }, strategy.ErrLost},
		"unknown": {func(server *lockstest.Memory) {
			server.Intercept(func(context.Context, lockstest.Request, func() error) error { return lockstest.Unknown() })
		}, strategy.ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				l := newLocker(t, open(t, server), gocronlocks.Options{})
				run, err := l.Lock(t.Context(), "report")
				if err != nil {
					t.Fatal(err)
				}
				tt.before(server)
				if err := run.Unlock(t.Context()); !errors.Is(err, tt.want) {
					t.Errorf("Unlock = %v, want %v", err, tt.want)
				}
				if n := l.Runs(); n > 0 {
					t.Errorf("the Locker remembers %d runs that are over", n)
				}
				server.Intercept(nil)
			})
		})
	}
}

// late is a context whose deadline has passed, and whose timer has not run.
type late struct{ context.Context }

func (late) Deadline() (time.Time, bool) { return time.Time{}, true }

// After a failure the instance holds nothing, and the next one gets the lock.
func TestFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		fault lockstest.Fault // of the request for the hold
		want  error
	}{
		"the deadline has passed, and no timer has run": {nil, context.DeadlineExceeded},
		"nobody there": {func(context.Context, lockstest.Request, func() error) error { return lockstest.Unsent() }, strategy.ErrUnsent},
		"the reply is lost": {func(_ context.Context, _ lockstest.Request, serve func() error) error {
			serve()
			return lockstest.Unknown()
		}, strategy.ErrUnknown},
		"the mark lapses meanwhile": {func(_ context.Context, _ lockstest.Request, serve func() error) error {
			time.Sleep(200 * time.Millisecond)
			return serve()
		}, strategy.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, server *lockstest.Memory) {
				o := gocronlocks.Options{AtLeast: 100 * time.Millisecond}
				a, b := newLocker(t, open(t, server), o), newLocker(t, open(t, server), o)
				server.Intercept(func(ctx context.Context, r lockstest.Request, serve func() error) error {
					if r.Op == lockstest.OpAcquire && r.Claims[0].Name == "report" {
						return tt.fault(ctx, r, serve)
					}
					return serve()
				})
				ctx := t.Context()
				if tt.fault == nil {
					ctx = late{ctx}
				}
				if run, err := a.Lock(ctx, "report"); !errors.Is(err, tt.want) || run != nil {
					t.Errorf("Lock = %v, %v, want %v", run, err, tt.want)
				}
				if n := server.Requests(); tt.fault == nil && n > 0 {
					t.Errorf("there were %d requests, want none in a context whose deadline has passed", n)
				}
				if n := a.Runs(); n > 0 {
					t.Errorf("the Locker remembers %d runs that did not begin", n)
				}
				server.Intercept(nil)
				time.Sleep(50 * time.Millisecond) // what is undone in the background is undone; AtLeast is not over
				if _, err := b.Lock(t.Context(), "report"); err != nil {
					t.Errorf("the next Lock = %v", err)
				}
			})
		})
	}
}

// broken is a Strategy, its only lock and its only lease, which cannot be kept alive.
type broken struct {
	strategy.Strategy
	strategy.Lock
	strategy.Lease
	released int
}

var errBroken = errors.New("broken")

func (b *broken) With(func(*strategy.Options)) (strategy.Strategy, error) { return b, nil }
func (b *broken) NewLock(string) strategy.Lock                            { return b }
func (b *broken) TryAcquire(context.Context) (strategy.Lease, error)      { return b, nil }
func (b *broken) Name() string                                            { return "" }
func (b *broken) KeepAlive(time.Duration) error                           { return errBroken }
func (b *broken) Detach() (string, error)                                 { return "", nil }
func (b *broken) Release(context.Context) error                           { b.released++; return nil }

// A run whose hold cannot be kept alive does not begin, and gives up the hold and the mark.
func TestKeepAliveFails(t *testing.T) {
	b := &broken{}
	run, err := newLocker(t, b, gocronlocks.Options{AtLeast: time.Minute}).Lock(t.Context(), "report")
	if !errors.Is(err, errBroken) || run != nil || b.released != 2 {
		t.Errorf("Lock = %v, %v and %d releases, want %v and two", run, err, b.released, errBroken)
	}
}

// A re-entrant lock does not let a job in again whose context names an owner.
func TestOwner(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		server.Reentrant = true
		l := newLocker(t, open(t, server), gocronlocks.Options{})
		ctx := strategy.WithOwner(t.Context(), "instance")
		if _, err := l.Lock(ctx, "report"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Lock(ctx, "report"); heldBy(err) != "report" {
			t.Errorf("a second Lock = %v, want that it is held", err)
		}
	})
}

// Options that are not allowed are refused, in words that say what is.
func TestOptions(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		locks := open(t, server)
		l := newLocker(t, locks, gocronlocks.Options{})
		for _, d := range []time.Duration{-time.Second, time.Microsecond, 25 * time.Hour} {
			_, err := gocronlocks.NewLocker(locks, gocronlocks.Options{AtLeast: d})
			if err == nil || !strings.HasPrefix(err.Error(), "gocronlocks: Options.AtLeast is "+d.String()+": allowed are 0 (none) and ") {
				t.Errorf("NewLocker with AtLeast %v = %v", d, err)
			}
			err = l.KeyPerTick(nil, d)
			if err == nil || !strings.HasPrefix(err.Error(), "gocronlocks: KeyPerTick keeps a key for "+d.String()+": allowed is ") {
				t.Errorf("KeyPerTick for %v = %v", d, err)
			}
		}
		if err := l.KeyPerTick(nil, 0); err == nil || !strings.Contains(err.Error(), "more than 0") {
			t.Errorf("KeyPerTick for 0 = %v", err)
		}
	})
}
