// The wait line of one process: who asks and when, what a notification does, and what a waiter leaves
// behind that goes.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A hundred waiters are served in the order in which they came, and what each
// costs the servers does not depend on how many there are.
func TestFirstComeFirstServed(t *testing.T) {
	for _, w := range []strategy.Wait{strategy.WaitNotification, strategy.WaitPoll} {
		t.Run(w.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{Wait: w})
				a := take(t, s)
				const n = 100
				waiters := make([]*waiter, n)
				for i := range waiters {
					waiters[i] = wait(bg, s)
				}
				equal(t, "waiting", engine.Waiting(s, key), n)
				if w == strategy.WaitNotification {
					// The holder's, the first waiter's, and again once it is subscribed.
					equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 3)
				}
				before := m.Requests()
				release(t, a)
				for i, w := range waiters {
					<-w.done
					is(t, fmt.Sprintf("Acquire of waiter %d", i), w.err)
					for j := i + 1; j < n; j++ {
						if closed(waiters[j].done) {
							t.Fatalf("waiter %d was served before waiter %d", j, i)
						}
					}
					release(t, w.lease)
				}
				requests := m.Requests() - before
				if w == strategy.WaitNotification {
					equal(t, "requests of 100 acquisitions", requests, 3) // the holder's release, the first's attempt, the last's release
					equal(t, "subscriptions", len(r.of(lockstest.OpWatch)), 1)
				} else if requests > 20 {
					t.Errorf("requests of 100 acquisitions by polling = %d, want less", requests)
				}
				left, _ := m.Leftovers(bg, key)
				equal(t, "left at the server", len(left), 0)
				equal(t, "waiting", engine.Waiting(s, key), 0)
			})
		})
	}
}

// While the lock is held nobody but the head speaks, and it only when it must.
func TestWaitersAreSilent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		holder := open(t, &m, strategy.Options{})
		a := take(t, holder)
		is(t, "KeepAlive", a.KeepAlive(0))
		s := open(t, &m, strategy.Options{})
		var waiters []*waiter
		for range 50 {
			waiters = append(waiters, wait(bg, s))
		}
		before := len(r.of(lockstest.OpAcquire))
		time.Sleep(time.Minute)
		// The holder's remaining TTL is never less than ttl/2: at most a question for each.
		if n := len(r.of(lockstest.OpAcquire)) - before; n > 12 {
			t.Errorf("attempts in a minute of waiting = %d, want at most 12", n)
		}
		release(t, a)
		for _, w := range waiters {
			<-w.done
			is(t, "Acquire", w.err)
			release(t, w.lease)
		}
	})
}

// notices is a server with a holder from elsewhere, whose releases the test tells.
func notices(t *testing.T, o strategy.Options) (*lockstest.Memory, *recorder, strategy.Strategy, strategy.Lease) {
	t.Helper()
	m := &lockstest.Memory{}
	r := record(m)
	a := take(t, open(t, m, strategy.Options{}))
	return m, r, open(t, m, o), a
}

func TestNoticeWakesAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, _, s, a := notices(t, strategy.Options{})
		w := wait(bg, s)
		time.Sleep(3 * time.Second)
		start := time.Now()
		release(t, a)
		<-w.done
		is(t, "Acquire", w.err)
		equal(t, "woken after", w.at.Sub(start), 0)
		release(t, w.lease)
	})
}

// Notices are lost, or the holder died: the waiter wakes when the holder's TTL is
// over, and little later.
func TestWakesAtTheHoldersTTL(t *testing.T) {
	for _, backoff := range []time.Duration{math.MinInt64, -1, 0, 1, ms, time.Hour, math.MaxInt64} {
		t.Run(backoff.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m, r, s, a := notices(t, strategy.Options{Backoff: func(int) time.Duration { return backoff }})
				start := time.Now()
				w := wait(bg, s)
				before := m.Requests()
				<-w.done
				is(t, "Acquire", w.err)
				if late := w.at.Sub(start) - ttl; late < ms || late >= 3*ms {
					t.Errorf("woken %v after the holder's TTL, want 1ms to 3ms", late)
				}
				equal(t, "requests until then", m.Requests()-before, 1)
				equal(t, "subscriptions", len(r.of(lockstest.OpWatch)), 1)
				is(t, "Err of the holder", a.Err(), strategy.ErrLost)
				release(t, w.lease)
			})
		})
	}
}

