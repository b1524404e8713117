// Close: what it ends, what it waits for, and what calls get after it. Each bubble ends only when no
// goroutine is left.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// Tests what becomes of leases, requests and waits when the strategy is closed.
func TestClose(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"leases that are held lapse with their TTL": func(t *testing.T) {
			start := time.Now()
			m, _, s, lease := holding(t, strategy.Options{})
			is(t, "KeepAlive", lease.KeepAlive(0))
			time.Sleep(time.Second)
			later := takeNamed(t, s, "later")
			is(t, "KeepAlive", later.KeepAlive(0))
			is(t, "Close", s.Close())
			is(t, "Err", lease.Err())
			<-lease.Lost()
			since(t, "Lost after", start, valid)
			is(t, "Err", lease.Err(), strategy.ErrLost, strategy.ErrClosed)
			ctx, cancel := later.Context(bg)
			defer cancel()
			<-later.Lost()
			since(t, "the later one Lost after", start, time.Second+valid)
			time.Sleep(time.Minute)
			is(t, "cause of the end of its context", context.Cause(ctx), strategy.ErrClosed)
			equal(t, "requests", m.Requests(), 2)
			equal(t, "entries scheduled", engine.Scheduled(s), 0)
			is(t, "Release", lease.Release(bg), lease.Err())
		},
		"a call that comes later says so, and sends nothing": func(t *testing.T) {
			m, _, s, lease := holding(t, strategy.Options{})
			is(t, "Close", s.Close())
			for what, call := range map[string]func() error{
				"Inspect":      func() error { _, err := s.Inspect(bg, name); return err },
				"Adopt":        func() error { _, err := s.Adopt(bg, name, lease.Token()); return err },
				"ForceRelease": func() error { return s.ForceRelease(bg, strategy.Info{Name: name, Held: true, Token: lease.Token()}) },
				"Check":        func() error { return s.Check(bg) },
				"KeepAlive":    func() error { return lease.KeepAlive(0) },
				"Acquire":      func() error { _, err := s.NewLock("free").Acquire(bg); return err },
			} {
				is(t, what, call(), strategy.ErrClosed)
			}
			equal(t, "requests", m.Requests(), 1)
		},
		"a lease that is released is over here, though no server learns it": func(t *testing.T) {
			var last strategy.Event
			m, _, s, lease := holding(t, strategy.Options{Observe: func(e strategy.Event) { last = e }})
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
			equal(t, "last event", last.Kind, strategy.EventReleased)
			is(t, "its Err", last.Err, strategy.ErrClosed)
		},
		"a lease that came through a line ends, and so does the line": func(t *testing.T) {
			for _, detach := range []bool{false, true} {
				m, _, s := served(t, strategy.Options{})
				lease := inLine(t, s, 2)[0].lease
				is(t, "Close", s.Close())
				left, _ := m.Leftovers(bg, key)
				equal(t, "left at the server", fmt.Sprint(left), "[key "+key+"]")
				if detach {
					token, err := lease.Detach()
					is(t, "Detach", err)
					equal(t, "token", token, lease.Token())
				} else {
					is(t, "Release", lease.Release(bg), strategy.ErrClosed)
				}
				equal(t, "lines", engine.Lines(s), 0)
			}
		},
		"a claim that could not be undone gets a last try, and then an event reports it: Close has not failed": func(t *testing.T) {
			var left []strategy.Event
			_, r, s, lease := holding(t, strategy.Options{Observe: func(e strategy.Event) {
				if e.Kind == strategy.EventUndoFailed {
					left = append(left, e)
				}
			}})
			r.then(unsent)
			is(t, "Release", lease.Release(bg), strategy.ErrUnsent)
			time.Sleep(time.Second + ms)
			n := len(r.of(lockstest.OpUndo))
			start := time.Now()
			is(t, "Close", s.Close())
			since(t, "Close took", start, 0)
			is(t, "second Close", s.Close())
			time.Sleep(time.Minute)
			equal(t, "last tries", len(r.of(lockstest.OpUndo))-n, 1)
			if len(left) != 1 {
				t.Fatalf("events = %+v, want one", left)
			}
			e := left[0]
			equal(t, "its lock", e.Name, name)
			equal(t, "its token", e.Token, lease.Token())
			equal(t, "its time", e.Elapsed, time.Second+ms)
			equal(t, "its context", e.Context, bg)
			is(t, "its error", e.Err, strategy.ErrUnsent)
		},
		"a frozen server delays Close by a few time-outs, not more": func(t *testing.T) {
			_, r, s := served(t, strategy.Options{RetryOnError: true})
			r.then(slow(time.Hour, 0))
			waiters := []*waiter{wait(bg, s), wait(bg, s), wait(bg, s)}
			time.Sleep(ttl)
			start := time.Now()
			is(t, "Close", s.Close())
			between(t, "Close took", time.Since(start), 0, 3*op)
			for _, w := range waiters {
				<-w.done
				is(t, "Acquire", w.err, strategy.ErrClosed)
			}
			time.Sleep(2 * time.Hour)
		},
		"a release that Close overtakes passes the lock on to nobody, although a waiter has not left the line yet": func(t *testing.T) {
			m := reentrant()
			r := record(m)
			s := open(t, m, strategy.Options{})
			before := forgotten(t, m)
			first := wait(bg, s)
			release(t, before)
			l := first.got(t)
			r.then(slow(0, 50*ms))
			w := wait(as("me"), s) // asks whether it holds the lock already
			extended, released := make(chan error), make(chan error)
			r.then(slow(0, 20*ms))
			go func() { extended <- l.Extend(bg) }()
			synctest.Wait()
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
		},
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
		errs := make(chan error, 4)
		for i := range cap(errs) {
			go func() { errs <- []strategy.Strategy{s, other}[i%2].Close() }()
		}
		failed := 0
		for range cap(errs) {
			if errors.Is(<-errs, io.ErrUnexpectedEOF) {
				failed++
			}
			since(t, "each Close took", start, time.Second)
		}
		equal(t, "calls that say what failed", failed, 1)
		equal(t, "protocol closed", p.closed, 1)
		is(t, "later Close", s.Close())
		<-w.done
		is(t, "Acquire", w.err, strategy.ErrClosed)
	})
}
