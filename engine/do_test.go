// strategy.Do and DoWithin: the lock is kept while the work lasts, and released however the work ends.
package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

var errWork = errors.New("work failed")

// do runs fn under the lock of a new strategy on m, and checks that the lock is
// free afterwards.
func do(t *testing.T, m *lockstest.Memory, ctx context.Context, fn func(context.Context, strategy.Lease) error) error {
	t.Helper()
	s := open(t, m, strategy.Options{})
	err := strategy.Do(ctx, s.NewLock(name), fn)
	equal(t, "entries scheduled", engine.Scheduled(s), 0)
	return err
}

func TestDoKeepsTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		err := do(t, &m, bg, func(ctx context.Context, l strategy.Lease) error {
			time.Sleep(time.Minute)
			is(t, "Err of the context", ctx.Err())
			return l.Err()
		})
		is(t, "Do", err)
		equal(t, "holder", holds(&m, key), "")
	})
}

// Work that fn has left behind ends before another can hold the lock.
func TestDoEndsWorkBeforeTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		l := &noting{Lock: open(t, &m, strategy.Options{}).NewLock(name)}
		is(t, "Do", strategy.Do(bg, l, func(context.Context, strategy.Lease) error { return nil }))
		is(t, "Err of the context at the release", l.atRelease, context.Canceled)
	})
}

// noting is a lock that notes how fn's context was when the lease was released.
type noting struct {
	strategy.Lock
	atRelease error
}

type notingLease struct {
	strategy.Lease
	by   *noting
	held context.Context
}

func (n *noting) Acquire(ctx context.Context) (strategy.Lease, error) {
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

// Whatever fn does, the lock is free and its context over when Do returns.
func TestDoEnds(t *testing.T) {
	for _, tt := range []struct {
		what string
		fn   func(m *lockstest.Memory, ctx context.Context, l strategy.Lease) error
		want []error
		not  []error
	}{
		{"fails", func(*lockstest.Memory, context.Context, strategy.Lease) error { return errWork },
			[]error{errWork}, []error{strategy.ErrLost, strategy.ErrReleased}},
		{"releases", func(_ *lockstest.Memory, _ context.Context, l strategy.Lease) error { return l.Release(bg) },
			nil, nil},
		{"releases and fails", func(_ *lockstest.Memory, _ context.Context, l strategy.Lease) error {
			return errors.Join(errWork, l.Release(bg))
		}, []error{errWork}, []error{strategy.ErrReleased}},
		{"says that it was released", func(_ *lockstest.Memory, ctx context.Context, l strategy.Lease) error {
			l.Release(bg)
			return context.Cause(ctx)
		}, []error{strategy.ErrReleased}, []error{strategy.ErrLost}},
		{"loses and says nothing", func(m *lockstest.Memory, ctx context.Context, _ strategy.Lease) error {
			m.Evict(bg, key)
			<-ctx.Done()
			return nil
		}, []error{strategy.ErrLost}, []error{strategy.ErrReleased}},
		{"loses and says so", func(m *lockstest.Memory, ctx context.Context, _ strategy.Lease) error {
			m.Evict(bg, key)
			<-ctx.Done()
			return context.Cause(ctx)
		}, []error{strategy.ErrLost}, []error{strategy.ErrReleased}},
		{"loses and fails", func(m *lockstest.Memory, ctx context.Context, _ strategy.Lease) error {
			m.Evict(bg, key)
			<-ctx.Done()
			return errWork
		}, []error{strategy.ErrLost, errWork}, nil},
		{"loses without noticing", func(m *lockstest.Memory, _ context.Context, _ strategy.Lease) error {
			m.Evict(bg, key)
			return nil
		}, []error{strategy.ErrLost}, nil},
		{"release fails", func(m *lockstest.Memory, _ context.Context, _ strategy.Lease) error {
			m.Intercept(only(lockstest.OpRelease, func(context.Context, lockstest.Request, func() error) error {
				m.Intercept(nil)
				return lockstest.Refused("LOADING")
			}))
			return errWork
		}, []error{errWork, strategy.ErrRefused}, nil},
		{"maximum hold", func(_ *lockstest.Memory, ctx context.Context, l strategy.Lease) error {
			if err := l.KeepAlive(15 * time.Second); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		}, []error{strategy.ErrLost, context.Canceled}, nil},
	} {
		t.Run(tt.what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				var inner context.Context
				err := do(t, &m, bg, func(ctx context.Context, l strategy.Lease) error {
					inner = ctx
					return tt.fn(&m, ctx, l)
				})
				is(t, "Do", err, tt.want...)
				isNot(t, "Do", err, tt.not...)
				if err != nil {
					if n := strings.Count(err.Error(), "lost: "); n > 1 {
						t.Errorf("Do = %q, want the loss once", err)
					}
				}
				is(t, "Err of fn's context", inner.Err(), context.Canceled)
				time.Sleep(drift + ms)
				synctest.Wait()
				equal(t, "holder", holds(&m, key), "")
			})
		})
	}
}

func TestDoReleasesWhenFnPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		func() {
			defer func() { equal(t, "recover()", recover(), any("boom")) }()
			do(t, &m, bg, func(context.Context, strategy.Lease) error { panic("boom") })
		}()
		equal(t, "holder", holds(&m, key), "")
	})
}

// fn's context ends with the caller's; the release is made all the same.
func TestDoWithAContextThatEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		why := errors.New("why")
		ctx, cancel := context.WithTimeoutCause(bg, 12*time.Second, why)
		defer cancel()
		err := do(t, &m, ctx, func(ctx context.Context, l strategy.Lease) error {
			<-ctx.Done()
			is(t, "Err", l.Err())
			return context.Cause(ctx)
		})
		is(t, "Do", err, why)
		isNot(t, "Do", err, strategy.ErrLost)
		equal(t, "holder", holds(&m, key), "")
	})
}

