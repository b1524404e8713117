// Tests what meets in one moment: a wait that ends and a lock that comes, Close and a grant, a deadline and an
// answer. A context that calls back when the engine looks at it forces each order. And what happens exactly at a
// limit, and that a way which other tests take in one form (a direct grant, a place in the queue) is right in the other, too.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/token"
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
		"a subscription of a head that has the lock by then is ended": func(t *testing.T) {
			p := newShares(1)
			s := open(t, p, strategy.Options{})
			one := takeShare(t, s, 1)
			p.then(only(lockstest.OpWatch, slow(0, 10*ms)))
			ws := waitShares(s, 1, 1)
			release(t, one)
			release(t, ws[0].got(t))
			release(t, ws[1].got(t))
			time.Sleep(10 * ms)
			leftovers(t, p.server)
		},
		"a subscription is ended when the next head waits in another way": func(t *testing.T) {
			m, _, s, holder := holding(t, strategy.Options{})
			notified, err := s.With(func(o *strategy.Options) { o.Wait = strategy.WaitNotification })
			is(t, "With", err)
			ctx, cancel := context.WithCancel(bg)
			wait(ctx, s)
			next := wait(bg, notified)
			cancel()
			synctest.Wait()
			left, _ := m.Leftovers(bg, key)
			equal(t, "at the server", fmt.Sprint(left), "[key "+key+" 1 watches of "+key+"]")
			release(t, holder)
			release(t, next.got(t))
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
	bubbles(t, map[string]row{
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
	bubbles(t, map[string]end{
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
	bubbles(t, ways, func(t *testing.T, way strategy.Wait) {
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

// Where several names have one key, a waiter's error has the name of its own lock, and the time that is left now, also if another has asked.
func TestNameOfAWaiter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, _, s := served(t, strategy.Options{Key: func(string) string { return key }})
		lease := takeNamed(t, s, "a")
		ctx, cancel := context.WithTimeout(bg, op)
		defer cancel()
		go s.NewLock("b").Acquire(ctx)
		synctest.Wait()
		_, err := s.NewLock("c").Acquire(ctx)
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Name != "c" || held.TTL != ttl-op {
			t.Errorf("Acquire of c behind b = %v, want that c is held, for what is left of the TTL", err)
		}
		release(t, lease)
	})
}

// A lock is handed over for less than 2 ms, and in the first half of its TTL.
func TestHandOverLimit(t *testing.T) {
	type row struct {
		o          strategy.Options
		late, hold time.Duration // how old the grant is when its holder gets it, and how long it is held then
		handed     bool
	}
	brief := strategy.Options{TTL: 20 * ms, OpTimeout: 15 * ms}
	bubbles(t, map[string]row{
		"just below 2 ms":      {strategy.Options{}, 0, 2*ms - 1, true},
		"2 ms":                 {strategy.Options{}, 0, 2 * ms, false},
		"half of the TTL":      {brief, 9 * ms, ms, true},
		"just over half of it": {brief, 9 * ms, ms + 1, false},
	}, func(t *testing.T, row row) {
		m, r, s := served(t, row.o)
		forgotten(t, m)
		first, second := wait(bg, s), wait(bg, s)
		r.then(only(lockstest.OpAcquire, slow(0, row.late)))
		l := first.got(t)
		before := r.count()
		time.Sleep(row.hold)
		equal(t, "requests while the line is blocked", r.count()-before, 0)
		release(t, l)
		next := second.got(t)
		equal(t, "handed over without a request", r.count() == before, row.handed)
		release(t, next)
	})
}

// Tests what a direct grant, a plain grant and a place in the queue have in common.
func TestTwins(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"a direct grant for the whole TTL is extended, too: only a message says that it was made": func(t *testing.T) {
			m, r, a := served(t, strategy.Options{TTL: successorTTL})
			b := open(t, m, strategy.Options{TTL: successorTTL})
			holder := take(t, a)
			w := wait(bg, b)
			release(t, holder)
			l := w.got(t)
			time.Sleep(2 * successorTTL)
			is(t, "Err", l.Err(), strategy.ErrLost)
			equal(t, "renewals", len(r.of(lockstest.OpExtend, lockstest.OpExtendAll)), 1)
		},
		"a place that is asked for again, without an answer, is undone as a claim that may have been granted since": func(t *testing.T) {
			m, r, s := served(t, strategy.Options{RetryOnError: true})
			forgotten(t, m)
			w := wait(bg, s)
			lost := 0
			r.then(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
				if lost++; lost == 1 {
					return lockstest.Unknown()
				}
				return serve()
			}))
			release(t, w.got(t))
			undone := r.of(lockstest.OpUndo)[0].all[0]
			if undone.Line == "" || !undone.Grant.IsZero() {
				t.Errorf("undone = %+v, want the line's claim without a grant", undone)
			}
		},
		"the last waiter takes the line's place away, with the line's name and the time of the answer": func(t *testing.T) {
			m, r, _, holder := holding(t, strategy.Options{})
			ctx, cancel := context.WithCancel(bg)
			w := wait(ctx, open(t, m, strategy.Options{}))
			cancel()
			<-w.done
			synctest.Wait()
			undone := r.of(lockstest.OpUndo)[0].all[0]
			if undone.Line == "" || undone.Grant.IsZero() {
				t.Errorf("undone = %+v, want the line's claim, which was answered", undone)
			}
			release(t, holder)
			leftovers(t, m)
		},
		"a lock that comes to a line whose waiters have all changed is not blocked for ever by a holder that forgets it": func(t *testing.T) {
			p := &passer{}
			s := open(t, p, strategy.Options{NoHandOver: true})
			holder := take(t, s)
			first := wait(bg, s)
			ctx, cancel := context.WithCancel(bg)
			second := wait(ctx, s)
			release(t, holder)
			l := first.got(t)
			gate := make(chan struct{})
			p.pass = func(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
				<-gate
				return p.Memory.Pass(ctx, c, next)
			}
			go l.Release(bg)
			synctest.Wait()
			cancel()
			<-second.done
			third := wait(bg, s)
			close(gate)
			third.got(t) // and forgotten
			limit, done := context.WithTimeout(bg, time.Minute)
			defer done()
			release(t, wait(limit, s).got(t))
		},
		"a hold that was handed over began when it was": func(t *testing.T) {
			var took time.Duration
			_, _, s := served(t, strategy.Options{Observe: func(e strategy.Event) {
				if e.Kind == strategy.EventReleased {
					took = e.Elapsed
				}
			}})
			waiters := inLine(t, s, 2)
			time.Sleep(ms)
			release(t, waiters[0].lease)
			release(t, waiters[1].got(t))
			equal(t, "the second hold took", took, 0)
		},
	})
}

