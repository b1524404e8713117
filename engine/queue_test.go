// Waiting in the servers' queue: direct grants, successors that died, and places that are inherited.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// successorTTL is that of a direct grant for the default TTL.
const successorTTL = time.Second

// houses are two strategies that share a server as two processes do.
func houses(t *testing.T, p driver.Protocol, o strategy.Options) (a, b strategy.Strategy) {
	t.Helper()
	return open(t, p, o), open(t, p, o)
}

func leftovers(t *testing.T, m *lockstest.Memory) {
	t.Helper()
	synctest.Wait()
	left, _ := m.Leftovers(bg, key)
	if len(left) != 0 {
		t.Errorf("left at the server = %v, want nothing", left)
	}
}

// A release makes the first in the queue the holder, without a request of its own. Its
// deadline counts from when the server did that, by the server's clock, however long the
// word was under way.
func TestDirectGrant(t *testing.T) {
	for _, delay := range []time.Duration{0, 4 * ms} { // less than it takes until it is extended
		for _, there := range []time.Duration{0, 20 * ms} {
			t.Run(fmt.Sprintf("%v/%v", delay, there), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := &wire{delay: delay}
					r := record(&p.Memory)
					a, b := houses(t, p, strategy.Options{})
					holder := take(t, a)
					r.then(slow(there, 5*ms))
					w := wait(bg, b)
					time.Sleep(time.Second)
					r.then(nil)
					before := r.count()
					granted := time.Now()
					release(t, holder)
					l := w.got(t)
					equal(t, "requests", r.count()-before, 1)
					equal(t, "Acquire after", w.at.Sub(granted), delay)
					compared := time.Second + delay - 2*(there+5*ms) // so long ago: it asked for its place after an attempt and a subscription
					equal(t, "Deadline", l.Deadline().Sub(granted), successorTTL-driver.Drift(successorTTL)-there-compared/100)
					release(t, l)
					leftovers(t, &p.Memory)
				})
			})
		}
	}
}

// A comparison of the clocks that is too old does not time a direct grant: the successor asks, and has the
// lock for its whole TTL. Here the server's clock was set ahead meanwhile, and the message is late.
func TestOldComparisonOfClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &ahead{wire: wire{delay: 200 * ms}}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{})
		holder := take(t, a)
		w := wait(bg, b)
		time.Sleep(1500 * ms) // 1 % of this is more than the drift for which a second allows
		p.by.Store(int64(time.Minute))
		before := len(r.of(lockstest.OpAcquire))
		release(t, holder)
		l := w.got(t)
		equal(t, "attempts since", len(r.of(lockstest.OpAcquire))-before, 1)
		equal(t, "holder", tokenAt(&p.Memory), l.Token())
		equal(t, "Deadline", l.Deadline(), w.at.Add(valid))
		release(t, l)
		leftovers(t, &p.Memory)
	})
}

// Each answer compares the clocks again: after that a direct grant counts although the server's clock has been set.
func TestNewComparisonOfClocks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &ahead{}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{})
		holder := take(t, a)
		w := wait(bg, b)
		time.Sleep(6 * time.Second)
		is(t, "Extend", holder.Extend(bg))
		p.by.Store(int64(time.Minute))
		time.Sleep(4*time.Second + 100*ms) // the head has asked when the first TTL was over
		before := len(r.of(lockstest.OpAcquire))
		granted := time.Now()
		release(t, holder)
		l := w.got(t)
		equal(t, "attempts since", len(r.of(lockstest.OpAcquire))-before, 0)
		if most := granted.Add(successorTTL - driver.Drift(successorTTL)); l.Deadline().After(most) || l.Deadline().Before(most.Add(-2*ms)) {
			t.Errorf("Deadline %v after the lock expires, want it then", l.Deadline().Sub(most))
		}
		release(t, l)
		leftovers(t, &p.Memory)
	})
}

// A place that a grant has used up, of which the line heard too late, is no sign that the servers do not count its
// subscription: it takes another place, and keeps the subscription.
func TestPlaceIsUsedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &wire{delay: 3 * time.Second}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{})
		holder := take(t, a)
		w := wait(bg, b)
		release(t, holder)
		time.Sleep(2 * time.Second) // the grant is over, and nobody has heard of it
		between := take(t, a)
		time.Sleep(2 * time.Second)
		equal(t, "Acquire has ended", closed(w.done), false)
		equal(t, "subscriptions", len(r.of(lockstest.OpWatch)), 1)
		release(t, between)
		release(t, w.got(t))
		leftovers(t, &p.Memory)
	})
}

// A successor whose comparison of the clocks is too old asks. If the servers fail that attempt, it waits before it
// asks again.
func TestOldComparisonAndAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &wire{}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{RetryOnError: true})
		holder := take(t, a)
		w := wait(bg, b)
		time.Sleep(1500 * ms)
		before := len(r.of(lockstest.OpAcquire))
		failures := 0
		r.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
			if failures++; failures <= 3 {
				return refused(ctx, q, serve)
			}
			return serve()
		}))
		release(t, holder)
		l := w.got(t)
		asked := r.of(lockstest.OpAcquire)[before:]
		equal(t, "attempts", len(asked), 4)
		for i := range asked[1:] {
			if !asked[i+1].at.After(asked[i].at) {
				t.Errorf("attempt %d came at the time of the failed one before it, want a pause", i+2)
			}
		}
		release(t, l)
		leftovers(t, &p.Memory)
	})
}

