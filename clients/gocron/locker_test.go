// Tests what a Locker keeps, for how long, and what it leaves after a refusal. Time is virtual.
package gocronlocks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	gocronlocks "github.com/lockstrategies/locks/clients/gocron"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
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
	for _, dies := range []bool{false, true} {
		bubble(t, func(t *testing.T, server *lockstest.Memory) {
			const atLeast = time.Minute
			mine := open(t, server)
			a := newLocker(t, mine, gocronlocks.Options{AtLeast: atLeast})
			b := newLocker(t, open(t, server), gocronlocks.Options{AtLeast: atLeast})
			run, began := lock(t, a), time.Now()
			if dies {
				mine.Close()
			} else {
				redistest.Must(t, run.Unlock(t.Context()))
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
			lock(t, b)
		})
	}
}

// A job that runs longer than AtLeast and the TTL keeps its hold. When it ends it is free at once. Without options a Locker is
// a lock for the time of the job, and nothing of it stays.
func TestHold(t *testing.T) {
	for _, o := range []gocronlocks.Options{{}, {AtLeast: ttl / 2}} {
		bubble(t, func(t *testing.T, server *lockstest.Memory) {
			a, b := newLocker(t, open(t, server), o), newLocker(t, open(t, server), o)
			run := lock(t, a)
			time.Sleep(5 * ttl)
			if _, err := b.Lock(t.Context(), "report"); heldBy(err) != "report" {
				t.Errorf("Lock while the job runs = %v, want that the hold is held", err)
			}
			redistest.Must(t, run.Unlock(t.Context()))
			redistest.Must(t, lock(t, b).Unlock(t.Context())) // its refusal above has left no mark
			if n := a.Runs() + b.Runs(); n > 0 {
				t.Errorf("the Lockers remember %d runs that are over", n)
			}
			if left, err := server.Leftovers(t.Context(), "lock:{report}"); err != nil || len(left) > 0 {
				t.Errorf("the server keeps %q (%v), want nothing", left, err)
			}
		})
	}
}

// A run asks for its marks first, each for its own time, and for its hold last. The marks have the user's options: Label,
// Observe. They lapse, and nobody is notified of that as of a loss.
func TestAsks(t *testing.T) {
	bubble(t, func(t *testing.T, server *lockstest.Memory) {
		var mu sync.Mutex
		var asked, heard []string
		server.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
			if c := r.Claims[0]; r.Op == lockstest.OpAcquire {
				_, label, _ := strings.Cut(c.Token, ":")
				mu.Lock()
				asked = append(asked, fmt.Sprintf("%s by %s for %v, its fence for %v", c.Name, label, c.TTL, c.FenceTTL))
				mu.Unlock()
			}
			return serve()
		})
		locks, err := engine.New(server, strategy.Options{TTL: ttl, FenceTTL: time.Hour, Label: "mine", Observe: func(e strategy.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == strategy.EventAcquired || e.Kind == strategy.EventLost {
				heard = append(heard, fmt.Sprint(e.Kind, " ", e.Name))
			}
		}})
		redistest.Must(t, err)
		t.Cleanup(func() { locks.Close() })
		l := newLocker(t, locks, gocronlocks.Options{AtLeast: time.Minute})
		start(t, func(s gocron.Scheduler) {
			redistest.Must(t, l.KeyPerTick(s, 7*time.Minute))
			add(t, s, everyMinute(), l.Task(func(context.Context, strategy.Lease) error {
				time.Sleep(10 * time.Minute)
				return nil
			}), gocron.WithName("report"))
		}, gocron.WithDistributedLocker(l))
		time.Sleep(20 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{
			"report@2000-01-01T00:01:00Z by mine for 7m0s, its fence for 14m0s",
			"report/at-least by mine for 1m0s, its fence for 2m0s",
			"report by mine for 10s, its fence for 1h0m0s",
		}; !slices.Equal(asked[:min(3, len(asked))], want) {
			t.Errorf("the run asks for %q, want %q", asked, want)
		}
		if want := []string{"acquired report@2000-01-01T00:01:00Z", "acquired report/at-least", "acquired report"}; !slices.Equal(heard[:min(3, len(heard))], want) ||
			slices.ContainsFunc(heard, func(what string) bool { return strings.HasPrefix(what, "lost") }) {
			t.Errorf("the user's Observe hears %q, want %q first, and of no loss", heard, want)
		}
	})
}

// Unlock says that the hold was lost, or that nobody knows, and the run is over for the Locker all the same.
func TestUnlockFails(t *testing.T) {
	for _, want := range []error{strategy.ErrLost, strategy.ErrUnknown} {
		bubble(t, func(t *testing.T, server *lockstest.Memory) {
			l := newLocker(t, open(t, server), gocronlocks.Options{})
			run := lock(t, l)
			if want == strategy.ErrLost {
				server.Evict(t.Context(), "lock:{report}")
			} else {
				server.Intercept(func(context.Context, lockstest.Request, func() error) error { return lockstest.Unknown() })
			}
			if err := run.Unlock(t.Context()); !errors.Is(err, want) {
				t.Errorf("Unlock = %v, want %v", err, want)
			}
			if n := l.Runs(); n > 0 {
				t.Errorf("the Locker remembers %d runs that are over", n)
			}
			server.Intercept(nil)
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