// A token says that its release is announced where that is all that waiters hear: not where they queue, and not where nobody
// is notified.
func TestTokensAnnounce(t *testing.T) {
	for what, tt := range map[string]struct {
		p    driver.Protocol
		want bool
	}{
		"notifications": {&scriptedTeller{}, true}, "a queue": {&lockstest.Memory{}, false}, "nothing": {&scripted{}, false},
	} {
		lease := take(t, open(t, tt.p, strategy.Options{}))
		if announced, ours := token.Announced(lease.Token()); announced != tt.want || !ours {
			t.Errorf("%s: Announced = %v, %v, want %v, true", what, announced, ours, tt.want)
		}
		release(t, lease)
	}
}

// checked is a protocol that keeps the options with which it was checked.
type checked struct {
	scriptedTeller
	o strategy.Options
}

func (p *checked) Check(_ context.Context, o strategy.Options) error { p.o = o; return nil }

// WaitBest demands nothing, so Check has to know that it was WaitBest.
func TestCheckGetsTheUsersWait(t *testing.T) {
	for _, way := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll, strategy.WaitNotification} {
		p := &checked{}
		is(t, "Check", open(t, p, strategy.Options{Wait: way}).Check(bg))
		equal(t, "Options.Wait of Check", p.o.Wait, way)
		equal(t, "Options.TTL of Check", p.o.TTL, ttl)
	}
}

// answers is a protocol that gives these answers to the attempts, and grants all later ones.
func answers(asked *atomic.Int64, all ...error) *scripted {
	return &scripted{acquire: func(driver.Claim) (driver.Grant, error) {
		if n := int(asked.Add(1)); n <= len(all) {
			return driver.Grant{}, all[n-1]
		}
		return driver.Grant{}, nil
	}}
}

