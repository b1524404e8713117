// Quickstart is the first lock that the README shows, on go-redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
	"github.com/redis/go-redis/v9"
)

var address = "localhost:6379"

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: address, DialTimeout: time.Second, ContextTimeoutEnabled: true})
	node, err := goredisnode.New(client)
	check(err)
	locks, err := engine.New(fairqueue.On(node), strategy.Options{TTL: 10 * time.Second, MaxHold: 10 * time.Minute})
	check(err)
	defer locks.Close()
	check(locks.Check(ctx)) // the server is away, is a replica, or may evict locks: the error says which

	// Wait for the lock for 2 s at most. Then work for 10 minutes at most.
	err = strategy.DoWithin(ctx, 2*time.Second, locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one process at a time gets here")
		return nil // ctx ends when the lock is lost
	})
	if errors.Is(err, strategy.ErrHeld) {
		fmt.Println("another process has it:", err)
		return
	}
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
