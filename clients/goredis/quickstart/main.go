// Quickstart is the first lock that the README shows, on go-redis.
package main

import (
	"context"
	"fmt"
	"time"

	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
	"github.com/redis/go-redis/v9"
)

func main() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	locks, err := fairqueue.New(goredisnode.New(client), strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	err = strategy.DoWithin(context.Background(), locks.NewLock("invoice/42"), 2*time.Second, func(ctx context.Context, _ strategy.Lease) error {
		fmt.Println("only one process at a time gets here")
		return nil // ctx ends when the lock is lost
	})
	fmt.Println(err) // another process has it for longer than these 2 s: errors.Is(err, strategy.ErrHeld)
}
