// Close: what it ends, what it waits for, and what calls get after it. Each bubble ends only when no
// goroutine is left.
package engine_test

import (
	"context"
	"errors"
	"io"
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

func TestCloseWakesWaiters(t *testing.T) {
	for _, w := range []strategy.Wait{strategy.WaitPoll, strategy.WaitNotification} {
		t.Run(w.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{Wait: w, Backoff: func(int) time.Duration { return time.Hour }})
				a := take(t, s)
				waiters := []*waiter{wait(bg, s), wait(bg, s), wait(bg, s)}
				start := time.Now()
				is(t, "Close", s.Close())
				since(t, "Close took", start, 0)
				for _, w := range waiters {
					<-w.done
					is(t, "Acquire", w.err, strategy.ErrClosed)
					isNot(t, "Acquire", w.err, strategy.ErrHeld)
					equal(t, "Acquire ended after", w.at.Sub(start), 0)
				}
				left, _ := m.Leftovers(bg, key)
				equal(t, "left at the server", strings.Join(left, ", "), "key "+key)
				is(t, "Err of the holder", a.Err())
			})
		})
	}
}

// After Close every call says so and sends nothing.
func TestCallsAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		token := lease.Token()
		is(t, "Close", s.Close())
		before := m.Requests()
		l := s.NewLock(name)
		_, err := l.TryAcquire(bg)
		is(t, "TryAcquire", err, strategy.ErrClosed)
		_, err = l.Acquire(bg)
		is(t, "Acquire", err, strategy.ErrClosed)
		_, err = s.Inspect(bg, name)
		is(t, "Inspect", err, strategy.ErrClosed)
		_, err = s.Adopt(bg, name, token)
		is(t, "Adopt", err, strategy.ErrClosed)
		is(t, "ForceRelease", s.ForceRelease(bg, strategy.Info{Name: name, Held: true, Token: token}), strategy.ErrClosed)
		is(t, "Check", s.Check(bg), strategy.ErrClosed)
		is(t, "Do", strategy.Do(bg, l, nil), strategy.ErrClosed)
		is(t, "Extend", lease.Extend(bg), strategy.ErrClosed)
		is(t, "KeepAlive", lease.KeepAlive(0), strategy.ErrClosed)
		is(t, "Err", lease.Err())
		other, err := s.With(func(*strategy.Options) {})
		is(t, "With", err)
		_, err = other.NewLock(name).TryAcquire(bg)
		is(t, "TryAcquire of what With made", err, strategy.ErrClosed)
		equal(t, "requests", m.Requests()-before, 0)
	})
}

// Leases that are held lapse with their TTL, and say so.
func TestHeldLeasesLapseAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		start := time.Now()
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		ctx, cancel := lease.Context(bg)
		defer cancel()
		time.Sleep(time.Second)
		later, err := s.NewLock("later").TryAcquire(bg)
		is(t, "TryAcquire", err)
		is(t, "KeepAlive", later.KeepAlive(0))
		is(t, "Close", s.Close())
		before := m.Requests()
		is(t, "Err", lease.Err())
		is(t, "Err of the context", ctx.Err())
		<-lease.Lost()
		since(t, "Lost after", start, valid)
		is(t, "Err", lease.Err(), strategy.ErrLost, strategy.ErrClosed)
		isNot(t, "Err", lease.Err(), strategy.ErrReleased)
		<-ctx.Done()
		equal(t, "Cause", context.Cause(ctx), lease.Err())
		<-later.Lost()
		since(t, "the later one Lost after", start, time.Second+valid)
		time.Sleep(time.Minute)
		equal(t, "requests", m.Requests()-before, 0)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		is(t, "Release", lease.Release(bg), lease.Err())
	})
}

// What would be undone after Close is left to its TTL: nothing is sent any more.
func TestNothingIsUndoneAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		time.Sleep(time.Second)
		m.Intercept(lostReply)
		is(t, "Extend", lease.Extend(bg), strategy.ErrUnknown)
		is(t, "Close", s.Close())
		before := m.Requests()
		<-lease.Lost()
		is(t, "Err", lease.Err(), strategy.ErrLost, strategy.ErrUnknown)
		time.Sleep(2 * ttl)
		equal(t, "requests", m.Requests()-before, 0)
		equal(t, "under way", engine.UnderWay(s), 0)
	})
}

