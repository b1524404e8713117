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
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// TestHandOverLimit: a lock is handed over for less than 2 ms, and in the first half of its TTL.
func TestHandOverLimit(t *testing.T) {
	for what, tt := range map[string]struct {
		o      strategy.Options
		late   time.Duration // how old the grant is when its holder gets it
		hold   time.Duration
		handed bool
	}{
		"just below 2 ms":      {strategy.Options{}, 0, 2*ms - 1, true},
		"2 ms":                 {strategy.Options{}, 0, 2 * ms, false},
		"half of the TTL":      {strategy.Options{TTL: 20 * ms, OpTimeout: 15 * ms}, 9 * ms, ms, true},
		"just over half of it": {strategy.Options{TTL: 20 * ms, OpTimeout: 15 * ms}, 9 * ms, ms + 1, false},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, tt.o)
				a := take(t, open(t, &m, strategy.Options{}))
				first, second := wait(bg, s), wait(bg, s)
				r := record(&m)
				r.then(only(lockstest.OpAcquire, slow(0, tt.late)))
				m.Evict(bg, key) // nobody hears of it: the first asks when the TTL is over, and has a plain grant
				l := first.got(t)
				before := r.count()
				time.Sleep(tt.hold)
				equal(t, "requests while the line is blocked", r.count()-before, 0)
				release(t, l)
				next := second.got(t)
				equal(t, "handed over without a request", r.count() == before, tt.handed)
				release(t, next)
				is(t, "Release of the evicted", a.Release(bg), strategy.ErrLost)
			})
		})
	}
}

// TestPlainGrantBlocksTheLine: a plain grant blocks the line as a direct one does: nobody asks, a waiter that
// gives up learns the holder, and the release passes the lock on.
func TestPlainGrantBlocksTheLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{NoHandOver: true})
		take(t, open(t, &m, strategy.Options{})) // and forgotten: it lapses
		first, second := wait(bg, s), wait(bg, s)
		l := first.got(t)
		before := r.count()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, err := s.NewLock(name).Acquire(ctx)
		var held *strategy.HeldError
		if !errors.As(err, &held) || held.Holder != l.Token() {
			t.Errorf("Acquire = %v, want that %s holds the lock", err, l.Token())
		}
		equal(t, "requests while the line is blocked", r.count()-before, 0)
		release(t, l)
		release(t, second.got(t))
		equal(t, "passes", len(r.of(lockstest.OpPass)), 1)
		leftovers(t, &m)
	})
}

// TestSuccessorWithTheWholeTTL: a direct grant that is for the whole TTL is extended, too: only a message says that it was
// made.
func TestSuccessorWithTheWholeTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		a, b := houses(t, &m, strategy.Options{TTL: successorTTL})
		holder := take(t, a)
		w := wait(bg, b)
		release(t, holder)
		l := w.got(t)
		time.Sleep(2 * successorTTL)
		is(t, "Err", l.Err(), strategy.ErrLost)
		equal(t, "renewals", len(r.of(lockstest.OpExtend, lockstest.OpExtendAll)), 1)
	})
}

// TestUnconfirmedPlace: a place that is asked for again, without an answer, is undone as a claim that may
// have been granted since: without the last answer's grant, and with its line.
func TestUnconfirmedPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{RetryOnError: true})
		take(t, open(t, &m, strategy.Options{})) // and forgotten: it lapses
		w := wait(bg, s)
		lost := 0
		r.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
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
	})
}

// TestPlaceIsGivenUp: the last waiter takes the line's place away, with the line's name and the time of
// the answer.
func TestPlaceIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		a, b := houses(t, &m, strategy.Options{})
		holder := take(t, a)
		ctx, cancel := context.WithCancel(bg)
		w := wait(ctx, b)
		cancel()
		<-w.done
		synctest.Wait()
		undone := r.of(lockstest.OpUndo)[0].all[0]
		if undone.Line == "" || undone.Grant.IsZero() {
			t.Errorf("undone = %+v, want the line's claim, which was answered", undone)
		}
		release(t, holder)
		leftovers(t, &m)
	})
}

