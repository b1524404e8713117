package rwlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

// Two read at the same time. A writer prepares a new list alone, and reads it with the others.
func ExampleNew() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := rwlock.New(redigonode.New(pool), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()
	must := func(lease strategy.Lease, err error) strategy.Lease {
		if err != nil {
			log.Fatal(err)
		}
		return lease
	}

	first := must(locks.NewRLock("prices").Acquire(ctx))
	second := must(locks.NewRLock("prices").Acquire(ctx))
	_, err = locks.NewLock("prices").TryAcquire(ctx)
	fmt.Println("a writer, while two read:", err != nil)
	first.Release(ctx)
	second.Release(ctx)

	writer := must(locks.NewLock("prices").Acquire(ctx))
	_, err = locks.NewRLock("prices").TryAcquire(ctx)
	fmt.Println("a reader, while one writes:", err != nil)
	reader := must(locks.Downgrade(ctx, writer)) // nobody writes in between
	other := must(locks.NewRLock("prices").Acquire(ctx))
	fmt.Println("released:", reader.Release(ctx), other.Release(ctx))
	// Output:
	// a writer, while two read: true
	// a reader, while one writes: true
	// released: <nil> <nil>
}
