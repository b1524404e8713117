// Measures what requests cost, alone and by many.
package redigonode

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

var release = driver.NewScript("release",
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

// BenchmarkPair is what an uncontended lock costs: SET NX PX, and compare-and-delete; by a node, and by a pool with a
// connection for each caller.
func BenchmarkPair(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		pool := plainPool(b, redistest.Shared(b), callers)
		n := newNode(b, pool)
		b.Run(fmt.Sprint("node/", callers), func(b *testing.B) {
			pairs(b, callers, func(cmd string, args ...any) (any, error) {
				due := time.Now().Add(time.Second)
				if cmd == "SET" {
					return n.Do(b.Context(), due, cmd, args[0].(string), args[1:]...)
				}
				return n.Eval(b.Context(), due, release, []string{args[2].(string)}, args[3])
			})
		})
		b.Run(fmt.Sprint("pool/", callers), func(b *testing.B) {
			pairs(b, callers, func(cmd string, args ...any) (any, error) {
				conn := pool.Get()
				defer conn.Close()
				return conn.Do(cmd, args...)
			})
		})
	}
}

// pairs divides b.N pairs among callers, each with a key of its own. Connections and scripts are there when the
// clock starts.
func pairs(b *testing.B, callers int, do func(cmd string, args ...any) (any, error)) {
	redistest.Do(b, redistest.Shared(b), "SCRIPT", "LOAD", release.Source())
	run := func(count int) {
		var left atomic.Int64
		left.Store(int64(count))
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				key, token := fmt.Sprintf("bench:{%s:%d}", b.Name(), c), "0123456789abcdef0123456789abcdef"
				for left.Add(-1) >= 0 {
					set, err := do("SET", key, token, "NX", "PX", 5000)
					if err == nil && set == nil {
						err = fmt.Errorf("somebody has %s", key)
					}
					if err == nil {
						_, err = do("EVALSHA", release.Hash(), 1, key, token)
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	b.ReportAllocs()
	run(2 * callers)
	b.ResetTimer()
	run(b.N)
}
