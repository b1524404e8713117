// Hand-over within a process: who gets the lock without a request, for how long, and with which fence.
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
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// inLine is n contenders of s in line behind a holder, who has released when inLine
// returns: the first has the lock, by a direct grant.
func inLine(t *testing.T, s strategy.Strategy, n int) []*waiter {
	t.Helper()
	holder := take(t, s)
	waiters := make([]*waiter, n)
	for i := range waiters {
		waiters[i] = wait(bg, s)
	}
	release(t, holder)
	waiters[0].got(t)
	return waiters
}

// got waits until the waiter has the lock.
func (w *waiter) got(t *testing.T) strategy.Lease {
	t.Helper()
	<-w.done
	if w.err != nil {
		t.Fatalf("Acquire = %v, want the lock", w.err)
	}
	return w.lease
}

// Where there are no fences none have to be reserved; the lock is handed over as often.
func TestHandOverWithoutFences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := &wire{
			answers: func(g *driver.Grant, _ error) { g.Fence, g.Fences = 0, 0 },
			hears:   func(n *driver.Notification) { n.Grant.Fence, n.Grant.Fences = 0, 0 },
		}
		waiters := inLine(t, open(t, m, strategy.Options{}), 20)
		before := m.Requests()
		for i, w := range waiters {
			equal(t, "Fence", fenceOf(w.got(t)), 0)
			equal(t, "requests before hold "+fmt.Sprint(i), m.Requests()-before, i/16) // which is for how many the first asked
			release(t, w.lease)
		}
		equal(t, "requests of the last release", m.Requests()-before, 2)
	})
}

func fenceOf(l strategy.Lease) uint64 {
	fence, _ := l.Fence()
	return fence
}

// Within the process the lock goes on without a request, however the process waits: each hold has a
// token and a fence of its own, and the servers know that of the first.
func TestHandOver(t *testing.T) {
	bubblesOf(t, []strategy.Wait{strategy.WaitQueue, strategy.WaitNotification, strategy.WaitPoll}, func(t *testing.T, how strategy.Wait) {
		var m lockstest.Memory
		s := open(t, &m, strategy.Options{Label: "me", Wait: how})
		waiters := inLine(t, s, 10)
		before, tokens := m.Requests(), map[string]bool{}
		first := waiters[0].lease
		for i, w := range waiters {
			l := w.got(t)
			tokens[l.Token()] = true
			equal(t, "Owner", l.Owner(), l.Token())
			label, _ := token.Parse(l.Token())
			equal(t, "label", label, "me")
			equal(t, "Fence", fenceOf(l), fenceOf(first)+uint64(i))
			equal(t, "Deadline", l.Deadline(), first.Deadline())
			equal(t, "requests", m.Requests()-before, 0)
			if i+1 < len(waiters) {
				equal(t, "the next has the lock, too", closed(waiters[i+1].done), false)
			}
			time.Sleep(100 * time.Microsecond) // so that the next one's lease is younger, and its grant is not
			release(t, l)
			is(t, "second Release", l.Release(bg), strategy.ErrReleased)
			is(t, "Err", l.Err(), strategy.ErrReleased)
		}
		equal(t, "tokens", len(tokens), 10)
		equal(t, "requests of the last release", m.Requests()-before, 1)
		left, _ := m.Leftovers(bg, key)
		equal(t, "left at the server", len(left), 0)
		next := take(t, s)
		if fenceOf(next) <= fenceOf(waiters[9].lease) {
			t.Errorf("Fence after the hand-overs = %d, want more than %d", fenceOf(next), fenceOf(waiters[9].lease))
		}
	})
}

// A hand-over ends with the fences that were reserved. Then the lock is passed on by the server.
func TestHandOverEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, r, s := served(t, strategy.Options{})
		var last uint64
		for _, w := range inLine(t, s, 16+2*driver.MaxFences) {
			if fence := fenceOf(w.got(t)); fence <= last {
				t.Errorf("Fence = %d, want more than %d", fence, last)
			} else {
				last = fence
			}
			release(t, w.lease)
		}
		// The first reserved 16, when nobody stood behind it yet; then 256 each.
		equal(t, "passes", len(r.of(lockstest.OpPass)), 2)
		for _, p := range r.of(lockstest.OpPass) {
			between(t, "fences to reserve", p.all[1].Fences, 16, driver.MaxFences)
		}
	})
}