// A lease that ends after Close is over here, though no server learns it.
func TestReleaseAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		var events []strategy.Event
		s := open(t, &m, strategy.Options{Observe: func(e strategy.Event) { events = append(events, e) }})
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		ctx, cancel := lease.Context(bg)
		defer cancel()
		is(t, "Close", s.Close())
		is(t, "Release", lease.Release(bg), strategy.ErrClosed)
		is(t, "Cause", context.Cause(ctx), strategy.ErrReleased)
		is(t, "Err", lease.Err(), strategy.ErrReleased)
		is(t, "second Release", lease.Release(bg), strategy.ErrReleased)
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		equal(t, "requests", m.Requests(), 1)
		last := events[len(events)-1]
		equal(t, "last event", last.Kind, strategy.EventReleased)
		is(t, "its Err", last.Err, strategy.ErrClosed)

		s = open(t, &lockstest.Memory{}, strategy.Options{})
		lease = inLine(t, s, 2)[0].lease
		is(t, "Close", s.Close())
		is(t, "Release of what came through a line", lease.Release(bg), strategy.ErrClosed)
		equal(t, "lines", engine.Lines(s), 0)
	})
}

func TestDetachAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		is(t, "Close", s.Close())
		token, err := lease.Detach()
		is(t, "Detach", err)
		equal(t, "token", token, lease.Token())

		s = open(t, &lockstest.Memory{}, strategy.Options{})
		lease = inLine(t, s, 2)[0].lease
		is(t, "Close", s.Close())
		_, err = lease.Detach()
		is(t, "Detach of what came through a line", err)
		equal(t, "lines", engine.Lines(s), 0)
	})
}

// Requests under way end before Close does; what they bring is undone.
func TestCloseWaitsForRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		kept, err := s.NewLock("kept").TryAcquire(bg)
		is(t, "TryAcquire", err)
		r.then(slow(100*ms, 300*ms))
		start := time.Now()
		w := wait(bg, s)
		extend := make(chan error, 1)
		go func() { extend <- kept.Extend(bg) }()
		synctest.Wait()
		is(t, "Close", s.Close())
		since(t, "Close took", start, 800*ms) // the acquire, and its undoing
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
		is(t, "Extend", <-extend)
		equal(t, "holder", holds(&m, key), "")
	})
}

// A claim that could not be undone gets a last try, and then an event reports it. It lapses by itself, so Close has
// not failed.
func TestCloseSaysWhatIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		var left []strategy.Event
		r := record(&m)
		s := open(t, &m, strategy.Options{Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventUndoFailed {
				left = append(left, e)
			}
		}})
		lease := take(t, s)
		r.then(unsent)
		is(t, "Release", lease.Release(bg), strategy.ErrUnsent)
		time.Sleep(time.Second + ms)
		n := len(r.of(lockstest.OpUndo))
		start := time.Now()
		is(t, "Close", s.Close())
		since(t, "Close took", start, 0)
		equal(t, "last tries", len(r.of(lockstest.OpUndo))-n, 1)
		is(t, "second Close", s.Close())
		time.Sleep(time.Minute)
		equal(t, "later requests", len(r.of(lockstest.OpUndo))-n, 1)
		if len(left) != 1 {
			t.Fatalf("events = %+v, want one", left)
		}
		e := left[0]
		equal(t, "its lock", e.Name, name)
		equal(t, "its token", e.Token, lease.Token())
		equal(t, "its time", e.Elapsed, time.Second+ms)
		equal(t, "its context", e.Context, bg)
		is(t, "its error", e.Err, strategy.ErrUnsent)
	})
}

// The last try may be the one that succeeds: then nothing is left to say.
func TestCloseUndoesInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		r.then(lostRequest)
		is(t, "Release", lease.Release(bg), strategy.ErrUnknown)
		synctest.Wait()
		r.then(slow(200*ms, 200*ms))
		start := time.Now()
		is(t, "Close", s.Close())
		since(t, "Close took", start, 400*ms)
		equal(t, "holder", holds(&m, key), "")
	})
}

// A frozen server delays Close by a few time-outs, not more.
func TestCloseWithFrozenServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		m.Intercept(func(_ context.Context, q lockstest.Request, _ func() error) error {
			time.Sleep(time.Until(q.Claims[0].Due) + ms)
			return lockstest.Unknown()
		})
		var left atomic.Int32
		s := open(t, &m, strategy.Options{RetryOnError: true, Observe: func(e strategy.Event) {
			if e.Kind == strategy.EventUndoFailed {
				left.Add(1)
			}
		}})
		var waiters []*waiter
		for range 5 {
			waiters = append(waiters, wait(bg, s))
		}
		time.Sleep(10 * time.Second)
		start := time.Now()
		is(t, "Close", s.Close())
		if d := time.Since(start); d > 3*op {
			t.Errorf("Close took %v, want 3 operation time-outs at most", d)
		}
		if left.Load() == 0 {
			t.Error("no event reports what could not be undone")
		}
		for _, w := range waiters {
			<-w.done
			is(t, "Acquire", w.err, strategy.ErrClosed)
		}
		time.Sleep(2 * time.Second)
	})
}

