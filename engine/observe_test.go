// Events: which ones each call reports, in which order, and what they cost.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// diary keeps events as lines: kind, attempt, duration, error's kind.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) observe(e strategy.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line := e.Kind.String()
	if e.Attempt > 0 {
		line += fmt.Sprintf(" %d", e.Attempt)
	}
	line += fmt.Sprintf(" %v", e.Elapsed)
	for _, kind := range []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrUnsent, strategy.ErrUnknown, strategy.ErrRefused, strategy.ErrClosed} {
		if errors.Is(e.Err, kind) {
			line += " " + strings.ReplaceAll(kind.Error(), " ", "-")
		}
	}
	if want := map[bool]int{true: 0, false: 36}[e.Kind == strategy.EventAsked || e.Kind == strategy.EventRetry || e.Kind == strategy.EventMissed]; e.Name != name || len(e.Token) != want {
		line += fmt.Sprintf(" of %q by %q", e.Name, e.Token)
	}
	d.lines = append(d.lines, line)
}

func (d *diary) check(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	equal(t, "events", "\n"+strings.Join(d.lines, "\n"), "\n"+strings.Join(want, "\n"))
	d.lines = nil
}

// Each story with its events, in order, with their durations.
func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		what string
		tell func(t *testing.T, m *lockstest.Memory, s strategy.Strategy)
		want []string
	}{
		{"acquired and released", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			m.Intercept(slow(ms, 2*ms))
			lease := take(t, s)
			time.Sleep(time.Second)
			release(t, lease)
		}, []string{"asked 0s", "attempt 1 3ms", "acquired 1 3ms", "released 1.006s"}},

		{"renewed", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			m.Intercept(slow(ms, 0))
			lease := take(t, s)
			is(t, "Extend", lease.Extend(bg))
			release(t, lease)
		}, []string{"asked 0s", "attempt 1 1ms", "acquired 1 1ms", "renewed 1ms", "released 3ms"}},

		{"held", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			m.Acquire(bg, driver.Claim{Key: key, Token: "x", TTL: ttl})
			_, err := s.NewLock(name).TryAcquire(bg)
			is(t, "TryAcquire", err, strategy.ErrHeld)
		}, []string{"asked 0s", "attempt 1 0s held-by-another", "held 1 0s held-by-another", "missed 0s held-by-another"}},

		{"waited", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			c := driver.Claim{Key: key, Token: "x", TTL: ttl}
			m.Acquire(bg, c)
			w := wait(bg, s)
			time.Sleep(3 * time.Second)
			m.Intercept(slow(ms, 0))
			m.Release(bg, c)
			<-w.done
			release(t, w.lease)
		}, []string{
			"asked 0s", "attempt 1 0s held-by-another", "held 1 0s held-by-another",
			"attempt 2 0s held-by-another", "held 2 0s held-by-another", // once it was subscribed
			"attempt 3 1ms", "acquired 3 3.002s", "released 2ms",
		}},

		{"lapsed", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			take(t, s) // nobody watches but the observer
			time.Sleep(ttl)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "lost 9.898s lock-lost"}},

		{"lost by the server's word", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			lease := take(t, s)
			m.Evict(bg, key)
			time.Sleep(time.Second)
			is(t, "Extend", lease.Extend(bg), strategy.ErrLost)
			is(t, "Release", lease.Release(bg), strategy.ErrLost)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "lost 1s lock-lost"}},

		{"lost by the server's word at the release", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			lease := take(t, s)
			m.Evict(bg, key)
			is(t, "Release", lease.Release(bg), strategy.ErrLost)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "released 0s lock-lost"}},

		{"renewal-failed", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			lease := take(t, s)
			time.Sleep(valid - 600*ms)
			m.Intercept(unsent)
			lease.KeepAlive(0)
			<-lease.Lost()
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "renewal-failed 0s not-sent", "renewal-failed 0s not-sent", "lost 9.898s lock-lost not-sent"}},

		{"failing and recovered", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			lease := take(t, s)
			time.Sleep(5 * time.Second)
			m.Intercept(lostReply)
			lease.KeepAlive(0)
			synctest.Wait()
			m.Intercept(nil)
			time.Sleep(ttl/20 + ms)
			release(t, lease)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "renewal-failed 0s outcome-unknown", "renewed 0s", "released 5.501s"}},

		{"attempts that fail", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			for _, fault := range []lockstest.Fault{unsent, refused, lostRequest} {
				m.Intercept(fault)
				s.NewLock(name).Acquire(bg)
			}
			m.Intercept(nil)
		}, []string{
			"asked 0s", "attempt 1 0s not-sent", "missed 0s not-sent",
			"asked 0s", "attempt 1 0s refused-by-the-server", "missed 0s refused-by-the-server",
			"asked 0s", "attempt 1 0s outcome-unknown", "missed 0s outcome-unknown",
		}},

		{"release of unknown outcome", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			lease := take(t, s)
			m.Intercept(lostReply)
			is(t, "Release", lease.Release(bg), strategy.ErrUnknown)
			m.Intercept(nil)
			is(t, "Release", lease.Release(bg), strategy.ErrReleased)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "released 0s outcome-unknown"}},

		{"detached and adopted", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			token, err := take(t, s).Detach()
			is(t, "Detach", err)
			m.Intercept(slow(ms, 2*ms))
			lease, err := s.Adopt(bg, name, token)
			is(t, "Adopt", err)
			time.Sleep(time.Second)
			release(t, lease)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "released 0s", "asked 0s", "acquired 1 3ms", "released 1.006s"}},

		{"granted when the wait was over", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			c := driver.Claim{Key: key, Token: "x", TTL: ttl}
			m.Acquire(bg, c)
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			w := wait(ctx, s)
			time.Sleep(990 * ms)
			m.Intercept(only(lockstest.OpAcquire, slow(20*ms, 0)))
			m.Release(bg, c)
			<-w.done
			is(t, "Acquire", w.err, strategy.ErrHeld)
			time.Sleep(op)
		}, []string{
			"asked 0s", "attempt 1 0s held-by-another", "held 1 0s held-by-another",
			"attempt 2 0s held-by-another", "held 2 0s held-by-another",
			"attempt 3 20ms", "missed 1.01s held-by-another", // and given back
		}},

		{"never asked for", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			over, cancel := context.WithCancel(bg)
			cancel()
			l := s.NewLock(name)
			for what, call := range map[string]func() (strategy.Lease, error){
				"TryAcquire": func() (strategy.Lease, error) { return l.TryAcquire(over) },
				"Acquire":    func() (strategy.Lease, error) { return l.Acquire(over) },
				"Adopt":      func() (strategy.Lease, error) { return s.Adopt(over, name, "x") },
			} {
				_, err := call()
				is(t, what, err, context.Canceled)
			}
		}, []string{"asked 0s", "missed 0s", "asked 0s", "missed 0s", "asked 0s", "missed 0s"}},

		{"adopted while it was closed", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			token, err := take(t, s).Detach()
			is(t, "Detach", err)
			m.Intercept(slow(0, 20*ms))
			go func() {
				time.Sleep(10 * ms)
				s.Close()
			}()
			_, err = s.Adopt(bg, name, token)
			is(t, "Adopt", err, strategy.ErrClosed)
			time.Sleep(ttl)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "released 0s", "asked 0s", "missed 20ms strategy-closed"}},

		{"closed and released", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			lease := take(t, s)
			is(t, "Close", s.Close())
			is(t, "Release", lease.Release(bg), strategy.ErrClosed)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "released 0s strategy-closed"}},

		{"closed and lost", func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
			take(t, s)
			is(t, "Close", s.Close())
			time.Sleep(ttl)
		}, []string{"asked 0s", "attempt 1 0s", "acquired 1 0s", "lost 9.898s lock-lost"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				var d diary
				s := open(t, &m, strategy.Options{Wait: strategy.WaitNotification, Observe: d.observe})
				tt.tell(t, &m, s)
				d.check(t, tt.want...)
				is(t, "Close", s.Close())
			})
		})
	}
}

