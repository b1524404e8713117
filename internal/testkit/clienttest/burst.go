package clienttest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// Burst checks that a thousand callers who come at the same moment all get a lock, on a server that is 30 ms
// away, by a client as it is unless its user sets something. Few of them ask before the first has the lock: if all did, they
// would wait for each other in the client's pool until their time-outs end.
func Burst(t *testing.T, node func(t *testing.T, addr string) driver.Node) {
	const callers, few = 1000, 100
	for name, strategyOn := range map[string]func(n driver.Node) (strategy.Strategy, error){
		"fairqueue": func(n driver.Node) (strategy.Strategy, error) { return fairqueue.New(n, Patient) },
		"luascript": func(n driver.Node) (strategy.Strategy, error) { return luascript.New(n, Patient) },
		"setnxpx":   func(n driver.Node) (strategy.Strategy, error) { return setnxpx.New(n, Patient) },
		"semaphore": func(n driver.Node) (strategy.Strategy, error) {
			return semaphore.New(n, 5, Patient)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := rig.New(t, 1, redistest.Config{}).Nodes[0].Link()
			link.Delay(rig.Both, 15*time.Millisecond)
			var asked atomic.Int64
			locks, err := strategyOn(counted{node(t, link.Addr()), &asked})
			if err != nil {
				t.Fatal(err)
			}
			defer locks.Close()
			lock := locks.NewLock("burst")
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			failed := make(chan error, callers)
			var wg sync.WaitGroup
			var first sync.Once
			for range callers {
				wg.Go(func() {
					lease, err := lock.Acquire(ctx)
					first.Do(func() {
						if n := asked.Load(); n > few {
							t.Errorf("requests before the first grant = %d, want %d at most", n, few)
						}
					})
					if err == nil {
						err = lease.Release(t.Context())
					}
					if err != nil {
						failed <- err
					}
				})
			}
			wg.Wait()
			if n := len(failed); n > 0 {
				t.Errorf("%d of %d callers failed, the first with %v", n, callers, <-failed)
			}
		})
	}
}

// counted counts the requests to a node.
type counted struct {
	driver.Node
	asked *atomic.Int64
}

func (n counted) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	n.asked.Add(1)
	return n.Node.Do(ctx, due, cmd, key, args...)
}

func (n counted) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	n.asked.Add(1)
	return n.Node.Eval(ctx, due, s, keys, args...)
}
