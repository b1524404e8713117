// strategy.Do and DoWithin: the lock is kept while the work lasts, and released however the work ends.
package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

var errWork = errors.New("work failed")

// never is work that must not be done.
func never(t *testing.T) func(context.Context, strategy.Lease) error {
	return func(context.Context, strategy.Lease) error {
		t.Error("fn ran without the lock")
		return nil
	}
}

// Whatever fn does, the lock is kept until then, and free when Do returns, and its context is over before.
func TestDoEnds(t *testing.T) {
	type work struct {
		m   *lockstest.Memory
		s   engine.Strategy
		ctx context.Context
		l   strategy.Lease
	}
	type row struct {
		fn   func(work) error
		want []error
		not  error
	}
	evicted := func(w work) { w.m.Evict(bg, key); <-w.ctx.Done() }
	bubbles(t, map[string]row{
		"works long": {fn: func(w work) error { time.Sleep(time.Minute); return errors.Join(w.ctx.Err(), w.l.Err()) }},
		"fails":      {func(work) error { return errWork }, []error{errWork}, strategy.ErrReleased},
		"releases":   {fn: func(w work) error { return w.l.Release(bg) }},
		"releases and fails": {func(w work) error { return errors.Join(errWork, w.l.Release(bg)) },
			[]error{errWork}, strategy.ErrReleased},
		"says that it was released": {func(w work) error { w.l.Release(bg); return context.Cause(w.ctx) },
			[]error{strategy.ErrReleased}, strategy.ErrLost},
		"loses and says nothing": {func(w work) error { evicted(w); return nil }, []error{strategy.ErrLost}, strategy.ErrReleased},
		"loses and says so": {func(w work) error { evicted(w); return context.Cause(w.ctx) },
			[]error{strategy.ErrLost}, strategy.ErrReleased},
		"loses and fails":        {func(w work) error { evicted(w); return errWork }, []error{strategy.ErrLost, errWork}, nil},
		"loses without noticing": {func(w work) error { return w.m.Evict(bg, key) }, []error{strategy.ErrLost}, nil},
		"release fails": {func(w work) error { w.m.Intercept(only(lockstest.OpRelease, refused)); return errWork },
			[]error{errWork, strategy.ErrRefused}, nil},
		"release fails after work that did not": {func(w work) error { w.m.Intercept(only(lockstest.OpRelease, refused)); return nil },
			[]error{strategy.ErrRefused}, nil},
		"maximum hold": {func(w work) error {
			is(t, "KeepAlive", w.l.KeepAlive(15*time.Second))
			<-w.ctx.Done()
			return w.ctx.Err()
		}, []error{strategy.ErrLost, context.Canceled}, nil},
		"closes": {func(w work) error { return errors.Join(w.s.Close(), w.ctx.Err()) }, []error{strategy.ErrClosed}, strategy.ErrLost},
		"closes, and works on until the loss": {func(w work) error {
			w.s.Close()
			time.Sleep(time.Minute)
			return context.Cause(w.ctx)
		}, []error{strategy.ErrClosed, strategy.ErrLost}, nil},
	}, func(t *testing.T, row row) {
		m, _, s := served(t, strategy.Options{})
		var inner context.Context
		err := strategy.Do(bg, s.NewLock(name), func(ctx context.Context, l strategy.Lease) error {
			inner = ctx
			return row.fn(work{m, s, ctx, l})
		})
		equal(t, "entries scheduled", engine.Scheduled(s), 0)
		is(t, "Do", err, row.want...)
		if row.not != nil {
			isNot(t, "Do", err, row.not)
		}
		if err != nil && strings.Count(err.Error(), "lost: ") > 1 {
			t.Errorf("Do = %q, want the loss once", err)
		}
		if errors.Is(err, strategy.ErrRefused) {
			says(t, "Do", err, `lock "n": release: `)
		}
		is(t, "Err of fn's context", inner.Err(), context.Canceled)
		m.Intercept(nil)
		time.Sleep(ttl + ms)
		free(t, m)
	})
}

// noting is a lock that notes the context of its last Acquire, and how fn's context was when the lease was released.
type noting struct {
	strategy.Lock
	asked     context.Context
	atRelease error
}

