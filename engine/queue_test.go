// Waiting in the servers' queue: direct grants, successors that died, and places that are inherited.
package engine_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

// A scene is a lock that process a holds, and that waiters of process b want.
type scene struct {
	*wire
	*recorder
	a, b   strategy.Strategy
	holder strategy.Lease
	ws     []*waiter
}

// enact makes a scene on p with n waiters.
func enact(t *testing.T, p *wire, o strategy.Options, n int) *scene {
	t.Helper()
	s := &scene{wire: p, recorder: record(&p.Memory)}
	s.a, s.b = houses(t, p, o)
	s.holder = take(t, s.a)
	for range n {
		s.ws = append(s.ws, wait(bg, s.b))
	}
	return s
}

// attempts returns how many there were so far.
func (s *scene) attempts() int { return s.Requests(lockstest.OpAcquire) }

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
		bubblesOf(t, []time.Duration{0, 20 * ms}, func(t *testing.T, there time.Duration) {
			s := enact(t, &wire{delay: delay}, strategy.Options{}, 0)
			s.then(slow(there, 5*ms))
			w := wait(bg, s.b)
			time.Sleep(time.Second)
			s.then(nil)
			before, granted := s.count(), time.Now()
			release(t, s.holder)
			l := w.got(t)
			equal(t, "requests", s.count()-before, 1)
			equal(t, "Acquire after", w.at.Sub(granted), delay)
			compared := time.Second + delay - 2*(there+5*ms) // so long ago: it asked for its place after an attempt and a subscription
			equal(t, "Deadline", l.Deadline().Sub(granted), successorTTL-driver.Drift(successorTTL)-there-compared/100)
			release(t, l)
			leftovers(t, &s.Memory)
		})
	}
}

// ahead is a server whose clock shows more than ours: by how much, a test sets.
func ahead(delay time.Duration) (p *wire, by *atomic.Int64) {
	by = &atomic.Int64{}
	return &wire{
		delay:   delay,
		answers: func(g *driver.Grant, _ error) { g.ServerTime += time.Duration(by.Load()) },
		hears:   func(n *driver.Notification) { n.Grant.ServerTime += time.Duration(by.Load()) },
	}, by
}

// A comparison of the clocks that is too old does not time a direct grant: the successor asks, and has the
// lock for its whole TTL. Here the server's clock was set ahead meanwhile, and the message is late. If the servers fail
// that attempt, it waits before it asks again.
func TestOldComparisonOfClocks(t *testing.T) {
	bubblesOf(t, []int{0, 3}, func(t *testing.T, failures int) {
		p, by := ahead(200 * ms)
		s := enact(t, p, strategy.Options{RetryOnError: true}, 1)
		time.Sleep(1500 * ms) // 1 % of this is more than the drift for which a second allows
		by.Store(int64(time.Minute))
		before, failed := s.attempts(), 0
		s.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
			if failed++; failed <= failures {
				return refused(ctx, q, serve)
			}
			return serve()
		}))
		release(t, s.holder)
		l := s.ws[0].got(t)
		asked := s.of(lockstest.OpAcquire)[before:]
		equal(t, "attempts since", len(asked), 1+failures)
		for i := range asked[1:] {
			if !asked[i+1].at.After(asked[i].at) {
				t.Errorf("attempt %d came at the time of the failed one before it, want a pause", i+2)
			}
		}
		equal(t, "holder", tokenAt(&s.Memory), l.Token())
		equal(t, "Deadline", l.Deadline(), s.ws[0].at.Add(valid))
		release(t, l)
		leftovers(t, &s.Memory)
	})
}

// After a fail-over another server tells of grants, whose clock is another. The clock of the one
// before does not time them, also while no question to the new one is answered.
func TestClockOfAnotherServer(t *testing.T) {
	bubblesOf(t, []time.Duration{time.Minute, 100 * ms}, func(t *testing.T, further time.Duration) { // 100 ms: less than a message's time
		p, by := ahead(200 * ms)
		s := enact(t, p, strategy.Options{RetryOnError: true}, 1)
		asked, until := 0, time.Time{} // so long no second question gets an answer, but word comes through
		s.then(func(_ context.Context, q lockstest.Request, serve func() error) error {
			switch q.Op {
			case lockstest.OpWatch:
				by.Store(int64(further)) // a fail-over
			case lockstest.OpAcquire:
				if asked++; asked > 1 && (until.IsZero() || time.Now().Before(until)) {
					return lockstest.Unsent()
				}
			}
			return serve()
		})
		s.BreakWatches()
		time.Sleep(time.Second)
		synctest.Wait()
		equal(t, "Acquire has ended", closed(s.ws[0].done), false)
		until = time.Now().Add(2 * successorTTL)
		release(t, s.holder)
		l := s.ws[0].got(t)
		s.then(nil)
		info, err := s.a.Inspect(bg, name)
		is(t, "Inspect", err)
		if left := time.Until(l.Deadline()); left > info.TTL-driver.Drift(info.TTL) {
			t.Errorf("Deadline in %v, want less than the server's %v", left, info.TTL)
		}
		release(t, l)
		leftovers(t, &s.Memory)
	})
}

