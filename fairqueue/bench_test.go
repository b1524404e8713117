// Measures what a lock costs, next to SET NX PX and compare-and-delete by hand, for profiles. lab/peers compares them.
package fairqueue_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// The floor is what a lock costs that nobody else wants: SET NX PX, and
// compare-and-delete, by hand.
const compareAndDelete = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`

var compareAndDeleteSHA = driver.NewScript("", compareAndDelete).Hash()

func rawPair(conn redis.Conn, key string) error {
	const token = "0123456789abcdef0123456789abcdef"
	if r, err := conn.Do("SET", key, token, "NX", "PX", 10000); err != nil || r == nil {
		return fmt.Errorf("SET = %v, %w", r, err)
	}
	if r, err := conn.Do("EVALSHA", compareAndDeleteSHA, 1, key, token); err != nil || r != int64(1) {
		return fmt.Errorf("release = %v, %w", r, err)
	}
	return nil
}

func lockPair(ctx context.Context, l strategy.Lock) error {
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// A side is one of those that are compared: a pair of it takes the lock of that caller
// and gives it back.
type side struct {
	name string
	pair func(caller int) error
}

// sides are the floor, and the lock, with and without fences. The floor has a connection per caller: alone, one of its
// own; else a pool's.
func sides(b *testing.B, callers int) []side {
	s := redistest.Shared(b)
	pool := func() *redis.Pool { // without time-outs: these cost a system call per command
		p := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(s.URL()) }, MaxIdle: callers}
		b.Cleanup(func() { p.Close() })
		return p
	}
	keys := make([]string, callers)
	for i := range keys {
		keys[i] = fmt.Sprintf("bench:{%s:%d}", b.Name(), i)
	}
	floor := func() side {
		p := pool()
		conn := p.Get()
		b.Cleanup(func() { conn.Close() })
		if _, err := conn.Do("SCRIPT", "LOAD", compareAndDelete); err != nil {
			b.Fatal(err)
		}
		if callers == 1 {
			return side{"floor", func(int) error { return rawPair(conn, keys[0]) }}
		}
		return side{"floor", func(i int) error {
			conn := p.Get()
			defer conn.Close()
			return rawPair(conn, keys[i])
		}}
	}
	lock := func(name string, options ...fairqueue.Option) side {
		st, err := fairqueue.New(redigonode.New(pool()), strategy.Options{}, options...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { st.Close() })
		locks := make([]strategy.Lock, callers)
		for i := range locks {
			locks[i] = st.NewLock(fmt.Sprintf("%s:%s:%d", b.Name(), name, i))
		}
		ctx := b.Context()
		return side{name, func(i int) error { return lockPair(ctx, locks[i]) }}
	}
	return []side{floor(), lock("unfenced", fairqueue.WithoutFences()), lock("fenced")}
}

// BenchmarkPair also counts allocations.
func BenchmarkPair(b *testing.B) {
	for _, c := range []int{1, 8, 64, 256} {
		for _, s := range sides(b, c) {
			b.Run(fmt.Sprintf("%s/%d", s.name, c), func(b *testing.B) {
				crowd(b, s, c, 2*c)
				b.ReportAllocs()
				b.ResetTimer()
				crowd(b, s, c, b.N)
			})
		}
	}
}

// crowd divides count pairs among callers.
func crowd(b *testing.B, s side, callers, count int) {
	var left atomic.Int64
	left.Store(int64(count))
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := s.pair(i); err != nil {
					b.Error(s.name, err)
					return
				}
			}
		})
	}
	all.Wait()
}
