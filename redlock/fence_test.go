// Fences on real servers, each part of what makes them correct where nothing else does; and on fakes, which
// voters are waited for.
package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/enginetest"
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
}

// TestFencesHandedOver: when the lock is handed over, the next holder has a greater fence, without a request. The
// first holder of the next vote has a greater one than all of them.
func TestFencesHandedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fakes, nodes := fencing(3, 0)
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

// fencing are nodes with counters that answer after so long.
func fencing(n int, answer time.Duration) (fakes []*fake, nodes []driver.Node) {
	fakes, nodes = newFakes(n)
	for _, f := range fakes {
		f.fenced, f.before = true, late("", answer)
	}
	return fakes, nodes
}

// TestSpare: more servers than it takes note a fence, if they voted in time.
func TestSpare(t *testing.T) {
	run := func(name string, f func(t *testing.T)) { t.Run(name, func(t *testing.T) { bubble(t, f) }) }

	run("FrozenAfterItsVote", func(t *testing.T) {
		fakes, nodes := fencing(5, time.Millisecond)
		fakes[2].before = late("writeback", time.Hour)
		fakes[3].before, fakes[4].before = late("", 2*time.Millisecond), late("", 2*time.Millisecond)
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

	// A quorum of votes is not enough while it has no quorum of servers that remember: the last fence may be
	// on those that have not answered. They are waited for until the time-out.
	run("RemembersLate", func(t *testing.T) {
		fakes, nodes := fencing(5, 0)
		fakes[4].forgot = true
		fakes[0].n, fakes[0].before = int64(ahead), late("", 4*longestPause)
		fakes[1].before = late("", time.Second)
		p := redlock.On(nodes, redlock.WithFences(), redlock.WithNodeTimeout(time.Minute))
		start := time.Now()
		g, err := p.Acquire(t.Context(), claim("a"))
		if err != nil || g.Fence != ahead+1 {
			t.Errorf("Acquire() = fence %d, %v, want %d, which the server knows that answers when the others have been silent for %v", g.Fence, err, ahead+1, 4*longestPause)
		}
		// Two answers, and the least wait for late votes, because the quorum was found at once.
		enginetest.Since(t, "Acquire()", start, 8*longestPause+time.Millisecond)
		time.Sleep(time.Second)
	})

	// A server that was silent is not waited for.
	run("SilentBefore", func(t *testing.T) {
		fakes, nodes := fencing(5, 0)
		hang(fakes[4])
		p := redlock.On(nodes, redlock.WithFences())
		for _, want := range []time.Duration{time.Millisecond, 0} {
			c := claim("a")
			start := time.Now()
			var err error
			c.Grant, err = p.Acquire(t.Context(), c)
			is(t, "Acquire()", err)
			enginetest.Since(t, "Acquire()", start, want)
			p.Release(t.Context(), c) //nolint:errcheck // it remains on the server that is silent
		}
	})

	// A voter that had forgotten its fences hears of this one also if the caller goes.
	run("HearsItLater", func(t *testing.T) {
		fakes, nodes := fencing(5, time.Millisecond)
		fakes[4].forgot = true
		ctx, cancel := context.WithCancel(t.Context())
		g, err := redlock.On(nodes, redlock.WithFences()).Acquire(ctx, claim("a"))
		cancel()
		is(t, "Acquire()", err)
		time.Sleep(time.Second)
		enginetest.Equal(t, "the fence of the server that had forgotten", uint64(fakes[4].n), g.Fence)
	})

	// Every vote counts that comes by the time the wait for late votes ends, also one that comes
	// in the moment in which the quorum is found.
	run("VotesAtOnce", func(t *testing.T) {
		const answers = 10 * time.Millisecond
		_, nodes := fencing(9, answers)
		p := redlock.On(nodes, redlock.WithFences())
		for i := range 300 {
			start := time.Now()
			c := granted(t, p, fmt.Sprint(i))
			enginetest.Since(t, "Acquire() of nine nodes that answer at once", start, 2*answers)
			_, err := p.Release(t.Context(), c)
			is(t, "Release()", err)
		}
	})
}
