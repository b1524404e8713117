// Measures how long a GET takes, for one caller and for many.
package goredisnode

import (
	"fmt"
	"sync/atomic"
	"testing"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// BenchmarkPair is an acquire and a release of a lock that is free, alone and by many at once,
// each with a lock of its own; on redigo next to it.
func BenchmarkPair(b *testing.B) {
	s := redistest.Shared(b)
	for _, client := range []struct {
		name string
		open func(b *testing.B) driver.Node
	}{
		{"goredis", func(b *testing.B) driver.Node { return to(b, s.URL()) }},
		{"redigo", func(b *testing.B) driver.Node {
			n := redigonode.New(s.Pool())
			closeWith(b, n)
			return n
		}},
	} {
		locks, err := fairqueue.New(client.open(b), strategy.Options{})
		if err != nil {
			b.Fatal(err)
		}
		pair := func(b *testing.B, lock strategy.Lock) {
			lease, err := lock.TryAcquire(b.Context())
			if err == nil {
				err = lease.Release(b.Context())
			}
			if err != nil {
				b.Error(err)
			}
		}
		b.Run(client.name+"/alone", func(b *testing.B) {
			lock := locks.NewLock(b.Name())
			b.ReportAllocs()
			for b.Loop() {
				pair(b, lock)
			}
		})
		b.Run(client.name+"/64 at once", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				lock := locks.NewLock(fmt.Sprint(b.Name(), next.Add(1)))
				for pb.Next() {
					pair(b, lock)
				}
			})
		})
	}
}

// next numbers the benchmark's locks.
var next atomic.Int64