// A holder that keeps its lock alive moves the moment to ask.
func TestKeptLockMovesTheWakeUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s, a := notices(t, strategy.Options{})
		start := time.Now()
		w := wait(bg, s)
		time.Sleep(6 * time.Second)
		is(t, "Extend", a.Extend(bg))
		n := len(r.of(lockstest.OpAcquire))
		time.Sleep(9 * time.Second)
		equal(t, "attempts at the old TTL", len(r.of(lockstest.OpAcquire))-n, 1)
		<-w.done
		is(t, "Acquire", w.err)
		if late := w.at.Sub(start) - 16*time.Second; late < ms || late >= 4*ms {
			t.Errorf("woken %v after the holder's new TTL, want 1ms to 4ms, because servers report whole milliseconds", late)
		}
		release(t, w.lease)
	})
}

// A release of somebody who held the lock before is no reason to ask.
func TestStaleNoticeWakesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &teller{}
		r := record(&p.Memory)
		s := open(t, p, strategy.Options{})
		a := take(t, s)
		w := wait(bg, s)
		n := len(r.of(lockstest.OpAcquire))
		p.tell(driver.Notification{Holder: "of an earlier holder"})
		p.tell(driver.Notification{Holder: "of another"})
		synctest.Wait()
		equal(t, "attempts after stale notices", len(r.of(lockstest.OpAcquire))-n, 0)
		release(t, a)
		<-w.done
		is(t, "Acquire", w.err)
		n = len(r.of(lockstest.OpAcquire))
		release(t, w.lease)
		equal(t, "attempts", len(r.of(lockstest.OpAcquire))-n, 0)
	})
}

// Many stale notices in one wait are more than the line remembers: then it asks.
func TestManyStaleNotices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &teller{}
		r := record(&p.Memory)
		s := open(t, p, strategy.Options{})
		a := take(t, s)
		w := wait(bg, s)
		n := len(r.of(lockstest.OpAcquire))
		for i := range 1000 {
			p.tell(driver.Notification{Holder: fmt.Sprint(i)})
		}
		p.tell(driver.Notification{Holder: a.Token()})
		synctest.Wait()
		if n := len(r.of(lockstest.OpAcquire)) - n; n == 0 || n > 20 {
			t.Errorf("attempts after 1000 notices = %d, want a few", n)
		}
		release(t, a)
		<-w.done
		is(t, "Acquire", w.err)
		release(t, w.lease)
	})
}

// The notice may overtake the reply that names the holder.
func TestNoticeOvertakesTheReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, r, _, a := notices(t, strategy.Options{})
		s := open(t, notifying{m, m}, strategy.Options{NoHandOver: true})
		w := wait(bg, s)
		other := open(t, notifying{m, m}, strategy.Options{})
		release(t, a) // w asks, and gets the lock
		<-w.done
		var b strategy.Lease
		w2 := wait(bg, s)
		r.then(only(lockstest.OpAcquire, func(_ context.Context, q lockstest.Request, serve func() error) error {
			if b == nil { // before the waiter's question
				r.then(nil)
				b = take(t, other)
				err := serve() // held by b …
				release(t, b)  // … who has released by the time the reply arrives, as a later holder has
				release(t, take(t, other))
				time.Sleep(500 * ms)
				return err
			}
			return serve()
		}))
		start := time.Now()
		release(t, w.lease)
		<-w2.done
		is(t, "Acquire", w2.err)
		equal(t, "Acquire after", w2.at.Sub(start), 500*ms)
		release(t, w2.lease)
	})
}

