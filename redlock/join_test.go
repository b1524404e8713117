// Nodes without the lock are asked to take it after each extension: on fakes, in virtual time.
package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// TestJoin: while a quorum has a lock, the nodes that do not have it are asked to take it.
func TestJoin(t *testing.T) {
	extend := func(t *testing.T, l strategy.Lease, want ...error) {
		t.Helper()
		is(t, "Extend()", l.Extend(t.Context()), want...)
	}
	run := func(name string, f func(t *testing.T)) { t.Run(name, func(t *testing.T) { bubble(t, f) }) }

	run("Survives", func(t *testing.T) { // the loss of any two, one after the other
		fakes, nodes := newFakes(5)
		fakes[0].down = true // when it is acquired
		lease := holding(t, nodes)
		work(fakes[0])
		for i := range 10 {
			extend(t, lease)
			synctest.Wait()
			have(t, fmt.Sprintf("after the loss of %d and an extension", i), lease.Token(), fakes...)
			if !fakes[0].until.Equal(fakes[4].until) {
				t.Errorf("servers keep it until %v and %v, want one moment", fakes[0].until, fakes[4].until)
			}
			forget(fakes[i%5], fakes[(i+1)%5])
		}
		is(t, "Release()", lease.Release(t.Context()))
		have(t, "after Release()", "", fakes...)
	})

	// A node that says later than the others that it does not have it is asked then: also if it is during the next extension
	// that the one before finds out.
	run("LateAnswer", func(t *testing.T) {
		fakes, nodes := newFakes(3)
		fakes[0].before = late("extend", 10*time.Millisecond)
		lease := holding(t, nodes)
		for extensions := range 2 {
			forget(fakes[0])
			for range extensions + 1 {
				extend(t, lease)
			}
			time.Sleep(time.Second)
			have(t, "after an extension", lease.Token(), fakes[0])
		}
		forget(fakes[0])
		extend(t, lease)
		is(t, "Release()", lease.Release(t.Context())) // what comes late is not followed by a join any more
		time.Sleep(time.Second)
		have(t, "after Release()", "", fakes...)
	})

	// Also a node whose refusal to vote comes during the extension, which then need not ask it.
	run("LateRefusal", func(t *testing.T) {
		fakes, nodes := newFakes(3)
		fakes[0].before = func(ctx context.Context, due time.Time, script string) (any, error) {
			late("acquire", 10*time.Millisecond)(ctx, due, script)
			return doesNotVote(ctx, due, script)
		}
		p := redlock.On(nodes)
		c := claim("a")
		var err error
		c.Grant, err = p.Acquire(t.Context(), c)
		is(t, "Acquire()", err)
		_, err = p.Extend(t.Context(), c)
		is(t, "Extend()", err)
		time.Sleep(time.Second)
		have(t, "after an extension", "a", fakes[0])
	})

	// What a majority does not have is lost, or may be: then nobody joins.
	run("OnlyWithAQuorum", func(t *testing.T) {
		fakes, nodes := newFakes(5)
		lease := holding(t, nodes)
		forget(fakes[0])
		for _, f := range fakes[2:] {
			f.set(func(f *fake) { f.down = true })
		}
		extend(t, lease, strategy.ErrNoQuorum)
		synctest.Wait()
		have(t, "with a majority down", "", fakes[0])
		work(fakes[2:]...)
		forget(fakes[:3]...)
		extend(t, lease, strategy.ErrLost)
		synctest.Wait()
		have(t, "of a lock that is lost", "", fakes...)
	})

	// It does not count in the round in which it is asked: nobody waits for it.
	run("NobodyWaits", func(t *testing.T) {
		fakes, nodes := newFakes(3)
		lease := holding(t, nodes)
		hang(fakes[0])
		forget(fakes[0])
		extend(t, lease)
		time.Sleep(time.Second)
		work(fakes[0])
		extend(t, lease) // now it is known to have forgotten
		hang(fakes[0])
		forget(fakes[0])
		extend(t, lease)
		time.Sleep(time.Second)
		hung := func() (n int) { fakes[0].set(func(f *fake) { n = len(f.lost) }); return n }
		before, start := hung(), time.Now()
		for range 10 {
			extend(t, lease)
		}
		synctest.Wait()
		if took, asked := time.Since(start), hung()-before; took != 0 || asked > 1 {
			t.Errorf("ten extensions took %v, and asked a server that hangs %d times at once, want 0s and 1 at most", took, asked)
		}
		work(fakes[0])
		is(t, "Release()", lease.Release(t.Context()))
	})

	// A release goes behind the join.
	for what, unordered := range map[string]bool{"LateIsUndone": false, "LateIsUndoneUnordered": true} {
		run(what, func(t *testing.T) {
			var fakes []*slowFake
			var nodes []driver.Node
			for i := range 3 {
				f := &slowFake{fake: &fake{name: fmt.Sprintf("fake %d", i+1), unordered: unordered}, rng: rng(1, 1), most: time.Millisecond}
				fakes, nodes = append(fakes, f), append(nodes, f)
			}
			fakes[0].down = true // when it is acquired
			lease := holding(t, nodes)
			time.Sleep(time.Second)
			fakes[0].set(func(f *fake) { f.down, fakes[0].frozen = false, true })
			extend(t, lease)
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
			have(t, "after that", "", fakes[0].fake)
		})
	}
}
