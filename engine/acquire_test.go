// One attempt, and what it may leave behind: which answers are undone and for how long, what ends a wait,
// and what an operator may do.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

func TestTryAcquireIsOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		a := take(t, s)
		equal(t, "requests", m.Requests(), 1)
		time.Sleep(3 * time.Second)
		lease, err := s.NewLock(name).TryAcquire(bg)
		if lease != nil {
			t.Errorf("TryAcquire of a held lock = %v, want no lease", lease)
		}
		is(t, "TryAcquire of a held lock", err, strategy.ErrHeld)
		var held *strategy.HeldError
		if !errors.As(err, &held) {
			t.Fatalf("TryAcquire of a held lock = %T, want a *HeldError", err)
		}
		equal(t, "HeldError", *held, strategy.HeldError{Name: name, Holder: a.Token(), TTL: 7 * time.Second})
		equal(t, "requests", m.Requests(), 2)
		release(t, a)
		equal(t, "requests", m.Requests(), 3)
	})
}

// For a context that is done Acquire sends nothing, and reports its error and cause.
func TestDoneContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		before := m.Requests()
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(bg)
		cancel(why)
		_, err1 := s.NewLock(name).TryAcquire(ctx)
		_, err2 := s.NewLock(name).Acquire(ctx)
		_, err3 := s.Inspect(ctx, name)
		_, err4 := s.Adopt(ctx, name, lease.Token())
		err5 := s.ForceRelease(ctx, strategy.Info{Name: name, Held: true, Token: lease.Token()})
		err6 := lease.Extend(ctx)
		err7 := strategy.Do(ctx, s.NewLock(name), nil)
		for i, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
			is(t, fmt.Sprintf("call %d with a cancelled context", i+1), err, context.Canceled, why)
			isNot(t, fmt.Sprintf("call %d with a cancelled context", i+1), err, strategy.ErrHeld, strategy.ErrUnknown)
		}
		equal(t, "requests", m.Requests()-before, 0)
		is(t, "Release with a cancelled context", lease.Release(ctx))
		equal(t, "requests of Release", m.Requests()-before, 1)
	})
}

func TestEveryAttemptHasItsOwnToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		r.then(only(lockstest.OpAcquire, refused))
		s := open(t, &m, strategy.Options{RetryOnError: true, Label: "me"})
		ctx, cancel := context.WithTimeout(bg, time.Minute)
		defer cancel()
		s.NewLock(name).Acquire(ctx)
		s.NewLock(name).TryAcquire(bg)
		seen := map[string]bool{}
		all := r.of(lockstest.OpAcquire)
		for _, a := range all {
			seen[a.all[0].Token] = true
		}
		if len(all) < 50 {
			t.Errorf("attempts in a minute = %d, want more", len(all))
		}
		equal(t, "different tokens", len(seen), len(all))
	})
}

// An attempt of unknown end is undone, whether or not it took effect.
func TestLostReplyIsUndone(t *testing.T) {
	for what, fault := range map[string]lockstest.Fault{"request": lostRequest, "reply": lostReply} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				r.then(only(lockstest.OpAcquire, fault))
				s := open(t, &m, strategy.Options{})
				lease, err := s.NewLock(name).TryAcquire(bg)
				if lease != nil {
					t.Errorf("TryAcquire = %v, want no lease", lease)
				}
				is(t, "TryAcquire", err, strategy.ErrUnknown)
				isNot(t, "TryAcquire", err, strategy.ErrHeld, strategy.ErrLost)
				synctest.Wait()
				undo := r.of(lockstest.OpRelease, lockstest.OpUndo)
				equal(t, "releases", len(undo), 1)
				equal(t, "which", undo[0].op, lockstest.OpUndo)
				c := undo[0].all[0]
				equal(t, "token undone", c.Token, r.of(lockstest.OpAcquire)[0].all[0].Token)
				equal(t, "Grant.IsZero", c.Grant.IsZero(), true)
				equal(t, "holder", holds(&m, key), "")
			})
		})
	}
}

