// Many callers of one process at the same moment, who find nobody in line: one of them asks, and the others stand
// behind it, in the order in which they came, whatever becomes of its attempt.
package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// reading is a ReadWriter of which everybody reads.
type reading struct{ strategy.ReadWriter }

func (r reading) NewLock(name string) strategy.Lock { return r.NewRLock(name) }

// whoCame is n callers at the same moment, each after the one before it; the first one's attempt is under way.
func whoCame(t *testing.T, n int, acquire func(i int) (strategy.Lease, error)) (waiters []*waiter) {
	t.Helper()
	for i := range n {
		waiters = append(waiters, calling(func() (strategy.Lease, error) { return acquire(i) }))
	}
	return waiters
}

// callers are n of them for the lock called name.
func callers(t *testing.T, s strategy.Strategy, n int) []*waiter {
	t.Helper()
	return whoCame(t, n, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
}

// Whatever becomes of the first attempt, those who came while it was under way have their turn.
func TestFirstAttempt(t *testing.T) {
	const there = 100 * ms
	// inTurn demands that they get the lock one after the other.
	inTurn := func(t *testing.T, waiters []*waiter) {
		t.Helper()
		for i, w := range waiters {
			l := w.got(t)
			for _, later := range waiters[i+1:] {
				if closed(later.done) {
					t.Errorf("caller %d has the lock next to a later one", i+1)
				}
			}
			release(t, l)
		}
	}
	bubbles(t, map[string]func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy){
		"granted: its release passes the lock on": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			waiters := callers(t, s, 4)
			inTurn(t, waiters)
			equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 1)
			equal(t, "releases that pass the lock on", len(r.of(lockstest.OpPass)), 1)
		},
		"refused: it is the first in line": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			holder := take(t, open(t, m, strategy.Options{}))
			waiters := callers(t, s, 4)
			time.Sleep(time.Second)
			equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 3) // the holder's, the first, one for the place
			release(t, holder)
			inTurn(t, waiters)
		},
		"failed: the next one asks": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			r.then(fails(1))
			waiters := callers(t, s, 3)
			<-waiters[0].done
			is(t, "the first Acquire", waiters[0].err, strategy.ErrUnsent)
			inTurn(t, waiters[1:])
			equal(t, "the second attempt after the first one's end", r.of(lockstest.OpAcquire)[1].at.Sub(waiters[0].at), 0)
		},
		"failed, as the next one does: all others learn it": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			r.then(fails(2))
			waiters := callers(t, s, 4)
			for i, w := range waiters {
				<-w.done
				is(t, fmt.Sprintf("Acquire number %d", i+1), w.err, strategy.ErrUnsent)
			}
			equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 2)
		},
		"its answer is lost: the next one asks": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			r.then(func(ctx context.Context, q lockstest.Request, serve func() error) error {
				r.then(slow(there, 0))
				return slow(there, 2*op)(ctx, q, serve)
			})
			start := time.Now()
			waiters := callers(t, s, 3)
			<-waiters[0].done
			is(t, "the first Acquire", waiters[0].err, strategy.ErrUnknown)
			inTurn(t, waiters[1:])
			if took := waiters[2].at.Sub(start); took > 2*op {
				t.Errorf("the last one has the lock after %v, want soon after the operation time-out", took)
			}
		},
		"its ctx ends: the next one asks": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			ctx, cancel := context.WithCancel(bg)
			waiters := whoCame(t, 4, func(i int) (strategy.Lease, error) {
				if i < 2 {
					return s.NewLock(name).Acquire(ctx)
				}
				return s.NewLock(name).Acquire(bg)
			})
			cancel()
			for _, w := range waiters[:2] {
				<-w.done
				is(t, "Acquire", w.err, context.Canceled)
			}
			inTurn(t, waiters[2:])
		},
		"the strategy is closed": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			waiters := callers(t, s, 3)
			is(t, "Close", s.Close())
			for _, w := range waiters {
				<-w.done
				is(t, "Acquire", w.err, strategy.ErrClosed)
			}
		},
		"its observer panics: the next one asks": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			odd, err := s.With(func(o *strategy.Options) {
				o.Observe = func(e strategy.Event) {
					if e.Kind == strategy.EventAttempt {
						panic("odd")
					}
				}
			})
			is(t, "With", err)
			r.then(func(context.Context, lockstest.Request, func() error) error {
				r.then(slow(there, 0))
				time.Sleep(there)
				return lockstest.Unsent()
			})
			waiters := whoCame(t, 2, func(i int) (l strategy.Lease, err error) {
				if i > 0 {
					return s.NewLock(name).Acquire(bg)
				}
				defer func() { err = fmt.Errorf("%v", recover()) }()
				return odd.NewLock(name).Acquire(bg)
			})
			release(t, waiters[1].got(t))
		},
	}, func(t *testing.T, play func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy)) {
		var m lockstest.Memory
		r := record(&m)
		r.then(slow(there, 0))
		s := open(t, &m, strategy.Options{})
		play(t, &m, r, s)
		time.Sleep(ttl)
		leftovers(t, &m)
		equal(t, "lines", engine.Lines(s), 0)
		equal(t, "under way", engine.UnderWay(s), 0)
	})
}

// fails lets the first n attempts fail, each after a while.
func fails(n int) lockstest.Fault {
	return only(lockstest.OpAcquire, func(ctx context.Context, r lockstest.Request, serve func() error) error {
		n--
		time.Sleep(100 * ms)
		if n >= 0 {
			return lockstest.Unsent()
		}
		return serve()
	})
}

// Of many callers that want permits at the same moment, each has a refusal for itself.
func TestRefusalInABurst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newShares(2)
		p.then(slow(100*ms, 0))
		ws := waitShares(open(t, p, strategy.Options{}), 3, 3, 3, 1)
		for _, w := range ws[:3] {
			<-w.done
			is(t, "Acquire of three of two permits", w.err, strategy.ErrRefused)
		}
		release(t, ws[3].got(t))
		leftovers(t, p.server)
	})
}

// A caller that asks for a permit asks for all that stand behind it. So many callers cost few
// requests, and few times the way to the server.
func TestPermitsForAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s, err := m.Semaphore(10_000, strategy.Options{})
		is(t, "Semaphore", err)
		r.then(only(lockstest.OpAcquire, slow(10*ms, 0)))
		start := time.Now()
		waiters := callers(t, s, 1000)
		tokens, fences := map[string]bool{}, map[uint64]bool{}
		for _, w := range waiters {
			l := w.got(t)
			tokens[l.Token()], fences[fenceOf(l)] = true, true
		}
		since(t, "they waited", start, 170*ms) // the first, and sixteen times 64
		equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 17)
		equal(t, "tokens", len(tokens), 1000)
		equal(t, "fences", len(fences), 1000)
		between(t, "fences for hand-overs of a hold", fenceOf(waiters[2].lease)-fenceOf(waiters[1].lease), 2, driver.MaxFences)
		for _, w := range waiters {
			release(t, w.lease)
		}
		for _, q := range r.of(lockstest.OpRelease) {
			equal(t, "Holds of a release", q.all[0].Holds, 0)
		}
		leftovers(t, &m)
		is(t, "Close", s.Close())
	})
}