// Two failures in a row, of whatever kind, end the wait of all who do not retry. Each one after them ends that of who has come
// since. An error that is not a server's ends a wait, also with RetryOnError.
func TestFailuresInARow(t *testing.T) {
	held, unsent := &strategy.HeldError{Name: name}, lockstest.Unsent()
	bubble(t, func(t *testing.T) {
		var asked atomic.Int64
		s := open(t, answers(&asked, held, unsent, held, unsent), strategy.Options{}) // an answer comes between them
		first, second, third := wait(bg, s), wait(bg, s), wait(bg, s)
		<-first.done
		is(t, "Acquire of the first", first.err, strategy.ErrUnsent)
		<-second.done
		is(t, "Acquire of the second", second.err, strategy.ErrUnsent)
		release(t, third.got(t))

		broken := errors.New("broken")
		start := time.Now()
		_, err := open(t, answers(&asked, slices.Repeat([]error{broken}, 100)...), strategy.Options{RetryOnError: true}).NewLock(name).Acquire(bg)
		is(t, "Acquire", err, broken)
		since(t, "Acquire took", start, 0)
	})
	bubbles(t, map[string]error{"not sent": unsent, "refused": lockstest.Refused("LOADING")}, func(t *testing.T, failure error) {
		var asked atomic.Int64
		s := open(t, answers(&asked, held, failure, failure, failure), strategy.Options{})
		retries, err := s.With(func(o *strategy.Options) { o.RetryOnError = true })
		is(t, "With", err)
		head, behind := wait(bg, retries), wait(bg, s)
		<-behind.done
		is(t, "Acquire behind the head", behind.err, failure)
		equal(t, "attempts", asked.Load(), 3)
		late := wait(bg, s)
		<-late.done
		is(t, "Acquire of who has come since", late.err, failure)
		equal(t, "attempts", asked.Load(), 4)
		release(t, head.got(t))
	})
}

// A lease that lapses says why: the maximum hold only if that has come, Close only if that ended its renewal, and otherwise how
// its renewal failed.
func TestWhyItLapsed(t *testing.T) {
	const hold, closed, failed = "the maximum hold is over", "strategy closed", "not sent"
	type row struct {
		keep, close, fails bool
		maxHold            time.Duration
		want               string
	}
	bubbles(t, map[string]row{
		"not renewed":                  {},
		"not renewed, and closed":      {close: true},
		"closed":                       {keep: true, close: true, want: closed},
		"failing":                      {keep: true, fails: true, want: failed},
		"failing, and closed":          {keep: true, fails: true, close: true, want: failed},
		"failing before the hold ends": {keep: true, fails: true, maxHold: time.Minute, want: failed},
		"the maximum hold":             {keep: true, maxHold: time.Minute, want: hold},
	}, func(t *testing.T, row row) {
		m, _, s, lease := holding(t, strategy.Options{})
		if row.keep {
			is(t, "KeepAlive", lease.KeepAlive(row.maxHold))
		}
		if row.fails {
			m.Intercept(unsent)
		}
		time.Sleep(ttl * 2 / 3)
		if row.close {
			is(t, "Close", s.Close())
		}
		time.Sleep(2 * time.Minute)
		err := lease.Err()
		is(t, "Err", err, strategy.ErrLost)
		for _, words := range []string{hold, closed, failed} {
			if strings.Contains(err.Error(), words) != (words == row.want) {
				t.Errorf("Err = %q, want it to say %q", err, row.want)
			}
		}
	})
}

