// A waiter that listens, and that releases do not count.
package fairqueue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// elsewhere is a node whose first subscription is not counted, as one at another server of a cluster.
// The cluster's bus, for which tell stands, brings here what is published there.
type elsewhere struct {
	driver.Node

	mu  sync.Mutex
	sub bool
	fn  func([]byte, error) // the first's; nil: it has been stopped
}

func (n *elsewhere) Subscribe(ctx context.Context, channel string, fn func([]byte, error)) (stop func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sub {
		return n.Node.Subscribe(ctx, channel, fn)
	}
	n.sub, n.fn = true, fn
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.fn = nil
	}, nil
}

func (n *elsewhere) tell(msg string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fn != nil {
		n.fn([]byte(msg), nil)
	}
}

// TestUncounted: a waiter is passed over while releases do not count it, for example because the lock's
// slot has moved to another server of the cluster. It gets the lock soon all the same, also where the
// holder's process always wants the lock again.
func TestUncounted(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	o := strategy.Options{TTL: time.Minute}
	busy := open(t, s, o)
	away := &elsewhere{Node: locktest.Node(t, s)}
	locks, err := fairqueue.New(away, o)
	waiter := locktest.Opened(t, locks, err)

	first := locktest.Try(t, busy, "a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() {
		defer cancel()
		lease, err := waiter.NewLock("a").Acquire(ctx)
		if err != nil {
			t.Errorf("Acquire() = %v, want the lock at its turn", err)
			return
		}
		locktest.Release(t, lease)
	})
	queued := func(what string, n int64) {
		verdict.Eventually(t, what, func() bool { return redistest.Do(t, s, "LLEN", "lock:{a}:queue") == n })
	}
	queued("the waiter is in the queue", 1)
	var working atomic.Int32
	for range 4 {
		all.Go(func() {
			for {
				lease, err := busy.NewLock("a").Acquire(ctx)
				if err != nil {
					return
				}
				switch n := working.Add(1); {
				case n > 100_000: // all the time it is the waiter's turn
					cancel()
				case n%1000 == 0: // after some milliseconds it has been passed over
					away.tell("next 1")
				}
				locktest.Release(t, lease)
			}
		})
	}
	queued("the busy process is in the queue, too", 2)
	locktest.Release(t, first)
	all.Wait()
	t.Logf("the others got the lock %d times meanwhile", working.Load())
}
