// Contenders for a lock whose slot moves to and fro have it one at a time.
package rediscnode

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// TestMovesUnderLoad: while a slot goes to and fro, those who contend for a lock in it have it one
// at a time, in the order of the fences, all of them. None meets with an error, but that a
// release which a move cuts in two says so, and is repeated in the background.
func TestMovesUnderLoad(t *testing.T) {
	cl := clienttest.Cluster(t)
	for _, v := range clienttest.Variants(1, "luascript", "fairqueue", "setnxpx") {
		if v.Name == "setnxgetset-watch" {
			continue // what a session meets with is the caller's: see the package doc
		}
		t.Run(v.Name, func(t *testing.T) {
			const contenders, moves = 6, 15
			var inside, holds atomic.Int32
			var last atomic.Uint64 // fence
			done := make(chan struct{})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			had := make([]int, contenders)
			var all sync.WaitGroup
			for i := range contenders {
				n := open(t, addrs(t)...)
				l := clienttest.Strategy(t, v.On([]driver.Node{n}), clienttest.Patient).NewLock(t.Name())
				all.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						lease, err := l.Acquire(ctx)
						if err != nil {
							t.Errorf("Acquire: %v", err)
							return
						}
						if inside.Add(1) > 1 {
							t.Error("two hold the lock")
						}
						if fence, ok := lease.Fence(); ok {
							if before := last.Swap(fence); before >= fence {
								t.Errorf("fence %d after %d", fence, before)
							}
						}
						holds.Add(1)
						had[i]++
						n.Do(ctx, soon(), "PING", "") //nolint:errcheck // its work: whatever takes a while
						inside.Add(-1)
						if err := lease.Release(t.Context()); err != nil && !errors.Is(err, strategy.ErrUnknown) {
							t.Errorf("Release: %v", err)
							return
						}
					}
				})
			}
			for range moves {
				before := holds.Load()
				clienttest.MoveOf(t, cl, t.Name()).Whole()
				verdict.Eventually(t, "each contender could hold the lock", func() bool { return holds.Load() > before+contenders || t.Failed() })
			}
			close(done)
			all.Wait()
			t.Logf("%d holds in %d moves", holds.Load(), moves)
			for i, n := range had {
				if v.Fair && n == 0 {
					t.Errorf("contender %d never held the lock, want each to: the queue is fair", i)
				}
			}
		})
	}
}