// A request that was frozen on its way takes effect late: the undoing goes on until
// nothing can come any more.
func TestUndoOutlastsALateRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		r.then(only(lockstest.OpAcquire, slow(3900*ms, 0)))
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		_, err := s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrUnknown)
		since(t, "TryAcquire took", start, op)
		time.Sleep(time.Minute)
		undo := r.of(lockstest.OpUndo)
		before, last := op, op // the next one comes after a quarter of the time-out, or of the time since the first
		for i, u := range undo {
			if i > 0 {
				before, last = last, last+max(op/4, (last-op)/4)
			}
			equal(t, "time of the undo", u.at.Sub(start), last)
		}
		if before >= 3900*ms || last < 3900*ms {
			t.Errorf("last undo = %v, want the first after the request arrived, at 3.9s", last)
		}
		equal(t, "holder", holds(&m, key), "")
		equal(t, "under way", engine.UnderWay(s), 0)
	})
}

// The undoing ends when a TTL has passed since the request can have arrived last.
// With servers that answer, but cannot undo, that is known.
func TestUndoEndsWithTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		r.then(lostRequest)
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		s.NewLock(name).TryAcquire(bg)
		r.then(refused)
		time.Sleep(time.Minute)
		undo := r.of(lockstest.OpUndo)
		if last := undo[len(undo)-1].at.Sub(start); last > op+ttl {
			t.Errorf("last undo after %v, want %v at most", last, op+ttl)
		}
		equal(t, "under way", engine.UnderWay(s), 0)
	})
}

// Servers that are paused count nothing: they may execute the acquire when they go
// on, however long that is, so the undoing goes on, ever slower, for a day.
func TestUndoOutlastsSilence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		const frozen = 10 * time.Minute
		r.then(func(_ context.Context, q lockstest.Request, serve func() error) error {
			if q.Op == lockstest.OpAcquire {
				time.Sleep(frozen)
				return serve()
			}
			return lockstest.Unsent()
		})
		s.NewLock(name).TryAcquire(bg)
		time.Sleep(frozen)
		r.then(nil)
		time.Sleep(frozen / 15)
		equal(t, "holder", holds(&m, key), "")
		equal(t, "under way", engine.UnderWay(s), 0)

		r.then(lostRequest)
		before := r.count()
		s.NewLock(name).TryAcquire(bg)
		time.Sleep(25 * time.Hour)
		equal(t, "under way", engine.UnderWay(s), 0)
		if n := r.count() - before; n > 300 {
			t.Errorf("requests in a day of silence = %d, want few", n)
		}
	})
}

// Refused and unsent attempts have no effect: there is nothing to undo.
func TestFailedAttemptIsNotUndone(t *testing.T) {
	for want, fault := range map[error]lockstest.Fault{strategy.ErrRefused: refused, strategy.ErrUnsent: unsent} {
		t.Run(want.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				m.Intercept(fault)
				s := open(t, &m, strategy.Options{})
				_, err := s.NewLock(name).TryAcquire(bg)
				is(t, "TryAcquire", err, want)
				_, err = s.NewLock(name).Acquire(bg)
				is(t, "Acquire", err, want)
				time.Sleep(ttl)
				equal(t, "requests", m.Requests(), 2)
			})
		})
	}
}

// A grant whose validity is over when it arrives is of no use to anybody.
func TestGrantLaterThanItsValidity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{OpTimeout: ttl - ms})
		r.then(only(lockstest.OpAcquire, slow(0, valid-1)))
		lease := take(t, s)
		equal(t, "validity left", time.Until(lease.Deadline()), 1)
		release(t, lease)

		r.then(only(lockstest.OpAcquire, slow(0, valid)))
		late, err := s.NewLock(name).TryAcquire(bg)
		if late != nil {
			t.Errorf("TryAcquire = %v, want no lease", late)
		}
		is(t, "TryAcquire", err, strategy.ErrLost)
		synctest.Wait()
		undo := r.of(lockstest.OpRelease, lockstest.OpUndo)
		equal(t, "releases", len(undo), 2)
		equal(t, "the second", undo[1].op, lockstest.OpUndo)
		c := undo[1].all[0]
		equal(t, "Grant.IsZero", c.Grant.IsZero(), false) // answered: it cannot arrive later
		equal(t, "holder", holds(&m, key), "")
	})
}