// A place that a grant has used up, of which the line heard too late, is no sign that the servers do not count its
// subscription: it takes another place, and keeps the subscription.
func TestPlaceIsUsedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := enact(t, &wire{delay: 3 * time.Second}, strategy.Options{}, 1)
		release(t, s.holder)
		time.Sleep(2 * time.Second) // the grant is over, and nobody has heard of it
		between := take(t, s.a)
		time.Sleep(2 * time.Second)
		equal(t, "Acquire has ended", closed(s.ws[0].done), false)
		equal(t, "subscriptions", s.Requests(lockstest.OpWatch), 1)
		release(t, between)
		release(t, s.ws[0].got(t))
		leftovers(t, &s.Memory)
	})
}

// A successor that holds on is given the whole TTL, once, after a few milliseconds, or what is left of its
// maximum hold. Nothing more is sent then, unless the lock is to be kept alive. That its caller wants no renewal any more
// does not take the whole TTL away.
func TestSuccessorIsExtended(t *testing.T) {
	for what, maxHold := range map[string]time.Duration{
		"left alone": 0, "kept alive": 0, "kept for its maximum hold": ttl, "no longer kept alive": 0,
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := enact(t, &wire{}, strategy.Options{MaxHold: maxHold}, 1)
				start := time.Now()
				release(t, s.holder)
				l := s.ws[0].got(t)
				if what != "left alone" {
					is(t, "KeepAlive", l.KeepAlive(0))
				}
				if what == "no longer kept alive" {
					l.StopKeepAlive()
				}
				time.Sleep(successorTTL)
				is(t, "Err", l.Err())
				extended := s.of(lockstest.OpExtendAll, lockstest.OpExtend)
				if len(extended) != 1 {
					t.Fatalf("renewals in the first second = %d, want 1", len(extended))
				}
				equal(t, "extended after", extended[0].at.Sub(start), 5*ms)
				if maxHold == 0 {
					equal(t, "Deadline", l.Deadline(), extended[0].at.Add(valid))
				}
				time.Sleep(time.Minute)
				n := s.Requests(lockstest.OpExtendAll, lockstest.OpExtend)
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
				equal(t, "scheduled", engine.Scheduled(s.b), 0)
				leftovers(t, &s.Memory)
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

// Who leaves while it queues leaves its place to the next in line: the token stays, and
// nothing is sent. A next one that cannot have the lock by that place takes one of its own. The last takes it away.
func TestEntryIsInherited(t *testing.T) {
	for what, inherits := range map[string]bool{
		"next": true, "next by other options": false, "next by another owner": false, "nobody": false,
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := &wire{}
				p.Reentrant = what == "next by another owner" // owners mean nothing to other locks
				s := enact(t, p, strategy.Options{}, 0)
				by := s.b
				if what == "next by other options" {
					var err error
					by, err = s.b.With(func(o *strategy.Options) { o.TTL = time.Minute })
					is(t, "With", err)
				}
				ctx, cancel := context.WithCancel(as("the first"))
				first, second := wait(ctx, s.b), (*waiter)(nil)
				if what != "nobody" {
					second = wait(as("the second"), by)
				}
				token, before := queuedToken(t, &p.Memory), s.Requests()
				cancel()
				<-first.done
				is(t, "Acquire of the first", first.err, strategy.ErrHeld, context.Canceled)
				synctest.Wait()
				if inherits {
					equal(t, "requests when it left", s.Requests()-before, 0)
				}
				if second != nil {
					equal(t, "the next in line has the place of who has left", queuedToken(t, &p.Memory) == token, inherits)
				}
				release(t, s.holder)
				if second != nil {
					l := second.got(t)
					equal(t, "the next in line has the token of who has left", l.Token() == token, inherits)
					equal(t, "Owner", l.Owner(), "the second")
					if p.Reentrant {
						equal(t, "Owner at the server", ownerAt(&p.Memory), "the second")
					}
					is(t, "Extend", l.Extend(bg))
					if what == "next by other options" {
						equal(t, "Deadline", time.Until(l.Deadline()), time.Minute-driver.Drift(time.Minute))
					}
					release(t, l)
				}
				leftovers(t, &p.Memory)
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

// TestFullQueue: a head for which the servers' queue has no place polls, until there is one. It does not matter which
// request was refused the place: its own, or the release that passes the lock on.
func TestFullQueue(t *testing.T) {
	bubbles(t, map[string]bool{"asked": false, "passed": true}, func(t *testing.T, passed bool) {
		var full atomic.Bool
		p := &wire{asks: func(c *driver.Claim) {
			if full.Load() {
				c.Line = ""
			}
		}}
		s := enact(t, p, strategy.Options{NoHandOver: true, Backoff: polling.Backoff}, 0)
		holder, other := s.holder, (*waiter)(nil)
		first := (*waiter)(nil)
		if passed {
			first = wait(bg, s.b)
		}
		full.Store(!passed)
		w := wait(bg, s.b)
		if passed {
			other = wait(bg, s.a)
			release(t, holder)
			full.Store(true)
			asked := s.attempts()
			release(t, first.got(t))
			holder = other.got(t)
			is(t, "Extend", holder.Extend(bg))
			synctest.Wait()
			equal(t, "questions at once", s.attempts()-asked, 0)
		}
		asked := s.attempts()
		time.Sleep(time.Second)
		if n := s.attempts() - asked; n < 50 || n > 400 {
			t.Errorf("questions in a second next to a full queue = %d, want one in 10 ms on average", n)
		}
		full.Store(false)
		time.Sleep(time.Second)
		asked = s.attempts()
		time.Sleep(5 * time.Second)
		equal(t, "questions of a head that has its place", s.attempts()-asked, 0)
		release(t, holder)
		release(t, w.got(t))
		leftovers(t, &p.Memory)
	})
}

// TestNextAfterAnUnannouncedHolder: a waiter that polls, because the holder's release will not be announced, stops that when
// it hears that it is the first behind a successor.
func TestNextAfterAnUnannouncedHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		unannounced := ""
		p := &wire{answers: func(g *driver.Grant, err error) {
			var held *strategy.HeldError
			g.Silent = errors.As(err, &held) && held.Holder == unannounced
		}}
		s := enact(t, p, strategy.Options{Backoff: polling.Backoff}, 0)
		unannounced = s.holder.Token()
		first, second := wait(bg, s.b), wait(bg, open(t, p, strategy.Options{Backoff: polling.Backoff}))
		asked := s.attempts()
		time.Sleep(200 * ms)
		if n := s.attempts() - asked; n < 10 {
			t.Errorf("questions of two waiters in 200 ms = %d, want that they poll", n)
		}
		release(t, s.holder)
		l := first.got(t)
		asked = s.attempts()
		time.Sleep(900 * ms)
		equal(t, "questions behind the successor", s.attempts()-asked, 0)
		release(t, l)
		release(t, second.got(t))
		leftovers(t, &p.Memory)
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

// Whatever a release that passes the lock on finds out too late about the waiter for which it asks, somebody gets the lock, and nothing is
// left behind.
func TestPass(t *testing.T) {
	type row struct {
		before func(leave func())                         // the request
		after  func(g driver.Grant) (driver.Grant, error) // the answer; nil: as it is
		behind time.Duration                              // the TTL of another that waits behind it; 0: nobody does
		undone int
		fresh  bool // who has the lock then has it by another claim
	}
	late := func(g driver.Grant) (driver.Grant, error) {
		time.Sleep(valid)
		return g, nil
	}
	partly := func(g driver.Grant) (driver.Grant, error) {
		g.Partial = true
		return g, nil
	}
	bubbles(t, map[string]row{
		"the grant comes too late":    {after: late, undone: 1, fresh: true},
		"a server has not granted it": {after: partly},
		"nobody waits any more":       {before: func(leave func()) { leave() }, undone: 1},
		"another waits":               {before: func(leave func()) { leave() }, behind: ttl / 2, undone: 1, fresh: true},
		"another inherits it":         {before: func(leave func()) { leave() }, behind: ttl},
	}, func(t *testing.T, tt row) {
		p := &passer{}
		s := open(t, p, strategy.Options{NoHandOver: true})
		holder := take(t, s)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		first, next := wait(bg, s), wait(ctx, s)
		last, owner := next, ""
		if tt.before != nil {
			last = nil
		}
		if tt.behind == ttl {
			last, owner = wait(as("next"), s), "next"
		} else if tt.behind > 0 {
			with, err := s.With(func(o *strategy.Options) { o.TTL = tt.behind })
			is(t, "With", err)
			last = wait(bg, with)
		}
		release(t, holder)
		l := first.got(t)
		r := record(&p.Memory)
		var claimed driver.Claim
		p.pass = func(ctx context.Context, c, asked driver.Claim) (driver.Grant, error) {
			p.pass, claimed = nil, asked
			if tt.before != nil {
				tt.before(func() { cancel(); <-next.done })
			}
			g, err := p.Memory.Pass(ctx, c, asked)
			if tt.after != nil {
				return tt.after(g)
			}
			return g, err
		}
		release(t, l)
		if last != nil {
			release(t, last.got(t))
			equal(t, "the lock has been acquired once more", last.lease.Token() != claimed.Token, tt.fresh)
			equal(t, "Owner", last.lease.Owner(), cmp.Or(owner, last.lease.Token()))
		}
		synctest.Wait()
		undone := r.of(lockstest.OpUndo)
		equal(t, "undone", len(undone), tt.undone)
		if tt.undone > 0 && (undone[0].all[0].Token != claimed.Token || undone[0].all[0].Grant.Fence == 0) {
			t.Errorf("undone = %+v, want the claim that was granted, with its grant", undone[0].all[0])
		}
		time.Sleep(op)
		leftovers(t, &p.Memory)
	})
}
