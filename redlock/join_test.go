// Nodes without the lock are asked to take it after each extension: on fakes in virtual time, and on real
// servers.
package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
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

// holding opens a lock on fakes, all of which have granted it.
func holding(t *testing.T, nodes []driver.Node) strategy.Lease {
	t.Helper()
	s, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
	is(t, "New()", err)
	t.Cleanup(func() { s.Close() })
	lease, err := s.NewLock("n").TryAcquire(t.Context())
	is(t, "TryAcquire()", err)
	synctest.Wait()
	return lease
}

// has is the token that a fake has.
func (f *fake) has() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.token
}

// did is which scripts it has run.
func (f *fake) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ran)
}

func forget(fakes ...*fake) {
	for _, f := range fakes {
		f.set(func(f *fake) { f.token = "" })
	}
}

// A refusesLate does not vote, and says so late.
type refusesLate struct {
	*fake
	by time.Duration
}

func (f refusesLate) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	if s.Name() == "acquire" {
		time.Sleep(f.by)
	}
	return guardedFake{f.fake}.Eval(ctx, due, s, keys, args...)
}

// TestJoin: while a quorum has a lock, the nodes that do not have it are asked to take it.
func TestJoin(t *testing.T) {
	t.Run("Survives", func(t *testing.T) { // the loss of any two, one after the other
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			fakes[0].down = true // when it is acquired
			lease := holding(t, nodes)
			fakes[0].set(func(f *fake) { f.down = false })
			for i := range 10 {
				is(t, "Extend()", lease.Extend(t.Context()))
				synctest.Wait()
				for j, f := range fakes {
					if f.has() != lease.Token() {
						t.Errorf("after the loss of %d and an extension, server %d has %q, want the token", i, j+1, f.has())
					}
				}
				if fakes[0].until.After(fakes[4].until) || fakes[4].until.After(fakes[0].until) {
					t.Errorf("servers keep it until %v and %v, want one moment", fakes[0].until, fakes[4].until)
				}
				forget(fakes[i%5], fakes[(i+1)%5])
			}
			is(t, "Release()", lease.Release(t.Context()))
			for i, f := range fakes {
				if f.has() != "" {
					t.Errorf("after Release() server %d has %q, want nothing", i+1, f.has())
				}
			}
		})
	})

	// A node that says later than the others that it does not have it is asked then.
	t.Run("LateAnswer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			nodes[0] = tardyOn{fakes[0], "extend", 10 * time.Millisecond}
			lease := holding(t, nodes)
			forget(fakes[0])
			is(t, "Extend()", lease.Extend(t.Context()))
			time.Sleep(time.Second)
			if fakes[0].has() != lease.Token() {
				t.Errorf("the server that forgot has %q, want the token", fakes[0].has())
			}
			forget(fakes[0])
			is(t, "Extend()", lease.Extend(t.Context()))
			is(t, "Release()", lease.Release(t.Context())) // what comes late is not followed by a join any more
			time.Sleep(time.Second)
			for i, f := range fakes {
				if f.has() != "" {
					t.Errorf("after Release() server %d has %q, want nothing", i+1, f.has())
				}
			}
		})
	})

	// Also a node whose refusal to vote comes during the extension, which then need not ask it.
	t.Run("LateRefusal", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			nodes[0] = refusesLate{fakes[0], 10 * time.Millisecond}
			p := redlock.On(nodes)
			c := claim("a")
			var err error
			c.Grant, err = p.Acquire(t.Context(), c)
			is(t, "Acquire()", err)
			_, err = p.Extend(t.Context(), c)
			is(t, "Extend()", err)
			time.Sleep(time.Second)
			if fakes[0].has() != "a" {
				t.Errorf("the server that refused to vote has %q after an extension, want the token", fakes[0].has())
			}
		})
	})

	// And a node of which the extension before finds out, during this one, that it has lost the lock.
	t.Run("LateLoss", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			nodes[0] = tardyOn{fakes[0], "extend", 10 * time.Millisecond}
			lease := holding(t, nodes)
			forget(fakes[0])
			is(t, "Extend()", lease.Extend(t.Context()))
			is(t, "Extend()", lease.Extend(t.Context()))
			time.Sleep(time.Second)
			if fakes[0].has() != lease.Token() {
				t.Errorf("the server that forgot has %q after two extensions, want the token", fakes[0].has())
			}
		})
	})

	// What a majority does not have is lost, or may be: then nobody joins.
	t.Run("OnlyWithAQuorum", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(5)
			lease := holding(t, nodes)
			forget(fakes[0])
			for _, f := range fakes[2:] {
				f.set(func(f *fake) { f.down = true })
			}
			is(t, "Extend() with a majority down", lease.Extend(t.Context()), strategy.ErrNoQuorum)
			synctest.Wait()
			if fakes[0].has() != "" {
				t.Errorf("with a majority down, the server that forgot has %q, want nothing", fakes[0].has())
			}
			for _, f := range fakes[2:] {
				f.set(func(f *fake) { f.down = false })
			}
			forget(fakes[:3]...)
			is(t, "Extend() of what a majority forgot", lease.Extend(t.Context()), strategy.ErrLost)
			synctest.Wait()
			for i, f := range fakes {
				if f.has() != "" {
					t.Errorf("of a lock that is lost, server %d has %q, want nothing", i+1, f.has())
				}
			}
		})
	})

	// It does not count in the round in which it is asked: nobody waits for it.
	t.Run("NobodyWaits", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			fakes, nodes := newFakes(3)
			lease := holding(t, nodes)
			forget(fakes[0])
			is(t, "Extend()", lease.Extend(t.Context()))
			fakes[0].set(func(f *fake) { f.hangs = time.Hour })
			synctest.Wait()
			forget(fakes[0])
			is(t, "Extend()", lease.Extend(t.Context())) // now it is known to have forgotten
			time.Sleep(time.Second)
			before, start := fakes[0].count(), time.Now()
			for range 10 {
				is(t, "Extend()", lease.Extend(t.Context()))
			}
			synctest.Wait()
			if took, asked := time.Since(start), fakes[0].count()-before; took != 0 || asked > 1 {
				t.Errorf("ten extensions took %v, and asked a server that hangs %d times at once, want 0s and 1 at most", took, asked)
			}
			fakes[0].set(func(f *fake) { f.hangs = 0 })
			lease.Release(t.Context())
		})
	})

	// A release goes behind the join.
	for what, unordered := range map[string]bool{"LateIsUndone": false, "LateIsUndoneUnordered": true} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var fakes []*slowFake
				var nodes []driver.Node
				for range 3 {
					f := &slowFake{fake: &fake{name: fmt.Sprintf("fake %d", len(fakes)+1), unordered: unordered}, rng: rng(1), most: time.Millisecond}
					fakes, nodes = append(fakes, f), append(nodes, f)
				}
				fakes[0].down = true // when it is acquired
				lease := holding(t, nodes)
				time.Sleep(time.Second)
				fakes[0].set(func(f *fake) { f.down, fakes[0].frozen = false, true })
				is(t, "Extend()", lease.Extend(t.Context()))
				time.Sleep(time.Millisecond)
				is(t, "Release()", lease.Release(t.Context()))
				if got := fakes[0].did(); len(got) > 0 {
					t.Fatalf("the frozen server did %q, want nothing yet", got)
				}
				fakes[0].set(func(*fake) { fakes[0].frozen = false })
				time.Sleep(15 * time.Second) // no longer than the engine would undo, and the key last
				if got := fakes[0].did(); !slices.Contains(got, "join") || !slices.Contains(got, "release") {
					t.Errorf("the server did %q, want it to join, and to release", got)
				}
				if fakes[0].has() != "" {
					t.Errorf("the server has %q, want nothing", fakes[0].has())
				}
			})
		})
	}
}

