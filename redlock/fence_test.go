// Fences on real servers, each part of what makes them correct where nothing else does; and on fakes, which
// voters are waited for.
package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// In this file counters are put far ahead of the clock, which would hide what they do.

const ahead = uint64(1) << 52

func counterOf(name string) string { return driver.SiblingKey(strategy.DefaultKey(name), "fence") }

// note puts a fence on servers, each of which remembers it.
func note(t *testing.T, name string, fence uint64, servers ...*redistest.Server) {
	t.Helper()
	known(t, servers)
	for _, s := range servers {
		redistest.Do(t, s, "HSET", counterOf(name), "n", fence, "gen", guardOf(t, s)["gen"])
	}
}

// noted is the fence that a server has.
func noted(t *testing.T, s *redistest.Server, name string) string {
	t.Helper()
	n, _ := redistest.Do(t, s, "HGET", counterOf(name), "n").([]byte)
	return string(n)
}

func fenceOf(t *testing.T, l strategy.Lease) uint64 {
	t.Helper()
	fence, ok := l.Fence()
	if !ok {
		t.Fatal("Fence() = none, want one")
	}
	return fence
}

// lost is a gate that lets nothing pass.
func lost(string, func()) {}

// only are gates that let so many of five pass, by number from 0.
func only(open ...int) []conformance.Gate {
	gates := make([]conformance.Gate, 5)
	for i := range gates {
		if !slices.Contains(open, i) {
			gates[i] = lost
		}
	}
	return gates
}

// fenced opens a strategy with fences that reaches some of five servers.
func fenced(t *testing.T, servers []*redistest.Server, gates []conformance.Gate, options ...redlock.Option) strategy.Strategy {
	t.Helper()
	return gated(t, servers, gates, calm, append([]redlock.Option{unhurried, redlock.WithFences()}, options...)...)
}

// before is a gate that calls f before the first request of that script leaves.
func before(script string, f func()) conformance.Gate {
	var once sync.Once
	return func(request string, send func()) {
		if request == "script "+script {
			once.Do(f)
		}
		send()
	}
}

