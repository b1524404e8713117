// Orders of events, panics, options and user code that have left two holders, or a line that stopped, or that learned something false.
package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// TestHeadAsksAlone: while a head asks for its claim, because a grant says too little, no release asks for that claim, too.
func TestHeadAsksAlone(t *testing.T) {
	type row struct{ there, back time.Duration }
	bubbles(t, map[string]row{
		"the release arrives first":  {there: 10 * ms},
		"the question arrives first": {back: 10 * ms},
	}, func(t *testing.T, q row) {
		p := newShares(2)
		s, other := open(t, p, strategy.Options{}), open(t, p, strategy.Options{})
		mine, theirs := take(t, s), take(t, other)
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		w := waitShare(ctx, s, 1)
		p.keeps(t, "while one waits", 1, 1)
		token := p.queued()[0].Token
		before := len(p.of("acquire"))
		p.then(only(lockstest.OpAcquire, func(_ context.Context, r lockstest.Request, serve func() error) error {
			if r.Claims[0].Token != token {
				return serve()
			}
			time.Sleep(q.there)
			err := serve()
			time.Sleep(q.back)
			if q.back > 0 && len(p.of("pass")) > 0 {
				return lockstest.Unsent() // the engine would panic with its mutex locked, and this test would hang
			}
			return err
		}))
		p.Tell(key, driver.Notification{Token: token})
		time.Sleep(5 * ms)
		equal(t, "questions of the head that are under way", len(p.of("acquire"))-before, 1)
		release(t, mine)
		equal(t, "releases that ask for the head, too", len(p.of("pass")), 0)
		<-w.done
		is(t, "Acquire", w.err)
		if synctest.Wait(); w.err != nil {
			release(t, theirs)
			return
		}
		is(t, "Err", w.lease.Err())
		equal(t, "what the server keeps for the lease", p.held(w.lease.Token()), 1)
		third, err := other.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire of a third of two permits", err, strategy.ErrHeld)
		if err == nil {
			third.Release(bg)
		}
		w.lease.Release(bg)
		release(t, theirs)
		leftovers(t, p.server)
	})
}

// odd is a Memory whose protocol panics in one request.
type odd struct {
	lockstest.Memory
	op      atomic.Value // the kind of the next request that panics; its zero: none does
	arrives bool         // the server answers it before
}

func (p *odd) panics(op lockstest.Op, serve func()) {
	if p.op.CompareAndSwap(op, *new(lockstest.Op)) {
		if p.arrives {
			serve()
		}
		panic("odd")
	}
}

func (p *odd) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	p.panics(lockstest.OpRelease, func() { p.Memory.Release(ctx, c) })
	return p.Memory.Release(ctx, c)
}

func (p *odd) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	p.panics(lockstest.OpPass, func() { p.Memory.Pass(ctx, c, next) })
	return p.Memory.Pass(ctx, c, next)
}

func (p *odd) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	p.panics(lockstest.OpAdopt, func() { p.Memory.Adopt(ctx, c, from) })
	return p.Memory.Adopt(ctx, c, from)
}

// TestReleasePanics: when the protocol panics in a release, the next waiter asks at once, and gets the lock.
func TestReleasePanics(t *testing.T) {
	for what, row := range map[string]struct {
		op        lockstest.Op
		reentrant bool
		o         strategy.Options
	}{
		"alone":                        {lockstest.OpRelease, false, strategy.Options{Wait: strategy.WaitPoll, NoHandOver: true}},
		"that takes a place":           {lockstest.OpPass, false, strategy.Options{NoHandOver: true}},
		"by which the next one adopts": {lockstest.OpAdopt, true, strategy.Options{Wait: strategy.WaitPoll}},
	} {
		for when, arrives := range map[string]bool{"before it is sent": false, "after it was answered": true} {
			t.Run(what+", "+when, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := &odd{arrives: arrives}
					p.Reentrant = row.reentrant
					p.op.Store(*new(lockstest.Op))
					s := open(t, p, row.o)
					ctx, cancel := context.WithTimeout(bg, time.Second/2) // much less than a direct grant lasts: the lock is undone
					defer cancel()
					holder := take(t, s)
					first, next := wait(ctx, s), wait(ctx, s)
					release(t, holder)
					l := first.got(t)
					p.op.Store(row.op)
					before := p.Requests(lockstest.OpAcquire)
					func() {
						defer func() { recover() }()
						l.Release(bg)
					}()
					synctest.Wait()
					equal(t, "the kind of request that has yet to panic", p.op.Load(), any(*new(lockstest.Op)))
					if p.Requests(lockstest.OpAcquire) == before {
						t.Error("the next waiter has not asked, want that it asks at once")
					}
					if <-next.done; next.err != nil {
						t.Fatalf("Acquire by the next waiter = %v, want the lock", next.err)
					}
					release(t, next.lease)
					synctest.Wait()
					equal(t, "lines", engine.Lines(s), 0)
				})
			})
		}
	}
}