// Acquire goes on after a grant that came too late.
func TestAcquireGoesOnAfterALateGrant(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{OpTimeout: ttl - ms})
		r.then(only(lockstest.OpAcquire, func(ctx context.Context, q lockstest.Request, serve func() error) error {
			r.then(nil)
			return slow(0, valid)(ctx, q, serve)
		}))
		start := time.Now()
		lease, err := s.NewLock(name).Acquire(bg)
		is(t, "Acquire", err)
		if took := time.Since(start); took < valid || took > valid+2*ms {
			t.Errorf("Acquire took %v, want %v and a pause of up to 2ms", took, valid)
		}
		release(t, lease)
	})
}

// A wait ends at once with what it cannot wait for.
func TestErrorsEndTheWait(t *testing.T) {
	for want, fault := range map[error]lockstest.Fault{
		strategy.ErrRefused: refused, strategy.ErrUnsent: unsent, strategy.ErrUnknown: lostReply,
	} {
		t.Run(want.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{Wait: strategy.WaitNotification})
				a := take(t, s)
				w := wait(bg, s)
				r.then(only(lockstest.OpAcquire, fault))
				start := time.Now()
				release(t, a)
				<-w.done
				is(t, "Acquire", w.err, want)
				isNot(t, "Acquire", w.err, strategy.ErrHeld)
				equal(t, "Acquire ended after", w.at.Sub(start), 0)
				synctest.Wait()
				equal(t, "holder", holds(&m, key), "")
			})
		})
	}
}

func TestPersist(t *testing.T) {
	for want, fault := range map[error]lockstest.Fault{
		strategy.ErrRefused: refused, strategy.ErrUnsent: unsent, strategy.ErrUnknown: lostReply,
	} {
		t.Run(want.Error(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s := open(t, &m, strategy.Options{RetryOnError: true})
				r.then(only(lockstest.OpAcquire, fault))
				ctx, cancel := context.WithTimeoutCause(bg, 30*time.Second, errors.New("why"))
				defer cancel()
				_, err := s.NewLock(name).Acquire(ctx)
				is(t, "Acquire that gave up", err, want, context.DeadlineExceeded, context.Cause(ctx))
				isNot(t, "Acquire that gave up", err, strategy.ErrHeld)

				w := wait(bg, s)
				time.Sleep(time.Minute)
				r.then(nil)
				<-w.done
				is(t, "Acquire after an outage", w.err)
				release(t, w.lease)
			})
		})
	}
}

// Persist does not wait for what no server said.
func TestPersistEndsWithClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(unsent)
		s := open(t, &m, strategy.Options{RetryOnError: true})
		w := wait(bg, s)
		time.Sleep(time.Second)
		is(t, "Close", s.Close())
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
	})
}

// The wait that ends says both why the lock was not available and why it ended.
func TestWaitEndsWithContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		a := take(t, s)
		why := errors.New("why")
		ctx, cancel := context.WithTimeoutCause(bg, 4*time.Second, why)
		defer cancel()
		start := time.Now()
		waiters := []*waiter{wait(ctx, s), wait(ctx, s), wait(ctx, s)}
		for i, w := range waiters {
			<-w.done
			what := fmt.Sprintf("Acquire of waiter %d", i)
			is(t, what, w.err, strategy.ErrHeld, context.DeadlineExceeded, why)
			isNot(t, what, w.err, strategy.ErrUnknown)
			var held *strategy.HeldError
			if !errors.As(w.err, &held) || *held != (strategy.HeldError{Name: name, Holder: a.Token(), TTL: 6 * time.Second}) {
				t.Errorf("%s = %v, want the holder %s with 6s left", what, w.err, a.Token())
			}
			equal(t, what+" ended after", w.at.Sub(start), 4*time.Second)
		}
		synctest.Wait() // who queued withdraws in the background
		left, _ := m.Leftovers(bg, key)
		equal(t, "left at the server", fmt.Sprint(left), "[key "+key+"]")
		release(t, a)
	})
}

