// One lease: its deadline, its loss, its contexts, Extend, Release, Detach, and Adopt.
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

// Setting the clock does not move a deadline. (Fake time has no monotonic reading.)
func TestDeadlineIsMonotonic(t *testing.T) {
	t.Parallel()
	lease := take(t, open(t, &scripted{}, strategy.Options{}))
	for range 2 {
		if !strings.Contains(lease.Deadline().String(), " m=") {
			t.Errorf("Deadline = %v, want a monotonic reading", lease.Deadline())
		}
		is(t, "Extend", lease.Extend(bg))
	}
}

// Tests what a lease makes of the answers of the servers, and of the clock.
func TestLease(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"a protocol may know better when the servers began to count, and for how long": func(t *testing.T) {
			p := &scripted{}
			start := time.Now()
			p.acquire = func(driver.Claim) (driver.Grant, error) {
				time.Sleep(400 * ms)
				return driver.Grant{Start: start.Add(300 * ms), TTL: half}, nil
			}
			lease := take(t, open(t, p, strategy.Options{}))
			equal(t, "deadline", lease.Deadline().Sub(start), 300*ms+half-driver.Drift(half))
			p.extend = func(c driver.Claim) (driver.Grant, error) {
				equal(t, "last grant", c.Grant, driver.Grant{Start: start.Add(300 * ms), TTL: half})
				return driver.Grant{}, nil
			}
			is(t, "Extend", lease.Extend(bg))
			equal(t, "deadline", time.Until(lease.Deadline()), valid)
			n, ok := lease.Fence()
			equal(t, "fence of an algorithm without one", n, 0)
			equal(t, "fence ok", ok, false)
		},
		"Err looks at the clock: no timer needs to have run, and none does": func(t *testing.T) {
			m, _, s, lease := holding(t, strategy.Options{})
			time.Sleep(valid - 1)
			is(t, "Err before the deadline", lease.Err())
			equal(t, "entries scheduled", engine.Scheduled(s), 0)
			time.Sleep(time.Nanosecond)
			err := lease.Err()
			lostAs(t, "Err at the deadline", err, strategy.LostError{Lapsed: true})
			isNot(t, "Err at the deadline", err, strategy.ErrReleased)
			is(t, "Release after the loss", lease.Release(bg), err)
			is(t, "Extend after the loss", lease.Extend(bg), err)
			is(t, "KeepAlive after the loss", lease.KeepAlive(0), err)
			_, e := lease.Detach()
			is(t, "Detach after the loss", e, err)
			is(t, "RenewalErr after the loss", lease.RenewalErr())
			equal(t, "Lost is closed", closed(lease.Lost()), true)
			equal(t, "requests", m.Requests(), 1)
		},
		"a lease whose renewal did not run says so": func(t *testing.T) {
			_, r, _, lease := holding(t, strategy.Options{})
			is(t, "KeepAlive", lease.KeepAlive(0))
			engine.Pause(lease)
			time.Sleep(time.Minute)
			equal(t, "renewals", len(r.of(lockstest.OpExtendAll)), 0)
			says(t, "Err", lease.Err(), "its deadline came: no renewal was made in time: was the process paused")
		},
		"a lease whose renewal is under way at the deadline does not": func(t *testing.T) {
			_, r, _, lease := holding(t, strategy.Options{})
			is(t, "KeepAlive", lease.KeepAlive(0))
			engine.Pause(lease)
			time.Sleep(valid - op/2)
			r.then(slow(op, 0))
			go lease.Extend(bg)
			time.Sleep(op / 2)
			lostAs(t, "Err", lease.Err(), strategy.LostError{Lapsed: true})
			time.Sleep(op)
		},
		"Lost comes at the deadline with the network down, exactly, and asks nobody": func(t *testing.T) {
			start := time.Now()
			m, _, s, lease := holding(t, strategy.Options{})
			m.Intercept(unsent)
			lost := lease.Lost()
			equal(t, "entries scheduled", engine.Scheduled(s), 1)
			equal(t, "second Lost", lease.Lost(), lost)
			<-lost
			since(t, "Lost after", start, valid)
			is(t, "Err", lease.Err(), strategy.ErrLost)
			equal(t, "entries scheduled", engine.Scheduled(s), 0)
			equal(t, "requests", m.Requests(), 1)
		},
		"a protocol that says only ErrLost is understood": func(t *testing.T) {
			plain := fmt.Errorf("plainly %w", strategy.ErrLost)
			p := &scripted{extend: func(driver.Claim) (driver.Grant, error) { return driver.Grant{}, plain }}
			lease := take(t, open(t, p, strategy.Options{}))
			lostAs(t, "Extend", lease.Extend(bg), strategy.LostError{Err: plain})
			is(t, "Err", lease.Err(), plain)
		},
		"one renewal at a time: the second waits for the first, or until its ctx ends": func(t *testing.T) {
			_, r, _, lease := holding(t, strategy.Options{})
			r.then(slow(500*ms, 0))
			start := time.Now()
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { is(t, "Extend", lease.Extend(bg)) })
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(bg, 100*ms)
			defer cancel()
			is(t, "Extend while another is under way", lease.Extend(ctx), context.DeadlineExceeded)
			since(t, "Extend took", start, 100*ms)
			all.Wait()
			for i, e := range r.of(lockstest.OpExtend) {
				equal(t, "time of the renewal", e.at.Sub(start), time.Duration(i)*500*ms)
			}
		},
	})
}

