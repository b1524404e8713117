// Tests what a line keeps, forgets and asks after a pass that was refused, a head that panicked, and a holder that is gone.
package engine_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// behind makes a line of process s whose holder came through the line, with a waiter of another process next in the servers'
// queue, and then one of s, which waits until ctx ends.
func behind(ctx context.Context, t *testing.T, m *lockstest.Memory) (s engine.Strategy, holder strategy.Lease, theirs, next *waiter) {
	t.Helper()
	s = open(t, m, strategy.Options{NoHandOver: true})
	last := take(t, s)
	first := wait(bg, s)
	theirs = wait(bg, open(t, m, strategy.Options{}))
	next = wait(ctx, s)
	release(t, last)
	return s, first.got(t), theirs, next
}

// TestPlaceOfAPass: a release that passes the lock on may get a place in the queue for the next waiter. That waiter asks
// again for the same place.
func TestPlaceOfAPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		_, holder, theirs, next := behind(bg, t, &m)
		r := record(&m)
		release(t, holder)
		theirs.got(t) // and forgotten: it lapses
		release(t, next.got(t))
		passes, asked := r.of(lockstest.OpPass), r.of(lockstest.OpAcquire)
		if len(passes) != 1 || len(asked) == 0 {
			t.Fatalf("passes = %d, questions = %d, want 1, and some", len(passes), len(asked))
		}
		equal(t, "token of the question", asked[0].all[0].Token, passes[0].all[1].Token)
		equal(t, "Repeated", asked[0].all[0].Repeated, true)
		leftovers(t, &m)
	})
}

// TestPassKeepsThePlace: a waiter that has its place in the queue keeps it, whatever becomes of a release that asks for it, too.
func TestPassKeepsThePlace(t *testing.T) {
	type row struct {
		pass func(p *shares, c driver.Claim, serve func() error) error
		is   error // of the release
	}
	bubbles(t, map[string]row{
		"held":    {pass: func(_ *shares, _ driver.Claim, serve func() error) error { return serve() }},
		"refused": {pass: func(*shares, driver.Claim, func() error) error { return lockstest.Refused("LOADING") }},
		"lost": {is: strategy.ErrLost, pass: func(p *shares, c driver.Claim, serve func() error) error {
			p.Change(key, func(l *memory.Lock) { l.End(c.Token) })
			return serve()
		}},
	}, func(t *testing.T, row row) {
		p := newShares(3)
		s, other := open(t, p, strategy.Options{NoHandOver: true}), open(t, p, strategy.Options{})
		one := takeShare(t, s, 1)
		takeShare(t, other, 2) // and forgotten: it lapses
		w := waitShare(bg, s, 3)
		p.keeps(t, "while one waits", 1, 1)
		entry, before := p.queued()[0], len(p.of("acquire"))
		p.then(only(lockstest.OpPass, func(_ context.Context, q lockstest.Request, serve func() error) error {
			p.server.Tell(key, driver.Notification{Holder: "another"}) // the head looks, and sleeps until the release is over
			time.Sleep(ms)
			return row.pass(p, q.Claims[0], serve)
		}))
		if err := one.Release(bg); row.is == nil {
			is(t, "Release", err)
		} else {
			is(t, "Release", err, row.is)
		}
		release(t, w.got(t))
		equal(t, "passes", len(p.of("pass")), 1)
		asked := p.of("acquire")[before:]
		if len(asked) == 0 {
			t.Fatal("the head has not asked, want that it has")
		}
		equal(t, "token of the question", asked[0].all[0].Token, entry.Token)
		equal(t, "Repeated", asked[0].all[0].Repeated, true)
		for _, c := range p.of("undo") {
			if c.all[0].Token == entry.Token {
				t.Error("the place of the head has been undone, want that it keeps it")
			}
		}
		leftovers(t, p.server)
	})
}

// TestLeaverNamesTheHolder: a waiter that gives up names who holds the lock now, not the last holder of its own process.
func TestLeaverNamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		ctx, cancel := context.WithCancel(bg)
		_, holder, theirs, next := behind(ctx, t, &m)
		release(t, holder)
		l := theirs.got(t)
		synctest.Wait()
		cancel()
		<-next.done
		var held *strategy.HeldError
		if !errors.As(next.err, &held) {
			t.Fatalf("Acquire that was given up = %v, want that the lock is held", next.err)
		}
		equal(t, "Holder", held.Holder, l.Token())
		release(t, l)
		leftovers(t, &m)
	})
}

// TestHeadPanics: when the protocol panics in the head's question, the next waiter asks at once.
func TestHeadPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var fragile atomic.Bool
		p := &wire{asks: func(*driver.Claim) {
			if fragile.Swap(false) {
				time.Sleep(10 * ms)
				panic("fragile")
			}
		}}
		r := record(&p.Memory)
		r.then(only(lockstest.OpWatch, func(_ context.Context, _ lockstest.Request, serve func() error) error {
			fragile.Store(true) // in the question for a place, after the subscription
			return serve()
		}))
		holder, s := take(t, open(t, p, strategy.Options{})), open(t, p, strategy.Options{})
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			s.NewLock(name).Acquire(bg)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		next := wait(ctx, s)
		before := len(r.of(lockstest.OpAcquire))
		equal(t, "panic", <-panicked, any("fragile"))
		synctest.Wait()
		equal(t, "questions of the next waiter at once", len(r.of(lockstest.OpAcquire))-before, 1)
		release(t, holder)
		release(t, next.got(t))
		equal(t, "lines", engine.Lines(s), 0)
		leftovers(t, &p.Memory)
	})
}
