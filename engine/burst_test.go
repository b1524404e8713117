// Many callers of one process at the same moment, who find nobody in line: one of them asks, and the others stand
// behind it, in the order in which they came, whatever becomes of its attempt.
package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// far is a network to a server 30 ms away, by a pool of five connections: a request that finds none waits for one, until
// its time-out comes, or that of ctx.
func far(ctx context.Context) lockstest.Fault {
	end, _ := ctx.Deadline()
	pool := make(chan struct{}, 5)
	return func(ctx context.Context, r lockstest.Request, serve func() error) error {
		select {
		case pool <- struct{}{}:
			defer func() { <-pool }()
		case <-time.After(min(time.Until(r.Claims[0].Due)-ms, time.Until(end))):
			return lockstest.Unsent()
		}
		return slow(15*ms, 15*ms)(ctx, r, serve)
	}
}

// kinds are strategies of every kind on m.
var kinds = map[string]func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error){
	"a queue": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) { return engine.New(m, o) },
	"notifications": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) {
		return engine.New(notifying{m, m}, o)
	},
	"polling": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) {
		return engine.New(bare(m), o)
	},
	"re-entry": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) {
		m.Reentrant = true
		return engine.New(reentering{notifying{m, m}, m}, o)
	},
	"one permit":   func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) { return m.Semaphore(1, o) },
	"five permits": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) { return m.Semaphore(5, o) },
	"permits for all": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) {
		return m.Semaphore(2000, o)
	},
	"permits, polling": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) {
		o.Wait = strategy.WaitPoll
		return m.Semaphore(5, o)
	},
	"a writer": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) { return m.ReadWriter(o) },
	"readers": func(m *lockstest.Memory, o strategy.Options) (strategy.Strategy, error) {
		s, err := m.ReadWriter(o)
		return reading{s}, err
	},
}

type notifying struct {
	driver.Protocol
	driver.Notifier
}

type reentering struct {
	notifying
	driver.Reenterer
}

// reading is a ReadWriter of which everybody reads.
type reading struct{ strategy.ReadWriter }

func (r reading) NewLock(name string) strategy.Lock { return r.NewRLock(name) }

// Many callers at the same moment, a server 30 ms away, and few connections: all get the lock, and few have asked by the
// time the first one has it.
func TestBurst(t *testing.T) {
	burst := func(kind string, o strategy.Options) {
		make := kinds[kind]
		t.Run(fmt.Sprintf("%s, %v", kind, o.OpTimeout), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				defer cancel()
				r.then(far(ctx))
				s, err := make(&m, o)
				if err != nil {
					t.Fatal(err)
				}
				defer time.Sleep(ttl) // for requests that nobody waits for any more
				defer s.Close()
				var all sync.WaitGroup
				var first sync.Once
				start, failed := time.Now(), 0
				var mu sync.Mutex
				for range 300 {
					all.Go(func() {
						l, err := s.NewLock(name).Acquire(ctx)
						first.Do(func() {
							n := 0
							for _, a := range r.of(lockstest.OpAcquire) {
								if a.at.Before(time.Now()) {
									n++
								}
							}
							if n > 10 {
								t.Errorf("attempts before the first grant = %d, want 10 at most", n)
							}
						})
						if err == nil {
							err = l.Release(bg)
						}
						if err != nil {
							mu.Lock()
							defer mu.Unlock()
							if failed++; failed == 1 {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				equal(t, "callers that failed", failed, 0)
				t.Logf("took %v, %d requests", time.Since(start), r.count())
				leftovers(t, &m)
			})
		})
	}
	for kind := range kinds {
		burst(kind, strategy.Options{})
		burst(kind, strategy.Options{TTL: time.Hour, OpTimeout: 20 * time.Second}) // much longer than a direct grant lasts
	}
}

// Many callers wait by few connections until their time ends, all at the same moment: the lock was held all the time, and
// that is what they hear.
func TestHeldToTheEnd(t *testing.T) {
	for kind, make := range kinds {
		if kind == "readers" || kind == "permits for all" { // nobody waits there
			continue
		}
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				r := record(&m)
				s, err := make(&m, strategy.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				for err == nil { // until all of it is taken
					_, err = s.NewLock(name).TryAcquire(bg)
				}
				is(t, "TryAcquire", err, strategy.ErrHeld)
				ctx, cancel := context.WithTimeout(bg, ttl/2)
				defer cancel()
				r.then(far(ctx))
				var all sync.WaitGroup
				failed := map[string]int{}
				var mu sync.Mutex
				for range 100 {
					all.Go(func() {
						if _, err := s.NewLock(name).Acquire(ctx); !errors.Is(err, strategy.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
							mu.Lock()
							defer mu.Unlock()
							failed[fmt.Sprint(err)]++
						}
					})
				}
				all.Wait()
				for words, n := range failed {
					t.Errorf("%d callers heard: %s; want that the lock is held", n, words)
				}
			})
		})
	}
}