// No waiter heard of a release between the attempt and the confirmation of the subscription;
// the waiter asks once more.
func TestReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s, a := notices(t, strategy.Options{})
		r.then(only(lockstest.OpWatch, func(_ context.Context, _ lockstest.Request, serve func() error) error {
			release(t, a)
			return serve()
		}))
		start := time.Now()
		w := wait(bg, s)
		<-w.done
		is(t, "Acquire", w.err)
		equal(t, "Acquire after", w.at.Sub(start), 0)
		release(t, w.lease)
	})
}

// The same when the head that subscribed leaves before it could ask.
func TestReleaseBeforeTheSubscriptionOfAHeadThatLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &teller{}
		s := open(t, p, strategy.Options{})
		a := take(t, s)
		ctx, cancel := context.WithCancel(bg)
		var second *waiter
		p.watched = func() {
			go func() { second = wait(bg, s) }()
			time.Sleep(ms)
			cancel()
		}
		p.watching = func() { is(t, "Release", a.Release(bg)) }
		start := time.Now()
		_, err := s.NewLock(name).Acquire(ctx)
		is(t, "Acquire of the head", err, strategy.ErrHeld, context.Canceled)
		synctest.Wait()
		<-second.done
		is(t, "Acquire of the next", second.err)
		equal(t, "Acquire after", second.at.Sub(start), ms)
		release(t, second.lease)
	})
}

// A broken subscription is made again, and what was missed meanwhile is found.
func TestBrokenSubscription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, r, s, a := notices(t, strategy.Options{})
		w := wait(bg, s)
		equal(t, "subscriptions", len(r.of(lockstest.OpWatch)), 1)
		m.BreakWatches()
		time.Sleep(10 * ms)
		equal(t, "subscriptions after one broke", len(r.of(lockstest.OpWatch)), 2)
		time.Sleep(time.Second)
		start := time.Now()
		release(t, a)
		<-w.done
		is(t, "Acquire", w.err)
		equal(t, "woken after", w.at.Sub(start), 0)
		release(t, w.lease)

		b := take(t, s)
		w = wait(bg, s)
		r.then(only(lockstest.OpWatch, unsent))
		m.BreakWatches()
		start = time.Now()
		m.Evict(bg, key)
		<-w.done
		is(t, "Acquire", w.err)
		if d := w.at.Sub(start); d > 300*ms {
			t.Errorf("found after %v, want less than the longest pause", d)
		}
		is(t, "Release of the evicted", b.Release(bg), strategy.ErrLost)
		release(t, w.lease)
	})
}

// Where subscriptions break as soon as they are made, waiting costs what polling
// costs.
func TestSubscriptionsThatNeverLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &teller{}
		r := record(&p.Memory)
		p.watched = func() { p.BreakWatches() }
		s := open(t, p, strategy.Options{})
		a := take(t, s)
		w := wait(bg, s)
		time.Sleep(9 * time.Second)
		// A pause of 125 ms on average between them, two questions and a subscription each.
		if n := r.count(); n > 9*8*3*2 {
			t.Errorf("requests in 9s = %d, want no more than polling needs", n)
		}
		release(t, a)
		<-w.done
		is(t, "Acquire", w.err)
		release(t, w.lease)
	})
}

// Servers that refuse a subscription, or let it hang, are asked for one once; then the waiter polls. A
// subscription that hangs would delay every attempt.
func TestSubscriptionsRefusedOrHanging(t *testing.T) {
	for what, fails := range map[string]lockstest.Fault{
		"refused": refused,
		"hangs": func(context.Context, lockstest.Request, func() error) error {
			time.Sleep(op)
			return lockstest.Unsent()
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m, r, s, a := notices(t, strategy.Options{})
				r.then(only(lockstest.OpWatch, fails))
				w := wait(bg, s)
				time.Sleep(8 * time.Second)
				equal(t, "subscriptions asked for", len(r.of(lockstest.OpWatch)), 1)
				if left, _ := m.Leftovers(bg, key); len(left) != 1 {
					t.Errorf("at the server are %v, want the lock alone: who hears nothing takes no place in the queue", left)
				}
				start := time.Now()
				release(t, a)
				<-w.done
				is(t, "Acquire", w.err)
				if d := w.at.Sub(start); d > 250*ms {
					t.Errorf("found after %v, want 250ms at most", d)
				}
				release(t, w.lease)
			})
		})
	}
}

