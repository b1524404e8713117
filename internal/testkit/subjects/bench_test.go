// Measures, for profiles, what a lock costs of each algorithm that nobody else wants, and where 64 callers of a process want it.
// lab/peers compares libraries.
package subjects

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// BenchmarkPair acquires a lock and releases it.
func BenchmarkPair(b *testing.B) {
	s := redistest.Shared(b)
	for _, v := range All() {
		if v.Servers != 1 || v.Commands != nil || v.Guarded {
			continue
		}
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", v.Name, callers), func(b *testing.B) {
				locks, err := v.New([]*redis.Pool{s.Pool()}, strategy.Options{})
				lock := locktest.Opened(b, locks, err).NewLock(locktest.Unique(b))
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							lease, err := lock.Acquire(b.Context())
							if err == nil {
								err = lease.Release(b.Context())
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}
