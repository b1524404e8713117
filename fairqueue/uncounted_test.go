// A waiter that listens, and that releases do not count.
package fairqueue_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/locktest"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// elsewhere is a node whose first subscription hears everything and is not counted, as one at another
// server of a cluster: PUBSUB NUMSUB does not count patterns.
type elsewhere struct {
	driver.Node
	pool  *redis.Pool
	first sync.Once
}

func (n *elsewhere) Subscribe(ctx context.Context, channel string, fn func([]byte, error)) (stop func(), err error) {
	n.first.Do(func() {
		conn := redis.PubSubConn{Conn: n.pool.Get()}
		if err = conn.PSubscribe(channel); err == nil {
			_ = conn.Receive() // the confirmation
		}
		var reader sync.WaitGroup
		reader.Go(func() {
			for {
				switch m := conn.Receive().(type) {
				case redis.Message:
					fn(m.Data, nil)
				case redis.Subscription, error: // stopped
					return
				}
			}
		})
		stop = func() {
			_ = conn.PUnsubscribe()
			reader.Wait()
			_ = conn.Close()
		}
	})
	if stop != nil || err != nil {
		return stop, err
	}
	return n.Node.Subscribe(ctx, channel, fn)
}

// TestUncounted: a waiter is passed over while releases do not count it, for example because the lock's
// slot has moved to another server of the cluster. It gets the lock soon all the same, also where the
// holder's process always wants the lock again.
func TestUncounted(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	o := strategy.Options{TTL: time.Minute}
	busy := open(t, s, o)
	locks, err := engine.New(fairqueue.On(&elsewhere{Node: locktest.Node(t, s), pool: s.Pool()}), o)
	waiter := locktest.Opened(t, locks, err)

	first := locktest.Try(t, busy, "a")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	verdict.Eventually(t, "the waiter is in the queue", func() bool {
		return redistest.Do(t, s, "LLEN", "lock:{a}:queue") == int64(1)
	})
	var working atomic.Int32
	for range 4 {
		all.Go(func() {
			for {
				lease, err := busy.NewLock("a").Acquire(ctx)
				if err != nil {
					return
				}
				working.Add(1)
				_, _ = busy.Inspect(ctx, "a")
				locktest.Release(t, lease)
			}
		})
	}
	locktest.Release(t, first)
	all.Wait()
	t.Logf("the others got the lock %d times meanwhile", working.Load())
}