// An outage is a Memory that answers no attempt after its first second.
type outage struct {
	*lockstest.Memory
	since  time.Time
	answer func(ctx context.Context, due time.Time) error
	asked  int
}

func (o *outage) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if time.Since(o.since) < time.Second {
		return o.Memory.Acquire(ctx, c)
	}
	o.asked++
	return driver.Grant{}, o.answer(ctx, c.Due)
}

// A waiter whose servers went away while it slept does not report what it saw before: it asks once more,
// shortly before its deadline.
func TestWaiterLearnsOfAnOutage(t *testing.T) {
	silent := func(done <-chan struct{}, due time.Time) {
		select {
		case <-done:
		case <-time.After(time.Until(due)):
		}
	}
	for name, test := range map[string]struct {
		answer   func(ctx context.Context, due time.Time) error
		want     error
		patience time.Duration
	}{
		"it is paused": {func(ctx context.Context, due time.Time) error {
			silent(ctx.Done(), due)
			return lockstest.Unknown()
		}, strategy.ErrUnknown, op / 20},
		"it is paused, and the client ends with deadlines alone": {func(ctx context.Context, due time.Time) error {
			if deadline, ok := ctx.Deadline(); ok && deadline.Before(due) {
				due = deadline
			}
			silent(nil, due)
			return lockstest.Unknown()
		}, strategy.ErrUnknown, op / 4},
		"it is out of reach": {func(ctx context.Context, due time.Time) error {
			silent(ctx.Done(), due)
			return lockstest.Unsent()
		}, strategy.ErrUnsent, op / 20},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				o := &outage{Memory: &lockstest.Memory{}, since: time.Now(), answer: test.answer}
				take(t, open(t, o.Memory, strategy.Options{}))
				ctx, cancel := context.WithTimeout(bg, 4*time.Second)
				defer cancel()
				w := wait(ctx, open(t, o, strategy.Options{}))
				<-w.done
				is(t, "Acquire", w.err, test.want, context.DeadlineExceeded)
				isNot(t, "Acquire", w.err, strategy.ErrHeld)
				equal(t, "attempts in the outage", o.asked, 1)
				equal(t, "Acquire after", w.at.Sub(o.since), 4*time.Second+test.patience)
			})
		})
	}
}

// A waiter that becomes the head shortly before its deadline does not ask any more: it reports what the last head saw.
func TestHeadForAMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s, a := notices(t, strategy.Options{})
		ctx, cancel := context.WithTimeout(bg, 4*time.Second-op/40)
		defer cancel()
		first := wait(endsAlone{ctx}, s)
		last, stop := context.WithTimeout(bg, 4*time.Second)
		defer stop()
		second := wait(last, s)
		before := len(r.of(lockstest.OpAcquire))
		<-second.done
		<-first.done
		is(t, "Acquire", second.err, strategy.ErrHeld, context.DeadlineExceeded)
		equal(t, "questions", len(r.of(lockstest.OpAcquire))-before, 0)
		release(t, a)
	})
}

// endsAlone is a context that ends without a deadline that anybody knows.
type endsAlone struct{ context.Context }

func (endsAlone) Deadline() (time.Time, bool) { return time.Time{}, false }