// A successor that holds on is given the whole TTL, once, after a few milliseconds, or what is left of its
// maximum hold. Nothing more is sent then, unless the lock is to be kept alive. That its caller wants no renewal any more
// does not take the whole TTL away.
func TestSuccessorIsExtended(t *testing.T) {
	t.Run("MaxHold", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var m lockstest.Memory
			r := record(&m)
			a, b := houses(t, &m, strategy.Options{MaxHold: ttl})
			holder := take(t, a)
			w := wait(bg, b)
			release(t, holder)
			is(t, "KeepAlive", w.got(t).KeepAlive(0))
			<-w.lease.Lost()
			equal(t, "renewals", len(r.of(lockstest.OpExtendAll, lockstest.OpExtend)), 1)
		})
	})
	for what, begin := range map[string]func(t *testing.T, l strategy.Lease){
		"left alone": func(*testing.T, strategy.Lease) {},
		"kept alive": func(t *testing.T, l strategy.Lease) { is(t, "KeepAlive", l.KeepAlive(0)) },
		"no longer kept alive": func(t *testing.T, l strategy.Lease) {
			is(t, "KeepAlive", l.KeepAlive(0))
			l.StopKeepAlive()
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				a, b := houses(t, &m, strategy.Options{})
				holder := take(t, a)
				w := wait(bg, b)
				start := time.Now()
				release(t, holder)
				l := w.got(t)
				begin(t, l)
				time.Sleep(successorTTL)
				is(t, "Err", l.Err())
				extended := r.of(lockstest.OpExtendAll, lockstest.OpExtend)
				if len(extended) != 1 {
					t.Fatalf("renewals in the first second = %d, want 1", len(extended))
				}
				equal(t, "extended after", extended[0].at.Sub(start), 5*ms)
				equal(t, "Deadline", l.Deadline(), extended[0].at.Add(valid))
				time.Sleep(time.Minute)
				n := len(r.of(lockstest.OpExtendAll, lockstest.OpExtend))
				if what == "kept alive" {
					is(t, "Err after a minute", l.Err())
					if n < 12 {
						t.Errorf("renewals in a minute = %d, want more", n)
					}
					release(t, l)
				} else {
					is(t, "Err after a minute", l.Err(), strategy.ErrLost)
					equal(t, "renewals in a minute", n, 1)
				}
				equal(t, "scheduled", engine.Scheduled(b), 0)
				leftovers(t, &m)
			})
		})
	}
}

// queueUp puts a claim in the queue that no engine looks after: of a process that has
// died, or of one that never listened.
func queueUp(t *testing.T, m *lockstest.Memory, line string, listens bool) (stop func()) {
	t.Helper()
	c := driver.Claim{Name: name, Key: key, Token: "token of " + line, Owner: line, Line: line, TTL: ttl, Due: time.Now().Add(op)}
	stop = func() {}
	if listens {
		var err error
		stop, err = m.Watch(bg, c, func(driver.Notification) {})
		is(t, "Watch", err)
	}
	g, err := m.Acquire(bg, c)
	is(t, "Acquire of "+line, err, strategy.ErrHeld)
	equal(t, "has a place", g.Place > 0, true)
	return stop
}

// A successor that died costs as long as it is a successor, and not a TTL: the next waiter is notified.
func TestDeadSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		a, b := houses(t, &m, strategy.Options{TTL: time.Minute})
		holder := take(t, a)
		stop := queueUp(t, &m, "dead", true)
		defer stop()
		first, second := wait(bg, b), wait(bg, a)
		time.Sleep(time.Second)
		start := time.Now()
		release(t, holder)
		l := first.got(t)
		if d := first.at.Sub(start); d < successorTTL || d > successorTTL+4*ms {
			t.Errorf("Acquire after a dead successor took %v, want %v and little more", d, successorTTL)
		}
		release(t, l)
		release(t, second.got(t))
		if d := second.at.Sub(start); d > successorTTL+4*ms {
			t.Errorf("Acquire after that took %v, want no more", d)
		}
	})
}

// The lock passes over a waiter that does not listen.
func TestOnlyListenersSucceed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		a, b := houses(t, &m, strategy.Options{})
		holder := take(t, a)
		for i := range 5 {
			queueUp(t, &m, fmt.Sprint("unsubscribed ", i), false)
		}
		w := wait(bg, b)
		start := time.Now()
		release(t, holder)
		release(t, w.got(t))
		equal(t, "Acquire after", w.at.Sub(start), 0)
		leftovers(t, &m)
	})
}

// A line whose subscription has ended goes on with its place in the queue. Each question names that place, so
// that a grant, or an undo, takes it out of the queue. If the place stayed, a release would grant the lock there, and
// nobody would know of it.
func TestUnsubscribedLineNamesItsPlace(t *testing.T) {
	for _, undone := range []bool{false, true} {
		t.Run(map[bool]string{false: "granted", true: "undone"}[undone], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				a, b := houses(t, &m, strategy.Options{})
				holder := take(t, a)
				w := wait(bg, b)
				r.then(only(lockstest.OpWatch, refused))
				m.BreakWatches()
				time.Sleep(time.Second)
				if !undone {
					m.Evict(bg, key)
					l := w.got(t)
					info, err := m.Inspect(bg, driver.Claim{Key: key})
					if err != nil || len(info.Queue) != 0 {
						t.Errorf("the queue next to its holder %s = %v, %v, want nobody", info.Token, info.Queue, err)
					}
					release(t, l)
				} else {
					r.then(only(lockstest.OpAcquire, lostReply))
					<-w.done
					is(t, "Acquire", w.err, strategy.ErrUnknown)
					r.then(nil)
					next, start := wait(bg, b), time.Now() // it listens again
					release(t, holder)
					release(t, next.got(t))
					equal(t, "the next waiter got the lock after", next.at.Sub(start), 0)
				}
				leftovers(t, &m)
			})
		})
	}
}

