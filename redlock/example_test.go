// The examples of the package documentation.
package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

// One node for each server. Here it is one server, and in your program five, which
// an operator has bootstrapped: see Bootstrap.
func ExampleNew() {
	var nodes []driver.Node
	for _, url := range []string{url} {
		pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
		defer pool.Close()
		nodes = append(nodes, redigonode.New(pool))
	}
	locks, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second}, redlock.WithNodeTimeout(time.Second))
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

// Once, at installation; never at application start.
func ExampleBootstrap() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	defer pool.Close()
	node := redigonode.New(pool)
	defer node.Close()
	fmt.Println("error:", redlock.Bootstrap(context.Background(), []driver.Node{node})) // all of them
	// Output: error: <nil>
}

// yourNodes are nodes of your own, over another client; here two of three are down.
var yourNodes []driver.Node

// What a majority does not say is not known: that is not "held", and not waited for.
func ExampleNew_minority() {
	locks, err := redlock.New(yourNodes, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	_, err = locks.NewLock("report").Acquire(context.Background())
	fmt.Println("held:", errors.Is(err, strategy.ErrHeld))
	var none *strategy.QuorumError // it also has what each of them said
	if errors.As(err, &none) {
		fmt.Printf("%d of %d have to agree\n", none.Need, len(none.Nodes))
	}
	// Output:
	// held: false
	// 2 of 3 have to agree
}