// Where the lock is not available fn does not run.
func TestDoWithoutTheLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		take(t, open(t, &m, strategy.Options{}))
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		s := open(t, &m, strategy.Options{})
		err := strategy.Do(ctx, s.NewLock(name), func(context.Context, strategy.Lease) error {
			t.Error("fn ran without the lock")
			return nil
		})
		is(t, "Do", err, strategy.ErrHeld, context.DeadlineExceeded)
	})
}

// Close in the middle of Do: the work goes on, and Do says that the lock could not
// be released, or that it was lost, but not both.
func TestDoAndClose(t *testing.T) {
	for _, work := range []time.Duration{time.Second, time.Minute} {
		t.Run(work.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{})
				err := strategy.Do(bg, s.NewLock(name), func(ctx context.Context, l strategy.Lease) error {
					is(t, "Close", s.Close())
					is(t, "Err of the context", ctx.Err())
					time.Sleep(work)
					return context.Cause(ctx)
				})
				is(t, "Do", err, strategy.ErrClosed)
				equal(t, "Do says lost", errors.Is(err, strategy.ErrLost), work > ttl)
				if n := strings.Count(err.Error(), "lost: "); n > 1 {
					t.Errorf("Do = %q, want the loss once", err)
				}
			})
		})
	}
}

// foreign is a Lock that this package did not make.
type foreign struct{ strategy.Lock }

func (f foreign) Acquire(ctx context.Context) (strategy.Lease, error) {
	lease, err := f.Lock.Acquire(ctx)
	if err == nil {
		lease.Release(ctx) // of no use
	}
	return lease, err
}

// A lease that is over before it begins: fn does not run.
func TestDoWithALeaseThatIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{})
		err := strategy.Do(bg, foreign{s.NewLock(name)}, func(context.Context, strategy.Lease) error {
			t.Error("fn ran without the lock")
			return nil
		})
		is(t, "Do", err, strategy.ErrReleased)
	})
}

// DoWithin bounds the wait, and leaves the work to ctx.
func TestDoWithin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s, rival := open(t, &m, strategy.Options{}), open(t, &m, strategy.Options{})
		held := take(t, rival)
		is(t, "the rival's KeepAlive", held.KeepAlive(0))
		unwanted := func(context.Context, strategy.Lease) error { t.Error("fn ran without the lock"); return nil }

		start := time.Now()
		err := strategy.DoWithin(bg, s.NewLock(name), 0, unwanted)
		is(t, "DoWithin(0)", err, strategy.ErrHeld)
		isNot(t, "DoWithin(0)", err, context.DeadlineExceeded)
		since(t, "DoWithin(0)", start, 0)

		err = strategy.DoWithin(bg, s.NewLock(name), 2*time.Second, unwanted)
		is(t, "DoWithin(2s)", err, strategy.ErrHeld, context.DeadlineExceeded)
		since(t, "DoWithin(2s)", start, 2*time.Second)

		if err := strategy.DoWithin(bg, s.NewLock(name), -1, unwanted); err == nil || !strings.Contains(err.Error(), "allowed are 0") {
			t.Errorf("DoWithin(-1) = %v, want what is allowed", err)
		}

		release(t, held)
		err = strategy.DoWithin(bg, s.NewLock(name), 2*time.Second, func(ctx context.Context, _ strategy.Lease) error {
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		})
		is(t, "DoWithin and ten minutes of work", err)
	})
}

// Options.MaxHold ends Do, and KeepAlive(0); a bound of its own takes its place.
func TestMaxHoldOption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{MaxHold: 25 * time.Second})
		start := time.Now()
		err := strategy.Do(bg, s.NewLock(name), func(ctx context.Context, _ strategy.Lease) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		is(t, "Do", err, strategy.ErrLost)
		if took := time.Since(start); took > 25*time.Second || took < 24*time.Second || !strings.Contains(err.Error(), "maximum hold") {
			t.Errorf("Do = %v after %v, want the maximum hold of 25s", err, took)
		}
		time.Sleep(time.Second)
		lease := take(t, s)
		is(t, "KeepAlive", lease.KeepAlive(time.Minute))
		time.Sleep(50 * time.Second)
		is(t, "Err", lease.Err())
		release(t, lease)

		for _, bad := range []time.Duration{-1, ttl - 1} {
			if _, err := s.With(func(o *strategy.Options) { o.MaxHold = bad }); err == nil || !strings.Contains(err.Error(), "Options.MaxHold is") {
				t.Errorf("With(MaxHold: %v) = %v, want what is allowed", bad, err)
			}
		}
	})
}

// noted keeps the context of the last Acquire.
type noted struct {
	strategy.Lock
	ctx context.Context
}

func (n *noted) Acquire(ctx context.Context) (strategy.Lease, error) {
	n.ctx = ctx
	return n.Lock.Acquire(ctx)
}

// TestDoWithinEndsItsContext: what bounds the wait is over with the wait.
func TestDoWithinEndsItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &noted{Lock: open(t, &lockstest.Memory{}, strategy.Options{}).NewLock(name)}
		is(t, "DoWithin", strategy.DoWithin(bg, l, time.Hour, func(ctx context.Context, _ strategy.Lease) error { return ctx.Err() }))
		is(t, "the context of the wait", l.ctx.Err(), context.Canceled)
	})
}