// Without a queue, a holder whose fences are used up releases, and the next head asks within the same turn.
// Its hold blocks the others, too. The turn does not begin again: it ends 2 ms after it began.
func TestTurnGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m lockstest.Memory
		waiters := inLine(t, open(t, &m, polling), driver.MaxFences+3)
		before := m.Requests(lockstest.OpAcquire)
		time.Sleep(1500 * time.Microsecond)
		for _, w := range waiters[:driver.MaxFences] {
			release(t, w.got(t))
		}
		rest, start := waiters[driver.MaxFences:], time.Now()
		l := rest[0].got(t)
		equal(t, "the next head had the lock after", rest[0].at.Sub(start), 0)
		time.Sleep(ms)
		equal(t, "attempts", m.Requests(lockstest.OpAcquire)-before, 1)
		before = m.Requests(lockstest.OpRelease)
		release(t, l)
		equal(t, "releases at the end of the turn", m.Requests(lockstest.OpRelease)-before, 1)
		for _, w := range rest[1:] {
			release(t, w.got(t))
		}
	})
}

// The line pauses after a turn for as long as the hand-overs of that turn demand.
func TestPauseAfterATurn(t *testing.T) {
	for handed, most := range map[int]time.Duration{0: 0, 40: 2 * 40 * 10 * time.Microsecond, 800: 4 * ms} {
		t.Run(fmt.Sprint(handed, " hand-overs"), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var m lockstest.Memory
				s := open(t, &m, strategy.Options{Wait: strategy.WaitPoll, Backoff: func(int) time.Duration { return time.Microsecond }})
				const turns = 8
				paused := time.Duration(0)
				for range turns { // the pauses are random
					waiters := inLine(t, s, handed+2)
					for _, w := range waiters[:handed] {
						release(t, w.got(t))
					}
					last, next := waiters[handed].got(t), waiters[handed+1]
					time.Sleep(3 * ms) // longer than a turn
					start := time.Now()
					release(t, last)
					release(t, next.got(t))
					paused += next.at.Sub(start)
				}
				if most := turns * (most + 2*time.Microsecond); paused < most/40-turns*time.Microsecond || paused > most {
					t.Errorf("pauses after eight turns = %v in all, want half of %v on average", paused, most)
				}
			})
		})
	}
}

// A release that comes while a renewal is under way waits for the answer. If that is a failure, the lock
// is not handed over: it may be another's already.
func TestReleaseLearnsFromTheRenewal(t *testing.T) {
	bubbles(t, map[string]lockstest.Fault{
		"lost": func(_ context.Context, q lockstest.Request, _ func() error) error {
			time.Sleep(ms)
			return &strategy.LostError{Name: q.Claims[0].Name}
		},
		"no answer": func(ctx context.Context, q lockstest.Request, serve func() error) error {
			time.Sleep(ms)
			return lostRequest(ctx, q, serve)
		},
	}, func(t *testing.T, extend lockstest.Fault) {
		var m lockstest.Memory
		r := record(&m)
		waiters := inLine(t, open(t, &m, strategy.Options{}), 2)
		r.then(only(lockstest.OpExtend, extend))
		var extended error
		over := make(chan struct{})
		go func() {
			defer close(over)
			extended = waiters[0].lease.Extend(bg)
		}()
		synctest.Wait()
		release(t, waiters[0].lease)
		<-over
		is(t, "Extend", extended, strategy.ErrReleased)
		equal(t, "passes", len(r.of(lockstest.OpPass)), 1)
		release(t, waiters[1].got(t))
	})
}

// A partial grant (a server has not answered, and may keep the lock for longer) is handed over as such: if the successor's
// lease lapses, it is undone.
func TestPartialGrantIsHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &wire{answers: func(g *driver.Grant, err error) { g.Partial = err == nil }}
		s := open(t, bare(p), strategy.Options{})
		waiters := inLine(t, s, 2)
		release(t, waiters[0].lease)
		waiters[1].got(t)
		equal(t, "attempts for both", p.Requests(lockstest.OpAcquire), 2+1) // the holder's, the first's when it came, and when the lock was free
		<-waiters[1].lease.Lost()
		synctest.Wait()
		equal(t, "undone", p.Requests(lockstest.OpUndo), 1)

		lease := take(t, s)
		evict(&p.Memory, name)
		is(t, "Extend", lease.Extend(bg), strategy.ErrLost)
		synctest.Wait()
		equal(t, "undone of what the servers say is lost", p.Requests(lockstest.OpUndo), 1)
	})
}

// tokenAt is who holds the lock at the server, by a request that is let through.
func tokenAt(m *lockstest.Memory) string {
	info, _ := m.Inspect(bg, driver.Claim{Key: key})
	return info.Token
}

