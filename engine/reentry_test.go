// Re-entry: an owner gets in while others wait, and nobody else does.
package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// These tests have locks that their owner may acquire again.

func as(owner string) context.Context { return strategy.WithOwner(bg, owner) }

// takeAs acquires the lock called name for an owner that can have it at once.
func takeAs(t *testing.T, s strategy.Strategy, owner string) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(as(owner))
	if err != nil {
		t.Fatalf("TryAcquire by %s = %v, want nil", owner, err)
	}
	return lease
}

func reentrant() *lockstest.Memory {
	m := &lockstest.Memory{}
	m.Reentrant = true
	return m
}

// hours is a pause between questions that is longer than any test waits.
func hours(int) time.Duration { return time.Hour }

// Tests how owners that wait get in.
func TestReentry(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"who was refused only for the sake of a line asks again when that has gone": func(t *testing.T) {
			m := reentrant()
			s := open(t, m, strategy.Options{Backoff: hours})
			holder := take(t, s)
			ctx, cancel := context.WithCancel(bg)
			first := wait(ctx, s)
			m.Intercept(only(lockstest.OpAcquire, slow(0, 50*ms)))
			release(t, holder) // wakes the head, which asks …
			cancel()           // … and leaves when it was granted; the grant is given back
			start := time.Now()
			newcomer := wait(as("newcomer"), s)
			<-first.done
			if first.err == nil { // its end came too late: it had heard of the grant already
				release(t, first.lease)
			}
			release(t, newcomer.got(t))
			between(t, "Acquire by the newcomer took", newcomer.at.Sub(start), 0, time.Second) // nobody holds the lock
		},
		"the new head knows whose release to wait for, though its predecessor has the lock by a name": func(t *testing.T) {
			m := reentrant()
			s := open(t, m, strategy.Options{Wait: strategy.WaitNotification, NoHandOver: true})
			holder := take(t, s)
			first, second := wait(as("first"), s), wait(bg, s)
			release(t, holder)
			first.got(t)
			inner := takeAs(t, s, "first")
			synctest.Wait()
			asked := m.Requests(lockstest.OpAcquire)
			release(t, inner)
			synctest.Wait()
			start := time.Now()
			release(t, first.lease)
			release(t, second.got(t))
			equal(t, "from the last release to the next holder", second.at.Sub(start), 0)
			equal(t, "requests of the next", m.Requests(lockstest.OpAcquire)-asked, 1)
		},
		"a contender that has asked while another one's first attempt is under way has the lock when that is granted": func(t *testing.T) {
			m := reentrant()
			s := open(t, m, strategy.Options{})
			m.Intercept(slow(100*ms, 0))
			first := wait(as("us"), s)
			m.Intercept(nil)
			sibling := wait(as("us"), s)
			equal(t, "the sibling has ended", closed(sibling.done), false)
			first.got(t)
			release(t, sibling.got(t))
			equal(t, "it has the lock after", sibling.at.Sub(first.at), 0)
			release(t, first.lease)
			leftovers(t, m)
		},
		"what the servers say of a re-entry is what the caller gets": func(t *testing.T) {
			m := reentrant()
			s := open(t, m, strategy.Options{Wait: strategy.WaitNotification})
			holder := take(t, s)
			first, second := wait(bg, s), wait(as("us"), s)
			m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, r lockstest.Request, serve func() error) error {
				switch c := r.Claims[0]; {
				case c.Again:
					return lockstest.Refused("LOADING")
				case c.Owner == c.Token:
					time.Sleep(50 * ms) // the head is slow to ask
				}
				return serve()
			}))
			release(t, holder)
			lease := takeAs(t, s, "us")
			<-second.done
			is(t, "Acquire of who may re-enter", second.err, strategy.ErrRefused)
			release(t, lease)
			release(t, first.got(t))
		},
		"the head of a line asks at once when its owner has got the lock elsewhere": func(t *testing.T) {
			m := reentrant()
			s := open(t, m, strategy.Options{Wait: strategy.WaitPoll, Backoff: hours})
			holder := forgotten(t, m)
			w := wait(as("me"), s)
			release(t, holder)
			start := time.Now()
			outer := takeAs(t, s, "me")
			release(t, w.got(t))
			equal(t, "the head has the lock after", w.at.Sub(start), 0)
			release(t, outer)
		},
		"the head asks once, and not again and again, if its owner does not hold the lock any more": func(t *testing.T) {
			m := reentrant()
			s := open(t, m, strategy.Options{Wait: strategy.WaitPoll, Backoff: hours})
			holder, asked := forgotten(t, m), 0
			w := wait(as("me"), s)
			release(t, holder)
			m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
				if asked++; asked == 1 || asked > 100 { // the first is granted, and then this is a spin
					return serve()
				}
				return &strategy.HeldError{Name: name, Holder: "me", TTL: ttl}
			}))
			lease := takeAs(t, s, "me")
			synctest.Wait()
			equal(t, "attempts", asked, 2)
			release(t, lease)
			m.Intercept(nil)
			release(t, w.got(t))
		},
		"who adopts one hold of several holds the lock as its owner": func(t *testing.T) {
			s := open(t, reentrant(), strategy.Options{})
			outer, inner := takeAs(t, s, "me"), takeAs(t, s, "me")
			token, err := inner.Detach()
			is(t, "Detach", err)
			adopted, err := s.Adopt(as("you"), name, token)
			is(t, "Adopt", err)
			equal(t, "Owner", adopted.Owner(), "me")
			release(t, outer)
			release(t, adopted)
		},
		"who gives up behind an owner with a direct grant learns its name": func(t *testing.T) {
			m := nameless{reentrant()}
			s := open(t, m, strategy.Options{})
			holder := forgotten(t, m)
			first := wait(as("me"), s)
			release(t, holder)
			l := first.got(t)
			ctx, cancel := context.WithTimeout(bg, 2*ms) // before it is extended: that names the owner, too
			defer cancel()
			w := wait(bg, s) // it has asked, and waits
			_, err := s.NewLock(name).Acquire(ctx)
			heldBy(t, "Acquire", err, "me")
			release(t, l)
			release(t, w.got(t))
		},
	})
}