// Pauses of polling are uniform below the ceiling that Backoff gives for the
// attempt.
func TestPollPauses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		const ceiling = 100 * ms
		var asked []int
		s := open(t, &m, strategy.Options{TTL: time.Hour, Wait: strategy.WaitPoll, Backoff: func(n int) time.Duration {
			asked = append(asked, n)
			return ceiling
		}})
		a := take(t, s)
		w := wait(bg, s)
		for len(r.of(lockstest.OpAcquire)) < 2002 {
			time.Sleep(time.Second)
		}
		release(t, a)
		<-w.done
		release(t, w.lease)
		for i, n := range asked {
			equal(t, "attempt given to Backoff", n, i+1)
		}
		all := r.of(lockstest.OpAcquire)[1:]
		var quarter [4]int
		for i := range 2000 {
			pause := all[i+1].at.Sub(all[i].at)
			if pause <= 0 || pause > ceiling {
				t.Fatalf("pause = %v, want 0 to %v", pause, ceiling)
			}
			quarter[min(pause*4/ceiling, 3)]++
		}
		for i, n := range quarter {
			if n < 400 || n > 600 { // 500 ± 5 σ
				t.Errorf("pauses in quarter %d = %d of 2000, want about 500", i, n)
			}
		}
	})
}

// A pause ends with the holder's TTL, however long Backoff would have it.
func TestPollPauseEndsWithTheTTL(t *testing.T) {
	for _, backoff := range []time.Duration{time.Hour, math.MaxInt64} {
		t.Run(backoff.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{TTL: time.Second, Wait: strategy.WaitPoll, Backoff: func(int) time.Duration { return backoff }})
				take(t, s)
				start := time.Now()
				w := wait(bg, s)
				<-w.done
				is(t, "Acquire", w.err)
				equal(t, "Acquire after", w.at.Sub(start), time.Second+ms)
				release(t, w.lease)
			})
		})
	}
}

// Strange answers and strange ceilings must not make the waiter spin.
func TestNoSpinning(t *testing.T) {
	for _, wait := range []strategy.Wait{strategy.WaitPoll, strategy.WaitNotification} {
		for _, left := range []time.Duration{-1, math.MinInt64, 0, math.MaxInt64 - 1, math.MaxInt64, 200 * 365 * 24 * time.Hour} {
			t.Run(fmt.Sprintf("%v/%v", wait, left), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n := 0
					p := &scriptedTeller{scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
						if n++; n > 1000 {
							t.Fatal("attempts in 5s > 1000")
						}
						return driver.Grant{}, &strategy.HeldError{Name: c.Name, TTL: left}
					}}}
					s := open(t, p, strategy.Options{Wait: wait, Backoff: func(int) time.Duration { return math.MaxInt64 }})
					ctx, cancel := context.WithTimeout(bg, 5*time.Second)
					defer cancel()
					_, err := s.NewLock(name).Acquire(ctx)
					is(t, "Acquire", err, strategy.ErrHeld, context.DeadlineExceeded)
					var held *strategy.HeldError
					if errors.As(err, &held) && left < 0 {
						equal(t, "TTL of a holder without expiry", held.TTL, left)
					}
					want := 2 // at first, and shortly before the deadline
					if wait == strategy.WaitNotification {
						want = 3 // and once it was subscribed
					}
					equal(t, "attempts in 5s", n, want)
				})
			})
		}
	}
}

// A lock that never expires is looked at now and then, though notices are awaited.
func TestHolderWithoutExpiry(t *testing.T) {
	t.Run("however long the pauses", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			start := time.Now()
			p := &scriptedTeller{scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
				if time.Since(start) > 25*time.Second {
					return driver.Grant{}, nil
				}
				return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: "for ever", TTL: -1}
			}}}
			s := open(t, p, strategy.Options{Backoff: func(int) time.Duration { return time.Hour }})
			release(t, wait(bg, s).got(t))
			if d := time.Since(start); d > 25*time.Second+2*ttl {
				t.Errorf("Acquire took %v, want a question in every two TTLs", d)
			}
		})
	})
	t.Run("far behind in the servers' queue", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			asked := 0
			p := &scriptedTeller{scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
				asked++
				return driver.Grant{Place: 1000}, &strategy.HeldError{Name: c.Name, Holder: "for ever", TTL: -1}
			}}}
			ctx, cancel := context.WithTimeout(bg, 100*ttl)
			defer cancel()
			_, err := open(t, p, strategy.Options{}).NewLock(name).Acquire(ctx)
			is(t, "Acquire", err, strategy.ErrHeld)
			if asked > 50 {
				t.Errorf("questions in 100 TTLs = %d, want far fewer: the first in the queue asks", asked)
			}
		})
	})
	bubble(t, func(t *testing.T) {
		start := time.Now()
		p := &scriptedTeller{scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
			if time.Since(start) > 25*time.Second {
				return driver.Grant{}, nil
			}
			return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: "for ever", TTL: -1}
		}}}
		s := open(t, p, strategy.Options{})
		_, err := s.NewLock(name).Acquire(bg)
		is(t, "Acquire", err)
		if d := time.Since(start); d < 3*ttl || d > 3*ttl+750*ms {
			t.Errorf("Acquire took %v, want three TTLs and their jitter", d)
		}
	})
}