// A line that hears nothing takes no new place in the queue: its subscription is for releases alone, or has ended.
func TestUnsubscribedLineTakesNoPlace(t *testing.T) {
	for what, way := range map[string]strategy.Wait{"not for grants": strategy.WaitNotification, "ended": strategy.WaitQueue} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				holder := take(t, open(t, &m, strategy.Options{}))
				s := open(t, &m, strategy.Options{Wait: way})
				queues, err := s.With(func(o *strategy.Options) { o.Wait = strategy.WaitQueue })
				is(t, "With", err)
				first, next := wait(bg, s), wait(bg, queues)
				release(t, holder)
				l := first.got(t)
				if way == strategy.WaitQueue {
					m.BreakWatches()
				}
				before := len(r.of(lockstest.OpAcquire))
				token, err := l.Detach()
				is(t, "Detach", err)
				synctest.Wait()
				asked := r.of(lockstest.OpAcquire)[before:]
				equal(t, "the next head has asked", len(asked) > 0, true)
				equal(t, "the place of its first question", asked[0].all[0].Line, "")
				_, err = m.Release(bg, driver.Claim{Name: name, Key: key, Token: token})
				is(t, "Release of the detached", err)
				release(t, next.got(t))
				leftovers(t, &m)
			})
		})
	}
}

// A newcomer to a lock that has lapsed does not get ahead of those who queue.
func TestNoBarging(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		a, b := houses(t, &m, strategy.Options{})
		late := open(t, &m, strategy.Options{})
		take(t, a)
		w := wait(bg, b)
		m.Evict(bg, key)
		_, err := late.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire of the late caller", err, strategy.ErrHeld)
		l := w.got(t)
		equal(t, "holder", tokenAt(&m), l.Token())
		release(t, l)
		release(t, take(t, late))
	})
}

// A waiter that asks again finds a grant of which nobody heard.
func TestGrantNobodyHeardOf(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &wire{drop: func(n driver.Notification) bool { return n.Token != "" }}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{})
		holder := take(t, a)
		w := wait(bg, b)
		release(t, holder)
		synctest.Wait()
		equal(t, "Acquire has ended", closed(w.done), false)
		start := time.Now()
		p.BreakWatches()
		l := w.got(t)
		if d := w.at.Sub(start); d > 250*ms {
			t.Errorf("found after %v, want a pause at most", d)
		}
		equal(t, "holder", tokenAt(&p.Memory), l.Token())
		equal(t, "attempts with that token", len(r.of(lockstest.OpAcquire)), 4) // A's, and thrice: at once, to queue, to find
		if d := time.Until(l.Deadline()); d < valid-300*ms {
			t.Errorf("Deadline in %v, want about %v: it was asked again", d, valid)
		}
		release(t, l)
		leftovers(t, &p.Memory)
	})
}

// ahead is a server whose clock shows more than ours.
type ahead struct {
	wire
	by atomic.Int64 // time.Duration
}

func (p *ahead) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g, err := p.wire.Acquire(ctx, c)
	g.ServerTime += time.Duration(p.by.Load())
	return g, err
}

func (p *ahead) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	return p.wire.Watch(ctx, c, func(n driver.Notification) {
		n.Grant.ServerTime += time.Duration(p.by.Load())
		fn(n)
	})
}

// After a fail-over another server tells of grants, whose clock is another. The clock of the one
// before does not time them, also while no question to the new one is answered.
func TestClockOfAnotherServer(t *testing.T) {
	for what, by := range map[string]time.Duration{
		"far ahead":                           time.Minute,
		"ahead by less than a message's time": 100 * ms,
	} {
		t.Run(what, func(t *testing.T) { bubble(t, func(t *testing.T) { clockAhead(t, by) }) })
	}
}

func clockAhead(t *testing.T, by time.Duration) {
	p := &ahead{wire: wire{delay: 200 * ms}}
	r := record(&p.Memory)
	a, b := houses(t, p, strategy.Options{RetryOnError: true})
	holder := take(t, a)
	w := wait(bg, b)
	p.by.Store(int64(by))          // a fail-over
	asked, until := 0, time.Time{} // so long no second question gets an answer, but word comes through
	r.then(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
		if asked++; asked > 1 && (until.IsZero() || time.Now().Before(until)) {
			return lockstest.Unsent()
		}
		return serve()
	}))
	p.BreakWatches()
	time.Sleep(time.Second)
	synctest.Wait()
	equal(t, "Acquire has ended", closed(w.done), false)
	until = time.Now().Add(2 * successorTTL)
	release(t, holder)
	l := w.got(t)
	r.then(nil)
	info, err := a.Inspect(bg, name)
	is(t, "Inspect", err)
	if left := time.Until(l.Deadline()); left > info.TTL-driver.Drift(info.TTL) {
		t.Errorf("Deadline in %v, want less than the server's %v", left, info.TTL)
	}
	release(t, l)
	leftovers(t, &p.Memory)
}

// The notification of the grant may come before the answer that there is a place in the queue.
func TestGrantOvertakesTheReply(t *testing.T) {
	for _, delay := range []time.Duration{0, 50 * ms} {
		t.Run(delay.String(), func(t *testing.T) { bubble(t, func(t *testing.T) { grantOvertakesTheReply(t, delay) }) })
	}
}