// A lease that nobody uses any more blocks the line for as long as it lasts, and no longer, whichever call finds it lost. That
// also holds if it was extended once, if its TTL is shorter than that of the holder before it, and if others have come and gone,
// and nobody waited in between.
func TestForgottenHolder(t *testing.T) {
	type forget func(t *testing.T, s strategy.Strategy, first *waiter) strategy.Lease
	found := func(look func(strategy.Lease)) forget {
		return func(t *testing.T, _ strategy.Strategy, first *waiter) strategy.Lease {
			l := first.got(t)
			time.AfterFunc(time.Until(l.Deadline()), func() { look(l) })
			return l
		}
	}
	bubbles(t, map[string]forget{
		"found by Err":       found(func(l strategy.Lease) { l.Err() }),
		"found by Lost":      found(func(l strategy.Lease) { l.Lost() }),
		"found by Context":   found(func(l strategy.Lease) { _, cancel := l.Context(bg); cancel() }),
		"found by KeepAlive": found(func(l strategy.Lease) { l.KeepAlive(0) }),
		"found by Extend":    found(func(l strategy.Lease) { l.Extend(bg) }),
		"found by Release":   found(func(l strategy.Lease) { l.Release(bg) }),
		"at once":            func(t *testing.T, _ strategy.Strategy, first *waiter) strategy.Lease { return first.got(t) },
		"detached": func(t *testing.T, _ strategy.Strategy, first *waiter) strategy.Lease {
			_, err := first.got(t).Detach()
			is(t, "Detach", err)
			return first.lease
		},
		"kept alive for its maximum hold": func(t *testing.T, _ strategy.Strategy, first *waiter) strategy.Lease {
			is(t, "KeepAlive", first.got(t).KeepAlive(ttl))
			return first.lease
		},
		"after an extension": func(t *testing.T, _ strategy.Strategy, first *waiter) strategy.Lease {
			l := first.got(t)
			time.Sleep(8 * time.Second)
			is(t, "Extend", l.Extend(bg))
			return l
		},
		"with a shorter TTL": func(t *testing.T, s strategy.Strategy, first *waiter) strategy.Lease {
			shorter, err := s.With(func(o *strategy.Options) { o.TTL = time.Second })
			is(t, "With", err)
			second := wait(bg, shorter)
			release(t, first.got(t))
			return second.got(t)
		},
		"alone": func(t *testing.T, s strategy.Strategy, first *waiter) strategy.Lease {
			l := first.got(t)
			for range 8 {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				_, err := s.NewLock(name).Acquire(ctx)
				is(t, "Acquire", err, context.DeadlineExceeded)
				cancel()
			}
			return l
		},
	}, func(t *testing.T, forget forget) {
		m, _, s := served(t, strategy.Options{})
		forgotten(t, m)
		l := forget(t, s, wait(bg, s))
		deadline := l.Deadline()
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		last := wait(ctx, s)
		release(t, last.got(t))
		between(t, "Acquire after the deadline of the forgotten lease", last.at.Sub(deadline), 0, drift+10*ms)
	})
}

// Servers that refuse subscriptions, or have none, are asked for one once in a TTL, and so are those that do not answer for
// long; those that could not be reached, after each pause. Meanwhile the waiter polls, and takes no place in the queue.
func TestSubscriptionsFail(t *testing.T) {
	fails := func(after time.Duration, err error) lockstest.Fault {
		return func(context.Context, lockstest.Request, func() error) error { time.Sleep(after); return err }
	}
	type row struct {
		fault       lockstest.Fault
		least, most int
		o           strategy.Options
	}
	for _, way := range []strategy.Wait{strategy.WaitNotification, strategy.WaitQueue} {
		bubbles(t, map[string]row{
			"refused":     {refused, 1, 1, strategy.Options{}},
			"unsupported": {fails(0, &strategy.ServerError{Kind: strategy.ErrUnsupported}), 1, 1, strategy.Options{}},
			"hangs":       {fails(op, lockstest.Unsent()), 1, 1, strategy.Options{}},
			"not sent":    {unsent, 20, 200, strategy.Options{}},
			"no answer":   {fails(1800*ms, lockstest.Unsent()), 3, 3, strategy.Options{TTL: 2 * time.Second, OpTimeout: 1900 * ms}},
		}, func(t *testing.T, row row) {
			row.o.Wait = way
			m, r, s := served(t, row.o)
			holder := forgotten(t, m)
			asked := 0
			r.then(only(lockstest.OpWatch, func(ctx context.Context, q lockstest.Request, serve func() error) error {
				if asked++; asked > 1000 {
					return serve() // this is a spin
				}
				return row.fault(ctx, q, serve)
			}))
			w := wait(bg, s)
			time.Sleep(9 * time.Second)
			between(t, "subscriptions asked for in 9s", len(r.of(lockstest.OpWatch)), row.least, row.most)
			left, _ := m.Leftovers(bg, key)
			equal(t, "at the server", fmt.Sprint(left), "[key "+key+"]")
			start := time.Now()
			release(t, holder)
			release(t, w.got(t))
			between(t, "found after", w.at.Sub(start), 0, 250*ms+row.o.OpTimeout)
		})
	}
}