// A waiter in the middle leaves, and the others do not notice.
func TestWaiterInTheMiddleLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s, a := notices(t, strategy.Options{})
		ctx, cancel := context.WithCancel(bg)
		first, middle, last := wait(bg, s), wait(ctx, s), wait(bg, s)
		n := r.count()
		cancel()
		<-middle.done
		is(t, "Acquire in the middle", middle.err, strategy.ErrHeld, context.Canceled)
		synctest.Wait()
		equal(t, "requests", r.count()-n, 0)
		equal(t, "waiting", engine.Waiting(s, key), 2)
		release(t, a)
		<-first.done
		is(t, "first Acquire", first.err)
		equal(t, "last has the lock", closed(last.done), false)
		release(t, first.lease)
		<-last.done
		is(t, "last Acquire", last.err)
		release(t, last.lease)
	})
}

// A head that leaves passes on what it knows, and its subscription.
func TestHeadLeaves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s, a := notices(t, strategy.Options{})
		ctx, cancel := context.WithCancel(bg)
		head, next := wait(ctx, s), wait(bg, s)
		n := r.count()
		time.Sleep(time.Second)
		cancel()
		<-head.done
		is(t, "Acquire of the head", head.err, strategy.ErrHeld)
		synctest.Wait()
		equal(t, "requests of the next", r.count()-n, 0)
		start := time.Now()
		release(t, a)
		<-next.done
		is(t, "Acquire of the next", next.err)
		equal(t, "woken after", next.at.Sub(start), 0)
		release(t, next.lease)
	})
}

// A head leaves in the very moment of the notice, in either order: the next must
// not sleep on.
func TestHeadLeavesWithTheNotice(t *testing.T) {
	for i := range 40 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, _, s, a := notices(t, strategy.Options{})
				ctx, cancel := context.WithCancel(bg)
				head, next := wait(ctx, s), wait(bg, s)
				var both sync.WaitGroup
				both.Go(cancel)
				both.Go(func() { release(t, a) })
				both.Wait()
				<-head.done
				start := time.Now()
				if head.err == nil {
					release(t, head.lease)
				}
				<-next.done
				is(t, "Acquire of the next", next.err)
				equal(t, "woken after", next.at.Sub(start), 0)
				release(t, next.lease)
			})
		})
	}
}

// A head that asked because of a notice, and leaves without an answer, takes that
// notice with it: the next asks at once.
func TestHeadLeavesWithoutAnAnswer(t *testing.T) {
	for what, fault := range map[string]lockstest.Fault{
		"refused": refused, "unsent": unsent, "lost request": lostRequest, "lost reply": lostReply,
		"cancelled, too slow": slow(500*ms, 0), "cancelled, answered": slow(0, 20*ms), "cancelled, granted": slow(20*ms, 0),
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, r, s, a := notices(t, strategy.Options{Wait: strategy.WaitNotification})
				ctx, cancel := context.WithCancel(bg)
				head, next := wait(ctx, s), wait(bg, s)
				r.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
					r.then(nil)
					return fault(ctx, q, serve)
				}))
				release(t, a)
				synctest.Wait()
				cancel()
				<-head.done
				if head.err == nil {
					t.Fatal("Acquire of the head = nil, want an error")
				}
				start := time.Now()
				<-next.done
				is(t, "Acquire of the next", next.err)
				if d := next.at.Sub(start); d > op/4 {
					t.Errorf("Acquire of the next took %v more, want no more than an undoing takes", d)
				}
				release(t, next.lease)
				time.Sleep(op) // a late request, and its undoing
			})
		})
	}
}