func grantOvertakesTheReply(t *testing.T, delay time.Duration) {
	p := &wire{delay: delay}
	r := record(&p.Memory)
	a, b := houses(t, p, strategy.Options{})
	holder := take(t, a)
	var granted time.Time
	r.then(only(lockstest.OpAcquire, func(_ context.Context, q lockstest.Request, serve func() error) error {
		err := serve()
		if q.Claims[0].Line != "" && granted.IsZero() {
			granted = time.Now()
			release(t, holder)
			time.Sleep(200 * ms)
		}
		return err
	}))
	w := wait(bg, b)
	l := w.got(t)
	equal(t, "Acquire after", w.at.Sub(granted), 200*ms)
	equal(t, "Deadline", l.Deadline(), granted.Add(successorTTL-driver.Drift(successorTTL)-delay/100))
	equal(t, "holder", tokenAt(&p.Memory), l.Token())
	release(t, l)
	leftovers(t, &p.Memory)
}

// Who leaves while it queues leaves its place to the next in line: the token stays, and
// nothing is sent. The last takes it away.
func TestEntryIsInherited(t *testing.T) {
	next := func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		a, b := houses(t, &m, strategy.Options{})
		holder := take(t, a)
		ctx, cancel := context.WithCancel(strategy.WithOwner(bg, "the first")) // owners mean nothing to this lock
		first, second := wait(ctx, b), wait(strategy.WithOwner(bg, "the second"), b)
		other := wait(bg, open(t, &m, strategy.Options{}))
		token := ""
		for _, q := range r.of(lockstest.OpAcquire) {
			if token == "" && q.all[0].Line != "" {
				token = q.all[0].Token
			}
		}
		n := r.count()
		cancel()
		<-first.done
		is(t, "Acquire of the first", first.err, strategy.ErrHeld, context.Canceled)
		synctest.Wait()
		equal(t, "requests when it left", r.count()-n, 0)
		release(t, holder)
		l := second.got(t)
		equal(t, "token of who was granted the lock", l.Token(), token)
		equal(t, "Owner", l.Owner(), "the second")
		equal(t, "the other has the lock", closed(other.done), false)
		release(t, l)
		release(t, other.got(t))
		leftovers(t, &m)
	}
	last := func(t *testing.T) {
		var m lockstest.Memory
		a, b := houses(t, &m, strategy.Options{})
		holder := take(t, a)
		ctx, cancel := context.WithCancel(bg)
		first, second := wait(ctx, b), wait(ctx, b)
		cancel()
		<-first.done
		<-second.done
		release(t, holder)
		leftovers(t, &m)
	}
	// other is a next in line that cannot have the lock by the place of who leaves: it takes one of its own.
	other := func(t *testing.T, m *lockstest.Memory, nextOf func(*testing.T, strategy.Strategy) (context.Context, strategy.Strategy)) strategy.Lease {
		a, b := houses(t, m, strategy.Options{})
		holder := take(t, a)
		ctx, cancel := context.WithCancel(as("the first"))
		first := wait(ctx, b)
		as, by := nextOf(t, b)
		second := wait(as, by)
		token := queuedToken(t, m)
		cancel()
		<-first.done
		synctest.Wait()
		if queuedToken(t, m) == token {
			t.Error("the next in line has the place of who has left, want one of its own")
		}
		release(t, holder)
		return second.got(t)
	}
	t.Run("next", func(t *testing.T) { bubble(t, next) })
	t.Run("last", func(t *testing.T) { bubble(t, last) })
	t.Run("next by other options", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var m lockstest.Memory
			l := other(t, &m, func(t *testing.T, b strategy.Strategy) (context.Context, strategy.Strategy) {
				with, err := b.With(func(o *strategy.Options) { o.TTL = time.Minute })
				is(t, "With", err)
				return bg, with
			})
			is(t, "Extend", l.Extend(bg))
			equal(t, "Deadline", time.Until(l.Deadline()), time.Minute-driver.Drift(time.Minute))
			release(t, l)
			leftovers(t, &m)
		})
	})
	t.Run("next by another owner", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			m := reentrant()
			l := other(t, m, func(_ *testing.T, b strategy.Strategy) (context.Context, strategy.Strategy) {
				return as("the second"), b
			})
			equal(t, "Owner at the server", ownerAt(m), "the second")
			release(t, l)
			leftovers(t, m)
		})
	})
}

// A wait that ends in the moment of the grant, in whichever order, leaves nothing held.
func TestWaitEndsWithTheGrant(t *testing.T) {
	for i := range 60 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				a, b := houses(t, &m, strategy.Options{})
				holder := take(t, a)
				ctx, cancel := context.WithCancel(bg)
				var next *waiter
				first := wait(ctx, b)
				if i%2 == 0 {
					next = wait(bg, b)
				}
				other := wait(bg, open(t, &m, strategy.Options{}))
				var both sync.WaitGroup
				both.Go(cancel)
				both.Go(func() { release(t, holder) })
				both.Wait()
				<-first.done
				start := time.Now()
				if first.err == nil {
					release(t, first.lease)
				}
				if next != nil {
					release(t, next.got(t))
				}
				release(t, other.got(t))
				equal(t, "the last got the lock after", other.at.Sub(start), 0)
				leftovers(t, &m)
				equal(t, "scheduled", engine.Scheduled(b), 0)
			})
		})
	}
}

