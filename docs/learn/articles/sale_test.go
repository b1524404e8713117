// Tests what docs/learn/articles.md computes: a flash sale leaves goods unsold if refused buyers go home, and a wait that is too
// short leaves processes without the lock. Time is fake.
package articles

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// sale has thirty buyers ask for ten goods at once, in two copies of the program. It returns the goods that are left.
func sale(t *testing.T, ask func(strategy.Lock, context.Context) (strategy.Lease, error)) int {
	var server lockstest.Memory
	var buyers sync.WaitGroup
	goods := 10
	for range 2 {
		locks, err := engine.New(&server, strategy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer locks.Close()
		for range 15 {
			buyers.Go(func() {
				lease, err := ask(locks.NewLock("goods"), t.Context())
				if err != nil {
					return // goes home
				}
				defer lease.Release(t.Context())
				if left := goods; left > 0 {
					time.Sleep(time.Millisecond) // pays
					goods = left - 1
				}
			})
		}
	}
	buyers.Wait()
	return goods
}

func TestUnsold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if left := sale(t, strategy.Lock.TryAcquire); left != 9 {
			t.Errorf("buyers who go home leave %d goods, want 9", left)
		}
		if left := sale(t, strategy.Lock.Acquire); left != 0 {
			t.Errorf("buyers who wait leave %d goods, want 0", left)
		}
	})
}

// TestShortWait: of five that hold the lock for 2 s each, and wait for 5 s, three get it.
func TestShortWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var server lockstest.Memory
		var all sync.WaitGroup
		var held atomic.Int32
		for range 5 {
			all.Go(func() {
				locks, err := engine.New(&server, strategy.Options{TTL: 10 * time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				defer locks.Close()
				_ = strategy.DoWithin(t.Context(), locks.NewLock("resource"), 5*time.Second, func(context.Context, strategy.Lease) error {
					held.Add(1)
					time.Sleep(2 * time.Second)
					return nil
				})
			})
		}
		all.Wait()
		if held.Load() != 3 {
			t.Errorf("%d got the lock, want 3", held.Load())
		}
	})
}