// A wait that ends while its question is on its way has a little patience for the
// answer, so that it can say "held".
func TestWaitEndsDuringAQuestion(t *testing.T) {
	const patience = op / 20
	for _, tt := range []struct {
		what  string
		left  time.Duration // until the answer, when ctx ends
		grant bool
		want  error
		ends  time.Duration // after ctx
	}{
		{"held, in time", patience - ms, false, strategy.ErrHeld, patience - ms},
		{"held, too late", patience + ms, false, strategy.ErrUnknown, patience},
		{"granted, in time", patience - ms, true, strategy.ErrHeld, patience - ms},
		{"granted, too late", patience + ms, true, strategy.ErrUnknown, patience},
	} {
		t.Run(tt.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m, r, s, a := notices(t, strategy.Options{Wait: strategy.WaitPoll})
				why := errors.New("why")
				ctx, cancel := context.WithCancelCause(bg)
				r.then(only(lockstest.OpAcquire, slow(400*ms, 0)))
				w := wait(ctx, s)
				time.Sleep(400 * ms)
				for len(r.of(lockstest.OpAcquire)) < 3 {
					time.Sleep(100 * time.Microsecond)
				}
				second := r.of(lockstest.OpAcquire)[2].at
				if tt.grant {
					release(t, a)
				}
				time.Sleep(time.Until(second.Add(400*ms - tt.left)))
				start := time.Now()
				cancel(why)
				<-w.done
				equal(t, "Acquire ended after", w.at.Sub(start), tt.ends)
				is(t, "Acquire", w.err, tt.want, context.Canceled, why)
				if tt.want == strategy.ErrUnknown {
					isNot(t, "Acquire", w.err, strategy.ErrHeld)
				}
				time.Sleep(op)
				want := a.Token()
				if tt.grant {
					want = ""
				}
				equal(t, "holder", holds(m, key), want)
				equal(t, "under way", engine.UnderWay(s), 0)
			})
		})
	}
}

// The error also has what the server said just after the wait was over; a request that never
// left changes nothing.
func TestWaitEndsDuringAQuestionThatFails(t *testing.T) {
	for want, fault := range map[error]lockstest.Fault{strategy.ErrRefused: refused, strategy.ErrHeld: unsent} {
		t.Run(want.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				_, r, s, a := notices(t, strategy.Options{Wait: strategy.WaitNotification})
				ctx, cancel := context.WithCancel(bg)
				w := wait(ctx, s)
				r.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
					time.Sleep(20 * ms)
					return fault(ctx, q, serve)
				}))
				release(t, a)
				synctest.Wait()
				cancel()
				<-w.done
				is(t, "Acquire", w.err, want)
				for _, other := range []error{strategy.ErrRefused, strategy.ErrHeld, strategy.ErrUnknown} {
					if other != want {
						isNot(t, "Acquire", w.err, other)
					}
				}
			})
		})
	}
}

// A deadline is reported as one, and as nothing else.
func TestWaitEndsDuringAQuestionByDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s, _ := notices(t, strategy.Options{Wait: strategy.WaitPoll})
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		w := wait(ctx, s)
		time.Sleep(500 * ms)
		r.then(only(lockstest.OpAcquire, slow(800*ms, 0)))
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrUnknown, context.DeadlineExceeded)
		isNot(t, "Acquire", w.err, context.Canceled, strategy.ErrHeld)
		time.Sleep(2 * time.Second)
	})
}

