package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

// Three jobs may use the database at once; a heavy one counts as two.
func ExampleNew() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := semaphore.New(redigonode.New(pool), 3, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()
	light, heavy := locks.NewLock("database"), locks.NewMultiPermitLock("database", 2)

	err = strategy.Do(ctx, heavy, func(ctx context.Context, _ strategy.Lease) error {
		return strategy.Do(ctx, light, func(ctx context.Context, _ strategy.Lease) error {
			fmt.Println("a heavy and a light one at once")
			_, err := light.TryAcquire(ctx)
			fmt.Println("a third has to wait:", errors.Is(err, strategy.ErrHeld))
			return nil
		})
	})
	fmt.Println("error:", err)
	// Output:
	// a heavy and a light one at once
	// a third has to wait: true
	// error: <nil>
}

// The number of permits changes for all processes, and holders keep what they have.
func ExampleNew_setPermits() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := semaphore.New(redigonode.New(pool), 1, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	first, err := locks.NewLock("licence").TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer first.Release(ctx) //nolint:errcheck // it goes with its TTL
	if err := locks.SetPermits(ctx, "licence", 2); err != nil {
		log.Fatal(err)
	}
	second, err := locks.NewLock("licence").TryAcquire(ctx)
	fmt.Println("two at once:", err == nil)
	if err == nil {
		fmt.Println("released:", second.Release(ctx))
	}
	fmt.Println("as at the start:", locks.SetPermits(ctx, "licence", 0))
	// Output:
	// two at once: true
	// released: <nil>
	// as at the start: <nil>
}