// When ctx ends the first attempt nobody knows what the servers did: that is not
// "held". (For later ones see TestWaitEndsDuringAQuestion.)
func TestContextEndsTheFirstAttempt(t *testing.T) {
	for what, acquire := range map[string]func(strategy.Lock, context.Context) (strategy.Lease, error){
		"Acquire": strategy.Lock.Acquire, "TryAcquire": strategy.Lock.TryAcquire,
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				m.Intercept(only(lockstest.OpAcquire, slow(100*ms, 0)))
				s := open(t, &m, strategy.Options{})
				why := errors.New("why")
				ctx, cancel := context.WithTimeoutCause(bg, 50*ms, why)
				defer cancel()
				start := time.Now()
				_, err := acquire(s.NewLock(name), ctx)
				since(t, what+" took", start, 50*ms)
				is(t, what, err, strategy.ErrUnknown, context.DeadlineExceeded, why)
				isNot(t, what, err, strategy.ErrHeld, context.Canceled)
				time.Sleep(time.Second)
				equal(t, "holder", holds(&m, key), "")
			})
		})
	}
}

// ctx bounds the wait, never the hold.
func TestContextOfAcquireDoesNotBoundTheHold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		ctx, cancel := context.WithCancel(bg)
		lease, err := s.NewLock(name).Acquire(ctx)
		is(t, "Acquire", err)
		cancel()
		is(t, "KeepAlive", lease.KeepAlive(0))
		time.Sleep(time.Minute)
		is(t, "Err", lease.Err())
		release(t, lease)
	})
}

func TestTryAcquireBarges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{Wait: strategy.WaitPoll, Backoff: func(int) time.Duration { return time.Second }})
		a := take(t, s)
		w := wait(bg, s)
		release(t, a)
		b := take(t, s) // the waiter pauses
		if closed(w.done) {
			t.Fatal("the waiter did not pause")
		}
		release(t, b)
		<-w.done
		is(t, "Acquire", w.err)
		release(t, w.lease)
	})
}

// A key that is not a lock is a clear error, not a holder to wait for.
func TestForeignKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Spoil(bg, key)
		s := open(t, &m, strategy.Options{})
		_, err := s.NewLock(name).Acquire(bg)
		is(t, "Acquire", err, strategy.ErrRefused)
		_, err = s.Inspect(bg, name)
		is(t, "Inspect", err, strategy.ErrRefused)
	})
}

// Owners re-enter where the algorithm lets them; nobody else does.
func TestOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Reentrant = true
		s := open(t, &m, strategy.Options{})
		me := strategy.WithOwner(bg, "me")
		a, err := s.NewLock(name).Acquire(me)
		is(t, "Acquire", err)
		equal(t, "Owner", a.Owner(), "me")
		b, err := s.NewLock(name).TryAcquire(me)
		is(t, "TryAcquire of the owner", err)
		_, err = s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire of nobody", err, strategy.ErrHeld)
		_, err = s.NewLock(name).TryAcquire(strategy.WithOwner(me, ""))
		is(t, "TryAcquire with an empty owner", err, strategy.ErrHeld)
		err = strategy.Do(me, s.NewLock(name), func(ctx context.Context, c strategy.Lease) error {
			_, err := s.NewLock(name).TryAcquire(ctx)
			return err
		})
		is(t, "TryAcquire in Do", err)
		m.Evict(bg, key)

		// Without a name the acquisition owns itself, and its context says so.
		own := take(t, s)
		ctx, cancel := own.Context(bg)
		defer cancel()
		again, err := s.NewLock(name).TryAcquire(ctx)
		is(t, "TryAcquire with the lease's context", err)
		equal(t, "Owner", again.Owner(), own.Token())
		is(t, "a.Extend", a.Extend(bg), strategy.ErrLost)
		is(t, "b.Release", b.Release(bg), strategy.ErrLost)
	})
}

func TestInspectAndForceRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{Label: "me"})
		free, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		equal(t, "Inspect of a free lock", fmt.Sprint(free), fmt.Sprint(strategy.Info{Name: name, Key: key}))
		equal(t, "Token for Inspect", r.of(lockstest.OpInspect)[0].all[0].Token, "")
		equal(t, "TTL for Inspect", r.of(lockstest.OpInspect)[0].all[0].TTL, 0)
		for _, seen := range []strategy.Info{free, {Name: name, Held: true}, {Name: name, Token: "x"}, {}} {
			if err := s.ForceRelease(bg, seen); err == nil || !seen.Held && !strings.Contains(err.Error(), "allowed is what Inspect saw") {
				t.Errorf("ForceRelease(%+v) = %v, want what is allowed", seen, err)
			}
		}
		a := take(t, s)
		seen, err := s.Inspect(bg, name)
		is(t, "Inspect", err)
		is(t, "ForceRelease", s.ForceRelease(bg, seen))
		equal(t, "FenceTTL for ForceRelease, which may grant", r.of(lockstest.OpForceRelease)[0].all[0].FenceTTL, 24*time.Hour)
		is(t, "Err of who does not know yet", a.Err())
		b := take(t, s)
		is(t, "ForceRelease of what was seen before", s.ForceRelease(bg, seen), strategy.ErrLost)
		equal(t, "holder", holds(&m, key), b.Token())
		is(t, "a.Extend", a.Extend(bg), strategy.ErrLost)
		release(t, b)

		is(t, "Check", s.Check(bg))
		m.Intercept(refused)
		is(t, "Check of a server that refuses", s.Check(bg), strategy.ErrRefused)
		_, err = s.Inspect(bg, name)
		is(t, "Inspect of a server that refuses", err, strategy.ErrRefused)
	})
}

// Strategies made from one another share connections and lines. What With does not change is inherited as it was given: a
// default follows the change.
func TestWith(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		seen := map[strategy.EventKind]int{}
		s := open(t, &m, strategy.Options{TTL: time.Second, Label: "one", Observe: func(e strategy.Event) { seen[e.Kind]++ }})
		other, err := s.With(func(o *strategy.Options) { o.TTL, o.Wait, o.Label = ttl, strategy.WaitPoll, "" })
		is(t, "With", err)
		labelled, err := other.With(func(o *strategy.Options) {
			if o.OpTimeout != 0 {
				t.Errorf("OpTimeout = %v, want 0 as it was given", o.OpTimeout)
			}
			o.Label = "two"
		})
		is(t, "With", err)
		c := take(t, labelled)
		equal(t, "validity", time.Until(c.Deadline()), valid)
		equal(t, "acquired", seen[strategy.EventAcquired], 1)
		if !strings.HasSuffix(c.Token(), "two") {
			t.Errorf("Token() = %s, want the label at its end", c.Token())
		}
		release(t, c)
		if _, err := s.With(func(o *strategy.Options) { o.Acks.AOF = true }); err == nil || !strings.Contains(err.Error(), "allowed are those of New") {
			t.Errorf("With other Acks = %v, want what is allowed", err)
		}
		if _, err := engine.New(&m, strategy.Options{Acks: strategy.Acks{Replicas: 1}}); !errors.Is(err, strategy.ErrUnsupported) {
			t.Errorf("New() with Acks = %v, want that the algorithm has none", err)
		}
		if _, err := s.With(nil); err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("With(nil) = %v, want what is allowed", err)
		}
		if _, err := s.With(func(o *strategy.Options) { o.TTL = 1 }); err == nil {
			t.Error("With(TTL: 1ns) = nil, want an error")
		}
		a := take(t, other)
		equal(t, "validity", time.Until(a.Deadline()), valid)
		equal(t, "length of the token", len(a.Token()), 36)
		w1 := wait(bg, s)
		w2 := wait(bg, other)
		equal(t, "waiting", engine.Waiting(s, key), 2)
		equal(t, "waiting", engine.Waiting(other, key), 2)
		release(t, a)
		<-w1.done
		is(t, "first Acquire", w1.err)
		release(t, w1.lease)
		<-w2.done
		is(t, "second Acquire", w2.err)
		release(t, w2.lease)
		is(t, "Close", other.Close())
		_, err = s.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire after Close of the other", err, strategy.ErrClosed)
	})
}

