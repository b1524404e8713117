// Processes of this package and of package luascript share locks.
package fairqueue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

// A fleet may move from package luascript to this one, or back, one process at a time.

var kinds = map[string]func(*redistest.Server, strategy.Options) (strategy.Strategy, error){
	"fairqueue": func(s *redistest.Server, o strategy.Options) (strategy.Strategy, error) {
		return fairqueue.New(redigonode.New(s.Pool()), o)
	},
	"luascript": func(s *redistest.Server, o strategy.Options) (strategy.Strategy, error) {
		return luascript.New(redigonode.New(s.Pool()), o)
	},
}

// process is a process of a mixed fleet.
func process(t *testing.T, s *redistest.Server, kind string, o strategy.Options) strategy.Strategy {
	t.Helper()
	o.TTL = time.Minute // a waiter that sleeps through a release sleeps for longer than the test
	locks, err := kinds[kind](s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// soon is a context that ends well after every pause of a waiter that polls, and well before the TTL.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestMixedWaiters: a waiter of one package does not sleep through a release of the other, a waiter that queues does not lose
// its place, and fences rise over both.
func TestMixedWaiters(t *testing.T) {
	s := redistest.Shared(t)
	for _, c := range []struct{ holder, waiter string }{
		{"luascript", "fairqueue"}, {"fairqueue", "luascript"}, {"a stranger", "fairqueue"},
	} {
		t.Run(c.holder+" holds, "+c.waiter+" waits", func(t *testing.T) {
			name := t.Name() + time.Now().String()
			var last uint64 // the holder's fence
			release := func() { redistest.Do(t, s, "DEL", strategy.DefaultKey(name)) }
			if kinds[c.holder] == nil {
				redistest.Do(t, s, "SET", strategy.DefaultKey(name), "d2hhdGV2ZXIgaXQgaXMhIQ==", "PX", 60_000)
			} else {
				lease := locktest.Try(t, process(t, s, c.holder, strategy.Options{}), name)
				last = locktest.Fence(t, lease)
				release = func() {
					if err := lease.Release(t.Context()); err != nil {
						t.Errorf("Release() = %v, want nil", err)
					}
				}
			}
			order := make(chan int, 2)
			var both sync.WaitGroup
			for i := range 2 { // two processes, one after the other
				held := make(chan struct{}, 10_000)
				waiter := process(t, s, c.waiter, strategy.Options{Observe: func(e strategy.Event) {
					if e.Kind == strategy.EventHeld {
						held <- struct{}{}
					}
				}})
				ctx := soon(t)
				both.Go(func() {
					lease, err := waiter.NewLock(name).Acquire(ctx)
					order <- i
					if err == nil {
						if fence, _ := lease.Fence(); fence <= last {
							t.Errorf("fence = %d, want more than the holder's, %d", fence, last)
						}
						err = lease.Release(ctx)
					}
					if err != nil {
						t.Errorf("the waiter's Acquire() = %v, want nil soon after the release", err)
					}
				})
				for range 2 { // at first, and with a place in the queue
					<-held
				}
			}
			release()
			both.Wait()
			if first := <-order; c.waiter == "fairqueue" && first != 0 {
				t.Error("the second waiter got the lock first, want first come, first served")
			}
		})
	}
}
