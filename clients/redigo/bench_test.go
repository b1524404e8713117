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

// BenchmarkPair is what an uncontended lock costs: SET NX PX, and compare-and-delete.
func BenchmarkPair(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			n := newNode(b, plainPool(b, redistest.Shared(b)))
			pair := func(key, token string) error {
				if r, err := n.Do(b.Context(), time.Now().Add(time.Second), "SET", key, token, "NX", "PX", 5000); err != nil || r == nil {
					return fmt.Errorf("SET = %v, %w", r, err)
				}
				if r, err := n.Eval(b.Context(), time.Now().Add(time.Second), release, []string{key}, token); err != nil || r != int64(1) {
					return fmt.Errorf("release = %v, %w", r, err)
				}
				return nil
			}
			if err := pair("bench", "first"); err != nil { // the connection and the script are there
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					for key := fmt.Sprintf("bench:{%d}", c); left.Add(-1) >= 0; {
						if err := pair(key, "0123456789abcdef0123456789abcdef"); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
