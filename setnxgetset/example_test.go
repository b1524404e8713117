package setnxgetset_test

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
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

func ExampleNew() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := setnxgetset.New(redigonode.New(pool), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = strategy.Do(context.Background(), locks.NewLock("legacy/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// only one at a time gets here
	// error: <nil>
}

// ServiceStack.Redis: AcquireLock(key, timeout). The one number is how long the lock
// counts and how long to wait for it. So a waiter that waits as long as the holder works
// gets the lock from under it, and not the time-out.
func ExampleNew_acquireLock() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	acquireLock := func(key string, timeout time.Duration) (strategy.Strategy, strategy.Lease, error) {
		raw := func(name string) string { return name }
		o := strategy.Options{TTL: timeout, Key: raw, Backoff: setnxgetset.Backoff}
		locks, err := setnxgetset.New(redigonode.New(pool), o, setnxgetset.WithWatchTakeOver(), setnxgetset.WithBlindRelease())
		if err != nil {
			return nil, nil, err
		}
		wait, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		lease, err := locks.NewLock(key).Acquire(wait)
		return locks, lease, err
	}

	first, works, err := acquireLock("urn:sale", 2*time.Second)
	fmt.Println("first:", err == nil)
	second, lease, err := acquireLock("urn:sale", 20*time.Second) // more than the first has left
	fmt.Println("second:", err == nil)
	fmt.Println("the first has lost it:", errors.Is(works.Err(), strategy.ErrLost))
	fmt.Println("Dispose:", lease.Release(context.Background()) == nil)
	first.Close()
	second.Close()
	// Output:
	// first: true
	// second: true
	// the first has lost it: true
	// Dispose: true
}

// The stamps can follow a clock on which all contenders agree better than on their own.
func ExampleWithClock() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	const ahead = time.Hour // what this machine's clock is found to be wrong by
	right := func() time.Time { return time.Now().Add(-ahead) }
	locks, err := setnxgetset.New(redigonode.New(pool), strategy.Options{}, setnxgetset.WithClock(right))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.NewLock("stamped").TryAcquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("released:", lease.Release(context.Background()))
	// Output:
	// released: <nil>
}

// yourNode is your own driver.Node, over another client; here it is the tests'.
var yourNode driver.Node

// show prints each request.
func show(request string, send func()) {
	fmt.Println(request)
	send()
}

// New takes any node: of another client, or one with something around it.
func ExampleNew_node() {
	locks, err := setnxgetset.New(conformance.GateNode(yourNode, show), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	lease, err := locks.NewLock("stamp shown").TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// SETNX lock:{stamp shown}
	// GETEX lock:{stamp shown}
	// DEL lock:{stamp shown}
}

// With WithWatchTakeOver the release is a transaction.
func ExampleWithWatchTakeOver() {
	p := setnxgetset.On(conformance.GateNode(yourNode, show), setnxgetset.WithWatchTakeOver())
	locks, err := engine.New(p, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	lease, err := locks.NewLock("stamp watched").TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// SETNX lock:{stamp watched}
	// WATCH
	// GETEX
	// MULTI
	// DEL
	// EXEC
}
