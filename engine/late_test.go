// A deadline counts by the clock: it has passed although no timer has run, as in a process that is short of CPU.
// Nothing is sent then, nobody else learns of it, and the caller learns what is known of the lock.
package engine_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// late is a context whose timer never runs: its deadline passes, and neither Err nor Done tells.
type late struct {
	context.Context
	deadline time.Time
	done     chan struct{}
}

func lateIn(d time.Duration) context.Context { return lateAs("", d) }

// lateAs is lateIn that names an owner.
func lateAs(owner string, d time.Duration) context.Context {
	return late{as(owner), time.Now().Add(d), make(chan struct{})}
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }
func (l late) Done() <-chan struct{}       { return l.done }

// soon is what a call may take longer than its deadline: for as long it waits for the timer, which has the cause.
const soon = 100 * ms

// TestLateCalls: no call sends anything when its deadline has passed, but Release.
func TestLateCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		never := func(context.Context, strategy.Lease) error {
			t.Error("fn ran, want no work in time that is over")
			return nil
		}
		ctx := lateIn(0)
		before := m.Requests()
		for what, call := range map[string]func() error{
			"TryAcquire":     func() error { _, err := s.NewLock("free").TryAcquire(ctx); return err },
			"Acquire":        func() error { _, err := s.NewLock("free").Acquire(ctx); return err },
			"Extend":         func() error { return lease.Extend(ctx) },
			"Adopt":          func() error { _, err := s.Adopt(ctx, name, lease.Token()); return err },
			"Inspect":        func() error { _, err := s.Inspect(ctx, name); return err },
			"ForceRelease":   func() error { return s.ForceRelease(ctx, strategy.Info{Name: name, Held: true, Token: lease.Token()}) },
			"Do":             func() error { return strategy.Do(ctx, s.NewLock("free"), never) },
			"DoWithin":       func() error { return strategy.DoWithin(ctx, s.NewLock("free"), time.Minute, never) },
			"DoWithin(0)":    func() error { return strategy.DoWithin(ctx, s.NewLock("free"), 0, never) },
			"All.Acquire":    func() error { _, err := all(t, s, "free", "other").Acquire(ctx); return err },
			"All.TryAcquire": func() error { _, err := all(t, s, "free", "other").TryAcquire(ctx); return err },
		} {
			start := time.Now()
			err := call()
			is(t, what, err, context.DeadlineExceeded)
			isNot(t, what, err, strategy.ErrHeld, strategy.ErrUnsent, strategy.ErrUnknown)
			if took := time.Since(start); took > soon {
				t.Errorf("%s took %v, want an answer at once", what, took)
			}
		}
		equal(t, "requests", m.Requests()-before, 0)
		is(t, "Err of the lease", lease.Err())
		is(t, "RenewalErr of the lease", lease.RenewalErr())
		is(t, "Release", lease.Release(ctx))
		equal(t, "requests of Release", m.Requests()-before, 1)
		is(t, "Release in a context without Done", take(t, s).Release(late{bg, time.Now(), nil}))

		p := newShares(maxShare)
		sharing := open(t, p, strategy.Options{})
		share := takeShare(t, sharing, 1)
		sent := p.count()
		_, err := sharing.NewShare(name, 1).Acquire(ctx)
		is(t, "Acquire of a share", err, context.DeadlineExceeded)
		_, err = sharing.Exchange(ctx, share, 2)
		is(t, "Exchange", err, context.DeadlineExceeded)
		err = sharing.Ask(ctx, name, func(context.Context, driver.Claim) error { return never(nil, nil) })
		is(t, "Ask", err, context.DeadlineExceeded)
		equal(t, "requests for shares", p.count()-sent, 0)
		release(t, share)
	})
}

var polling = strategy.Options{Wait: strategy.WaitPoll, Backoff: func(int) time.Duration { return 20 * ms }}

// leavesTooLate is a process that is stopped shortly before the deadline: what it wants to send is not sent.
func leavesTooLate(left time.Duration) lockstest.Fault {
	return only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
		if left > 500*ms {
			return serve()
		}
		time.Sleep(left + ms)
		return lockstest.Unsent()
	})
}

