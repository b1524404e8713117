// Tests what meets in one moment: a wait that ends and a lock that comes, Close and a grant, a deadline and an
// answer. A context that calls back when the engine looks at it forces each order.
package engine_test

import (
	"context"
	"errors"
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

// hooked is a context that calls look whenever somebody asks for its error, after it has read that; and before, first.
type hooked struct {
	context.Context
	first func()
	look  func(err error)
}

func (h hooked) Err() error {
	if h.first != nil {
		h.first()
	}
	err := h.Context.Err()
	if h.look != nil {
		h.look(err)
	}
	return err
}

// closeNow begins to close s, and waits until that has ended what it can.
func closeNow(s strategy.Strategy) {
	go s.Close()
	time.Sleep(ms)
}

// A wait that ends, or Close, in the moment in which a lock comes, or is asked for.
func TestMoments(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"a waiter that is handed the lock after it has given up, but before it has left the line, passes it on": func(t *testing.T) {
			m, _, s, holder := holding(t, strategy.Options{})
			first := wait(bg, s)
			ctx, cancel := context.WithCancel(bg)
			var once sync.Once
			leaves := wait(hooked{Context: ctx, look: func(err error) {
				if err != nil {
					once.Do(func() { release(t, first.lease) })
				}
			}}, s)
			last := wait(bg, s)
			release(t, holder)
			first.got(t)
			start := time.Now()
			cancel()
			<-leaves.done
			is(t, "Acquire of who leaves", leaves.err, context.Canceled)
			release(t, last.got(t))
			equal(t, "the last got the lock after", last.at.Sub(start), 0)
			leftovers(t, m)
		},
		"Close after the grant, of which the caller does not know yet, leaves no lease that nobody would renew": func(t *testing.T) {
			m, r, s := served(t, strategy.Options{})
			forgotten(t, m)
			granted := false
			r.then(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
				err := serve()
				granted = err == nil
				return err
			}))
			var once sync.Once
			w := wait(hooked{Context: bg, look: func(error) {
				if granted {
					once.Do(func() { closeNow(s) })
				}
			}}, s)
			<-w.done
			is(t, "Acquire", w.err, strategy.ErrClosed)
			free(t, m)
		},
		"Close between the first attempt and the line leaves no waiter": func(t *testing.T) {
			var m lockstest.Memory
			var s strategy.Strategy
			s = open(t, &m, strategy.Options{Observe: func(e strategy.Event) {
				if e.Kind == strategy.EventHeld {
					closeNow(s)
				}
			}})
			holder := forgotten(t, &m)
			_, err := s.NewLock(name).Acquire(bg)
			is(t, "Acquire", err, strategy.ErrClosed)
			synctest.Wait()
			equal(t, "under way", engine.UnderWay(s), 0)
			release(t, holder)
		},
		"a waiter that Close overtakes when it has reason to ask sends nothing": func(t *testing.T) {
			m, r, s := served(t, polling)
			holder := forgotten(t, m)
			var closes atomic.Bool
			w := wait(hooked{Context: bg, look: func(error) {
				if closes.Swap(false) {
					closeNow(s)
				}
			}}, s)
			closes.Store(true)
			before := r.count()
			<-w.done
			is(t, "Acquire", w.err, strategy.ErrClosed)
			equal(t, "requests", r.count()-before, 0)
			release(t, holder)
		},
		"an attempt that Close overtakes is undone, and its caller learns why": func(t *testing.T) {
			m, r, s := served(t, strategy.Options{})
			r.then(only(lockstest.OpAcquire, slow(0, 10*ms)))
			time.AfterFunc(5*ms, func() { s.Close() })
			_, err := s.NewLock(name).TryAcquire(bg)
			is(t, "TryAcquire", err, strategy.ErrClosed)
			isNot(t, "TryAcquire", err, strategy.ErrLost)
			free(t, m)
		},
		"a waiter that may hold the lock already does not ask when its ctx is done": func(t *testing.T) {
			m := reentrant()
			attempts := 0
			s := open(t, m, strategy.Options{Observe: func(e strategy.Event) {
				if e.Kind == strategy.EventAttempt {
					attempts++
				}
			}})
			holder := forgotten(t, m)
			head := wait(bg, s)
			attempts = 0
			ctx, cancel := context.WithCancel(as("me"))
			_, err := s.NewLock(name).Acquire(hooked{Context: ctx, look: func(error) { cancel() }}) // done after the first look
			is(t, "Acquire", err, strategy.ErrHeld, context.Canceled)
			equal(t, "attempts", attempts, 0)
			release(t, holder)
			release(t, head.got(t))
		},
		"a head whose ctx is done when it would subscribe does not": func(t *testing.T) {
			subscriptions := 0
			p := &teller{watching: func() { subscriptions++ }} // also those that are not sent
			holder := forgotten(t, p)
			var held atomic.Bool
			s := open(t, p, strategy.Options{Observe: func(e strategy.Event) { held.Store(held.Load() || e.Kind == strategy.EventHeld) }})
			ctx, cancel := context.WithCancel(bg)
			_, err := s.NewLock(name).Acquire(hooked{Context: ctx, first: func() {
				if held.Load() {
					cancel()
				}
			}})
			is(t, "Acquire", err, strategy.ErrHeld, context.Canceled)
			equal(t, "subscriptions", subscriptions, 0)
			release(t, holder)
		},
		"a release before the subscription of a head that leaves at once is not missed": func(t *testing.T) {
			p := &teller{}
			gate := make(chan struct{})
			ctx, cancel := context.WithCancel(bg)
			p.watching = func() { <-gate }
			p.watched = cancel
			s := open(t, p, strategy.Options{Wait: strategy.WaitNotification})
			holder := take(t, s)
			first, second := wait(ctx, s), wait(bg, s)
			release(t, holder)
			start := time.Now()
			close(gate)
			<-first.done
			is(t, "Acquire of the first", first.err, context.Canceled)
			release(t, second.got(t))
			equal(t, "the second got the lock after", second.at.Sub(start), 0)
		},
		"a permit that comes when the wait is over is no failure of the servers": func(t *testing.T) {
			var m lockstest.Memory
			m.Intercept(slow(op/2, 0))
			s, err := m.Semaphore(2, strategy.Options{Wait: strategy.WaitNotification})
			is(t, "Semaphore", err)
			defer s.Close()
			first := wait(bg, s)
			ctx, cancel := context.WithTimeout(bg, op/2+10*ms)
			defer cancel()
			late := wait(ctx, s)
			m.Intercept(slow(20*ms, 0)) // its own attempt begins when the first is answered
			<-late.done
			is(t, "Acquire", late.err, strategy.ErrHeld, context.DeadlineExceeded)
			release(t, first.got(t))
		},
		"attempts leave nothing behind at a ctx that goes on": func(t *testing.T) {
			_, _, s, holder := holding(t, strategy.Options{})
			w := wait(endless{bg, make(chan struct{})}, s)
			release(t, holder)
			release(t, w.got(t)) // the bubble fails if a goroutine is left that waits for ctx
		},
	})
}

