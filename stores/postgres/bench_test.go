// Measures what a lock costs: alone, next to advisory locks of PostgreSQL; with many waiters in one process; and from one
// process to the next.
package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockstrategies/locks/strategy"
)

// crowd divides count calls of pair among callers.
func crowd(b testing.TB, callers, count int, pair func(caller int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(count))
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := pair(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func lockPair(ctx context.Context, l strategy.Lock) error {
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// BenchmarkPair acquires and releases locks that nobody else wants. The floor is an advisory lock that is taken and given
// back by its session: no row, no commit to disk, no TTL.
func BenchmarkPair(b *testing.B) {
	pool := migrated(b)
	for _, callers := range []int{1, 8} {
		b.Run(fmt.Sprintf("advisory/%d", callers), func(b *testing.B) {
			crowd(b, callers, b.N, func(i int) error {
				conn, err := pool.Acquire(b.Context())
				if err != nil {
					return err
				}
				defer conn.Release()
				if _, err := conn.Exec(b.Context(), "select pg_advisory_lock($1)", 1_000_000+i); err != nil {
					return err
				}
				_, err = conn.Exec(b.Context(), "select pg_advisory_unlock($1)", 1_000_000+i)
				return err
			})
		})
		for _, durability := range []string{"on", "off"} {
			b.Run(fmt.Sprintf("lease, synchronous_commit %s/%d", durability, callers), func(b *testing.B) {
				s := open(b, pool, strategy.Options{}, WithSynchronousCommit(durability))
				locks := make([]strategy.Lock, callers)
				for i := range locks {
					locks[i] = s.NewLock(unique(b))
				}
				b.ReportAllocs()
				b.ResetTimer()
				crowd(b, callers, b.N, func(i int) error { return lockPair(b.Context(), locks[i]) })
			})
		}
	}
}

// BenchmarkWaiters is one lock, and 64 who want it.
func BenchmarkWaiters(b *testing.B) {
	pool := migrated(b)
	const waiters = 64
	for _, processes := range []int{1, 2, 4} { // each with a strategy of its own
		for _, durability := range []string{"on", "off"} {
			b.Run(fmt.Sprintf("lease, synchronous_commit %s/%d processes", durability, processes), func(b *testing.B) {
				var locks []strategy.Lock
				name := unique(b)
				for range processes {
					locks = append(locks, open(b, pool, strategy.Options{}, WithSynchronousCommit(durability)).NewLock(name))
				}
				b.ResetTimer()
				crowd(b, waiters, b.N, func(i int) error { return lockPair(b.Context(), locks[i%processes]) })
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acq/s")
			})
		}
	}
	b.Run("advisory, a transaction each", func(b *testing.B) {
		crowd(b, waiters, b.N, func(int) error {
			return pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(b.Context(), "select pg_advisory_xact_lock(1000000)")
				return err
			})
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acq/s")
	})
}

// BenchmarkHandOff is how long after a release the next process has the lock: of two, one caller each.
func BenchmarkHandOff(b *testing.B) {
	pool := migrated(b)
	for _, durability := range []string{"on", "off"} {
		b.Run("synchronous_commit "+durability, func(b *testing.B) {
			name := unique(b)
			var locks []strategy.Lock
			for range 2 {
				locks = append(locks, open(b, pool, strategy.Options{}, WithSynchronousCommit(durability)).NewLock(name))
			}
			lease := try(b, locks[0])
			var total time.Duration
			for i := range b.N {
				type got struct {
					strategy.Lease
					at  time.Time
					err error
				}
				acquired := make(chan got, 1)
				go func() {
					l, err := locks[(i+1)%2].Acquire(b.Context())
					acquired <- got{l, time.Now(), err}
				}()
				for len(acquired) == 0 && value[int](b, pool, "select count(*) from locks.queue where key = $1", []byte(strategy.DefaultKey(name))) == 0 {
				}
				released := time.Now()
				if err := lease.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
				next := <-acquired
				if next.err != nil {
					b.Fatal(next.err)
				}
				total += next.at.Sub(released)
				lease = next.Lease
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/hand-off")
		})
	}
}