// A lease that was handed over is one like any other: it is extended, detached, and lost.
func TestHandedOverLease(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T, m *lockstest.Memory, l strategy.Lease, next *waiter){
		"Extend": func(t *testing.T, _ *lockstest.Memory, l strategy.Lease, next *waiter) {
			fence := fenceOf(l)
			time.Sleep(ms)
			is(t, "Extend", l.Extend(bg))
			equal(t, "Deadline", time.Until(l.Deadline()), valid)
			equal(t, "Fence after Extend", fenceOf(l), fence)
			release(t, l)
			equal(t, "Fence of the next", fenceOf(next.got(t)), fence+1)
			equal(t, "Deadline of the next", next.lease.Deadline(), l.Deadline())
		},
		"Detach": func(t *testing.T, m *lockstest.Memory, l strategy.Lease, next *waiter) {
			is(t, "Extend", l.Extend(bg))
			token, err := l.Detach()
			is(t, "Detach", err)
			equal(t, "token", token, tokenAt(m))
			adopted, err := open(t, m, strategy.Options{}).Adopt(bg, name, token)
			is(t, "Adopt", err)
			time.Sleep(5 * time.Second)
			equal(t, "the next has the lock", closed(next.done), false)
			release(t, adopted)
			if a, b := fenceOf(adopted), fenceOf(next.got(t)); a <= fenceOf(l) || b <= a {
				t.Errorf("Fences = %d, %d after adoption, %d of the next, want them to rise", fenceOf(l), a, b)
			}
		},
		"evicted": func(t *testing.T, m *lockstest.Memory, l strategy.Lease, next *waiter) {
			m.Evict(bg, key)
			is(t, "Release that hands over", l.Release(bg)) // nobody has asked
			is(t, "Release of the last", next.got(t).Release(bg), strategy.ErrLost)
		},
	}, func(t *testing.T, play func(*testing.T, *lockstest.Memory, strategy.Lease, *waiter)) {
		var m lockstest.Memory
		waiters := inLine(t, open(t, &m, strategy.Options{}), 3)
		release(t, waiters[0].lease)
		play(t, &m, waiters[1].got(t), waiters[2])
		waiters[2].got(t).Release(bg)
		leftovers(t, &m)
	})
}

// A re-entrant lock is handed over by one request for each hold, in the process's turn: the next holder
// adopts it. Then the server knows its owner, and grants the lock to no other.
func TestTurnOfOwners(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := reentrant()
		s := open(t, m, strategy.Options{Wait: strategy.WaitPoll})
		holder := take(t, s)
		var waiters []*waiter
		for i := range 24 {
			waiters = append(waiters, wait(as(fmt.Sprint(i)), s))
		}
		m.Intercept(func(ctx context.Context, q lockstest.Request, serve func() error) error {
			if q.Op == lockstest.OpInspect {
				return serve()
			}
			return slow(50*time.Microsecond, 50*time.Microsecond)(ctx, q, serve)
		})
		release(t, holder)
		waiters[0].got(t)
		start, last := time.Now(), uint64(0)
		for i, w := range waiters {
			l := w.got(t)
			equal(t, "owner at the server", ownerAt(m), l.Owner())
			if fenceOf(l) <= last {
				t.Errorf("the fence of hold %d is %d, want more than %d", i, fenceOf(l), last)
			}
			last = fenceOf(l)
			if i <= 20 { // twenty requests take 2 ms; who comes then has to pause, and to ask
				equal(t, fmt.Sprintf("hold %d begins after", i), w.at.Sub(start), time.Duration(i)*100*time.Microsecond)
			} else if i == 21 && !w.at.After(start.Add(22*100*time.Microsecond)) {
				t.Error("the process's turn does not end")
			}
			release(t, l)
		}
		if n := m.Requests(lockstest.OpAdopt); n < 20 {
			t.Errorf("adopted %d times, want one request for each hand-over", n)
		}
		leftovers(t, m)
	})
}

// ownerAt returns who holds the lock, as the server knows it.
func ownerAt(m *lockstest.Memory) string {
	info, _ := m.Inspect(bg, driver.Claim{Key: key})
	return info.Owner
}