// TestLeaverDuringSubscription: when a head leaves while it subscribes, the next one subscribes at once.
func TestLeaverDuringSubscription(t *testing.T) {
	bubblesOf(t, []strategy.Wait{strategy.WaitQueue, strategy.WaitNotification}, func(t *testing.T, how strategy.Wait) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{Wait: how, Backoff: func(int) time.Duration { return time.Hour }})
		holder := take(t, open(t, &m, strategy.Options{}))
		r := record(&m)
		r.then(only(lockstest.OpWatch, slow(0, 900*ms)))
		ctx, cancel := context.WithTimeout(bg, 300*ms)
		defer cancel()
		leaves, next := wait(ctx, s), wait(bg, s)
		r.then(nil)
		<-leaves.done
		is(t, "Acquire by who leaves", leaves.err, strategy.ErrHeld, context.DeadlineExceeded)
		synctest.Wait()
		equal(t, "subscriptions when it has left", len(r.of(lockstest.OpWatch)), 2)
		time.Sleep(time.Second)
		start := time.Now()
		release(t, holder)
		release(t, next.got(t))
		equal(t, "the next one had the lock after", next.at.Sub(start), 0)
		leftovers(t, &m)
	})
}

// TestFailuresOfOtherOptions: two time-outs in a row end the waits of those who would not wait longer for an answer, and no others.
func TestFailuresOfOtherOptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(only(lockstest.OpAcquire, func(_ context.Context, r lockstest.Request, serve func() error) error {
			if left := time.Until(r.Claims[0].Due); left < 50*ms {
				time.Sleep(left)
				return lockstest.Unknown()
			}
			time.Sleep(50 * ms)
			return serve()
		}))
		patient := open(t, &m, strategy.Options{})
		hasty, err := patient.With(func(o *strategy.Options) { o.OpTimeout = 10 * ms })
		is(t, "With", err)
		start := time.Now()
		first, second, between, last := wait(bg, hasty), wait(bg, hasty), wait(bg, patient), wait(bg, hasty)
		for _, w := range []*waiter{first, second, last} {
			<-w.done
			is(t, "Acquire by a hasty waiter", w.err, strategy.ErrUnknown)
		}
		equal(t, "the last one learned of it after", last.at.Sub(start), 20*ms)
		<-between.done
		if is(t, "Acquire by the patient waiter", between.err); between.err == nil {
			release(t, between.lease)
		}
	})
}

// TestBackoffStopsNoLine: while Options.Backoff runs, which is the user's code, all lines go on: it may call the strategy itself.
func TestBackoffStopsNoLine(t *testing.T) {
	bubblesOf(t, []strategy.Wait{strategy.WaitQueue, strategy.WaitNotification, strategy.WaitPoll}, func(t *testing.T, how strategy.Wait) {
		var m lockstest.Memory
		var s engine.Strategy
		var called, asleep atomic.Bool
		s = open(t, &m, strategy.Options{Wait: how, Backoff: func(int) time.Duration {
			if called.Store(true); asleep.Load() {
				return ms // it is woken by who may have the mutex
			}
			if engine.Locked(s) { // by its caller: nobody else does anything
				t.Error("the mutex of the lines is locked while Backoff runs, want that it is not")
				return ms // what follows would hang
			}
			engine.Waiting(s, key)
			l, err := s.NewLock("other").Acquire(bg)
			if is(t, "Acquire of another lock", err); err == nil {
				release(t, l)
			}
			return ms
		}})
		holder := take(t, open(t, &m, strategy.Options{}))
		w := wait(bg, s)
		asleep.Store(true)
		if !called.Load() {
			t.Error("Backoff has not been called")
		}
		release(t, holder)
		release(t, w.got(t))
	})
}