// TestSilentHolder: where the holder's release will not be announced, the waiter asks after pauses of
// Backoff, although it listens.
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
		s := open(t, p, strategy.Options{Backoff: func(int) time.Duration { return 100 * ms }})
		w := wait(bg, s)
		release(t, w.got(t))
		if late := w.at.Sub(free); late > 101*ms {
			t.Errorf("Acquire %v after the lock was free, want a pause at most", late)
		}
	})
}

// TestRetryOnErrorIsForServers: an error that is not a server's ends the wait, also with RetryOnError.
func TestRetryOnErrorIsForServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := errors.New("broken")
		p := &scripted{acquire: func(driver.Claim) (driver.Grant, error) { return driver.Grant{}, broken }}
		start := time.Now()
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		_, err := open(t, p, strategy.Options{RetryOnError: true}).NewLock(name).Acquire(ctx)
		is(t, "Acquire", err, broken)
		since(t, "Acquire took", start, 0)
	})
}

// TestOwnersLength: an owner has 1024 bytes at most.
func TestOwnersLength(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, &lockstest.Memory{}, strategy.Options{})
		release(t, takeAs(t, s, strings.Repeat("x", contract.MaxNameLen)))
		long := as(strings.Repeat("x", contract.MaxNameLen+1))
		if _, err := s.NewLock(name).TryAcquire(long); err == nil || !strings.Contains(err.Error(), "1025 bytes") {
			t.Errorf("TryAcquire by an owner of 1025 bytes = %v, want an error that says so", err)
		}
		holder := take(t, s)
		w := wait(bg, s)
		start := time.Now()
		if _, err := s.NewLock(name).Acquire(long); err == nil || !strings.Contains(err.Error(), "1025 bytes") {
			t.Errorf("Acquire by an owner of 1025 bytes = %v, want an error that says so", err)
		}
		since(t, "Acquire of what is not allowed took", start, 0)
		release(t, holder)
		release(t, w.got(t))
	})
}

// TestTokensAnnounce: a token says that its release is announced where that is all that waiters hear:
// not where they queue, and not where nobody is notified.
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

// TestCheckGetsTheUsersWait: WaitBest demands nothing, so Check has to know that it was WaitBest.
func TestCheckGetsTheUsersWait(t *testing.T) {
	for _, way := range []strategy.Wait{strategy.WaitBest, strategy.WaitPoll, strategy.WaitNotification} {
		p := &checked{}
		is(t, "Check", open(t, p, strategy.Options{Wait: way}).Check(bg))
		equal(t, "Options.Wait of Check", p.o.Wait, way)
		equal(t, "Options.TTL of Check", p.o.TTL, ttl)
	}
}

// TestFailuresInARow: two failures end the wait of all, if no answer came between them.
func TestFailuresInARow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		p := &scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
			switch asked++; asked {
			case 1, 3:
				return driver.Grant{}, &strategy.HeldError{Name: c.Name}
			case 2, 4:
				return driver.Grant{}, lockstest.Unsent()
			}
			return driver.Grant{}, nil
		}}
		s := open(t, p, strategy.Options{})
		first, second, third := wait(bg, s), wait(bg, s), wait(bg, s)
		<-first.done
		is(t, "Acquire of the first", first.err, strategy.ErrUnsent)
		<-second.done
		is(t, "Acquire of the second", second.err, strategy.ErrUnsent)
		release(t, third.got(t))
	})
}

// TestFailuresAreTold: two failures in a row, of whatever kind, end the wait of all who do not retry. Each one after them
// ends that of who has come since.
func TestFailuresAreTold(t *testing.T) {
	for what, failure := range map[string]error{"not sent": lockstest.Unsent(), "refused": lockstest.Refused("LOADING")} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var asked, failures atomic.Int64
				p := &scripted{acquire: func(c driver.Claim) (driver.Grant, error) {
					switch n := asked.Add(1); {
					case n == 1:
						return driver.Grant{}, &strategy.HeldError{Name: c.Name}
					case failures.Add(-1) >= 0:
						return driver.Grant{}, failure
					}
					return driver.Grant{}, nil
				}}
				failures.Store(3)
				s := open(t, p, strategy.Options{})
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
		})
	}
}

