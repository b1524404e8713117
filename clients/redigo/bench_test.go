// Measures what requests cost, alone and by many.
package redigonode

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// A pair is what an uncontended lock costs: SET NX PX, and compare-and-delete.
const compareAndDelete = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

var release = driver.NewScript("release", compareAndDelete)

var callers = []int{1, 8, 64, 256}

func BenchmarkPairNode(b *testing.B) {
	for _, c := range callers {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			n := newNode(b, plainPool(b, redistest.Shared(b), c))
			ctx := b.Context()
			pairs(b, c, func(key, token string) error { return nodePair(ctx, n, key, token) })
		})
	}
}

func BenchmarkPairConn(b *testing.B) {
	conn, err := plainPool(b, redistest.Shared(b), 1).Dial()
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	pairs(b, 1, func(key, token string) error { return rawPair(conn, key, token) })
}

func BenchmarkPairPool(b *testing.B) {
	for _, c := range callers {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			pool := plainPool(b, redistest.Shared(b), c)
			pairs(b, c, func(key, token string) error { return poolPair(pool, key, token) })
		})
	}
}

// BenchmarkPairAgainst takes turns, so that a noisy machine is unkind to both: ÷pool
// is the node's time over that of a pool with a connection per caller, which for one
// caller is a bare connection's time plus 1 %.
func BenchmarkPairAgainst(b *testing.B) {
	for _, c := range callers {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			s := redistest.Shared(b)
			n, pool := newNode(b, plainPool(b, s, c)), plainPool(b, s, c)
			sides := [2]func(key, token string) error{
				func(key, token string) error { return nodePair(b.Context(), n, key, token) },
				func(key, token string) error { return poolPair(pool, key, token) },
			}
			var took [2]time.Duration
			for i := range sides {
				run(b, c, 2*c, sides[i])
			}
			round := 100 * c
			b.ResetTimer()
			for done := 0; done < b.N; done += round {
				for i := range sides {
					start := time.Now()
					run(b, c, min(round, b.N-done), sides[i])
					took[i] += time.Since(start)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[0])/float64(b.N), "ns/node")
			b.ReportMetric(float64(took[1])/float64(b.N), "ns/pool")
			b.ReportMetric(float64(took[0])/float64(took[1]), "÷pool")
		})
	}
}

func nodePair(ctx context.Context, n *node, key, token string) error {
	due := time.Now().Add(time.Second)
	if r, err := n.Do(ctx, due, "SET", key, token, "NX", "PX", 5000); err != nil || r == nil {
		return fmt.Errorf("SET = %v, %w", r, err)
	}
	due = time.Now().Add(time.Second)
	if r, err := n.Eval(ctx, due, release, []string{key}, token); err != nil || r != int64(1) {
		return fmt.Errorf("release = %v, %w", r, err)
	}
	return nil
}

func poolPair(pool *redis.Pool, key, token string) error {
	conn := pool.Get()
	defer conn.Close()
	return rawPair(conn, key, token)
}

func rawPair(conn redis.Conn, key, token string) error {
	if r, err := conn.Do("SET", key, token, "NX", "PX", 5000); err != nil || r == nil {
		return fmt.Errorf("SET = %v, %w", r, err)
	}
	r, err := conn.Do("EVALSHA", release.Hash(), 1, key, token)
	if err != nil && err.Error()[:8] == "NOSCRIPT" {
		r, err = conn.Do("EVAL", release.Source(), 1, key, token)
	}
	if err != nil || r != int64(1) {
		return fmt.Errorf("release = %v, %w", r, err)
	}
	return nil
}

// pairs measures b.N pairs; connections and scripts are there when the clock starts.
func pairs(b *testing.B, callers int, pair func(key, token string) error) {
	b.ReportAllocs()
	run(b, callers, 2*callers, pair)
	b.ResetTimer()
	run(b, callers, b.N, pair)
}

// run divides count pairs among callers, each with a key of its own.
func run(b *testing.B, callers, count int, pair func(key, token string) error) {
	var left atomic.Int64
	left.Store(int64(count))
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			key, token := fmt.Sprintf("bench:{%s:%d}", b.Name(), c), "0123456789abcdef0123456789abcdef"
			for left.Add(-1) >= 0 {
				if err := pair(key, token); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// plainPool dials without options, as a time-out costs a system call per command.
func plainPool(t testing.TB, s *redistest.Server, maxIdle int) *redis.Pool {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(s.URL()) }, MaxIdle: maxIdle}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func newNode(t testing.TB, pool *redis.Pool) *node {
	t.Helper()
	n := New(pool).(*node)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	return n
}