// After Close nobody waits, nothing is in the queue, and nobody listens, though
// another still holds the lock.
func TestCloseWhileQueued(t *testing.T) {
	for _, what := range []string{"queued", "resting", "handed over"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				a, b := houses(t, &m, strategy.Options{})
				var held strategy.Lease
				var waiters []*waiter
				switch what {
				case "queued":
					held = take(t, a)
					waiters = []*waiter{wait(bg, b), wait(bg, b)}
				case "resting":
					ws := inLine(t, b, 3)
					held, waiters = ws[0].lease, ws[1:]
				case "handed over":
					ws := inLine(t, b, 4)
					release(t, ws[0].lease)
					held, waiters = ws[1].got(t), ws[2:]
				}
				is(t, "Close", b.Close())
				for _, w := range waiters {
					<-w.done
					is(t, "Acquire", w.err, strategy.ErrClosed)
				}
				left, _ := m.Leftovers(bg, key)
				equal(t, "left at the server but the lock", len(left), 1)
				if what != "queued" {
					is(t, "Release after Close", held.Release(bg), strategy.ErrClosed)
				} else {
					release(t, held)
				}
				time.Sleep(ttl)
				leftovers(t, &m)
			})
		})
	}
}

// A release that passes the lock on may fail in every way: the next gets the lock all the
// same, and nothing is left.
func TestPassFails(t *testing.T) {
	t.Run("queue", func(t *testing.T) {
		passFails(t, lockstest.OpPass, false, strategy.Options{NoHandOver: true})
	})
	t.Run("adoption", func(t *testing.T) {
		passFails(t, lockstest.OpAdopt, true, strategy.Options{Wait: strategy.WaitNotification})
	})
}

func passFails(t *testing.T, pass lockstest.Op, reenters bool, o strategy.Options) {
	lost := func(m *lockstest.Memory) lockstest.Fault {
		return func(_ context.Context, _ lockstest.Request, serve func() error) error {
			m.Evict(bg, key)
			return serve()
		}
	}
	for _, tt := range []struct {
		what  string
		fault func(*lockstest.Memory) lockstest.Fault
		err   error
		most  time.Duration
	}{
		{"lost request", func(*lockstest.Memory) lockstest.Fault { return lostRequest }, strategy.ErrUnknown, 0},
		{"lost reply", func(*lockstest.Memory) lockstest.Fault { return lostReply }, strategy.ErrUnknown, 0},
		{"refused", func(*lockstest.Memory) lockstest.Fault { return refused }, nil, 0},
		{"unsent", func(*lockstest.Memory) lockstest.Fault { return unsent }, nil, 0},
		{"lost lock", lost, strategy.ErrLost, 0},
		{"late", func(*lockstest.Memory) lockstest.Fault { return slow(op+500*ms, 0) }, strategy.ErrUnknown, op + 500*ms},
		{"answered late", func(*lockstest.Memory) lockstest.Fault { return slow(0, op+500*ms) }, strategy.ErrUnknown, op},
		{"an error of no kind", func(*lockstest.Memory) lockstest.Fault {
			return func(context.Context, lockstest.Request, func() error) error { return errors.New("of no kind") }
		}, nil, 500 * ms},
	} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", tt.what, others), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var m lockstest.Memory
					m.Reentrant = reenters
					r := record(&m)
					s := open(t, &m, o)
					waiters := inLine(t, s, 2)
					first, next := waiters[0].lease, waiters[1]
					var other *waiter
					if others {
						other = wait(bg, open(t, &m, strategy.Options{Wait: o.Wait}))
					}
					r.then(only(pass, func(ctx context.Context, q lockstest.Request, serve func() error) error {
						r.then(nil)
						return tt.fault(&m)(ctx, q, serve)
					}))
					start := time.Now()
					err := first.Release(bg)
					if tt.err != nil {
						is(t, "Release", err, tt.err)
					} else if tt.what != "an error of no kind" {
						is(t, "Release", err)
					}
					equal(t, "passes", len(r.of(pass)), 1)
					is(t, "second Release", first.Release(bg), strategy.ErrReleased)
					if other != nil {
						select {
						case <-next.done:
						case <-other.done:
							release(t, other.got(t))
							other = nil
						}
					}
					l := next.got(t)
					if d := next.at.Sub(start); d > tt.most+300*ms {
						t.Errorf("the next got the lock after %v, want no TTL", d)
					}
					equal(t, "holder", tokenAt(&m), l.Token())
					time.Sleep(2 * op) // late requests, and what is undone: not the next's
					is(t, "Err of the next", l.Err())
					equal(t, "holder", tokenAt(&m), l.Token())
					release(t, l)
					if other != nil {
						release(t, other.got(t))
					}
					time.Sleep(op)
					leftovers(t, &m)
				})
			})
		}
	}
}

// A lease that came through a line blocks it, but not when it is over, however it
// ended.
func TestLineIsNotBlockedForEver(t *testing.T) {
	for what, end := range map[string]func(*testing.T, *lockstest.Memory, strategy.Lease){
		"forgotten": func(*testing.T, *lockstest.Memory, strategy.Lease) {},
		"detached": func(t *testing.T, _ *lockstest.Memory, l strategy.Lease) {
			_, err := l.Detach()
			is(t, "Detach", err)
		},
		"kept alive": func(t *testing.T, _ *lockstest.Memory, l strategy.Lease) { is(t, "KeepAlive", l.KeepAlive(ttl)) },
		"lost": func(t *testing.T, m *lockstest.Memory, l strategy.Lease) {
			m.Evict(bg, key)
			is(t, "Extend", l.Extend(bg), strategy.ErrLost)
		},
	} {
		for _, none := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/none %t", what, none), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var m lockstest.Memory
					s := open(t, &m, strategy.Options{NoHandOver: none})
					waiters := inLine(t, s, 4)
					release(t, waiters[0].lease)
					l := waiters[1].got(t)
					is(t, "Extend", l.Extend(bg))
					start := time.Now()
					end(t, &m, l)
					most := ttl + 10*ms
					if what == "lost" {
						most = 0
					}
					release(t, waiters[2].got(t))
					if d := waiters[2].at.Sub(start); d > most {
						t.Errorf("the next got the lock after %v, want %v at most", d, most)
					}
					release(t, waiters[3].got(t))
					leftovers(t, &m)
				})
			})
		}
	}
}