// TestEventRetry: a call that goes on while the servers fail reports that when they have failed it for 10 s,
// and again after 10 s each. An answer ends the count.
func TestEventRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		var mu sync.Mutex
		var retries []strategy.Event
		s := open(t, &m, strategy.Options{RetryOnError: true, Wait: strategy.WaitPoll, Observe: func(e strategy.Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Kind == strategy.EventRetry {
				retries = append(retries, e)
			}
		}})
		wants := func(what string, faults ...error) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			equal(t, what, len(retries), len(faults))
			for i, e := range retries {
				is(t, what, e.Err, faults[i])
				if e.Name != name || e.Token != "" || e.Attempt < 10 || e.Context == nil {
					t.Errorf("%s: event %+v", what, e)
				}
			}
			retries = nil
		}
		ctx, cancel := context.WithCancel(bg)
		m.Intercept(unsent)
		w := wait(ctx, s)
		time.Sleep(9900 * ms)
		wants("before the first 10 s")
		time.Sleep(25 * time.Second)
		wants("an outage of 35 s", strategy.ErrUnsent, strategy.ErrUnsent, strategy.ErrUnsent)
		m.Intercept(nil)
		m.Acquire(bg, driver.Claim{Key: key, Token: "x", TTL: time.Hour})
		time.Sleep(time.Minute)
		wants("the lock is held")
		m.Intercept(refused)
		time.Sleep(9900 * ms)
		wants("before 10 s of refusals")
		time.Sleep(time.Second)
		wants("refusals", strategy.ErrRefused)
		cancel()
		<-w.done
		is(t, "Close", s.Close())
	})
}

