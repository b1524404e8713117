package setnxpx_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

func ExampleNew() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := setnxpx.New(redigonode.New(pool), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// only one at a time gets here
	// error: <nil>
}

// ServiceStack.Redis: Add(key, value, ttl), and Remove(key), which does not compare.
func ExampleWithBlindRelease() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	raw := func(name string) string { return name }
	locks, err := setnxpx.New(redigonode.New(pool), strategy.Options{TTL: 5 * time.Second, Key: raw}, setnxpx.WithBlindRelease())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.NewLock("urn:sale").TryAcquire(ctx)
	fmt.Println("Add:", err == nil)
	_, err = locks.NewLock("urn:sale").TryAcquire(ctx)
	fmt.Println("Add again:", err == nil)
	fmt.Println("Remove:", lease.Release(ctx) == nil)
	// Output:
	// Add: true
	// Add again: false
	// Remove: true
}

// StackExchange.Redis: LockTake, LockQuery, LockExtend, LockRelease. Theirs compare and
// write in one step, as luascript does; these do not.
func ExampleNew_stackExchange() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	raw := func(name string) string { return name }
	locks, err := setnxpx.New(redigonode.New(pool), strategy.Options{TTL: 5 * time.Second, Key: raw})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.NewLock("se:sale").TryAcquire(ctx)
	fmt.Println("LockTake:", err == nil)
	_, err = locks.NewLock("se:sale").TryAcquire(ctx)
	fmt.Println("LockTake again:", err == nil)
	info, err := locks.Inspect(ctx, "se:sale")
	fmt.Println("LockQuery:", err == nil && info.Token == lease.Token())
	fmt.Println("LockExtend:", lease.Extend(ctx) == nil)
	fmt.Println("LockRelease:", lease.Release(ctx) == nil)
	// Output:
	// LockTake: true
	// LockTake again: false
	// LockQuery: true
	// LockExtend: true
	// LockRelease: true
}

// CSRedisCore: Lock(name, seconds, autoDelay) asks every 3 ms for up to the TTL. Its
// release is a script, as luascript's is.
func ExampleNew_csRedisCore() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	const seconds, autoDelay = 1 * time.Second, true
	locks, err := setnxpx.New(redigonode.New(pool), strategy.Options{
		TTL:     seconds,
		Key:     func(name string) string { return "CSRedisClientLock:" + name },
		Backoff: func(int) time.Duration { return 3 * time.Millisecond },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lock := func() (strategy.Lease, error) {
		wait, cancel := context.WithTimeout(context.Background(), seconds)
		defer cancel()
		lease, err := locks.NewLock("sale").Acquire(wait)
		if err == nil && autoDelay {
			err = lease.KeepAlive(0)
		}
		return lease, err
	}

	first, err := lock()
	fmt.Println("first:", err == nil)
	_, err = lock() // the first is renewed, so this waits in vain
	fmt.Println("second: out of time", errors.Is(err, context.DeadlineExceeded))
	fmt.Println("released:", first.Release(context.Background()) == nil)
	// Output:
	// first: true
	// second: out of time true
	// released: true
}