type notingLease struct {
	strategy.Lease
	by   *noting
	held context.Context
}

func (n *noting) Acquire(ctx context.Context) (strategy.Lease, error) {
	n.asked = ctx
	l, err := n.Lock.Acquire(ctx)
	return &notingLease{Lease: l, by: n}, err
}

func (l *notingLease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	held, cancel := l.Lease.Context(parent)
	l.held = held
	return held, cancel
}

func (l *notingLease) Release(ctx context.Context) error {
	l.by.atRelease = l.held.Err()
	return l.Lease.Release(ctx)
}

// foreign is a Lock that this module did not make: its leases are over before they begin.
type foreign struct{ strategy.Lock }

func (f foreign) Acquire(ctx context.Context) (strategy.Lease, error) {
	lease, err := f.Lock.Acquire(ctx)
	if err == nil {
		lease.Release(ctx) // of no use
	}
	return lease, err
}

// Tests how long Do waits, works and holds.
func TestDo(t *testing.T) {
	stories(t, map[string]func(t *testing.T){
		"what bounds the wait is over with the wait, and work that fn has left behind before the release": func(t *testing.T) {
			_, _, s := served(t, strategy.Options{})
			l := &noting{Lock: s.NewLock(name)}
			is(t, "DoWithin", strategy.DoWithin(bg, l, time.Hour, func(ctx context.Context, _ strategy.Lease) error { return ctx.Err() }))
			is(t, "Err of the context of the wait", l.asked.Err(), context.Canceled)
			is(t, "Err of fn's context at the release", l.atRelease, context.Canceled)
		},
		"the lock is released when fn panics": func(t *testing.T) {
			m, _, s := served(t, strategy.Options{})
			func() {
				defer func() { equal(t, "recover()", recover(), any("boom")) }()
				strategy.Do(bg, s.NewLock(name), func(context.Context, strategy.Lease) error { panic("boom") })
			}()
			free(t, m)
		},
		"fn does not run with a lease that is over before it begins": func(t *testing.T) {
			_, _, s := served(t, strategy.Options{})
			is(t, "Do", strategy.Do(bg, foreign{s.NewLock(name)}, never(t)), strategy.ErrReleased)
		},
		"DoWithin bounds the wait, and leaves the work to ctx": func(t *testing.T) {
			m, _, s := served(t, strategy.Options{})
			held := forgotten(t, m)
			is(t, "the rival's KeepAlive", held.KeepAlive(0))
			start := time.Now()
			err := strategy.DoWithin(bg, s.NewLock(name), 0, never(t))
			is(t, "DoWithin(0)", err, strategy.ErrHeld)
			isNot(t, "DoWithin(0)", err, context.DeadlineExceeded)
			since(t, "DoWithin(0)", start, 0)
			err = strategy.DoWithin(bg, s.NewLock(name), 2*time.Second, never(t))
			is(t, "DoWithin(2s)", err, strategy.ErrHeld, context.DeadlineExceeded)
			since(t, "DoWithin(2s)", start, 2*time.Second)
			says(t, "DoWithin(-1)", strategy.DoWithin(bg, s.NewLock(name), -1, never(t)), "allowed are 0")
			release(t, held)
			err = strategy.DoWithin(bg, s.NewLock(name), 2*time.Second, func(ctx context.Context, _ strategy.Lease) error {
				time.Sleep(10 * time.Minute)
				return ctx.Err()
			})
			is(t, "DoWithin and ten minutes of work", err)
		},
	})
}

// Options.MaxHold ends Do, and KeepAlive(0); a bound of its own takes its place.
func TestMaxHoldOption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, _, s := served(t, strategy.Options{MaxHold: 25 * time.Second})
		end := time.Now().Add(25 * time.Second)
		is(t, "Do", strategy.Do(bg, s.NewLock(name), func(_ context.Context, l strategy.Lease) error {
			endsWith(t, l, end)
			return nil
		}), strategy.ErrLost)
		time.Sleep(time.Second)
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(time.Minute))
		time.Sleep(50 * time.Second)
		release(t, lease)
	})
}