// whoCame is n callers at the same moment, each after the one before it; the first one's attempt is under way.
func whoCame(t *testing.T, n int, acquire func(i int) (strategy.Lease, error)) (waiters []*waiter) {
	t.Helper()
	for i := range n {
		w := &waiter{done: make(chan struct{})}
		go func() {
			defer close(w.done)
			w.lease, w.err = acquire(i)
			w.at = time.Now()
		}()
		synctest.Wait()
		waiters = append(waiters, w)
	}
	return waiters
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
			waiters := whoCame(t, 4, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
			inTurn(t, waiters)
			equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 1)
			equal(t, "releases that pass the lock on", len(r.of(lockstest.OpPass)), 1)
		},
		"granted, and others poll: the next one asks at once": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			polls := open(t, m, strategy.Options{Wait: strategy.WaitPoll, Backoff: func(int) time.Duration { return time.Hour }})
			waiters := whoCame(t, 2, func(int) (strategy.Lease, error) { return polls.NewLock(name).Acquire(bg) })
			l := waiters[0].got(t)
			r.then(nil) // so the release is quick
			release(t, l)
			release(t, waiters[1].got(t))
			equal(t, "the second caller had the lock after", waiters[1].at.Sub(waiters[0].at), 0)
		},
		"granted, and the lease is lost": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			start := time.Now()
			waiters := whoCame(t, 2, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
			waiters[0].got(t)
			release(t, waiters[1].got(t))
			if took := waiters[1].at.Sub(start); took < ttl || took > ttl+2*there {
				t.Errorf("the second caller waited for %v, want the first one's TTL", took)
			}
		},
		"refused: it is the first in line": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			holder := take(t, open(t, m, strategy.Options{}))
			waiters := whoCame(t, 4, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
			time.Sleep(time.Second)
			equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 3) // the holder's, the first, one for the place
			release(t, holder)
			inTurn(t, waiters)
		},
		"failed: the next one asks": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			r.then(fails(1))
			waiters := whoCame(t, 3, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
			<-waiters[0].done
			is(t, "the first Acquire", waiters[0].err, strategy.ErrUnsent)
			inTurn(t, waiters[1:])
			equal(t, "the second attempt after the first one's end", r.of(lockstest.OpAcquire)[1].at.Sub(waiters[0].at), 0)
		},
		"failed, as the next one does: all others learn it": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			r.then(fails(2))
			waiters := whoCame(t, 4, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
			for i, w := range waiters {
				<-w.done
				is(t, fmt.Sprintf("Acquire number %d", i+1), w.err, strategy.ErrUnsent)
			}
			equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 2)
		},
		"failed, and it tries again: it is the first in line": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			s = open(t, m, strategy.Options{RetryOnError: true})
			r.then(fails(3))
			inTurn(t, whoCame(t, 3, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) }))
		},
		"its answer is lost: the next one asks": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			r.then(func(ctx context.Context, q lockstest.Request, serve func() error) error {
				r.then(slow(there, 0))
				return slow(there, 2*op)(ctx, q, serve)
			})
			start := time.Now()
			waiters := whoCame(t, 3, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
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
		"the last of the others gives up before it is answered": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			ctx, cancel := context.WithCancel(bg)
			waiters := whoCame(t, 2, func(i int) (strategy.Lease, error) {
				if i > 0 {
					return s.NewLock(name).Acquire(ctx)
				}
				return s.NewLock(name).Acquire(bg)
			})
			cancel()
			<-waiters[1].done
			is(t, "Acquire", waiters[1].err, context.Canceled)
			inTurn(t, []*waiter{waiters[0], wait(bg, s)})
		},
		"the strategy is closed": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			waiters := whoCame(t, 3, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
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
		"other options: each holds by its own": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Strategy) {
			waiters := whoCame(t, 4, func(i int) (strategy.Lease, error) {
				made, err := s.With(func(o *strategy.Options) { o.TTL, o.OpTimeout = time.Duration(i+1)*time.Minute, op })
				is(t, "With", err)
				return made.NewLock(name).Acquire(bg)
			})
			for i, w := range waiters {
				l := w.got(t)
				is(t, "Extend", l.Extend(bg))
				if left, want := time.Until(l.Deadline()), time.Duration(i+1)*time.Minute; left > want || left < want-want/50 {
					t.Errorf("caller %d has the lock for %v, want %v", i+1, left, want)
				}
				release(t, l)
			}
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

// An owner may hold the lock already: it does not wait for the first attempt of another.
func TestFirstAttemptOfAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{})
		outer := takeAs(t, s, "me")
		m.Intercept(slow(op/2, 0))
		other := wait(bg, s)
		m.Intercept(nil)
		start := time.Now()
		inner := wait(as("me"), s)
		release(t, inner.got(t))
		since(t, "the owner waited", start, 0)
		release(t, outer)
		release(t, other.got(t))
	})
}

