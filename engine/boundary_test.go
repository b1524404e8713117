// Bounds and twins of waiting: what happens exactly at a limit, and that a way which other tests take in
// one form (a direct grant, a place in the queue) is right in the other, too.
package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A lock is handed over for less than 2 ms, and in the first half of its TTL.
func TestHandOverLimit(t *testing.T) {
	type row struct {
		o          strategy.Options
		late, hold time.Duration // how old the grant is when its holder gets it, and how long it is held then
		handed     bool
	}
	brief := strategy.Options{TTL: 20 * ms, OpTimeout: 15 * ms}
	perRow(t, map[string]row{
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

// What a direct grant, a plain grant and a place in the queue have in common.
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

// Where the holder's release will not be announced, the waiter asks after pauses of Backoff, although it listens.
func TestSilentHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &scriptedTeller{}
		free := time.Now().Add(time.Second)
		p.acquire = func(c driver.Claim) (driver.Grant, error) {
			if time.Now().Before(free) {
				return driver.Grant{Silent: true}, &strategy.HeldError{Name: c.Name, Holder: "h", TTL: ttl}
			}
			return driver.Grant{}, nil
		}
		w := wait(bg, open(t, p, strategy.Options{Backoff: func(int) time.Duration { return 100 * ms }}))
		release(t, w.got(t))
		between(t, "Acquire after the lock was free", w.at.Sub(free), 0, 101*ms)
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
	perRow(t, map[string]error{"not sent": unsent, "refused": lockstest.Refused("LOADING")}, func(t *testing.T, failure error) {
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
	perRow(t, map[string]row{
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
	perRow(t, map[string]forget{
		"found by Err":       found(func(l strategy.Lease) { l.Err() }),
		"found by Lost":      found(func(l strategy.Lease) { l.Lost() }),
		"found by Context":   found(func(l strategy.Lease) { _, cancel := l.Context(bg); cancel() }),
		"found by KeepAlive": found(func(l strategy.Lease) { l.KeepAlive(0) }),
		"found by Extend":    found(func(l strategy.Lease) { l.Extend(bg) }),
		"found by Release":   found(func(l strategy.Lease) { l.Release(bg) }),
		"at once":            func(t *testing.T, _ strategy.Strategy, first *waiter) strategy.Lease { return first.got(t) },
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

// A subscription that breaks is made again after one pause, also if it breaks while the head asks.
func TestPauseAfterABreak(t *testing.T) {
	perRow(t, map[string]bool{"during a pause": false, "during an attempt": true}, func(t *testing.T, asks bool) {
		m, r, s := served(t, strategy.Options{Wait: strategy.WaitNotification})
		other := open(t, bare(m), strategy.Options{TTL: time.Second})
		take(t, other)
		w := wait(bg, s)
		want := []lockstest.Op{lockstest.OpAcquire, lockstest.OpWatch, lockstest.OpAcquire}
		if asks {
			time.Sleep(time.Second - 100*ms)
			m.Evict(bg, key)
			take(t, other) // so that the head asks in vain when the TTL is over
			r.then(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
				r.then(nil)
				m.BreakWatches()
				return serve()
			}))
			want = append([]lockstest.Op{lockstest.OpAcquire}, want...)
		} else {
			m.BreakWatches()
		}
		before := r.count()
		time.Sleep(500 * ms)
		var ops []lockstest.Op
		for _, q := range r.of(lockstest.OpAcquire, lockstest.OpWatch)[before:] {
			ops = append(ops, q.op)
		}
		if !slices.Equal(ops, want) {
			t.Errorf("requests after the break = %v, want %v", ops, want)
		}
		release(t, w.got(t))
	})
}

// Servers that refuse subscriptions, or have none, are asked for one once in a TTL, and so are those that do not answer for
// long; those that could not be reached, after each pause.
func TestSubscriptionsFail(t *testing.T) {
	fails := func(after time.Duration, err error) lockstest.Fault {
		return func(context.Context, lockstest.Request, func() error) error { time.Sleep(after); return err }
	}
	type row struct {
		fault       lockstest.Fault
		least, most int
		o           strategy.Options
	}
	perRow(t, map[string]row{
		"refused":     {refused, 1, 1, strategy.Options{}},
		"unsupported": {fails(0, &strategy.ServerError{Kind: strategy.ErrUnsupported}), 1, 1, strategy.Options{}},
		"not sent":    {unsent, 20, 200, strategy.Options{}},
		"no answer":   {fails(1800*ms, lockstest.Unsent()), 3, 3, strategy.Options{TTL: 2 * time.Second, OpTimeout: 1900 * ms}},
	}, func(t *testing.T, row row) {
		row.o.Wait = strategy.WaitNotification
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
		release(t, holder)
		release(t, w.got(t))
	})
}