// A line looks after a holder by that holder's TTL, and not by that of one before it.
func TestLineIsBlockedNoLongerThanItsHoldersTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		long := open(t, &m, strategy.Options{TTL: time.Hour})
		short, err := long.With(func(o *strategy.Options) { o.TTL = ttl })
		is(t, "With", err)
		holder := take(t, long)
		first, second, third := wait(bg, long), wait(bg, short), wait(bg, short)
		release(t, holder)
		release(t, first.got(t))
		is(t, "Extend", second.got(t).Extend(bg)) // and forgotten
		start := time.Now()
		l := third.got(t)
		if d := third.at.Sub(start); d > ttl+10*ms {
			t.Errorf("Acquire took %v, want the TTL of %v", d, ttl)
		}
		release(t, l)
	})
}

// full is a Memory whose queue has no place while it is full.
type full struct {
	lockstest.Memory
	now atomic.Bool
}

func (p *full) room(c driver.Claim) driver.Claim {
	if p.now.Load() {
		c.Line = ""
	}
	return c
}

func (p *full) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return p.Memory.Acquire(ctx, p.room(c))
}

func (p *full) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	return p.Memory.Pass(ctx, c, p.room(next))
}

// TestFullQueue: a head for which the servers' queue has no place polls, until there is one. It does not matter which
// request was refused the place: its own, or the release that passes the lock on.
func TestFullQueue(t *testing.T) {
	for _, what := range []string{"asked", "passed"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := &full{}
				r := record(&p.Memory)
				a := open(t, p, strategy.Options{})
				b := open(t, p, strategy.Options{NoHandOver: true, Backoff: polling.Backoff})
				holder := take(t, a)
				var w, other *waiter
				if what == "asked" {
					p.now.Store(true)
					w = wait(bg, b)
				} else {
					first := wait(bg, b)
					w, other = wait(bg, b), wait(bg, a)
					release(t, holder)
					p.now.Store(true)
					asked := len(r.of(lockstest.OpAcquire))
					release(t, first.got(t))
					holder = other.got(t)
					is(t, "Extend", holder.Extend(bg))
					synctest.Wait()
					equal(t, "questions at once", len(r.of(lockstest.OpAcquire))-asked, 0)
				}
				asked := len(r.of(lockstest.OpAcquire))
				time.Sleep(time.Second)
				if n := len(r.of(lockstest.OpAcquire)) - asked; n < 50 || n > 400 {
					t.Errorf("questions in a second next to a full queue = %d, want one in 10 ms on average", n)
				}
				p.now.Store(false)
				time.Sleep(time.Second)
				asked = len(r.of(lockstest.OpAcquire))
				time.Sleep(5 * time.Second)
				equal(t, "questions of a head that has its place", len(r.of(lockstest.OpAcquire))-asked, 0)
				release(t, holder)
				release(t, w.got(t))
				leftovers(t, &p.Memory)
			})
		})
	}
}

// unannounced is a Memory that does not tell of the release of one holder.
type unannounced struct {
	lockstest.Memory
	holder string
}

func (p *unannounced) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	g, err := p.Memory.Acquire(ctx, c)
	var held *strategy.HeldError
	g.Silent = errors.As(err, &held) && held.Holder == p.holder
	return g, err
}

// TestNextAfterAnUnannouncedHolder: a waiter that polls, because the holder's release will not be announced, stops that when
// it hears that it is the first behind a successor.
func TestNextAfterAnUnannouncedHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &unannounced{}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{Backoff: polling.Backoff})
		holder := take(t, a)
		p.holder = holder.Token()
		first, second := wait(bg, b), wait(bg, open(t, p, strategy.Options{Backoff: polling.Backoff}))
		asked := len(r.of(lockstest.OpAcquire))
		time.Sleep(200 * ms)
		if n := len(r.of(lockstest.OpAcquire)) - asked; n < 10 {
			t.Errorf("questions of two waiters in 200 ms = %d, want that they poll", n)
		}
		release(t, holder)
		l := first.got(t)
		asked = len(r.of(lockstest.OpAcquire))
		time.Sleep(900 * ms)
		equal(t, "questions behind the successor", len(r.of(lockstest.OpAcquire))-asked, 0)
		release(t, l)
		release(t, second.got(t))
		leftovers(t, &p.Memory)
	})
}

// TestPollerFarBehind: a waiter that listens may sleep longer than the holder's TTL, because others are before it. When its
// subscription has ended, it does not.
func TestPollerFarBehind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		a, b := houses(t, &m, strategy.Options{Backoff: func(int) time.Duration { return time.Hour }})
		start := time.Now()
		take(t, a) // and forgotten: it lapses
		for i := range 1000 {
			queueUp(t, &m, fmt.Sprint("dead ", i), false)
		}
		w := wait(bg, b)
		r.then(only(lockstest.OpWatch, refused))
		m.BreakWatches()
		release(t, w.got(t))
		if late := w.at.Sub(start) - ttl; late > 10*ms {
			t.Errorf("Acquire %v after the holder's TTL, want when it ends", late)
		}
	})
}

