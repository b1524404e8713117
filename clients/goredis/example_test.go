package goredisnode_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

func ExampleNew() {
	options, err := redis.ParseURL(goredisnode.URL) // redis://localhost:6379 in your program
	if err != nil {
		log.Fatal(err)
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer client.Close()

	node := goredisnode.New(client)
	locks, err := fairqueue.New(node, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close() // and with it the node, not the client

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil // ctx ends if the lock is lost
	})
	fmt.Println("error:", err)
	// Output:
	// only one at a time gets here
	// error: <nil>
}

// A cluster: keys of one lock lie in one slot.
func ExampleNew_cluster() {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{"localhost:7000", "localhost:7001", "localhost:7002"},
		ContextTimeoutEnabled: true,
	})
	defer client.Close()
	node := goredisnode.New(client)
	locks, err := fairqueue.New(node, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	fmt.Println(node.Name())
	// Output: cluster of localhost:7000, localhost:7001, localhost:7002
}

// Sentinel says which server is the master.
func ExampleNew_sentinel() {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            "mymaster",
		SentinelAddrs:         []string{"localhost:26379"},
		ContextTimeoutEnabled: true,
	})
	defer client.Close()
	node := goredisnode.New(client)
	locks, err := fairqueue.New(node, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	fmt.Println(node.Ordered())
	// Output: false
}

// RedLock: a client for each of several servers that know nothing of each other.
func ExampleNew_redlock() {
	var nodes []driver.Node
	for _, addr := range []string{"localhost:6379", "localhost:6380", "localhost:6381"} {
		client := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		defer client.Close()
		node := goredisnode.New(client)
		nodes = append(nodes, node)
	}
	locks, err := redlock.New(nodes, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	fmt.Println(len(nodes), "servers")
	// Output: 3 servers
}

// The New of each algorithm names what is wrong with a client.
func ExampleNew_refused() {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	_, err := fairqueue.New(goredisnode.New(client), strategy.Options{})
	fmt.Println(err)
	// Output: goredis: the client's Options.ContextTimeoutEnabled is false, so a request that is not answered goes on after its time-out: set it, or call goredisnode.NewDerived in place of New
}

// A client that the program has already, and whose options it keeps.
func ExampleNewDerived() {
	options, err := redis.ParseURL(goredisnode.URL)
	if err != nil {
		log.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()

	locks, err := fairqueue.New(goredisnode.NewDerived(client), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = strategy.Do(context.Background(), locks.NewLock("invoice/43"), func(context.Context, strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// only one at a time gets here
	// error: <nil>
}