// The contexts of a lease end with it, and say why.
func TestContextEndsWithTheLease(t *testing.T) {
	type end struct {
		now  func(*lockstest.Memory, strategy.Lease)
		want error
	}
	bubbles(t, map[string]end{
		"deadline":      {func(*lockstest.Memory, strategy.Lease) { time.Sleep(valid) }, strategy.ErrLost},
		"release":       {func(_ *lockstest.Memory, l strategy.Lease) { l.Release(bg) }, strategy.ErrReleased},
		"detach":        {func(_ *lockstest.Memory, l strategy.Lease) { l.Detach() }, strategy.ErrReleased},
		"server's word": {func(m *lockstest.Memory, l strategy.Lease) { m.Evict(bg, key); l.Extend(bg) }, strategy.ErrLost},
	}, func(t *testing.T, end end) {
		m, r, s, lease := holding(t, strategy.Options{})
		type keyType struct{}
		ctx, cancel := lease.Context(context.WithValue(bg, keyType{}, "v"))
		defer cancel()
		other, cancelOther := lease.Context(bg)
		equal(t, "value of the parent", ctx.Value(keyType{}), any("v"))
		cancelOther()
		is(t, "Cause after cancel", context.Cause(other), context.Canceled)
		is(t, "Err of the other", ctx.Err())
		equal(t, "contexts left", engine.Contexts(lease), 1)
		r.then(only(lockstest.OpRelease, func(_ context.Context, _ lockstest.Request, serve func() error) error {
			is(t, "Cause before the lock is free", context.Cause(ctx), strategy.ErrReleased)
			return serve()
		}))
		end.now(m, lease)
		synctest.Wait()
		is(t, "Err of the context", ctx.Err(), context.Canceled)
		is(t, "Cause", context.Cause(ctx), end.want)
		equal(t, "Cause", context.Cause(ctx), lease.Err())
		equal(t, "contexts left at the end", engine.Contexts(lease), 0)
		late, cancelLate := lease.Context(bg)
		defer cancelLate()
		equal(t, "Cause of a context made later", context.Cause(late), lease.Err())
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
	})
}

// An Extend that failed leaves the lease as it was, to be tried again.
func TestExtendFails(t *testing.T) {
	bubbles(t, failures, func(t *testing.T, f failure) {
		_, r, _, lease := holding(t, strategy.Options{})
		lost, deadline := lease.Lost(), lease.Deadline()
		r.then(f.fault)
		time.Sleep(time.Second)
		err := lease.Extend(bg)
		is(t, "Extend", err, f.want)
		isNot(t, "Extend", err, strategy.ErrLost)
		equal(t, "RenewalErr", lease.RenewalErr(), err)
		is(t, "Err", lease.Err())
		equal(t, "deadline", lease.Deadline(), deadline)
		r.then(nil)
		time.Sleep(time.Second)
		equal(t, "renewals that nobody asked for", len(r.of(lockstest.OpExtend, lockstest.OpExtendAll)), 1)
		is(t, "Extend", lease.Extend(bg))
		is(t, "RenewalErr", lease.RenewalErr())

		r.then(f.fault)
		time.Sleep(half)
		err = lease.Extend(bg)
		<-lost
		is(t, "Err", lease.Err(), strategy.ErrLost, f.want, err)
		synctest.Wait()
		equal(t, "the renewal is undone", len(r.of(lockstest.OpUndo)) > 0, f.want == strategy.ErrUnknown)
	})
}