// endless is a context of a kind that package context does not know: it costs a goroutine to follow it.
type endless struct {
	context.Context
	done chan struct{}
}

func (e endless) Done() <-chan struct{} { return e.done }

// The head that hears of a direct grant when that is over asks at once, with the same claim: the servers may have it as the
// holder, or in their queue.
func TestGrantHeardOfTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &wire{delay: successorTTL}
		r := record(&p.Memory)
		a, b := houses(t, p, strategy.Options{})
		holder := take(t, a)
		w := wait(bg, b)
		start := time.Now()
		release(t, holder)
		l := w.got(t)
		equal(t, "Acquire after", w.at.Sub(start), successorTTL)
		between(t, "the time until the deadline, of a grant of its own", time.Until(l.Deadline()), valid-op, valid)
		synctest.Wait()
		asked := r.of(lockstest.OpAcquire)
		last := asked[len(asked)-1].all[0].Token
		equal(t, "the last question's token", last, asked[len(asked)-2].all[0].Token)
		equal(t, "the lease's token", l.Token(), last)
		release(t, l)
		leftovers(t, &p.Memory)
	})
}

// A head whose grant came later than its validity asks on with another token: that one is undone, although it had a place in
// the servers' queue.
func TestLateGrantOfAPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m, r, s := served(t, strategy.Options{OpTimeout: ttl - ms})
		forgotten(t, m)
		w := wait(bg, s)
		r.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
			r.then(nil)
			return slow(0, valid)(ctx, q, serve)
		}))
		l := w.got(t)
		asked := r.of(lockstest.OpAcquire)
		late, last := asked[len(asked)-2].all[0], asked[len(asked)-1].all[0]
		if late.Line == "" || last.Token == late.Token {
			t.Errorf("asked by %+v, and then by %+v, want first with a place, and then with another token", late, last)
		}
		release(t, l)
		leftovers(t, m)
	})
}

