// The wait line of one process: who asks and when, what a notification does, and what a waiter leaves
// behind that goes.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// notices is a server with a holder from elsewhere, whose releases the test tells.
func notices(t *testing.T, o strategy.Options) (*lockstest.Memory, *recorder, strategy.Strategy, strategy.Lease) {
	t.Helper()
	m := &lockstest.Memory{}
	r := record(m)
	a := take(t, open(t, m, strategy.Options{}))
	return m, r, open(t, m, o), a
}

// Notices are lost, or the holder died: the waiter wakes when the holder's TTL is
// over, and little later.
func TestWakesAtTheHoldersTTL(t *testing.T) {
	bubblesOf(t, []time.Duration{math.MinInt64, 0, ms, math.MaxInt64}, func(t *testing.T, backoff time.Duration) {
		s := enact(t, &wire{}, strategy.Options{Backoff: func(int) time.Duration { return backoff }}, 1)
		start, before := time.Now(), s.count()
		release(t, s.ws[0].got(t))
		if late := s.ws[0].at.Sub(start) - ttl; late < ms || late >= 3*ms {
			t.Errorf("woken %v after the holder's TTL, want 1ms to 3ms", late)
		}
		equal(t, "requests until then, and the release", s.count()-before, 2)
		equal(t, "subscriptions", s.Requests(lockstest.OpWatch), 1)
	})
}

// A release of somebody who held the lock before is no reason to ask, but many in one wait are more than the line remembers: then
// it asks.
func TestStaleNotices(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := enact(t, &wire{}, strategy.Options{}, 1)
		before := s.attempts()
		s.Tell(key, driver.Notification{Holder: "an earlier holder"})
		s.Tell(key, driver.Notification{Holder: "another"})
		synctest.Wait()
		equal(t, "attempts after stale notices", s.attempts()-before, 0)
		for i := range 1000 {
			s.Tell(key, driver.Notification{Holder: fmt.Sprint(i)})
		}
		synctest.Wait()
		if n := s.attempts() - before; n == 0 || n > 20 {
			t.Errorf("attempts after 1000 notices = %d, want a few", n)
		}
		release(t, s.holder)
		release(t, s.ws[0].got(t))
	})
}

// A broken subscription is made again, and what was missed meanwhile is found.
func TestBrokenSubscription(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := enact(t, &wire{}, strategy.Options{}, 1)
		s.BreakWatches()
		time.Sleep(time.Second)
		equal(t, "subscriptions after one broke", s.Requests(lockstest.OpWatch), 2)
		start := time.Now()
		release(t, s.holder)
		release(t, s.ws[0].got(t))
		equal(t, "woken after", s.ws[0].at.Sub(start), 0)

		evicted := take(t, s.b)
		w := wait(bg, s.b)
		s.then(only(lockstest.OpWatch, unsent))
		s.BreakWatches()
		start = time.Now()
		s.Evict(bg, key)
		release(t, w.got(t))
		if d := w.at.Sub(start); d > 300*ms {
			t.Errorf("found after %v, want less than the longest pause", d)
		}
		is(t, "Release of the evicted", evicted.Release(bg), strategy.ErrLost)
	})
}

// Where subscriptions break as soon as they are made, waiting costs what polling costs.
func TestSubscriptionsBreak(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &teller{}
		p.watched = p.BreakWatches
		s := open(t, p, strategy.Options{})
		holder := take(t, s)
		w := wait(bg, s)
		time.Sleep(9 * time.Second)
		// A pause of 125 ms on average between them, two questions and a subscription each.
		between(t, "requests in 9s", p.Requests(), 1, 9*8*3*2)
		release(t, holder)
		release(t, w.got(t))
	})
}