// TestEventsOfALateAdoption: nobody loses what nobody has had.
func TestEventsOfALateAdoption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		var d diary
		s := open(t, &m, strategy.Options{TTL: 20 * ms, OpTimeout: 19 * ms, Observe: d.observe})
		token, err := take(t, s).Detach()
		is(t, "Detach", err)
		m.Intercept(only(lockstest.OpAdopt, slow(0, 18*ms)))
		_, err = s.Adopt(bg, name, token)
		is(t, "Adopt", err, strategy.ErrLost)
		time.Sleep(ttl)
		d.check(t, "asked 0s", "attempt 1 0s", "acquired 1 0s", "released 0s", "asked 0s", "missed 18ms lock-lost")
	})
}

// TestLossOfWhatNobodyHasYet: a waiter that gets the lock by another's release, and is kept
// from taking it until its deadline is over, is first notified that it has the lock, and then
// that it is lost.
func TestLossOfWhatNobodyHasYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Reentrant = true
		var d diary
		s := open(t, &m, strategy.Options{})
		first := take(t, s)
		holder := wait(bg, s)
		synctest.Wait()
		release(t, first)
		<-holder.done
		is(t, "Acquire", holder.err)

		var once sync.Once
		slow, err := s.With(func(o *strategy.Options) {
			o.Observe = func(e strategy.Event) {
				d.observe(e)
				if e.Kind == strategy.EventAttempt {
					once.Do(func() { time.Sleep(2 * ttl) })
				}
			}
		})
		is(t, "With", err)
		successor := wait(strategy.WithOwner(bg, "successor"), slow) // asks whether it holds the lock already
		synctest.Wait()
		release(t, holder.lease)
		<-successor.done
		is(t, "Err", successor.lease.Err(), strategy.ErrLost)
		d.check(t,
			"asked 0s", "attempt 1 0s held-by-another", "held 1 0s held-by-another",
			"acquired 1 20s", "lost 20s lock-lost")
	})
}