// Tests how a lease ends by its user's wish.
func TestRelease(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"nothing comes after it": func(t *testing.T) {
			m, _, s, lease := holding(t, strategy.Options{})
			lost := lease.Lost()
			is(t, "KeepAlive", lease.KeepAlive(0))
			is(t, "Release", lease.Release(bg))
			is(t, "Err", lease.Err(), strategy.ErrReleased)
			is(t, "second Release", lease.Release(bg), strategy.ErrReleased)
			is(t, "Extend", lease.Extend(bg), strategy.ErrReleased)
			is(t, "KeepAlive", lease.KeepAlive(0), strategy.ErrReleased)
			_, err := lease.Detach()
			is(t, "Detach", err, strategy.ErrReleased)
			equal(t, "entries scheduled", engine.Scheduled(s), 0)
			time.Sleep(time.Minute)
			equal(t, "requests", m.Requests(), 2)
			equal(t, "Lost is closed", closed(lost), false)
			equal(t, "later Lost is closed", closed(lease.Lost()), false)
			leftovers(t, m)
		},
	})
}

// A renewal under way is waited for; nothing is sent after the release.
func TestReleaseWaitsForARenewal(t *testing.T) {
	type end struct {
		now  func(strategy.Lease) error
		last lockstest.Op
	}
	bubbles(t, map[string]end{
		"release": {func(l strategy.Lease) error { return l.Release(bg) }, lockstest.OpRelease},
		"detach":  {func(l strategy.Lease) error { _, err := l.Detach(); return err }, lockstest.OpExtendAll},
	}, func(t *testing.T, end end) {
		m, r, _, lease := holding(t, strategy.Options{})
		r.then(only(lockstest.OpExtendAll, slow(0, 800*ms)))
		time.Sleep(half)
		start := time.Now()
		is(t, "KeepAlive", lease.KeepAlive(0))
		synctest.Wait()
		is(t, "the end", end.now(lease))
		since(t, "it took from the renewal", start, 800*ms)
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		n := m.Requests()
		time.Sleep(time.Minute)
		equal(t, "later requests", m.Requests()-n, 0)
		equal(t, "last request", r.sent[len(r.sent)-1].op, end.last)
	})
}

// A release that is not certain is repeated in the background until it is.
func TestReleaseIsRepeated(t *testing.T) {
	bubbles(t, failures, func(t *testing.T, f failure) {
		m, r, s, lease := holding(t, strategy.Options{})
		r.then(f.fault)
		is(t, "Release", lease.Release(bg), f.want)
		is(t, "second Release", lease.Release(bg), strategy.ErrReleased)
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		time.Sleep(3*time.Second + ms)
		r.then(nil)
		n := len(r.of(lockstest.OpUndo))
		time.Sleep(op / 4)
		equal(t, "undos until it is certain", len(r.of(lockstest.OpUndo)), n+1)
		equal(t, "under way", engine.UnderWay(s), 0)
		free(t, m)
	})
}

// The adopter holds the lock by its own options, and the lease that it was taken from is over.
func TestDetachAndAdopt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, r, a, lease := holding(t, strategy.Options{})
		b := open(t, m, strategy.Options{TTL: 20 * time.Second, OpTimeout: 2 * time.Second})
		is(t, "KeepAlive", lease.KeepAlive(0))
		token, err := lease.Detach()
		is(t, "Detach", err)
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		is(t, "Release", lease.Release(bg), strategy.ErrReleased)
		equal(t, "entries scheduled", engine.Scheduled(a), 0)

		start := time.Now()
		r.then(slow(50*ms, 50*ms))
		successor, err := b.Adopt(bg, name, token)
		is(t, "Adopt", err)
		equal(t, "Due", r.of(lockstest.OpAdopt)[0].all[0].Due.Sub(start), 2*time.Second)
		equal(t, "Name", successor.Name(), name)
		equal(t, "deadline", successor.Deadline().Sub(start), 20*time.Second-driver.Drift(20*time.Second))
		_, err = a.Adopt(bg, name, token)
		lostAs(t, "second Adopt", err, strategy.LostError{Holder: successor.Token()})
		release(t, successor)
		_, err = b.Adopt(bg, name, "")
		says(t, "Adopt of no token", err, "allowed is what Lease.Detach returned")
	})
}