// Many callers want permits at the same moment. Whatever becomes of one, the others have their turn.
func TestBurstOfPermits(t *testing.T) {
	const there = 100 * ms
	bubbles(t, map[string]func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore){
		"a refusal is the caller's own": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore) {
			waiters := whoLeft(t, 40, func(i int) (strategy.Lease, error) {
				if i < 20 {
					return s.NewMultiPermitLock(name, 4).Acquire(bg)
				}
				return s.NewLock(name).Acquire(bg)
			})
			for _, w := range waiters[:20] {
				<-w.done
				is(t, "Acquire of four of three permits", w.err, strategy.ErrRefused)
			}
			for _, w := range waiters[20:] {
				<-w.done
				is(t, "Acquire of one", w.err)
			}
		},
		"the servers fail: all learn it after one time-out or two": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore) {
			r.then(slow(2*op, 0))
			start := time.Now()
			for _, w := range whoLeft(t, 100, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) }) {
				<-w.done
				is(t, "Acquire", w.err, strategy.ErrUnknown)
			}
			if took := time.Since(start); took > 2*op {
				t.Errorf("the last one learned it after %v, want after two time-outs at most", took)
			}
			if n := len(r.of(lockstest.OpAcquire)); n > 2 {
				t.Errorf("attempts = %d, want two", n)
			}
			r.then(nil)
			l, err := s.NewLock(name).Acquire(bg)
			is(t, "Acquire afterwards", err)
			release(t, l)
		},
		"callers give up": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore) {
			ctx, cancel := context.WithCancel(bg)
			waiters := whoLeft(t, 100, func(i int) (strategy.Lease, error) {
				if i%2 == 0 {
					return s.NewLock(name).Acquire(ctx)
				}
				return s.NewLock(name).Acquire(bg)
			})
			cancel()
			for i, w := range waiters {
				if i%2 == 0 {
					<-w.done
					is(t, "Acquire", w.err, context.Canceled)
				} else {
					<-w.done
					is(t, "Acquire", w.err)
				}
			}
		},
		"a caller gives up as it is called": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore) {
			ctx, cancel := context.WithTimeout(bg, there) // when the first attempts are answered
			defer cancel()
			waiters := whoLeft(t, 60, func(i int) (strategy.Lease, error) {
				if i >= 8 && i < 58 {
					return s.NewLock(name).Acquire(ctx)
				}
				return s.NewLock(name).Acquire(bg)
			})
			for i, w := range waiters {
				if <-w.done; i < 8 || i >= 58 {
					is(t, fmt.Sprintf("Acquire number %d", i+1), w.err)
				}
			}
		},
		"the strategy is closed": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore) {
			waiters := whoLeft(t, 40, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
			is(t, "Close", s.Close())
			for _, w := range waiters {
				<-w.done
				is(t, "Acquire", w.err, strategy.ErrClosed)
			}
		},
		"a caller waits in another way": func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore) {
			polls, err := s.With(func(o *strategy.Options) { o.Wait = strategy.WaitPoll })
			is(t, "With", err)
			for _, w := range whoLeft(t, 60, func(i int) (strategy.Lease, error) {
				if i%2 == 0 {
					return s.NewLock(name).Acquire(bg)
				}
				return polls.NewLock(name).Acquire(bg)
			}) {
				<-w.done
				is(t, "Acquire", w.err)
			}
		},
	}, func(t *testing.T, play func(t *testing.T, m *lockstest.Memory, r *recorder, s strategy.Semaphore)) {
		var m lockstest.Memory
		r := record(&m)
		r.then(slow(there, 0))
		s, err := m.Semaphore(3, strategy.Options{})
		is(t, "Semaphore", err)
		play(t, &m, r, s)
		m.Intercept(nil)
		time.Sleep(2 * ttl)
		leftovers(t, &m)
		s.Close()
	})
}

// A caller that asks for a permit asks for all that stand behind it. So many callers cost few requests, and few times the way to the server.
func TestPermitsForAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		r := record(&m)
		s, err := m.Semaphore(10_000, strategy.Options{})
		is(t, "Semaphore", err)
		r.then(only(lockstest.OpAcquire, slow(10*ms, 0)))
		start := time.Now()
		waiters := whoCame(t, 1000, func(int) (strategy.Lease, error) { return s.NewLock(name).Acquire(bg) })
		tokens, fences := map[string]bool{}, map[uint64]bool{}
		for _, w := range waiters {
			l := w.got(t)
			tokens[l.Token()], fences[fenceOf(l)] = true, true
		}
		since(t, "they waited", start, 170*ms) // the first, and sixteen times 64
		equal(t, "attempts", len(r.of(lockstest.OpAcquire)), 17)
		equal(t, "tokens", len(tokens), 1000)
		equal(t, "fences", len(fences), 1000)
		for _, w := range waiters {
			release(t, w.lease)
		}
		leftovers(t, &m)
		is(t, "Close", s.Close())
	})
}

// whoLeft is whoCame of callers that release the lock as soon as they have it.
func whoLeft(t *testing.T, n int, acquire func(i int) (strategy.Lease, error)) []*waiter {
	t.Helper()
	return whoCame(t, n, func(i int) (strategy.Lease, error) {
		l, err := acquire(i)
		if err == nil {
			err = l.Release(bg)
		}
		return nil, err
	})
}
