// Tests what meets in one moment: a wait that ends and a lock that comes, Close and a grant, a deadline and an
// answer. A context that calls back when the engine looks at it forces each order.
package engine_test

import (
	"context"
	"errors"
	"strings"
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

// hooked is a context that calls look whenever somebody asks for its error, after it has read that.
type hooked struct {
	context.Context
	look func(err error)
}

func (h hooked) Err() error {
	err := h.Context.Err()
	h.look(err)
	return err
}

// TestGivenWhenLeaving: a waiter that is handed the lock after it has given up, but before it has left
// the line, passes it on.
func TestGivenWhenLeaving(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		holder := take(t, s)
		first := wait(bg, s)
		ctx, cancel := context.WithCancel(bg)
		var once sync.Once
		leaves := wait(hooked{ctx, func(err error) {
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
		leftovers(t, &m)
	})
}

// TestCloseAfterTheGrant: Close that begins when a waiter has the lock, but its caller does not know yet,
// leaves no lease that nobody would renew.
func TestCloseAfterTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		take(t, open(t, &m, strategy.Options{})) // and forgotten: it lapses
		granted := false
		r.then(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
			err := serve()
			granted = err == nil
			return err
		}))
		var once sync.Once
		w := wait(hooked{bg, func(error) {
			if granted {
				once.Do(func() { go s.Close(); time.Sleep(ms) })
			}
		}}, s)
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
		synctest.Wait()
		equal(t, "holder", holds(&m, key), "")
	})
}

// TestCloseBeforeTheLine: Close that begins between the first attempt and the line leaves no waiter.
func TestCloseBeforeTheLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		var s strategy.Strategy
		s = open(t, &m, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventHeld {
				go s.Close()
				time.Sleep(ms)
			}
		}})
		holder := take(t, open(t, &m, strategy.Options{}))
		_, err := s.NewLock(name).Acquire(bg)
		is(t, "Acquire", err, strategy.ErrClosed)
		synctest.Wait()
		equal(t, "under way", engine.UnderWay(s), 0)
		release(t, holder)
	})
}

// TestCloseBeforeAQuestion: a waiter that Close overtakes when it has reason to ask sends nothing.
func TestCloseBeforeAQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, polling)
		holder := take(t, open(t, &m, strategy.Options{}))
		var closes atomic.Bool
		w := wait(hooked{bg, func(error) {
			if closes.Swap(false) {
				go s.Close()
				time.Sleep(ms)
			}
		}}, s)
		closes.Store(true)
		before := r.count()
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
		equal(t, "requests", r.count()-before, 0)
		release(t, holder)
	})
}

// TestCloseDuringAnAttempt: an attempt that Close overtakes is undone, and its caller learns why.
func TestCloseDuringAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(only(lockstest.OpAcquire, slow(0, 10*ms)))
		s := open(t, &m, strategy.Options{})
		time.AfterFunc(5*ms, func() { s.Close() })
		_, err := s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrClosed)
		isNot(t, "TryAcquire", err, strategy.ErrLost)
		synctest.Wait()
		equal(t, "holder", holds(&m, key), "")
	})
}

// TestDoneContextMakesNoAttempt: a waiter that may hold the lock already does not ask when its ctx is done.
func TestDoneContextMakesNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		attempts := 0
		s := open(t, m, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventAttempt {
				attempts++
			}
		}})
		holder := take(t, open(t, m, strategy.Options{}))
		head := wait(bg, s)
		attempts = 0
		ctx, cancel := context.WithCancel(as("me"))
		_, err := s.NewLock(name).Acquire(hooked{ctx, func(error) { cancel() }}) // done after the first look
		is(t, "Acquire", err, strategy.ErrHeld, context.Canceled)
		equal(t, "attempts", attempts, 0)
		release(t, holder)
		release(t, head.got(t))
	})
}

// TestDoneContextDoesNotSubscribe: a head whose ctx is done when it would subscribe does not.
func TestDoneContextDoesNotSubscribe(t *testing.T) {
	bubble(t, func(t *testing.T) {
		subscriptions := 0
		p := &teller{watching: func() { subscriptions++ }} // also those that are not sent
		holder := take(t, open(t, p, strategy.Options{}))
		var held atomic.Bool
		s := open(t, p, strategy.Options{Observe: func(e strategy.Event) { held.Store(held.Load() || e.Kind == strategy.EventHeld) }})
		ctx, cancel := context.WithCancel(bg)
		_, err := s.NewLock(name).Acquire(ending{ctx, func() {
			if held.Load() {
				cancel()
			}
		}})
		is(t, "Acquire", err, strategy.ErrHeld, context.Canceled)
		equal(t, "subscriptions", subscriptions, 0)
		release(t, holder)
	})
}