// Many strategies on a server that fails at random: two that believe they hold the
// lock at once are one too many.
func TestExclusionUnderFaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(chaos(1))
		var mu sync.Mutex
		var holder strategy.Lease
		var held, lost int
		var all sync.WaitGroup
		for i := range 8 {
			p := driver.Protocol(&m)
			if i%2 == 1 {
				p = bare(&m)
			}
			s := open(t, p, strategy.Options{TTL: 300 * ms, OpTimeout: 40 * ms, RetryOnError: true})
			for range 4 {
				all.Go(func() {
					for j := range 10 {
						ctx, cancel := bg, context.CancelFunc(func() {})
						if j%5 == 4 { // one who may give up, with a question under way
							ctx, cancel = context.WithTimeout(bg, time.Duration(i*j)*10*ms)
						}
						lease, err := s.NewLock(name).Acquire(ctx)
						cancel()
						if err != nil && ctx != bg {
							is(t, "Acquire", err, context.DeadlineExceeded)
							continue
						}
						if err != nil {
							t.Errorf("Acquire = %v", err)
							return
						}
						mu.Lock()
						if holder != nil && holder.Err() == nil && lease.Err() == nil {
							t.Errorf("%s and %s hold the lock at once", holder.Token(), lease.Token())
						}
						holder, held = lease, held+1
						mu.Unlock()
						if j%3 > 0 {
							lease.KeepAlive(0)
						}
						work := time.NewTimer(time.Duration(j%5) * 100 * ms)
						select {
						case <-work.C:
						case <-lease.Lost():
							mu.Lock()
							lost++
							mu.Unlock()
						}
						lease.Release(bg)
					}
				})
			}
		}
		all.Wait()
		if held < 8*4*8 {
			t.Errorf("acquisitions = %d, want those of all who do not give up", held)
		}
		if lost == 0 {
			t.Error("leases lost = 0, want some: the faults do nothing")
		}
		m.Intercept(nil)
		time.Sleep(time.Second)
		left, _ := m.Leftovers(bg, key)
		equal(t, "left at the server", fmt.Sprint(left), "[]")
	})
}

// confirmable is a protocol that can have its grants confirmed.
type confirmable struct {
	driver.Protocol
	asked *strategy.Acks
}

func (c confirmable) Acknowledged(a strategy.Acks) driver.Protocol {
	*c.asked = a
	return c.Protocol
}

// used is a protocol on nodes that cannot be used.
type used struct {
	driver.Protocol
	err error
}

func (u used) Use() error { return u.err }

// TestNewAsksTheProtocol: for confirmations, if Options name some, and whether its nodes can be used.
func TestNewAsksTheProtocol(t *testing.T) {
	var m lockstest.Memory
	var asked strategy.Acks
	open(t, confirmable{&m, &asked}, strategy.Options{})
	equal(t, "asked without Acks", asked, strategy.Acks{})
	want := strategy.Acks{Replicas: 2, AOF: true}
	s := open(t, confirmable{&m, &asked}, strategy.Options{Acks: want})
	equal(t, "asked", asked, want)
	if _, ok := engine.ProtocolOf(s).(confirmable); ok {
		t.Error("the strategy uses the protocol that confirms nothing")
	}
	broken := errors.New("broken")
	if s, err := engine.New(used{&m, broken}, strategy.Options{}); s != nil || !errors.Is(err, broken) {
		t.Errorf("New() on nodes that cannot be used = %v, %v, want %v", s, err, broken)
	}
}