// TestFences: what makes them correct, each part where nothing else does.
func TestFences(t *testing.T) {
	// The next holder shares just one server with the one before.
	t.Run("WrittenBack", func(t *testing.T) {
		servers := redistest.Nodes(t, 5)
		for i := range 3 { // whichever of the three knows the last
			name := lockOf(t, fmt.Sprint(i))
			clean(t, servers, counterOf(name)) // of an earlier run
			note(t, name, ahead, servers[i])
			first := acquire(t, fenced(t, servers, only(0, 1, 2)), name)
			if got := fenceOf(t, first); got != ahead+1 {
				t.Errorf("Fence() = %d, want %d: server %d has noted one less", got, ahead+1, i+1)
			}
			release(t, first)
			second := acquire(t, fenced(t, servers, only(2, 3, 4)), name)
			if got := fenceOf(t, second); got != ahead+2 {
				t.Errorf("Fence() of the next = %d, want %d", got, ahead+2)
			}
			release(t, second)
		}
	})

	// A number is of no use where the lock has expired by then: another may have been granted it.
	t.Run("WhileItIsThere", func(t *testing.T) {
		servers := redistest.Nodes(t, 5)
		known(t, servers)
		name := lockOf(t)
		clean(t, servers, counterOf(name)) // of an earlier run
		gates := only(0, 1, 2)
		gates[1] = before("writeback", func() { redistest.Do(t, servers[1], "SET", strategy.DefaultKey(name), "another", "PX", 60000) })
		lease, err := fenced(t, servers, gates).NewLock(name).TryAcquire(t.Context())
		if err == nil {
			t.Errorf("TryAcquire() = fence %d, want an error: only two have noted it while the lock was there", fenceOf(t, lease))
		}
		is(t, "TryAcquire()", err, strategy.ErrNoQuorum, strategy.ErrUnsent)
		if got := noted(t, servers[1], name); got != "" {
			t.Errorf("the server that has another's lock has noted %s, want nothing", got)
		}
		if got := token(t, servers[1], name); got != "another" {
			t.Errorf("it has %q, want the other's left alone", got)
		}
		redistest.Do(t, servers[1], "DEL", strategy.DefaultKey(name))
		empty(t, servers, name)
	})

	// Nor is it where the server has forgotten meanwhile what it knew when it was asked.
	t.Run("InOneMemory", func(t *testing.T) {
		servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{}))
		known(t, servers)
		name := lockOf(t)
		gates := only(0, 1, 4)
		gates[4] = before("writeback", func() { redistest.Do(t, servers[4], "DEL", redlock.GuardKey) })
		lease, err := fenced(t, servers, gates).NewLock(name).TryAcquire(t.Context())
		if err == nil {
			t.Errorf("TryAcquire() = fence %d, want an error: one of three has another generation", fenceOf(t, lease))
		}
		is(t, "TryAcquire()", err, strategy.ErrNoQuorum, strategy.ErrRefused)
		var g *redlock.GuardError
		if !errors.As(err, &g) {
			t.Errorf("TryAcquire() = %v, want a *GuardError", err)
		}
		empty(t, servers, name)
	})

	// A server that has lost its counter says nothing of what was noted there, and heals
	// with the next number.
	t.Run("Remembered", func(t *testing.T) {
		servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{}))
		known(t, servers)
		name := lockOf(t)
		clean(t, servers, counterOf(name)) // of an earlier run
		note(t, name, ahead, servers[0], servers[1], servers[4])
		redistest.Do(t, servers[4], "FLUSHALL")
		redistest.Do(t, servers[4], "HSET", redlock.GuardKey, "run", runOf(t, servers[4]), "gen", "another", "born", 1, "max", 0, "new", 0, "why", "empty")

		var last sync.WaitGroup // the three that know nothing: they answer first
		last.Add(3)
		gates := make([]conformance.Gate, 5)
		for i := range gates {
			var first sync.Once
			gates[i] = func(_ string, send func()) {
				if i < 2 {
					first.Do(last.Wait)
				}
				send()
				if i >= 2 {
					first.Do(last.Done)
				}
			}
		}
		lease := acquire(t, fenced(t, servers, gates), name)
		if got := fenceOf(t, lease); got != ahead+1 {
			t.Errorf("Fence() = %d, want %d, which only those know who answer last", got, ahead+1)
		}
		release(t, lease)
		verdict.Eventually(t, "the server that had lost its counter has noted the fence, which it gets in the background", func() bool {
			return noted(t, servers[4], name) != ""
		})
		lease = acquire(t, fenced(t, servers, only(2, 3, 4)), name)
		if got := fenceOf(t, lease); got != ahead+2 {
			t.Errorf("Fence() = %d, want %d: all three have noted the last by now", got, ahead+2)
		}
		release(t, lease)
		if gen := redistest.Do(t, servers[4], "HGET", counterOf(name), "gen"); string(gen.([]byte)) != "another" {
			t.Errorf("the server that had lost its counter has %q for its generation, want it to remember again", gen)
		}
	})

	// Until it is healed, what it notes does not count, and an attempt that fails heals nobody:
	// its number may not be greater than what was forgotten.
	t.Run("Forgotten", func(t *testing.T) {
		servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{}))
		known(t, servers)
		name := lockOf(t)
		note(t, name, ahead, servers[0], servers[1], servers[2])
		redistest.Do(t, servers[4], "HSET", redlock.GuardKey, "gen", "another", "new", 0)
		gates := only(0, 1, 2, 4)
		spoke := make(chan struct{}) // the one that had forgotten, before a quorum of the others
		once := sync.OnceFunc(func() { close(spoke) })
		gates[4] = func(_ string, send func()) {
			send()
			once()
		}
		gates[2] = func(request string, send func()) {
			<-spoke
			if request != "script writeback" {
				send()
			}
		}
		locks := fenced(t, servers, gates)
		lease, err := locks.NewLock(name).TryAcquire(t.Context())
		if err == nil {
			t.Errorf("TryAcquire() = fence %d, want an error: of those who remember two have noted it", fenceOf(t, lease))
		}
		is(t, "TryAcquire()", err, strategy.ErrNoQuorum)
		is(t, "Close()", locks.Close())
		if got := noted(t, servers[4], name); got != "" {
			t.Errorf("the server that had forgotten has noted %s, want nothing", got)
		}
		empty(t, servers, name)
	})

	// Where too many have lost theirs, their clocks stand in.
	t.Run("CountersLost", func(t *testing.T) {
		servers := redistest.Nodes(t, 5)
		locks := fenced(t, servers, make([]conformance.Gate, 5))
		lease := acquire(t, locks, lockOf(t))
		first := fenceOf(t, lease)
		release(t, lease)
		for _, s := range servers {
			redistest.Do(t, s, "HSET", counterOf(lockOf(t)), "n", 0, "gen", "another")
		}
		lease = acquire(t, locks, lockOf(t))
		if got := fenceOf(t, lease); got <= first {
			t.Errorf("Fence() when all counters are lost = %d, want more than %d", got, first)
		}
		release(t, lease)
	})

	// A server whose counter has expired tells its time, which is past all that it noted: also if it is the
	// only one that both quorums share.
	t.Run("Expired", func(t *testing.T) {
		servers := redistest.Nodes(t, 5)
		brief := strategy.Options{TTL: time.Second, OpTimeout: 900 * time.Millisecond, FenceTTL: 2 * time.Second}
		hold := func(open ...int) (fence uint64) {
			locks := gated(t, servers, only(open...), brief, unhurried, redlock.WithFences())
			verdict.Eventually(t, "the lock is granted before its short TTL ends", func() bool {
				lease, err := locks.NewLock(lockOf(t)).TryAcquire(t.Context())
				if err != nil {
					return false
				}
				fence = fenceOf(t, lease)
				return lease.Release(t.Context()) == nil
			})
			return fence
		}
		first := hold(0, 1, 2)
		verdict.Eventually(t, "the counters have expired", func() bool {
			return !slices.ContainsFunc(servers[:3], func(s *redistest.Server) bool { return noted(t, s, lockOf(t)) != "" })
		})
		if next := hold(2, 3, 4); next <= first {
			t.Errorf("Fence() = %d after %d, whose counters have expired", next, first)
		}
	})

	// A TTL from now on would let the counter go while its number is still ahead of the clock.
	t.Run("ExpiresByItsNumber", func(t *testing.T) {
		servers, name := redistest.Nodes(t, 5), lockOf(t)
		note(t, name, ahead, servers[1])
		lease := acquire(t, fenced(t, servers, only(0, 1, 2)), name)
		fence := fenceOf(t, lease)
		release(t, lease)
		for i, s := range servers[:3] {
			ends := time.UnixMilli(int64(fence / 1000)).Add(24 * time.Hour)
			ms := redistest.Do(t, s, "PTTL", counterOf(name)).(int64)
			if got := time.Now().Add(time.Duration(ms) * time.Millisecond); ms < 0 || ends.Sub(got).Abs() > time.Hour {
				t.Errorf("the counter of server %d expires in %d ms, at %v, want %v, a day after its number %d", i+1, ms, got, ends, fence)
			}
		}
		clean(t, servers, counterOf(name))
	})

	// The error says which servers did not grant it, and why, also when it is a number that fails.
	t.Run("Reasons", func(t *testing.T) {
		servers := redistest.Nodes(t, 5)
		gates := only(0, 1, 2)
		gates[2] = func(request string, send func()) {
			if request != "script writeback" {
				send()
			}
		}
		_, err := fenced(t, servers, gates).NewLock(lockOf(t)).TryAcquire(t.Context())
		var none *strategy.QuorumError
		if !errors.As(err, &none) {
			t.Fatalf("TryAcquire() = %v, want a *QuorumError", err)
		}
		for i, n := range none.Nodes {
			if i >= 2 {
				is(t, "of "+n.Node, n.Err, strategy.ErrUnsent)
			}
		}
		empty(t, servers, lockOf(t))
	})

	t.Run("Inspected", func(t *testing.T) {
		servers := redistest.Nodes(t, 5)
		locks := fenced(t, servers, make([]conformance.Gate, 5))
		lease := acquire(t, locks, lockOf(t))
		fence := fenceOf(t, lease)
		release(t, lease)
		info, err := locks.Inspect(t.Context(), lockOf(t))
		if err != nil || info.Held || info.Fence != fence {
			t.Errorf("Inspect() = %+v, %v, want it free, and the last fence, %d", info, err, fence)
		}
	})
}

