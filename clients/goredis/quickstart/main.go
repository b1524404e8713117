package main

import (
	"context"
	"fmt"
	goredisnode "github.com/lockstrategies/locks/clients/goredis"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
	"github.com/redis/go-redis/v9"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	locks, err := fairqueue.New(goredisnode.NewDerived(rdb), strategy.Options{})
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	err = strategy.DoWithin(context.Background(), locks.NewLock("invoice/42"),
		0, func(ctx context.Context, _ strategy.Lease) error {
			fmt.Println("only one process at a time gets here")
			return nil // ctx ends when the lock is lost
		})
	fmt.Println(err) // strategy.ErrHeld: another process has the lock
}
