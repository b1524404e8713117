// Events: which ones each call reports, in which order, and what they cost.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// A diary keeps events as words: kind, attempt, duration, error's kind.
type diary struct {
	mu     sync.Mutex
	events []string
}

func (d *diary) observe(e strategy.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	words := e.Kind.String()
	if e.Attempt > 0 {
		words += fmt.Sprintf(" %d", e.Attempt)
	}
	words += fmt.Sprintf(" %v", e.Elapsed)
	for _, kind := range []struct {
		err  error
		word string
	}{
		{strategy.ErrHeld, "Held"}, {strategy.ErrLost, "Lost"}, {strategy.ErrUnsent, "Unsent"}, {strategy.ErrUnknown, "Unknown"},
		{strategy.ErrRefused, "Refused"}, {strategy.ErrClosed, "Closed"},
	} {
		if errors.Is(e.Err, kind.err) {
			words += " " + kind.word
		}
	}
	want := 36
	if slices.Contains([]strategy.EventKind{strategy.EventAsked, strategy.EventRetry, strategy.EventMissed}, e.Kind) {
		want = 0
	}
	if e.Name != name || len(e.Token) != want {
		words += fmt.Sprintf(" of %q by %q", e.Name, e.Token)
	}
	d.events = append(d.events, words)
}

func (d *diary) check(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	equal(t, "events", strings.Join(d.events, ", "), want)
	d.events = nil
}

// rival holds a lock, and the diary knows nothing of it.
var rival = driver.Claim{Key: key, Token: "x", TTL: ttl}

// Each story with its events, in order, with their durations.
func TestEvents(t *testing.T) {
	const begun = "asked 0s, attempt 1 0s, acquired 1 0s, "
	const waits = "asked 0s, attempt 1 0s Held, held 1 0s Held, attempt 2 0s Held, held 2 0s Held, " // again once it is subscribed
	type story struct {
		want string
		tell func(t *testing.T, m *lockstest.Memory, s strategy.Strategy)
	}
	bubbles(t, map[string]story{
		"acquired, renewed and released": {"asked 0s, attempt 1 3ms, acquired 1 3ms, renewed 3ms, released 1.009s",
			func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
				m.Intercept(slow(ms, 2*ms))
				lease := take(t, s)
				is(t, "Extend", lease.Extend(bg))
				time.Sleep(time.Second)
				release(t, lease)
			}},
		"waited": {waits + "attempt 3 1ms, acquired 3 3.002s, released 2ms",
			func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
				m.Acquire(bg, rival)
				w := wait(bg, s)
				time.Sleep(3 * time.Second)
				m.Intercept(slow(ms, 0))
				m.Release(bg, rival)
				release(t, w.got(t))
			}},
		"granted when the wait was over": {waits + "attempt 3 20ms, missed 1.01s Held", // and given back
			func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
				m.Acquire(bg, rival)
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				w := wait(ctx, s)
				time.Sleep(990 * ms)
				m.Intercept(only(lockstest.OpAcquire, slow(20*ms, 0)))
				m.Release(bg, rival)
				<-w.done
				is(t, "Acquire", w.err, strategy.ErrHeld)
				time.Sleep(op)
			}},
		"lost by the server's word": {begun + "lost 1s Lost",
			func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
				lease := take(t, s)
				m.Evict(bg, key)
				time.Sleep(time.Second)
				is(t, "Extend", lease.Extend(bg), strategy.ErrLost)
				is(t, "Release", lease.Release(bg), strategy.ErrLost)
			}},
		"failing and recovered": {begun + "renewal-failed 0s Unknown, renewed 0s, released 5.501s",
			func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
				lease := take(t, s)
				time.Sleep(half)
				m.Intercept(lostReply)
				lease.KeepAlive(0)
				synctest.Wait()
				m.Intercept(nil)
				time.Sleep(ttl/20 + ms)
				release(t, lease)
			}},
		"detached, adopted and lapsed": {begun + "released 0s, asked 0s, acquired 1 3ms, lost 9.898s Lost",
			func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
				token, err := take(t, s).Detach()
				is(t, "Detach", err)
				m.Intercept(slow(ms, 2*ms))
				_, err = s.Adopt(bg, name, token)
				is(t, "Adopt", err)
				time.Sleep(ttl)
			}},
		"never asked for": {"asked 0s, missed 0s, asked 0s, missed 0s, asked 0s, missed 0s",
			func(t *testing.T, _ *lockstest.Memory, s strategy.Strategy) {
				over, cancel := context.WithCancel(bg)
				cancel()
				_, try := s.NewLock(name).TryAcquire(over)
				_, acquire := s.NewLock(name).Acquire(over)
				_, adopt := s.Adopt(over, name, "x")
				for _, err := range []error{try, acquire, adopt} {
					is(t, "a call", err, context.Canceled)
				}
			}},
		"adopted while it was closed": {begun + "released 0s, asked 0s, missed 20ms Closed",
			func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) {
				token, err := take(t, s).Detach()
				is(t, "Detach", err)
				m.Intercept(only(lockstest.OpAdopt, slow(0, 20*ms)))
				time.AfterFunc(10*ms, func() { s.Close() })
				lease, err := s.Adopt(bg, name, token)
				is(t, "Adopt", err, strategy.ErrClosed)
				if lease != nil {
					t.Errorf("Adopt = %v, want no lease", lease)
				}
				free(t, m)
			}},
	}, func(t *testing.T, story story) {
		var m lockstest.Memory
		var d diary
		s := open(t, &m, strategy.Options{Wait: strategy.WaitNotification, Observe: d.observe})
		story.tell(t, &m, s)
		d.check(t, story.want)
		is(t, "Close", s.Close())
	})
}