// runOf is what the server calls its run, as the guard has it.
func runOf(t *testing.T, s *redistest.Server) string {
	t.Helper()
	try(t, alone(t, s, time.Minute)) // which makes it a guard
	return guardOf(t, s)["run"]
}

// A fencedFake may pause when it is to note a fence.
type fencedFake struct {
	*fake
	after  time.Duration // when it answers
	freeze bool
}

func (f *fencedFake) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	time.Sleep(f.after)
	if s.Name() == "writeback" && f.freeze {
		time.Sleep(time.Until(due))
		return nil, f.fail(strategy.ErrUnknown)
	}
	return f.fake.Eval(ctx, due, s, keys, args...)
}

// TestFencesHandedOver: when the lock is handed over, the next holder has a greater fence, without a request. The
// first holder of the next vote has a greater one than all of them.
func TestFencesHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := newFakes(3)
		for _, f := range fakes {
			f.fenced = true
		}
		s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second}, redlock.WithFences())
		is(t, "New()", err)
		defer s.Close()
		lock := s.NewLock("n")
		var fences []uint64 // of the holders, one after the other
		hold := func() strategy.Lease {
			lease, err := lock.Acquire(t.Context())
			is(t, "Acquire()", err)
			fences = append(fences, fenceOf(t, lease))
			return lease
		}
		first := hold()
		var waiters sync.WaitGroup
		for range 8 {
			waiters.Go(func() { is(t, "Release()", hold().Release(t.Context())) })
		}
		synctest.Wait()
		is(t, "Release()", first.Release(t.Context()))
		waiters.Wait()
		if noted := slices.DeleteFunc(fakes[0].ran, func(s string) bool { return s != "writeback" }); len(noted) != 2 {
			t.Errorf("%d fences were written back for 9 holders, want 2: the first holder's, and one for all waiters", len(noted))
		}
		is(t, "Release()", hold().Release(t.Context()))
		for i, f := range fences[1:] {
			if f <= fences[i] {
				t.Errorf("fences of the holders = %d, want each greater than the one before", fences)
				break
			}
		}
		if len(fences) != 10 {
			t.Errorf("%d holders, want 10", len(fences))
		}
	})
}