// ending is a context that calls look before it says whether it has ended.
type ending struct {
	context.Context
	look func()
}

func (e ending) Err() error {
	e.look()
	return e.Context.Err()
}

// TestHeadLeavesAfterSubscribing: a release before the subscription of a head that leaves at once is
// not missed: the next head asks.
func TestHeadLeavesAfterSubscribing(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
	})
}

// TestGrantHeardOfTooLate: the head that hears of a direct grant when that is over asks at once, with the same claim: the
// servers may have it as the holder, or in their queue.
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
		if left := time.Until(l.Deadline()); left > valid || left < valid-op {
			t.Errorf("Deadline in %v, want that of a grant of its own", left)
		}
		synctest.Wait()
		asked := r.of(lockstest.OpAcquire)
		equal(t, "the last question's token", asked[len(asked)-1].all[0].Token, asked[len(asked)-2].all[0].Token)
		equal(t, "the lease's token", l.Token(), asked[len(asked)-1].all[0].Token)
		release(t, l)
		leftovers(t, &p.Memory)
	})
}

// TestLateGrantOfAPlace: a head whose grant came later than its validity asks on with another token: that one is undone,
// although it had a place in the servers' queue.
func TestLateGrantOfAPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{OpTimeout: ttl - ms})
		take(t, open(t, &m, strategy.Options{})) // and forgotten: it lapses
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
		leftovers(t, &m)
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

// TestDirectGrantNamesTheOwner: who gives up behind an owner with a direct grant learns its name.
func TestDirectGrantNamesTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := nameless{reentrant()}
		s := open(t, m, strategy.Options{})
		holder := take(t, open(t, m, strategy.Options{}))
		first := wait(as("me"), s)
		release(t, holder)
		l := first.got(t)
		ctx, cancel := context.WithTimeout(bg, 2*ms) // before it is extended: that names the owner, too
		defer cancel()
		w := wait(bg, s) // it has asked, and waits
		_, err := s.NewLock(name).Acquire(ctx)
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Holder != "me" {
			t.Errorf("Acquire = %v, want that me holds the lock", err)
		}
		release(t, l)
		release(t, w.got(t))
	})
}

// TestLateAnswer: an answer to a renewal that comes after the deadline revives nothing. If it may have
// taken effect, it is undone.
func TestLateAnswer(t *testing.T) {
	for what, tt := range map[string]struct {
		fault  lockstest.Fault
		undone int
	}{
		"yes":      {func(_ context.Context, _ lockstest.Request, serve func() error) error { return serve() }, 1},
		"lost":     {lostReply, 1},
		"refused":  {refused, 0},
		"not sent": {unsent, 0},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{})
				lease := take(t, s)
				time.Sleep(valid - 300*ms)
				r.then(only(lockstest.OpExtend, func(ctx context.Context, q lockstest.Request, serve func() error) error {
					defer time.Sleep(300 * ms) // until the deadline
					return tt.fault(ctx, q, serve)
				}))
				is(t, "Extend", lease.Extend(bg), strategy.ErrLost)
				is(t, "Err", lease.Err(), strategy.ErrLost)
				synctest.Wait()
				equal(t, "undone", len(r.of(lockstest.OpRelease, lockstest.OpUndo)), tt.undone)
				if tt.undone > 0 {
					equal(t, "holder", holds(&m, key), "")
				}
			})
		})
	}
}

// TestPollerBehindABlockedLine: a waiter that polls asks when nothing blocks the line any more, however that came, and
// does not wait for what was known of a holder long ago.
func TestPollerBehindABlockedLine(t *testing.T) {
	for what, end := range map[string]func(t *testing.T, p *passer, first *waiter, leave func()){
		"released": func(t *testing.T, _ *passer, first *waiter, _ func()) { release(t, first.lease) },
		"detached": func(t *testing.T, _ *passer, first *waiter, _ func()) { first.lease.Detach() },
		"passed in vain": func(t *testing.T, p *passer, first *waiter, leave func()) {
			p.pass = func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				leave()
				_, err := p.Memory.Release(ctx, c)
				is(t, "Release at the server", err)
				return driver.Grant{}, &strategy.LostError{Name: name}
			}
			is(t, "Release", first.lease.Release(bg), strategy.ErrLost)
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := &passer{}
				long := strategy.Options{TTL: time.Hour, NoHandOver: true}
				s := open(t, p, long)
				long.Wait, long.Backoff = strategy.WaitPoll, func(int) time.Duration { return time.Hour }
				polling, err := s.With(func(to *strategy.Options) { *to = long })
				is(t, "With", err)
				holder := take(t, open(t, p, long))
				first := wait(bg, s)
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				second := &waiter{done: make(chan struct{})}
				if what == "passed in vain" {
					second = wait(ctx, s)
				}
				w := wait(bg, polling)
				release(t, holder)
				first.got(t)
				start := time.Now()
				end(t, p, first, func() { cancel(); <-second.done })
				release(t, w.got(t))
				if late := w.at.Sub(start); late > 2*successorTTL {
					t.Errorf("Acquire after %v, want when the lock expires", late)
				}
			})
		})
	}
}