// TestWhyItLapsed: a lease that lapses says why: the maximum hold only if that has come, Close only if
// that ended its renewal, and otherwise how its renewal failed.
func TestWhyItLapsed(t *testing.T) {
	const hold, closed, failed = "the maximum hold is over", "strategy closed", "not sent"
	for what, tt := range map[string]struct {
		keep, close bool
		maxHold     time.Duration
		fails       bool
		want        string
	}{
		"not renewed":                  {},
		"not renewed, and closed":      {close: true},
		"closed":                       {keep: true, close: true, want: closed},
		"failing":                      {keep: true, fails: true, want: failed},
		"failing, and closed":          {keep: true, fails: true, close: true, want: failed},
		"failing before the hold ends": {keep: true, fails: true, maxHold: time.Minute, want: failed},
		"the maximum hold":             {keep: true, maxHold: time.Minute, want: hold},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{})
				lease := take(t, s)
				if tt.keep {
					is(t, "KeepAlive", lease.KeepAlive(tt.maxHold))
				}
				if tt.fails {
					m.Intercept(unsent)
				}
				time.Sleep(ttl * 2 / 3)
				if tt.close {
					is(t, "Close", s.Close())
				}
				time.Sleep(2 * time.Minute)
				err := lease.Err()
				is(t, "Err", err, strategy.ErrLost)
				for _, words := range []string{hold, closed, failed} {
					if strings.Contains(err.Error(), words) != (words == tt.want) {
						t.Errorf("Err = %q, want it to say %q", err, tt.want)
					}
				}
			})
		})
	}
}

// TestForgottenHolder: a lease that nobody uses any more blocks the line for as long as it lasts, and
// no longer, whichever call finds it lost. That also holds if it was extended once, and if its TTL is shorter
// than that of the holder before it.
func TestForgottenHolder(t *testing.T) {
	found := func(look func(strategy.Lease)) func(*testing.T, strategy.Strategy, *waiter) strategy.Lease {
		return func(t *testing.T, _ strategy.Strategy, first *waiter) strategy.Lease {
			l := first.got(t)
			time.AfterFunc(time.Until(l.Deadline()), func() { look(l) })
			return l
		}
	}
	for what, forget := range map[string]func(t *testing.T, s strategy.Strategy, first *waiter) strategy.Lease{
		"found by Err":       found(func(l strategy.Lease) { l.Err() }),
		"found by Lost":      found(func(l strategy.Lease) { l.Lost() }),
		"found by Context":   found(func(l strategy.Lease) { _, cancel := l.Context(bg); cancel() }),
		"found by KeepAlive": found(func(l strategy.Lease) { l.KeepAlive(0) }),
		"found by Extend":    found(func(l strategy.Lease) { l.Extend(bg) }),
		"found by Release":   found(func(l strategy.Lease) { l.Release(bg) }),
		"at once":            func(t *testing.T, s strategy.Strategy, first *waiter) strategy.Lease { return first.got(t) },
		"after an extension": func(t *testing.T, s strategy.Strategy, first *waiter) strategy.Lease {
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
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{})
				take(t, open(t, &m, strategy.Options{})) // forgotten, so that the next grant is a plain one
				first := wait(bg, s)
				behind := make(chan *waiter, 1)
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				defer cancel()
				time.AfterFunc(ttl-ms, func() { behind <- wait(ctx, s) }) // those of forget
				l := forget(t, s, first)
				deadline := l.Deadline()
				last := <-behind
				next := last.got(t)
				if late := last.at.Sub(deadline); late < 0 || late > drift+10*ms {
					t.Errorf("Acquire %v after the deadline of the forgotten lease, want when the lock expires", late)
				}
				release(t, next)
			})
		})
	}
}

// TestForgottenHolderAlone: that is so, too, if others have come and gone, and nobody waited in between.
func TestForgottenHolderAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		take(t, open(t, &m, strategy.Options{})) // forgotten, so that the next grant is a plain one
		l := wait(bg, s).got(t)
		for range 8 {
			ctx, cancel := context.WithTimeout(bg, time.Second)
			_, err := s.NewLock(name).Acquire(ctx)
			is(t, "Acquire", err, context.DeadlineExceeded)
			cancel()
		}
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		last := wait(ctx, s)
		release(t, last.got(t))
		if late := last.at.Sub(l.Deadline()); late < 0 || late > drift+10*ms {
			t.Errorf("Acquire %v after the deadline of the forgotten lease, want when the lock expires", late)
		}
	})
}