// TestRejoin is TestJoin's main thing on real servers.
func TestRejoin(t *testing.T) {
	t.Run("AfterARestart", func(t *testing.T) {
		servers := append(redistest.Nodes(t, 4), redistest.Own(t, redistest.Config{}))
		locks := open(t, servers, calm, unhurried)
		lease := acquire(t, locks, lockOf(t))
		settled(t, servers, lease)
		must(t, servers[4].Restart(t.Context()))
		verdict.Eventually(t, "the server that was restarted has the token again", func() bool {
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatalf("Extend() with a majority = %v, want nil", err)
			}
			return token(t, servers[4], lockOf(t)) == lease.Token()
		})
		for _, s := range servers[:2] {
			redistest.Do(t, s, "DEL", strategy.DefaultKey(lockOf(t)))
		}
		if err := lease.Extend(t.Context()); err != nil {
			t.Errorf("Extend() when two others have lost it = %v, want nil", err)
		}
		settled(t, servers, lease)
		release(t, lease)
		empty(t, servers, lockOf(t))
	})

	// A server forgets what has joined it as it forgets what it has granted, and has to wait
	// as long for it.
	t.Run("TellsTheGuard", func(t *testing.T) {
		servers := append(redistest.Nodes(t, 2), redistest.Own(t, redistest.Config{}))
		known(t, servers)
		name := lockOf(t)
		var reached atomic.Bool
		gates := []conformance.Gate{2: func(_ string, send func()) {
			if reached.Load() {
				send()
			}
		}}
		lease := acquire(t, gated(t, servers, gates, calm, unhurried), name)
		reached.Store(true)
		verdict.Eventually(t, "the server that was out of reach has joined", func() bool {
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatalf("Extend() with a majority = %v, want nil", err)
			}
			return token(t, servers[2], name) == lease.Token()
		})
		// It may be longer: what the others have heard of from locks before this one comes along.
		told, err := strconv.ParseInt(guardOf(t, servers[2])["max"], 10, 64)
		if want := calm.TTL.Milliseconds(); err != nil || told < want {
			t.Errorf("its guard knows of a TTL of %d ms, %v; want at least the %d of the lock which has joined", told, err, want)
		}
		release(t, lease)
	})
}