// TestSpare: more servers than it takes note a fence, if they voted in time.
func TestSpare(t *testing.T) {
	t.Run("FrozenAfterItsVote", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			for i, f := range fakes {
				f.fenced = true
				ff := &fencedFake{fake: f, after: time.Millisecond}
				if i >= 3 {
					ff.after = 2 * time.Millisecond
				}
				ff.freeze = i == 2
				nodes[i] = ff
			}
			s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second}, redlock.WithFences())
			is(t, "New()", err)
			defer s.Close()
			for range 3 {
				start := time.Now()
				lease, err := s.NewLock("n").TryAcquire(t.Context())
				if took := time.Since(start); err != nil || took > 5*time.Millisecond {
					t.Fatalf("TryAcquire() with one server frozen of five that voted = %v, after %v, want nil after two answers of 2ms", err, took)
				}
				is(t, "Release()", lease.Release(t.Context()))
				time.Sleep(time.Second)
			}
		})
	})

	// A quorum of votes is not enough while it has no quorum of servers that remember: the last fence may be
	// on those that have not answered. They are waited for until the time-out.
	t.Run("RemembersLate", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			for i, f := range fakes {
				f.fenced, f.forgot = true, i == 4
				nodes[i] = &fencedFake{fake: f}
			}
			fakes[0].n, nodes[0] = int64(ahead), &fencedFake{fake: fakes[0], after: 4 * longestPause}
			nodes[1] = &fencedFake{fake: fakes[1], after: time.Second}
			p := redlock.On(nodes, redlock.WithFences(), redlock.WithNodeTimeout(time.Minute))
			start := time.Now()
			g, err := p.Acquire(t.Context(), claim("a"))
			if err != nil || g.Fence != ahead+1 {
				t.Errorf("Acquire() = fence %d, %v, want %d, which the server knows that answers when the others have been silent for %v", g.Fence, err, ahead+1, 4*longestPause)
			}
			if took, want := time.Since(start), 8*longestPause+time.Millisecond; took != want {
				t.Errorf("Acquire() took %v, want %v: two answers, and the least wait for late votes, because the quorum was found at once", took, want)
			}
			time.Sleep(time.Second)
		})
	})

	// A server that was silent is not waited for.
	t.Run("SilentBefore", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			for _, f := range fakes {
				f.fenced = true
			}
			fakes[4].hangs = time.Hour
			p := redlock.On(nodes, redlock.WithFences())
			for _, want := range []time.Duration{time.Millisecond, 0} {
				c := claim("a")
				start := time.Now()
				var err error
				c.Grant, err = p.Acquire(t.Context(), c)
				if took := time.Since(start); err != nil || took != want {
					t.Errorf("Acquire() = %v, after %v, want nil after %v", err, took, want)
				}
				p.Release(t.Context(), c) //nolint:errcheck // it remains on the server that is silent
			}
		})
	})

	// A voter that had forgotten its fences hears of this one also if the caller goes.
	t.Run("HearsItLater", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			for i, f := range fakes {
				f.fenced, f.forgot = true, i == 4
				nodes[i] = distantFake{f, time.Millisecond}
			}
			ctx, cancel := context.WithCancel(t.Context())
			g, err := redlock.On(nodes, redlock.WithFences()).Acquire(ctx, claim("a"))
			cancel()
			is(t, "Acquire()", err)
			time.Sleep(time.Second)
			fakes[4].set(func(f *fake) {
				if uint64(f.n) != g.Fence {
					t.Errorf("the server that had forgotten has noted %d, want %d", f.n, g.Fence)
				}
			})
		})
	})

	// Every vote counts that comes by the time the wait for late votes ends, also one that comes
	// in the moment in which the quorum is found.
	t.Run("VotesAtOnce", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(9)
			const answers = 10 * time.Millisecond
			for i, f := range fakes {
				f.fenced = true
				nodes[i] = &fencedFake{fake: f, after: answers}
			}
			p := redlock.On(nodes, redlock.WithFences())
			for i := range 300 {
				c := claim(fmt.Sprint(i))
				start := time.Now()
				g, err := p.Acquire(t.Context(), c)
				if took := time.Since(start); err != nil || took != 2*answers {
					t.Fatalf("Acquire() number %d, of nine nodes that answer at once = %v, after %v, want nil after %v", i, err, took, 2*answers)
				}
				c.Grant = g
				_, err = p.Release(t.Context(), c)
				is(t, "Release()", err)
			}
		})
	})
}