// nameless is a Memory whose notifications of direct grants do not name the owner.
type nameless struct{ *lockstest.Memory }

func (p nameless) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	return p.Memory.Watch(ctx, c, func(n driver.Notification) {
		n.Grant.Owner = ""
		fn(n)
	})
}

// When one of an owner's contenders gets the lock, the others of its process do, too, wherever in the line they stand; those
// between them wait on.
func TestSiblingsAreAdmitted(t *testing.T) {
	bubbles(t, map[string]bool{"the head is one of them": false, "one tries before the head asks": true}, func(t *testing.T, tries bool) {
		s := open(t, reentrant(), strategy.Options{})
		holder := take(t, s)
		var us, others []*waiter
		for _, owner := range []string{"us", "", "us", "other", "us"} {
			if w := wait(as(owner), s); owner == "us" {
				us = append(us, w)
			} else {
				others = append(others, w)
			}
		}
		equal(t, "waiting", engine.Waiting(s, key), 5)
		release(t, holder)
		if tries {
			us = append(us, &waiter{lease: takeAs(t, s, "us"), done: us[0].done})
		}
		synctest.Wait()
		equal(t, "another owner has the lock, too", closed(others[0].done) || closed(others[1].done), false)
		info, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		equal(t, "holds", info.Holds, len(us))
		for _, w := range append(us, others...) {
			release(t, w.got(t))
		}
	})
}

// A waiter that comes to the head of a line and hears there that its own owner has the lock does not wait for that, whatever
// kept it from hearing so before.
func TestAnOwnerAtTheHeadAsks(t *testing.T) {
	type situation func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) (outer strategy.Lease, inner *waiter, leave func())
	bubbles(t, map[string]situation{
		"its question got no answer": func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) (strategy.Lease, *waiter, func()) {
			outer := takeAs(t, s, "me")
			ctx, cancel := context.WithCancel(bg)
			head := wait(ctx, s)
			m.Intercept(only(lockstest.OpAcquire, func(context.Context, lockstest.Request, func() error) error {
				m.Intercept(nil)
				return lockstest.Refused("LOADING")
			}))
			inner := wait(as("me"), s)
			return outer, inner, func() { cancel(); <-head.done }
		},
		"another process got it": func(t *testing.T, m *lockstest.Memory, s strategy.Strategy) (strategy.Lease, *waiter, func()) {
			away := open(t, m, strategy.Options{Wait: strategy.WaitNotification})
			holder := take(t, away)
			ctx, cancel := context.WithCancel(bg)
			head := wait(ctx, s)
			inner := wait(as("me"), s)
			m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, r lockstest.Request, serve func() error) error {
				if r.Claims[0].Owner != "me" {
					time.Sleep(ms) // the head is slow to ask
				}
				return serve()
			}))
			release(t, holder)
			outer := takeAs(t, away, "me")
			time.Sleep(2 * ms)
			return outer, inner, func() { cancel(); <-head.done }
		},
	}, func(t *testing.T, get situation) {
		m := reentrant()
		s := open(t, m, strategy.Options{Wait: strategy.WaitNotification, RetryOnError: true, Backoff: hours})
		outer, inner, leave := get(t, m, s)
		is(t, "KeepAlive", outer.KeepAlive(0))
		equal(t, "the owner has the lock already", closed(inner.done), false)
		start := time.Now()
		leave()
		release(t, inner.got(t))
		equal(t, "Acquire by the owner at the head after", inner.at.Sub(start), 0)
		release(t, outer)
	})
}

// An owner behind others asks once whether it holds the lock, if that is answered; and again after a pause, if that is not.
func TestOwnerAsksOnce(t *testing.T) {
	bubbles(t, map[string]int{"answered": 0, "refused at first": 1, "refused three times": 3}, func(t *testing.T, failures int) {
		m := reentrant()
		r := record(m)
		s := open(t, m, strategy.Options{RetryOnError: true})
		holder := forgotten(t, m)
		head := wait(bg, s)
		before, asked := len(r.of(lockstest.OpAcquire)), 0
		r.then(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
			if asked++; asked <= failures {
				return lockstest.Refused("LOADING")
			}
			return serve()
		}))
		w := wait(as("me"), s)
		time.Sleep(5 * time.Second)
		equal(t, "attempts of the owner", len(r.of(lockstest.OpAcquire))-before, failures+1)
		release(t, holder)
		release(t, head.got(t))
		release(t, w.got(t))
	})
}
