package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

// A function that holds the lock calls one that takes it: with the context that Do
// hands out, it gets in again.
func ExampleNew() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := reentrant.New(redigonode.New(pool), strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	account := locks.NewLock("account/42")

	withdraw := func(ctx context.Context, amount int) error {
		return strategy.Do(ctx, account, func(context.Context, strategy.Lease) error {
			fmt.Println("withdrawn:", amount)
			return nil
		})
	}
	err = strategy.Do(context.Background(), account, func(ctx context.Context, _ strategy.Lease) error {
		return errors.Join(withdraw(ctx, 10), withdraw(ctx, 20))
	})
	fmt.Println("error:", err)
	// Output:
	// withdrawn: 10
	// withdrawn: 20
	// error: <nil>
}

// An owner with a name of its own, a request's id say, re-enters wherever its context
// goes. Everybody else is refused until its last release.
func ExampleNew_owner() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	locks, err := reentrant.New(redigonode.New(pool), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	report := locks.NewLock("report")
	request := strategy.WithOwner(context.Background(), "request 4711")
	other := strategy.WithOwner(context.Background(), "request 4712")

	outer, err := report.TryAcquire(request)
	if err != nil {
		log.Fatal(err)
	}
	inner, err := report.TryAcquire(request)
	if err != nil {
		log.Fatal(err)
	}
	f1, _ := outer.Fence()
	f2, _ := inner.Fence()
	fmt.Println("the same fence:", f1 == f2)

	info, err := locks.Inspect(context.Background(), "report")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held by", info.Owner, "times", info.Holds)

	fmt.Println("outer released:", outer.Release(request)) // in any order
	var held *strategy.HeldError
	_, err = report.TryAcquire(other)
	fmt.Println("still held:", errors.As(err, &held) && held.Holder == "request 4711")
	fmt.Println("inner released:", inner.Release(request))
	_, err = report.TryAcquire(other)
	fmt.Println("free:", err == nil)
	// Output:
	// the same fence: true
	// held by request 4711 times 2
	// outer released: <nil>
	// still held: true
	// inner released: <nil>
	// free: true
}