// A waiter whose servers went away while it slept does not report what it saw before: it asks once more,
// shortly before its deadline.
func TestWaiterLearnsOfAnOutage(t *testing.T) {
	type row struct {
		deadlines bool // the client ends a request by deadlines alone
		err       error
		patience  time.Duration
	}
	bubbles(t, map[string]row{
		"it is paused": {false, lockstest.Unknown(), op / 20},
		"it is paused, and the client ends with deadlines alone": {true, lockstest.Unknown(), op / 4},
		"it is out of reach": {false, lockstest.Unsent(), op / 20},
	}, func(t *testing.T, tt row) {
		p := &unanswering{err: tt.err, deadlines: tt.deadlines}
		start := time.Now()
		take(t, open(t, &p.Memory, strategy.Options{}))
		ctx, cancel := context.WithTimeout(bg, 4*time.Second)
		defer cancel()
		w := wait(ctx, open(t, p, strategy.Options{}))
		p.silent.Store(true)
		<-w.done
		is(t, "Acquire", w.err, tt.err, context.DeadlineExceeded)
		isNot(t, "Acquire", w.err, strategy.ErrHeld)
		equal(t, "attempts in the outage", p.asked, 1)
		equal(t, "Acquire after", w.at.Sub(start), 4*time.Second+tt.patience)
	})
}

// unanswering is a Memory that answers no attempt from some time on.
type unanswering struct {
	lockstest.Memory
	silent    atomic.Bool
	err       error
	deadlines bool
	asked     int
}

func (p *unanswering) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if !p.silent.Load() {
		return p.Memory.Acquire(ctx, c)
	}
	p.asked++
	due, done := c.Due, ctx.Done()
	if deadline, ok := ctx.Deadline(); p.deadlines && ok && deadline.Before(due) {
		due = deadline
	}
	if p.deadlines {
		done = nil
	}
	select {
	case <-done:
	case <-time.After(time.Until(due)):
	}
	return driver.Grant{}, p.err
}

// A waiter that becomes the head shortly before its deadline does not ask any more: it reports what the last head saw.
func TestHeadForAMoment(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := enact(t, &wire{}, strategy.Options{}, 0)
		ctx, cancel := context.WithTimeout(bg, 4*time.Second-op/40)
		defer cancel()
		first := wait(endsAlone{ctx}, s.b)
		last, stop := context.WithTimeout(bg, 4*time.Second)
		defer stop()
		second := wait(last, s.b)
		before := s.attempts()
		<-second.done
		<-first.done
		is(t, "Acquire", second.err, strategy.ErrHeld, context.DeadlineExceeded)
		equal(t, "questions", s.attempts()-before, 0)
		release(t, s.holder)
	})
}

// endsAlone is a context that ends without a deadline that anybody knows.
type endsAlone struct{ context.Context }

func (endsAlone) Deadline() (time.Time, bool) { return time.Time{}, false }

// Who has split the votes of several servers with others (nobody in particular holds the lock) tries again after random
// pauses: not when the TTL of what the others give up anyway is over, and not in step with them.
func TestSplitVotes(t *testing.T) {
	bubblesOf(t, ways, func(t *testing.T, how strategy.Wait) {
		const n = 12
		var m lockstest.Memory
		r := record(&m)
		r.then(only(lockstest.OpAcquire, func(_ context.Context, q lockstest.Request, serve func() error) error {
			if len(r.of(lockstest.OpAcquire)) > n {
				return serve()
			}
			return &strategy.HeldError{Name: q.Claims[0].Name, TTL: q.Claims[0].TTL}
		}))
		release(t, wait(bg, open(t, &m, strategy.Options{Wait: how})).got(t))
		asked, pauses := r.of(lockstest.OpAcquire), map[time.Duration]bool{}
		equal(t, "attempts", len(asked), n+1)
		for i := 2; i < len(asked); i++ { // the second asks because it listens by now
			pause := asked[i].at.Sub(asked[i-1].at)
			pauses[pause] = true
			if most := contract.Backoff(i) + 1; pause <= 0 || pause > most {
				t.Errorf("pause before attempt %d = %v, want more than 0 and %v at most", i+1, pause, most)
			}
		}
		if len(pauses) < n-3 {
			t.Errorf("%d different pauses of %d, want random ones", len(pauses), n-1)
		}
	})
}

