// Measures the lock next to the mutex of etcd's own client.
package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockstrategies/locks/strategy"
)

// A locker is one contender, with a client of its own.
type locker struct{ lock, unlock func() error }

// several are contenders of one process. Each mutex has a session of its own, as those of one session are one contender.
func several(b *testing.B, name string, n int, mutex bool) (all []locker) {
	b.Helper()
	c := clientOf(b, endpoints(b))
	if mutex {
		for range n {
			all = append(all, mutexOf(sessionOf(b, c), name))
		}
		return all
	}
	l := strategyOf(b, c, strategy.Options{}).NewLock(name)
	for range n {
		var held strategy.Lease
		all = append(all, locker{func() (err error) {
			held, err = l.Acquire(context.Background())
			return err
		}, func() error { return held.Release(context.Background()) }})
	}
	return all
}

func sessionOf(b *testing.B, c *clientv3.Client) *concurrency.Session {
	b.Helper()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(10))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}

func mutexOf(s *concurrency.Session, name string) locker {
	m := concurrency.NewMutex(s, name)
	return locker{func() error { return m.Lock(context.Background()) }, func() error { return m.Unlock(context.Background()) }}
}

func contend(b *testing.B, all []locker) {
	b.Helper()
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, l := range all {
		n := (b.N + i) / len(all)
		wg.Go(func() {
			for range n {
				if err := l.lock(); err != nil {
					b.Error(err)
					return
				}
				if err := l.unlock(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkPair acquires and releases without rivals; BenchmarkCrowd among 64 of one process; BenchmarkTurns among two processes,
// each of which wants the lock again and again.
func BenchmarkPair(b *testing.B)  { benchmark(b, 1, 1) }
func BenchmarkCrowd(b *testing.B) { benchmark(b, 1, 64) }
func BenchmarkTurns(b *testing.B) { benchmark(b, 2, 1) }

func benchmark(b *testing.B, processes, each int) {
	for _, mutex := range []bool{false, true} {
		name := map[bool]string{false: "locks", true: "mutex"}[mutex]
		b.Run(name, func(b *testing.B) {
			key := fmt.Sprint("benchmark ", name, time.Now().UnixNano())
			var all []locker
			for range processes {
				all = append(all, several(b, key, each, mutex)...)
			}
			contend(b, all)
		})
	}
}