// TestReentrantHeadIsAdmitted: the head of a line asks at once when its owner has got the lock elsewhere.
func TestReentrantHeadIsAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{Wait: strategy.WaitPoll, Backoff: func(int) time.Duration { return time.Hour }})
		holder := take(t, open(t, m, strategy.Options{}))
		w := wait(as("me"), s)
		release(t, holder)
		start := time.Now()
		outer := takeAs(t, s, "me")
		release(t, w.got(t))
		equal(t, "the head has the lock after", w.at.Sub(start), 0)
		release(t, outer)
	})
}

// TestOwnerAsksOnce: an owner behind others asks once whether it holds the lock, if that is answered; and
// again after a pause, if that is not.
func TestOwnerAsksOnce(t *testing.T) {
	for what, tt := range map[string]struct {
		fault lockstest.Fault
		want  int
	}{
		"answered": {nil, 1},
		"refused at first": {func(ctx context.Context, r lockstest.Request, serve func() error) error {
			return refused(ctx, r, serve)
		}, 2},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := reentrant()
				r := record(m)
				s := open(t, m, strategy.Options{RetryOnError: true})
				holder := take(t, open(t, m, strategy.Options{}))
				head := wait(bg, s)
				before := len(r.of(lockstest.OpAcquire))
				asked := 0
				r.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
					if asked++; asked == 1 && tt.fault != nil {
						return tt.fault(ctx, q, serve)
					}
					return serve()
				}))
				w := wait(as("me"), s)
				time.Sleep(5 * time.Second)
				equal(t, "attempts of the owner", len(r.of(lockstest.OpAcquire))-before, tt.want)
				release(t, holder)
				release(t, head.got(t))
				release(t, w.got(t))
			})
		})
	}
}

// TestWaitWithoutAnAnswer: a waiter that gives up before any attempt has been answered knows nothing of the lock, and has
// sent nothing.
func TestWaitWithoutAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(slow(op/2, 0))
		s := open(t, &m, strategy.Options{})
		first := wait(bg, s)
		ctx, cancel := context.WithTimeout(bg, op/4)
		defer cancel()
		_, err := s.NewLock(name).Acquire(ctx)
		is(t, "Acquire", err, strategy.ErrUnsent, context.DeadlineExceeded)
		isNot(t, "Acquire", err, strategy.ErrHeld)
		if !strings.Contains(err.Error(), "gave up after 250ms behind a caller of this process that got no answer yet") {
			t.Errorf("Acquire = %q, want that it gave up in the line", err)
		}
		release(t, first.got(t))
	})
}

// TestWaitBehindItsOwnProcess: to a waiter whose process has held the lock all the time the lock is held, also in the
// moment of a release, when nobody has asked the servers who holds it.
func TestWaitBehindItsOwnProcess(t *testing.T) {
	for how, way := range map[string]strategy.Wait{"with a queue": strategy.WaitQueue, "without": strategy.WaitPoll} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				m.Intercept(slow(op/2, 0))
				s := open(t, &m, strategy.Options{Wait: way})
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
		})
	}
}

// TestPermitThatCameTooLate: a permit that comes when the wait is over is no failure of the servers.
func TestPermitThatCameTooLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		r.then(slow(op/2, 0))
		s, err := m.Semaphore(2, strategy.Options{Wait: strategy.WaitNotification})
		is(t, "Semaphore", err)
		defer s.Close()
		first := wait(bg, s)
		ctx, cancel := context.WithTimeout(bg, op/2+10*ms)
		defer cancel()
		late := wait(ctx, s)
		r.then(slow(20*ms, 0)) // its own attempt begins when the first is answered
		<-late.done
		is(t, "Acquire", late.err, strategy.ErrHeld, context.DeadlineExceeded)
		release(t, first.got(t))
	})
}

// TestForgottenRegistrations: attempts leave nothing behind at a ctx that goes on.
func TestForgottenRegistrations(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		holder := take(t, s)
		w := wait(endless{bg, make(chan struct{})}, s)
		release(t, holder)
		release(t, w.got(t))
	}) // which fails if a goroutine is left that waits for ctx
}

// endless is a context of a kind that package context does not know: it costs a goroutine to follow it.
type endless struct {
	context.Context
	done chan struct{}
}

func (e endless) Done() <-chan struct{} { return e.done }