// An adoption whose answer was lost is undone, whether or not it took effect: its caller does not know the token that may hold
// the lock now. It learns why its context ended.
func TestAdoptionOfUnknownEnd(t *testing.T) {
	bubbles(t, map[string]lockstest.Fault{"reply": lostReply, "request": lostRequest}, func(t *testing.T, fault lockstest.Fault) {
		m, r, s, lease := holding(t, strategy.Options{})
		token, err := lease.Detach()
		is(t, "Detach", err)
		ctx, cancel := context.WithCancelCause(bg)
		why := errors.New("why")
		taken := false
		r.then(func(ctx context.Context, q lockstest.Request, serve func() error) error {
			defer cancel(why)
			return fault(ctx, q, func() error { taken = true; return serve() })
		})
		_, err = s.Adopt(ctx, name, token)
		is(t, "Adopt", err, strategy.ErrUnknown, context.Canceled, why)
		r.then(nil)
		time.Sleep(op)
		equal(t, "under way", engine.UnderWay(s), 0)
		equal(t, "the lock is whose it was", holds(m, key) == token, !taken)
		equal(t, "the lock is free", holds(m, key) == "", taken)
	})
}

// What a renewal does not say stays as it was: the fence with those reserved behind it, the owner, and the protocol's own
// state.
func TestRenewalKeepsTheGrant(t *testing.T) {
	type row struct{ says, want driver.Grant }
	bubbles(t, map[string]row{
		"nothing":               {driver.Grant{}, driver.Grant{Fence: 7, Fences: 3, Owner: "o", State: "s"}},
		"the fence":             {driver.Grant{Fence: 7}, driver.Grant{Fence: 7, Fences: 3, Owner: "o", State: "s"}},
		"the fence, and so few": {driver.Grant{Fence: 7, Fences: 2}, driver.Grant{Fence: 7, Fences: 2, Owner: "o", State: "s"}},
		"another fence":         {driver.Grant{Fence: 8}, driver.Grant{Fence: 8, Owner: "o", State: "s"}},
		"owner and state":       {driver.Grant{Owner: "p", State: "t"}, driver.Grant{Fence: 7, Fences: 3, Owner: "p", State: "t"}},
	}, func(t *testing.T, row row) {
		var got driver.Grant
		lease := take(t, open(t, &scripted{
			acquire: func(driver.Claim) (driver.Grant, error) {
				return driver.Grant{Fence: 7, Fences: 3, Owner: "o", State: "s"}, nil
			},
			extend:  func(driver.Claim) (driver.Grant, error) { return row.says, nil },
			release: func(c driver.Claim) error { got = c.Grant; return nil },
		}, strategy.Options{}))
		time.Sleep(time.Second)
		row.want.Start, row.want.TTL = time.Now(), ttl
		is(t, "Extend", lease.Extend(bg))
		release(t, lease)
		equal(t, "the grant of the release", got, row.want)
	})
}

// All methods at once, on a lease that is released and on one that is lost.
func TestLeaseIsSafeForConcurrentUse(t *testing.T) {
	bubbles(t, map[string]error{"released": strategy.ErrReleased, "lost": strategy.ErrLost}, func(t *testing.T, end error) {
		m, r, s, lease := holding(t, strategy.Options{TTL: 100 * ms, Observe: func(strategy.Event) {}})
		r.then(slow(ms, ms))
		calls := []func(){
			func() { lease.Err() }, func() { lease.Lost() }, func() { lease.Extend(bg) }, func() { lease.KeepAlive(200 * ms) },
			func() { lease.KeepAlive(0) }, func() { lease.Deadline(); lease.Fence() }, func() { lease.RenewalErr() },
			func() { _, cancel := lease.Context(bg); cancel() }, func() { _ = lease.Token() + lease.Owner() + lease.Name() },
		}
		var all sync.WaitGroup
		for i := range 2 * len(calls) {
			all.Go(func() {
				for range 40 {
					calls[i%len(calls)]()
					time.Sleep(ms)
				}
			})
		}
		time.Sleep(20*ms + 1)
		if end == strategy.ErrLost {
			m.Evict(bg, key)
			<-lease.Lost()
		}
		errs := make(chan error, 4)
		for range cap(errs) {
			all.Go(func() { errs <- lease.Release(bg) })
			all.Go(func() { lease.Detach() })
		}
		all.Wait()
		for range cap(errs) {
			if err := <-errs; err != nil {
				is(t, "Release", err, end)
			}
		}
		is(t, "Err", lease.Err(), end)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		time.Sleep(time.Second)
	})
}