// TestNextWaitsInAnotherWay: the next head subscribes as it waits, although the head before it has left a subscription.
func TestNextWaitsInAnotherWay(t *testing.T) {
	for _, way := range []strategy.Wait{strategy.WaitNotification, strategy.WaitQueue} {
		t.Run("after "+way.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				holder := take(t, open(t, &m, strategy.Options{}))
				s := open(t, &m, strategy.Options{Wait: way})
				other, err := s.With(func(o *strategy.Options) { o.Wait = strategy.WaitNotification + strategy.WaitQueue - way })
				is(t, "With", err)
				ctx, cancel := context.WithCancel(bg)
				first, next := wait(ctx, s), wait(bg, other)
				before := r.count()
				cancel()
				<-first.done
				time.Sleep(time.Second)
				equal(t, "subscriptions", len(r.of(lockstest.OpWatch)), 2)
				if n := r.count() - before; n > 4 { // an undo, a question, a subscription, and another question
					t.Errorf("requests of the next head = %d, want 4 at most", n)
				}
				start := time.Now()
				release(t, holder)
				release(t, next.got(t))
				equal(t, "it had the lock after", next.at.Sub(start), 0)
				leftovers(t, &m)
			})
		})
	}
}

// TestPassByOtherOptions: a release that passes the lock on to a waiter by other options gives each claim its own
// operation time-out. A re-entrant lock is adopted by the same options alone.
func TestPassByOtherOptions(t *testing.T) {
	play := func(t *testing.T, m *lockstest.Memory, o strategy.Options) *recorder {
		r := record(m)
		s := open(t, m, o)
		o.OpTimeout, o.NoHandOver = 2*op, true
		other, err := s.With(func(to *strategy.Options) { *to = o })
		is(t, "With", err)
		holder := take(t, open(t, m, strategy.Options{}))
		first, next := wait(bg, s), wait(bg, other)
		release(t, holder)
		release(t, first.got(t))
		release(t, next.got(t))
		leftovers(t, m)
		return r
	}
	bubble(t, func(t *testing.T) {
		passes := play(t, &lockstest.Memory{}, strategy.Options{}).of(lockstest.OpPass)
		equal(t, "passes", len(passes), 1)
		equal(t, "Due of the release", passes[0].all[0].Due.Sub(passes[0].at), op)
		equal(t, "Due of the next", passes[0].all[1].Due.Sub(passes[0].at), 2*op)
		adopted := play(t, reentrant(), strategy.Options{Wait: strategy.WaitNotification}).of(lockstest.OpAdopt)
		equal(t, "adoptions", len(adopted), 0)
	})
}

// TestNotifiedNextToAQueue: a waiter that does not queue gets the lock when the queue is empty, though the last holder
// was granted it there, and was not the one that the waiter knows.
func TestNotifiedNextToAQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		a, c := houses(t, &m, strategy.Options{})
		holder := take(t, a)
		outside := wait(bg, open(t, &m, strategy.Options{Wait: strategy.WaitNotification}))
		queued := wait(bg, c)
		release(t, holder)
		queued.got(t)
		start := time.Now()
		release(t, queued.lease)
		release(t, outside.got(t))
		since(t, "from the release to the grant", start, 0)
	})
}

// Contenders that wait in different ways, with different TTLs, stand in one line.
func TestMixedLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		first := open(t, &m, strategy.Options{})
		all := []strategy.Strategy{first}
		for _, o := range []strategy.Options{
			{TTL: time.Minute}, {Wait: strategy.WaitPoll}, {Wait: strategy.WaitNotification}, {NoHandOver: true},
		} {
			s, err := first.With(func(to *strategy.Options) { *to = o })
			is(t, "With", err)
			all = append(all, s)
		}
		holder := take(t, open(t, &m, strategy.Options{}))
		var waiters []*waiter
		for i := range 40 {
			waiters = append(waiters, wait(bg, all[(i*i+i/7)%len(all)]))
		}
		m.Intercept(slow(50*time.Microsecond, 50*time.Microsecond))
		start := time.Now()
		release(t, holder)
		for i, w := range waiters {
			release(t, w.got(t))
			for _, later := range waiters[i+1:] {
				if closed(later.done) && later.at.Before(w.at) {
					t.Errorf("a later contender was served at %v, before number %d at %v", later.at.Sub(start), i, w.at.Sub(start))
				}
			}
		}
		if d := time.Since(start); d > 12*time.Second { // a poller's pause here and there
			t.Errorf("40 acquisitions took %v, want no TTL", d)
		}
		time.Sleep(op)
		leftovers(t, &m)
	})
}

// Owners wait for a re-entrant lock as all do, and get in past the line if they hold it.
func TestQueueOfOwners(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		a, b := houses(t, m, strategy.Options{})
		holder := take(t, a)
		me, you := strategy.WithOwner(bg, "me"), strategy.WithOwner(bg, "you")
		mine, yours, another := wait(me, b), wait(you, b), wait(bg, a)
		release(t, holder)
		l := mine.got(t)
		equal(t, "Owner", l.Owner(), "me")
		again, err := b.NewLock(name).Acquire(me)
		is(t, "Acquire again", err)
		release(t, l)
		time.Sleep(time.Second)
		equal(t, "another has the lock", closed(yours.done) || closed(another.done), false)
		start := time.Now()
		release(t, again)
		release(t, another.got(t)) // of the other process, which queued before the line's next
		equal(t, "Owner", yours.got(t).Owner(), "you")
		release(t, yours.lease)
		if d := time.Since(start); d > 10*ms {
			t.Errorf("the others got the lock after %v, want at once", d)
		}
		leftovers(t, m)
	})
}