// Strange answers and strange ceilings must not make the waiter spin.
func TestNoSpinning(t *testing.T) {
	for how, want := range map[strategy.Wait]int{ // attempts: at first, shortly before the deadline, and once it was subscribed
		strategy.WaitPoll: 2, strategy.WaitNotification: 3,
	} {
		bubblesOf(t, []time.Duration{
			-1, math.MinInt64, 0, math.MaxInt64 - 1, math.MaxInt64, 200 * 365 * 24 * time.Hour,
		}, func(t *testing.T, left time.Duration) {
			n := 0
			p := &scriptedTeller{scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
				if n++; n > 1000 {
					t.Fatal("attempts in 5s > 1000")
				}
				return driver.Grant{}, &strategy.HeldError{Name: c.Name, TTL: left}
			}}}
			s := open(t, p, strategy.Options{Wait: how, Backoff: func(int) time.Duration { return math.MaxInt64 }})
			ctx, cancel := context.WithTimeout(bg, 5*time.Second)
			defer cancel()
			_, err := s.NewLock(name).Acquire(ctx)
			is(t, "Acquire", err, strategy.ErrHeld, context.DeadlineExceeded)
			var held *strategy.HeldError
			if errors.As(err, &held) && left < 0 {
				equal(t, "TTL of a holder without expiry", held.TTL, left)
			}
			equal(t, fmt.Sprintf("attempts in 5s, %v", how), n, want)
		})
	}
}

// A lock that never expires is looked at now and then, though notices are awaited: about once a TTL, however long the pauses may be,
// but far less often by those who are far behind in the servers' queue.
func TestHolderWithoutExpiry(t *testing.T) {
	type row struct {
		backoff     func(int) time.Duration
		place       int32
		least, most time.Duration // until it finds that the lock is free after 25 s
	}
	bubbles(t, map[string]row{
		"pauses":                           {nil, 0, 3 * ttl, 3*ttl + 750*ms},
		"however long the pauses":          {func(int) time.Duration { return time.Hour }, 0, 25 * time.Second, 25*time.Second + 2*ttl},
		"far behind in the servers' queue": {nil, 1000, 5 * ttl, 1001 * ttl},
	}, func(t *testing.T, tt row) {
		start, asked := time.Now(), 0
		p := &scriptedTeller{scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
			if asked++; time.Since(start) > 25*time.Second {
				return driver.Grant{}, nil
			}
			return driver.Grant{Place: tt.place}, &strategy.HeldError{Name: c.Name, Holder: "for ever", TTL: -1}
		}}}
		release(t, wait(bg, open(t, p, strategy.Options{Backoff: tt.backoff})).got(t))
		if d := time.Since(start); d < tt.least || d > tt.most {
			t.Errorf("Acquire took %v, want %v to %v", d, tt.least, tt.most)
		}
	})
}

// A head that asked because of a notice, and leaves without an answer, takes that
// notice with it: the next asks at once.
func TestHeadLeavesWithoutAnAnswer(t *testing.T) {
	bubbles(t, map[string]lockstest.Fault{
		"refused": refused, "unsent": unsent, "lost request": lostRequest, "lost reply": lostReply,
		"cancelled, too slow": slow(500*ms, 0), "cancelled, answered": slow(0, 20*ms), "cancelled, granted": slow(20*ms, 0),
	}, func(t *testing.T, fault lockstest.Fault) {
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
		release(t, next.got(t))
		if d := next.at.Sub(start); d > op/4 {
			t.Errorf("Acquire of the next took %v more, want what an undoing takes at most", d)
		}
		time.Sleep(op) // a late request, and its undoing
	})
}