// An answer to a renewal that comes after the deadline revives nothing. If it may have taken effect, it is undone.
func TestLateAnswer(t *testing.T) {
	type row struct {
		fault    lockstest.Fault
		undone   int
		answered bool
	}
	perRow(t, map[string]row{
		"yes": {slow(0, 0), 1, true}, "lost": {lostReply, 1, false}, "refused": {refused, 0, false}, "not sent": {unsent, 0, false},
	}, func(t *testing.T, row row) {
		m, r, _, lease := holding(t, strategy.Options{})
		time.Sleep(valid - 300*ms)
		start := time.Now()
		r.then(only(lockstest.OpExtend, func(ctx context.Context, q lockstest.Request, serve func() error) error {
			defer time.Sleep(300 * ms) // until the deadline
			return row.fault(ctx, q, serve)
		}))
		is(t, "Extend", lease.Extend(bg), strategy.ErrLost)
		is(t, "Err", lease.Err(), strategy.ErrLost)
		synctest.Wait()
		undo := r.of(lockstest.OpRelease, lockstest.OpUndo)
		equal(t, "undone", len(undo), row.undone)
		if row.undone > 0 {
			equal(t, "holder", holds(m, key), "")
		}
		if row.answered {
			equal(t, "when the grant that is undone began", undo[0].all[0].Grant.Start, start)
		}
	})
}

// A waiter that polls asks when nothing blocks the line any more, however that came, and does not wait for what was known of a
// holder long ago.
func TestPollerBehindABlockedLine(t *testing.T) {
	type end func(t *testing.T, p *passer, first *waiter, leave func())
	perRow(t, map[string]end{
		"released": func(t *testing.T, _ *passer, first *waiter, leave func()) { leave(); release(t, first.lease) },
		"detached": func(t *testing.T, _ *passer, first *waiter, leave func()) { leave(); first.lease.Detach() },
		"passed in vain": func(t *testing.T, p *passer, first *waiter, leave func()) {
			p.pass = func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				leave()
				_, err := p.Memory.Release(ctx, c)
				is(t, "Release at the server", err)
				return driver.Grant{}, &strategy.LostError{Name: name}
			}
			is(t, "Release", first.lease.Release(bg), strategy.ErrLost)
		},
	}, func(t *testing.T, end end) {
		p := &passer{}
		long := strategy.Options{TTL: time.Hour, NoHandOver: true}
		s := open(t, p, long)
		long.Wait, long.Backoff = strategy.WaitPoll, hours
		polling, err := s.With(func(to *strategy.Options) { *to = long })
		is(t, "With", err)
		holder := take(t, open(t, p, long))
		first := wait(bg, s)
		ctx, cancel := context.WithCancel(bg)
		second, w := wait(ctx, s), wait(bg, polling)
		release(t, holder)
		first.got(t)
		start := time.Now()
		end(t, p, first, func() { cancel(); <-second.done })
		release(t, w.got(t))
		between(t, "Acquire after", w.at.Sub(start), 0, 2*successorTTL)
	})
}

// A waiter that gives up before any attempt has been answered knows nothing of the lock, and has sent nothing.
func TestWaitWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s := served(t, strategy.Options{})
		r.then(slow(op/2, 0))
		first := wait(bg, s)
		ctx, cancel := context.WithTimeout(bg, op/4)
		defer cancel()
		_, err := s.NewLock(name).Acquire(ctx)
		is(t, "Acquire", err, strategy.ErrUnsent, context.DeadlineExceeded)
		isNot(t, "Acquire", err, strategy.ErrHeld)
		says(t, "Acquire", err, "gave up after 250ms behind a caller of this process that got no answer yet")
		release(t, first.got(t))
	})
}

// To a waiter whose process has held the lock all the time the lock is held, also in the moment of a release, when nobody has
// asked the servers who holds it.
func TestWaitBehindItsOwnProcess(t *testing.T) {
	ways := map[string]strategy.Wait{"with a queue": strategy.WaitQueue, "without": strategy.WaitPoll}
	perRow(t, ways, func(t *testing.T, way strategy.Wait) {
		_, r, s := served(t, strategy.Options{Wait: way})
		r.then(slow(op/2, 0))
		holder, next := wait(bg, s), wait(bg, s)
		ctx, cancel := context.WithTimeout(bg, op)
		defer cancel()
		last := wait(ctx, s)
		time.Sleep(3 * op / 4) // granted after a half, and held for longer than a turn
		go holder.got(t).Release(bg)
		<-last.done
		is(t, "Acquire", last.err, strategy.ErrHeld, context.DeadlineExceeded)
		var held *strategy.HeldError
		if errors.As(last.err, &held) {
			equal(t, "Name", held.Name, name)
		}
		release(t, next.got(t))
	})
}