// passer is a Memory that passes a lock on as a test says.
type passer struct {
	lockstest.Memory
	pass func(ctx context.Context, c, next driver.Claim) (driver.Grant, error)
}

func (p *passer) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	if p.pass == nil {
		return p.Memory.Pass(ctx, c, next)
	}
	return p.pass(ctx, c, next)
}

// Whatever becomes of a release that passes the lock on, and of the waiter for which it asks, the caller
// hears what its release did, somebody gets the lock, and nothing is left behind.
func TestPass(t *testing.T) {
	type stage struct {
		*passer
		r       *recorder
		next    *waiter // for which the release asks
		leave   func()  // makes it leave
		other   *waiter // behind it, by other options; nil: none
		claimed driver.Claim
	}
	type serve = func(ctx context.Context, c, next driver.Claim) (driver.Grant, error)
	for what, tt := range map[string]struct {
		other bool
		pass  func(st *stage, serve serve) serve
		is    error
		got   bool // next gets the lock in the end
		check func(t *testing.T, st *stage, undone []driver.Claim)
	}{
		"it cannot": {got: true, pass: func(*stage, serve) serve {
			return func(context.Context, driver.Claim, driver.Claim) (driver.Grant, error) {
				return driver.Grant{}, strategy.ErrUnsupported
			}
		}, check: func(t *testing.T, st *stage, undone []driver.Claim) {
			equal(t, "undone", len(undone), 0)
		}},
		"lost before": {got: true, is: strategy.ErrLost, pass: func(st *stage, serve serve) serve {
			return func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				st.Evict(bg, key)
				return serve(ctx, c, next)
			}
		}, check: func(t *testing.T, st *stage, undone []driver.Claim) {
			if len(undone) != 1 || undone[0].Token == st.claimed.Token {
				t.Errorf("undone = %+v, want the holder's claim alone: no answer had confirmed it", undone)
			}
		}},
		"the grant comes too late": {got: true, pass: func(st *stage, serve serve) serve {
			return func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				g, err := serve(ctx, c, next)
				time.Sleep(valid)
				return g, err
			}
		}, check: func(t *testing.T, st *stage, undone []driver.Claim) {
			equal(t, "undone", len(undone), 1)
		}},
		"a server has not granted it": {got: true, pass: func(_ *stage, serve serve) serve {
			return func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				g, err := serve(ctx, c, next)
				g.Partial = true
				return g, err
			}
		}, check: func(t *testing.T, st *stage, undone []driver.Claim) {
			if equal(t, "undone", len(undone), 0); st.next.lease.Token() != st.claimed.Token {
				t.Error("the lock that was passed on has been acquired once more")
			}
		}},
		"nobody waits any more": {pass: func(st *stage, serve serve) serve {
			return func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				st.leave()
				return serve(ctx, c, next)
			}
		}, check: func(t *testing.T, st *stage, undone []driver.Claim) {
			if len(undone) != 1 || undone[0].Token != st.claimed.Token || undone[0].Grant.Fence == 0 {
				t.Errorf("undone = %+v, want the claim that was granted, with its grant", undone)
			}
		}},
		"another waits": {other: true, pass: func(st *stage, serve serve) serve {
			return func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				st.leave()
				return serve(ctx, c, next)
			}
		}, check: func(t *testing.T, st *stage, undone []driver.Claim) {
			if l := st.other.got(t); l.Token() == st.claimed.Token {
				t.Error("the other has the lock by a claim with the wrong options, want one of its own")
			} else {
				release(t, l)
			}
		}},
		"held, without a place": {got: true, pass: func(st *stage, _ serve) serve {
			return func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				_, err := st.Memory.Release(ctx, c)
				is(t, "Release", err)
				return driver.Grant{}, &strategy.HeldError{Name: name, Holder: "somebody", TTL: 100 * ms}
			}
		}, check: func(t *testing.T, st *stage, _ []driver.Claim) {
			if st.next.lease.Token() == st.claimed.Token {
				t.Error("the token of the claim without a place is used again, want a fresh one")
			}
		}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := &stage{passer: &passer{}}
				s := open(t, st.passer, strategy.Options{NoHandOver: true})
				holder := take(t, s)
				first := wait(bg, s)
				ctx, cancel := context.WithCancel(bg)
				st.next = wait(ctx, s)
				if tt.other {
					with, err := s.With(func(o *strategy.Options) { o.TTL = ttl / 2 })
					is(t, "With", err)
					st.other = wait(bg, with)
				}
				st.leave = func() { cancel(); <-st.next.done }
				release(t, holder)
				l := first.got(t)
				st.r = record(&st.Memory)
				pass := tt.pass(st, st.Memory.Pass)
				st.pass = func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
					st.pass, st.claimed = nil, next
					return pass(ctx, c, next)
				}
				err := l.Release(bg)
				if tt.is == nil {
					is(t, "Release", err)
				} else {
					is(t, "Release", err, tt.is)
				}
				if tt.got {
					release(t, st.next.got(t))
				}
				synctest.Wait()
				var undone []driver.Claim
				for _, q := range st.r.of(lockstest.OpUndo) {
					undone = append(undone, q.all[0])
				}
				tt.check(t, st, undone)
				time.Sleep(op)
				leftovers(t, &st.Memory)
				cancel()
			})
		})
	}
}