// TestLateWaits: a waiter whose deadline passes in any phase of its wait learns that the lock is held, and nothing is
// sent after its deadline. Nobody else learns of it.
func TestLateWaits(t *testing.T) {
	type row struct {
		o     strategy.Options
		fault func(left time.Duration) lockstest.Fault // of its requests, if there is one; left until the deadline
		first bool                                     // another of its process waits before it
	}
	retrying := polling
	retrying.RetryOnError = true
	bubbles(t, map[string]row{
		"in line behind the head": {first: true},
		"while it subscribes": {fault: func(left time.Duration) lockstest.Fault {
			return only(lockstest.OpWatch, slow(0, left+20*ms))
		}},
		"while it listens":  {o: strategy.Options{Wait: strategy.WaitNotification}},
		"while it queues":   {o: strategy.Options{Wait: strategy.WaitQueue}},
		"while it pauses":   {o: strategy.Options{Wait: strategy.WaitPoll, Backoff: func(int) time.Duration { return time.Hour }}},
		"between two polls": {o: polling},
		"during a question": {o: polling, fault: func(time.Duration) lockstest.Fault {
			return only(lockstest.OpAcquire, slow(15*ms, 15*ms))
		}},
		"before a question leaves":               {o: polling, fault: leavesTooLate},
		"before a question leaves, RetryOnError": {o: retrying, fault: leavesTooLate},
	}, func(t *testing.T, tt row) {
		var m lockstest.Memory
		r := record(&m)
		holder := take(t, open(t, &m, strategy.Options{}))
		is(t, "KeepAlive", holder.KeepAlive(0))
		s := open(t, &m, tt.o)
		var others []*waiter
		if tt.first {
			others = append(others, wait(bg, s))
		}
		deadline := time.Now().Add(4 * time.Second)
		r.then(func(ctx context.Context, q lockstest.Request, serve func() error) error {
			if tt.fault == nil || q.Op != lockstest.OpWatch && q.Claims[0].Owner != "late" {
				return serve()
			}
			return tt.fault(time.Until(deadline))(ctx, q, serve)
		})
		w := wait(lateAs("late", 4*time.Second), s)
		others = append(others, wait(bg, s))
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrHeld, context.DeadlineExceeded)
		isNot(t, "Acquire", w.err, strategy.ErrUnsent, strategy.ErrUnknown)
		if d := w.at.Sub(deadline); d < 0 || d > soon+30*ms {
			t.Errorf("Acquire ended %v after its deadline, want at it", d)
		}
		for _, sent := range r.of(lockstest.OpAcquire) {
			if d := sent.at.Sub(deadline); sent.all[0].Owner == "late" && d >= 0 {
				t.Errorf("a question was asked %v after the deadline, want none", d)
			}
		}
		r.then(nil)
		time.Sleep(2 * time.Second)
		release(t, holder)
		for _, w := range others {
			release(t, w.got(t))
		}
		leftovers(t, &m)
	})
}

// TestLateLeaver: a waiter that learns with delay why its ctx has ended keeps nobody waiting meanwhile.
func TestLateLeaver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, _, s, holder := holding(t, strategy.Options{})
		leaver, next := wait(lateIn(time.Second), s), wait(bg, s)
		time.Sleep(time.Second + ms)
		equal(t, "Acquire of who leaves has ended", closed(leaver.done), false)
		start := time.Now()
		release(t, holder)
		release(t, next.got(t))
		equal(t, "the next has the lock after", next.at.Sub(start), 0)
		<-leaver.done
	})
}

// TestLateExtend: an Extend whose time is over before its request has left changes nothing, and is no failure of a
// renewal. Nor does it wait for one that is under way for longer than that takes.
func TestLateExtend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		failed := 0
		s := open(t, &m, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventRenewalFailed {
				failed++
			}
		}})
		lease := take(t, s)
		deadline := lease.Deadline()
		m.Intercept(func(context.Context, lockstest.Request, func() error) error {
			time.Sleep(20 * ms)
			return lockstest.Unsent()
		})
		is(t, "Extend", lease.Extend(lateIn(10*ms)), context.DeadlineExceeded)
		is(t, "RenewalErr", lease.RenewalErr())
		equal(t, "renewals that failed", failed, 0)
		equal(t, "Deadline", lease.Deadline(), deadline)

		m.Intercept(only(lockstest.OpExtend, slow(0, 300*ms)))
		under := make(chan error)
		go func() { under <- lease.Extend(bg) }()
		synctest.Wait()
		before := m.Requests()
		is(t, "Extend", lease.Extend(lateIn(10*ms)), context.DeadlineExceeded)
		equal(t, "requests", m.Requests()-before, 0)
		is(t, "Extend under way", <-under)
		release(t, lease)
	})
}