type closer struct {
	driver.Protocol
	err    error
	closed int
}

func (c *closer) Close() error { c.closed++; return c.err }

// Close is idempotent, also at once from many sides, and closes the protocol once.
func TestCloseTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		p := &closer{Protocol: bare(&m), err: io.ErrUnexpectedEOF}
		s := open(t, p, strategy.Options{})
		other, err := s.With(func(*strategy.Options) {})
		is(t, "With", err)
		m.Intercept(slow(500*ms, 0))
		w := wait(bg, s)
		start := time.Now()
		var mu sync.Mutex
		var errs []error
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				err := []strategy.Strategy{s, other}[i%2].Close()
				since(t, "each Close took", start, time.Second)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		all.Wait()
		since(t, "Close took", start, time.Second)
		is(t, "Close", errors.Join(errs...), io.ErrUnexpectedEOF)
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		equal(t, "calls that say what failed", failed, 1)
		equal(t, "protocol closed", p.closed, 1)
		is(t, "later Close", s.Close())
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
	})
}

// A renewal under way at Close ends; no other begins.
func TestCloseDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s := open(t, &m, strategy.Options{})
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(0))
		r.then(slow(0, 500*ms))
		for len(r.of(lockstest.OpExtendAll)) == 0 {
			time.Sleep(10 * ms)
		}
		renewal := r.of(lockstest.OpExtendAll)[0].at
		is(t, "Close", s.Close())
		since(t, "Close ended after the renewal began", renewal, 500*ms)
		<-lease.Lost()
		since(t, "Lost after the renewal began", renewal, valid)
		equal(t, "renewals", len(r.of(lockstest.OpExtendAll)), 1)
		is(t, "Err", lease.Err(), strategy.ErrLost, strategy.ErrClosed)
	})
}

// Everything at once, and Close in the middle: all calls return, and no goroutine
// is left when it does.
func TestCloseInTheMiddle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for i := range 30 {
			var m lockstest.Memory
			m.Intercept(slow(ms, ms))
			s := open(t, &m, strategy.Options{TTL: 100 * ms})
			var all sync.WaitGroup
			for j := range 20 {
				all.Go(func() {
					for {
						err := strategy.Do(bg, s.NewLock(name), func(ctx context.Context, l strategy.Lease) error {
							select {
							case <-ctx.Done():
							case <-time.After(time.Duration(j) * 10 * ms):
							}
							return nil
						})
						if errors.Is(err, strategy.ErrClosed) {
							return
						}
						is(t, "Do", err)
					}
				})
			}
			time.Sleep(time.Duration(i*37) * ms)
			is(t, "Close", s.Close())
			all.Wait()
			time.Sleep(time.Second)
			equal(t, "entries scheduled", engine.Scheduled(s), 0)
		}
	})
}

// A release that Close overtakes passes the lock on to nobody, although a waiter has not left the line yet.
func TestCloseDuringARelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		r := record(m)
		s := open(t, m, strategy.Options{})
		before := take(t, open(t, m, strategy.Options{}))
		first := wait(bg, s)
		release(t, before)
		l := first.got(t)
		r.then(slow(0, 50*ms))
		w := wait(as("me"), s) // asks whether it holds the lock already
		extended := make(chan error)
		r.then(slow(0, 20*ms))
		go func() { extended <- l.Extend(bg) }()
		synctest.Wait()
		released := make(chan error)
		go func() { released <- l.Release(bg) }() // when the extension is answered: before the waiter is
		synctest.Wait()
		go s.Close()
		is(t, "Extend", <-extended, strategy.ErrReleased)
		is(t, "Release", <-released)
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
		equal(t, "releases", len(r.of(lockstest.OpRelease, lockstest.OpUndo)), 2)
		equal(t, "releases that pass the lock on", len(r.of(lockstest.OpPass)), 0)
		leftovers(t, m)
	})
}

// An adoption that Close overtakes gives no lease that nobody would renew.
func TestCloseDuringAnAdoption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		token, err := take(t, s).Detach()
		is(t, "Detach", err)
		m.Intercept(only(lockstest.OpAdopt, slow(0, 10*ms)))
		time.AfterFunc(5*ms, func() { s.Close() })
		lease, err := s.Adopt(bg, name, token)
		is(t, "Adopt", err, strategy.ErrClosed)
		if lease != nil {
			t.Errorf("Adopt = %v, want no lease", lease)
		}
		synctest.Wait()
		equal(t, "holder", holds(&m, key), "")
	})
}