// TestReenteredHoldIsNotAdopted: while an owner holds the lock once more, a release lets nobody else in.
func TestReenteredHoldIsNotAdopted(t *testing.T) {
	type row struct {
		fault lockstest.Fault // of the release of what was adopted
		is    error
	}
	served := func(_ context.Context, _ lockstest.Request, serve func() error) error { return serve() }
	bubbles(t, map[string]row{
		"once more":           {served, nil},
		"the reply is lost":   {lostReply, strategy.ErrUnknown},
		"the request is lost": {lostRequest, strategy.ErrUnknown},
	}, func(t *testing.T, tt row) {
		m := reentrant()
		r := record(m)
		a, b := houses(t, m, strategy.Options{Wait: strategy.WaitNotification})
		holder := take(t, a)
		outer, next := wait(as("me"), a), wait(as("you"), a)
		release(t, holder)
		outer.got(t)
		inner := takeAs(t, b, "me")
		r.then(only(lockstest.OpRelease, func(ctx context.Context, q lockstest.Request, serve func() error) error {
			r.then(nil)
			return tt.fault(ctx, q, serve)
		}))
		if err := outer.lease.Release(bg); !errors.Is(err, tt.is) {
			t.Errorf("Release = %v, want %v", err, tt.is)
		}
		equal(t, "adopted", len(r.of(lockstest.OpAdopt)), 1)
		time.Sleep(op)
		equal(t, "another has the lock", closed(next.done), false)
		is(t, "Extend of the inner hold", inner.Extend(bg))
		start := time.Now()
		release(t, inner)
		release(t, next.got(t))
		equal(t, "the next holder had it after the last release by", next.at.Sub(start), 0)
		leftovers(t, m)
	})
}

// TestRequestsPerAcquisition counts what an acquisition costs the servers, with many contenders in each of
// two processes.
func TestRequestsPerAcquisition(t *testing.T) {
	type row struct {
		none bool // NoHandOver
		hold time.Duration
		most float64
	}
	bubblesOf(t, []row{
		{false, 0, 0.2},
		{false, 10 * ms, 2.05}, // each successor asks for its whole TTL
		{true, 0, 1.05},
	}, func(t *testing.T, tt row) {
		var m lockstest.Memory
		m.Intercept(slow(50*time.Microsecond, 50*time.Microsecond))
		const contenders, rounds = 16, 40
		a, b := houses(t, &m, strategy.Options{NoHandOver: tt.none})
		contend(t, []strategy.Strategy{a, b}, contenders, rounds, tt.hold)
		if each := float64(m.Requests()) / (2 * contenders * rounds); each > tt.most {
			t.Errorf("requests per acquisition = %.3f, want %v at most", each, tt.most)
		}
		leftovers(t, &m)
	})
}

// contend lets so many contenders of each process acquire the lock for this number of rounds, and hold it for this time.
func contend(t *testing.T, processes []strategy.Strategy, contenders, rounds int, hold time.Duration) {
	t.Helper()
	var all sync.WaitGroup
	for _, s := range processes {
		for range contenders {
			all.Go(func() {
				for range rounds {
					l, err := s.NewLock(name).Acquire(bg)
					if err != nil {
						t.Errorf("Acquire = %v, want the lock", err)
						return
					}
					time.Sleep(hold)
					release(t, l)
				}
			})
		}
	}
	all.Wait()
}

// wire is a Memory whose requests and messages a test can change. Messages travel: they take their time, and get lost.
type wire struct {
	lockstest.Memory
	delay   time.Duration
	asks    func(c *driver.Claim)            // before Acquire, or in place of what Pass asks for
	answers func(g *driver.Grant, err error) // of both
	hears   func(n *driver.Notification)

	mu   sync.Mutex
	drop func(driver.Notification) bool // nil: none is lost
}

func (p *wire) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return p.ask(c, func(c driver.Claim) (driver.Grant, error) { return p.Memory.Acquire(ctx, c) })
}

func (p *wire) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	return p.ask(next, func(next driver.Claim) (driver.Grant, error) { return p.Memory.Pass(ctx, c, next) })
}

func (p *wire) ask(c driver.Claim, send func(driver.Claim) (driver.Grant, error)) (driver.Grant, error) {
	if p.asks != nil {
		p.asks(&c)
	}
	g, err := send(c)
	if p.answers != nil {
		p.answers(&g, err)
	}
	return g, err
}

func (p *wire) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	notices, over := make(chan driver.Notification, 100), make(chan struct{})
	stop, err := p.Memory.Watch(ctx, c, func(n driver.Notification) {
		p.mu.Lock()
		drop := p.drop != nil && p.drop(n)
		p.mu.Unlock()
		if p.hears != nil {
			p.hears(&n)
		}
		if !drop {
			notices <- n
		}
	})
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case n := <-notices:
				if p.delay > 0 {
					time.Sleep(p.delay)
				}
				fn(n)
			case <-over:
				return
			}
		}
	}()
	return func() {
		stop()
		close(over)
		<-ended
	}, nil
}