// TestPassThatOutlivesItsWaiters: a lock that comes to a line whose waiters have all changed since it was
// asked for is not blocked for ever by a holder that forgets it.
func TestPassThatOutlivesItsWaiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
		fourth := wait(limit, s)
		release(t, fourth.got(t))
	})
}

// TestHeldSince: a hold that was handed over began when it was.
func TestHeldSince(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var took time.Duration
		s := open(t, &lockstest.Memory{}, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventReleased {
				took = e.Elapsed
			}
		}})
		waiters := inLine(t, s, 2)
		time.Sleep(ms)
		release(t, waiters[0].lease)
		release(t, waiters[1].got(t))
		equal(t, "the second hold took", took, 0)
	})
}

// TestPauseAfterABreak: a subscription that breaks is made again after one pause, also if it breaks while
// the head asks.
func TestPauseAfterABreak(t *testing.T) {
	for what, breaks := range map[string]func(*lockstest.Memory, *recorder){
		"during a pause": func(m *lockstest.Memory, _ *recorder) { m.BreakWatches() },
		"during an attempt": func(m *lockstest.Memory, r *recorder) {
			r.then(only(lockstest.OpAcquire, func(_ context.Context, _ lockstest.Request, serve func() error) error {
				r.then(nil)
				m.BreakWatches()
				return serve()
			}))
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{Wait: strategy.WaitNotification})
				other := open(t, bare(&m), strategy.Options{TTL: time.Second})
				take(t, other)
				w := wait(bg, s)
				if what == "during an attempt" {
					time.Sleep(time.Second - 100*ms)
					m.Evict(bg, key)
					take(t, other) // so that the head asks in vain when the TTL is over
				}
				breaks(&m, r)
				before := r.count()
				time.Sleep(500 * ms)
				var ops []lockstest.Op
				for _, q := range r.of(lockstest.OpAcquire, lockstest.OpWatch)[before:] {
					ops = append(ops, q.op)
				}
				want := []lockstest.Op{lockstest.OpAcquire, lockstest.OpWatch, lockstest.OpAcquire}
				if what == "during an attempt" { // which is the first
					want = append([]lockstest.Op{lockstest.OpAcquire}, want...)
				}
				if !slices.Equal(ops, want) {
					t.Errorf("requests after the break = %v, want %v", ops, want)
				}
				release(t, w.got(t))
			})
		})
	}
}

// TestSubscriptionsFail: servers that refuse subscriptions, or have none, are asked for one once in a TTL, and so are those
// that do not answer for long; those that could not be reached, after each pause.
func TestSubscriptionsFail(t *testing.T) {
	unsupported := func(context.Context, lockstest.Request, func() error) error {
		return &strategy.ServerError{Kind: strategy.ErrUnsupported}
	}
	hangs := func(context.Context, lockstest.Request, func() error) error {
		time.Sleep(1800 * ms)
		return lockstest.Unsent()
	}
	for what, tt := range map[string]struct {
		fault       lockstest.Fault
		least, most int
		o           strategy.Options
	}{
		"refused": {fault: refused, least: 1, most: 1}, "unsupported": {fault: unsupported, least: 1, most: 1},
		"not sent":  {fault: unsent, least: 20, most: 200},
		"no answer": {hangs, 3, 3, strategy.Options{TTL: 2 * time.Second, OpTimeout: 1900 * ms}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				tt.o.Wait = strategy.WaitNotification
				s := open(t, &m, tt.o)
				holder := take(t, open(t, &m, strategy.Options{}))
				asked := 0
				r.then(only(lockstest.OpWatch, func(ctx context.Context, q lockstest.Request, serve func() error) error {
					if asked++; asked > 1000 {
						return serve() // this is a spin
					}
					return tt.fault(ctx, q, serve)
				}))
				w := wait(bg, s)
				time.Sleep(9 * time.Second)
				if n := len(r.of(lockstest.OpWatch)); n < tt.least || n > tt.most {
					t.Errorf("subscriptions asked for in 9s = %d, want %d to %d", n, tt.least, tt.most)
				}
				release(t, holder)
				release(t, w.got(t))
			})
		})
	}
}