// TestEventContext: an event has the values of the call's context; one that no call has made
// has none.
func TestEventContext(t *testing.T) {
	type traceKey struct{}
	trace := func(call string) context.Context { return context.WithValue(bg, traceKey{}, call) }
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		var seen []string
		s := open(t, &m, strategy.Options{Observe: func(e strategy.Event) {
			seen = append(seen, fmt.Sprintf("%v %v", e.Kind, e.Context.Value(traceKey{})))
		}})
		l := s.NewLock(name)
		lease, err := l.TryAcquire(trace("try"))
		is(t, "TryAcquire", err)
		_, err = l.TryAcquire(trace("rival"))
		is(t, "TryAcquire", err, strategy.ErrHeld)
		is(t, "Extend", lease.Extend(trace("extend")))
		m.Intercept(unsent)
		is(t, "Extend", lease.Extend(trace("failing")), strategy.ErrUnsent)
		m.Intercept(nil)
		is(t, "KeepAlive", lease.KeepAlive(0))
		time.Sleep(ttl / 2)
		is(t, "Release", lease.Release(trace("release")))
		lease, err = l.Acquire(trace("acquire"))
		is(t, "Acquire", err)
		token, err := lease.Detach()
		is(t, "Detach", err)
		lease, err = s.Adopt(trace("adopt"), name, token)
		is(t, "Adopt", err)
		m.Evict(bg, key)
		is(t, "Extend", lease.Extend(trace("loss")), strategy.ErrLost)
		equal(t, "events", strings.Join(seen, ", "), strings.Join([]string{
			"asked try", "attempt try", "acquired try",
			"asked rival", "attempt rival", "held rival", "missed rival",
			"renewed extend", "renewal-failed failing", "renewed <nil>", "released release",
			"asked acquire", "attempt acquire", "acquired acquire", "released <nil>",
			"asked adopt", "acquired adopt", "lost <nil>",
		}, ", "))
	})
}

func TestEventKinds(t *testing.T) {
	t.Parallel()
	for k, want := range map[strategy.EventKind]string{
		-1: "event?", 0: "event?", strategy.EventAsked: "asked", strategy.EventAttempt: "attempt", strategy.EventHeld: "held", strategy.EventAcquired: "acquired", strategy.EventMissed: "missed",
		strategy.EventRenewed: "renewed", strategy.EventRenewalFailed: "renewal-failed", strategy.EventLost: "lost", strategy.EventReleased: "released", strategy.EventUndoFailed: "undo-failed",
		strategy.EventUndoFailed + 1: "event?",
	} {
		equal(t, fmt.Sprintf("EventKind(%d).String()", int(k)), k.String(), want)
	}
}

// raced says that the race detector is on. Under it a sync.Pool forgets at random, crypto/rand's
// among them, which has to allocate then.
var raced bool

// A lock costs, besides its requests, the token, the Lease, and, if the caller's ctx can end, the context
// that detaches its release. An observer, a clock and a line that nobody needs cost nothing.
func TestAllocations(t *testing.T) {
	want := 2.0
	if raced {
		want = 3
	}
	s, err := engine.New(&scripted{}, strategy.Options{})
	is(t, "New", err)
	acquire := map[string]func(strategy.Lock, context.Context) (strategy.Lease, error){
		"TryAcquire": strategy.Lock.TryAcquire, "Acquire": strategy.Lock.Acquire,
	}
	l := s.NewLock(name)
	for what, acquire := range acquire {
		n := testing.AllocsPerRun(1000, func() {
			lease, err := acquire(l, bg)
			if err != nil {
				t.Fatal(err)
			}
			if err := lease.Release(bg); err != nil {
				t.Fatal(err)
			}
		})
		if n > want {
			t.Errorf("%s and Release make %v allocations, want %v at most", what, n, want)
		}
	}
	is(t, "Close", s.Close())
}