// A call that goes on while the servers fail reports that when they have failed it for 10 s, and again after 10 s each. An
// answer ends the count.
func TestEventRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		retries := make(chan strategy.Event, 10)
		m, _, s := served(t, strategy.Options{RetryOnError: true, Wait: strategy.WaitPoll, Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventRetry {
				retries <- e
			}
		}})
		wants := func(what string, faults ...error) {
			t.Helper()
			synctest.Wait()
			equal(t, what, len(retries), len(faults))
			for range len(retries) {
				if e := <-retries; !errors.Is(e.Err, faults[0]) || e.Name != name || e.Token != "" || e.Attempt < 10 || e.Context == nil {
					t.Errorf("%s: event %+v, want %v", what, e, faults[0])
				}
			}
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

// A lock that was adopted too late for the lease to be of use is not left behind, and nobody loses what nobody has had.
func TestAdoptedTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var d diary
		m, r, _, lease := holding(t, strategy.Options{})
		s := open(t, m, strategy.Options{TTL: 20 * ms, OpTimeout: 19 * ms, Observe: d.observe})
		token, err := lease.Detach()
		is(t, "Detach", err)
		r.then(only(lockstest.OpAdopt, slow(0, 18*ms)))
		late, err := s.Adopt(bg, name, token)
		is(t, "Adopt", err, strategy.ErrLost)
		if late != nil {
			t.Errorf("Adopt = %v, want no lease", late)
		}
		free(t, m)
		time.Sleep(ttl)
		d.check(t, "asked 0s, missed 18ms Lost")
	})
}

// A waiter that gets the lock by another's release, and is kept from taking it until its deadline is over, is first notified
// that it has the lock, and then that it is lost.
func TestLossOfWhatNobodyHasYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var d diary
		s := open(t, reentrant(), strategy.Options{})
		first := take(t, s)
		holder := wait(bg, s)
		release(t, first)
		holder.got(t)

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
		successor := wait(as("successor"), slow) // asks whether it holds the lock already
		release(t, holder.lease)
		<-successor.done
		is(t, "Err", successor.lease.Err(), strategy.ErrLost)
		d.check(t, "asked 0s, attempt 1 0s Held, held 1 0s Held, acquired 1 20s, lost 20s Lost")
	})
}

// An event has the values of the call's context; one that no call has made has none.
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
		equal(t, "events", strings.Join(seen, ", "), "asked try, attempt try, acquired try, "+
			"asked rival, attempt rival, held rival, missed rival, "+
			"renewed extend, renewal-failed failing, renewed <nil>, released release, "+
			"asked acquire, attempt acquire, acquired acquire, released <nil>, asked adopt, acquired adopt, lost <nil>")
	})
}

// raced says that the race detector is on. Under it a sync.Pool forgets at random, crypto/rand's
// among them, which has to allocate then.
var raced bool

// A lock costs, besides its requests, the token and the Lease. An observer, a clock and a line that nobody needs cost nothing,
// nor does a ctx that cannot end.
func TestAllocations(t *testing.T) {
	want := 2.0
	if raced {
		want = 3
	}
	s, err := engine.New(&scripted{}, strategy.Options{})
	is(t, "New", err)
	l := s.NewLock(name)
	for what, acquire := range bothWays {
		n := testing.AllocsPerRun(1000, func() {
			lease, err := acquire(l, bg)
			is(t, what, err)
			release(t, lease)
		})
		if n > want {
			t.Errorf("%s and Release make %v allocations, want %v at most", what, n, want)
		}
	}
	is(t, "Close", s.Close())
}