// A waiter that has reason to ask and finds its context done sends nothing.
func TestDoneContextSendsNothingWhenWoken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &teller{}
		r := record(&p.Memory)
		s := open(t, p, strategy.Options{})
		take(t, s)
		ctx, cancel := context.WithCancel(bg)
		p.watched = cancel // a fresh subscription is reason to ask
		_, err := s.NewLock(name).Acquire(ctx)
		is(t, "Acquire", err, strategy.ErrHeld, context.Canceled)
		equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 2)
	})
}

// Waiters come and go at random; in the end nobody is left asleep.
func TestWaitersComeAndGo(t *testing.T) {
	for _, w := range []strategy.Wait{strategy.WaitPoll, strategy.WaitNotification} {
		t.Run(w.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				m.Intercept(slow(100*time.Microsecond, 100*time.Microsecond))
				strategies := []strategy.Strategy{open(t, &m, strategy.Options{Wait: w}), open(t, &m, strategy.Options{})}
				var all sync.WaitGroup
				for i := range 60 {
					all.Go(func() {
						for j := range 20 {
							ctx, cancel := context.WithTimeout(bg, time.Duration((i*7+j*3)%40)*ms+50*time.Microsecond)
							lease, err := strategies[i%2].NewLock(name).Acquire(ctx)
							if err == nil {
								time.Sleep(time.Duration(j%4) * ms)
								is(t, "Release", lease.Release(ctx))
							} else {
								is(t, "Acquire", err, context.DeadlineExceeded)
							}
							cancel()
						}
					})
				}
				start := time.Now()
				all.Wait()
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("it took %v, want no wait for a TTL", d)
				}
				time.Sleep(op)
				left, _ := m.Leftovers(bg, key)
				equal(t, "left at the server", len(left), 0)
				for _, s := range strategies {
					equal(t, "waiting", engine.Waiting(s, key), 0)
					equal(t, "under way", engine.UnderWay(s), 0)
				}
			})
		})
	}
}

// When the servers do not answer, those in line learn it with their head: not one
// after the other, each after a time-out of its own.
func TestSilentServersEndTheWaitOfAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{Wait: strategy.WaitNotification})
		patient, err := s.With(func(o *strategy.Options) { o.Wait, o.RetryOnError = strategy.WaitNotification, true })
		is(t, "With", err)
		lease := take(t, s)
		var all sync.WaitGroup
		ends := make(chan time.Time, 100)
		for range 100 {
			all.Go(func() {
				_, err := s.NewLock(name).Acquire(bg)
				is(t, "Acquire", err, strategy.ErrUnknown)
				ends <- time.Now()
			})
		}
		synctest.Wait()
		var persists error
		all.Go(func() {
			var lease strategy.Lease
			if lease, persists = patient.NewLock(name).Acquire(bg); persists == nil {
				persists = lease.Release(bg)
			}
		})
		synctest.Wait()
		start := time.Now()
		m.Intercept(func(ctx context.Context, q lockstest.Request, serve func() error) error {
			if q.Claims[0].Token == lease.Token() { // its release wakes the head, which finds silence
				return serve()
			}
			time.Sleep(2 * time.Minute)
			return lockstest.Unsent()
		})
		release(t, lease)
		time.Sleep(time.Minute)
		synctest.Wait()
		close(ends)
		for end := range ends {
			if took := end.Sub(start); took > 2*op {
				t.Errorf("Acquire took %v, want no more than about the time-out of the first", took)
			}
		}
		m.Intercept(nil)
		all.Wait()
		is(t, "Acquire that persists", persists)
		time.Sleep(3 * time.Minute) // let the requests that got lost end
	})
}

// Options that With leaves out are the defaults, but for what a name means.
func TestWithKeepsTheKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{Key: func(n string) string { return "mine:" + n }})
		other, err := s.With(func(o *strategy.Options) { o.TTL = time.Minute })
		is(t, "With", err)
		take(t, s)
		_, err = other.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrHeld)
	})
}
