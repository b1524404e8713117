// Measures the lock next to the mutex of etcd's own client.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockstrategies/locks/engine"
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

// BenchmarkPair acquires and releases without rivals, in turn with the mutex: so both meet the same server and machine. The metrics
// are medians.
func BenchmarkPair(b *testing.B) {
	pairs := map[string]locker{}
	for _, mutex := range []bool{false, true} {
		pairs[nameOf[mutex]] = several(b, fmt.Sprint("benchmark ", nameOf[mutex], time.Now().UnixNano()), 1, mutex)[0]
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, l := range pairs {
			began := time.Now()
			if err := errors.Join(l.lock(), l.unlock()); err != nil {
				b.Fatal(err)
			}
			took[name] = append(took[name], time.Since(began))
		}
	}
	for name, all := range took {
		reportMedian(b, all, name+"-µs/pair")
	}
}

func reportMedian(b *testing.B, all []time.Duration, unit string) {
	b.Helper()
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), unit)
}

// BenchmarkHandOff is from one process's release to the other's lock, for which it has waited for a while.
func BenchmarkHandOff(b *testing.B) {
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, mutex := range []bool{false, true} {
			key := fmt.Sprint("benchmark ", nameOf[mutex], time.Now().UnixNano())
			first, second := several(b, key, 1, mutex)[0], several(b, key, 1, mutex)[0]
			if err := first.lock(); err != nil {
				b.Fatal(err)
			}
			got := make(chan error)
			go func() { got <- second.lock() }()
			time.Sleep(300 * time.Millisecond)
			began := time.Now()
			if err := errors.Join(first.unlock(), <-got); err != nil {
				b.Fatal(err)
			}
			took[nameOf[mutex]] = append(took[nameOf[mutex]], time.Since(began))
			if err := second.unlock(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, all := range took {
		reportMedian(b, all, name+"-µs/hand-off")
	}
}

var nameOf = map[bool]string{false: "locks", true: "mutex"}

// BenchmarkCrowd is 64 contenders of one process; BenchmarkTurns two processes, each of which wants the lock again and again.
func BenchmarkCrowd(b *testing.B) { benchmark(b, 1, 64) }
func BenchmarkTurns(b *testing.B) { benchmark(b, 2, 1) }

// BenchmarkPairLater is BenchmarkPair by a process that does something else in between, so the idle lease has to be renewed.
func BenchmarkPairLater(b *testing.B) {
	p := On(clientOf(b, endpoints(b))).(*protocol)
	s, err := engine.New(p, strategy.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l := s.NewLock(fmt.Sprint("benchmark later ", time.Now().UnixNano()))
	for b.Loop() {
		lease, err := l.TryAcquire(b.Context())
		if err == nil {
			err = lease.Release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		idle, _ := p.idle.take(10)
		idle.start = idle.start.Add(-time.Second)
		p.idle.add(idle)
	}
}

func benchmark(b *testing.B, processes, each int) {
	for _, mutex := range []bool{false, true} {
		name := nameOf[mutex]
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
