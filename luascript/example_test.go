package luascript_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

func ExampleNew() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil // ctx ends if the lock is lost
	})
	fmt.Println("error:", err)
	// Output:
	// only one at a time gets here
	// error: <nil>
}

// Without waiting, and with the fence that a store can refuse late writes by.
func ExampleNew_tryAcquire() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	first, err := locks.NewLock("report").TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locks.NewLock("report").TryAcquire(ctx)
	fmt.Println("held:", errors.Is(err, strategy.ErrHeld))
	older, _ := first.Fence()
	fmt.Println("released:", first.Release(ctx) == nil)

	second, err := locks.NewLock("report").TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	newer, _ := second.Fence()
	fmt.Println("the fence rises:", newer > older)
	fmt.Println("released twice:", second.Release(ctx), "/", second.Release(ctx))
	// Output:
	// held: true
	// released: true
	// the fence rises: true
	// released twice: <nil> / lock released
}

// yourNode is your own driver.Node, over another client; here it is the tests'.
var yourNode driver.Node

// New takes any node: of another client, or one with something around it.
func ExampleNew_node() {
	requests := 0
	counting := conformance.GateNode(yourNode, func(request string, send func()) {
		requests++
		send()
	})
	locks, err := luascript.New(counting, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	lease, err := locks.NewLock("counted").TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("requests:", requests)
	// Output:
	// requests: 2
}

// A lock that outlives a fail-over to the one replica that there is.
func ExampleNew_acks() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", "primary:6379") }}
	defer pool.Close()
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{Acks: strategy.Acks{Replicas: 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()
	if err := locks.Check(ctx); err != nil {
		log.Fatal(err) // no replica confirms
	}

	lease, err := locks.NewLock("invoice/42").Acquire(ctx)
	var missing *strategy.AcksError
	if errors.As(err, &missing) {
		log.Fatalf("%d replicas have the lock, which is taken back: %v", missing.Got.Replicas, err)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx) //nolint:errcheck // it goes with its TTL
}
