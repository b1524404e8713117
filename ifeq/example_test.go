package ifeq_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/ifeq"
	"github.com/lockstrategies/locks/strategy"
)

// It takes Redis 8.4 or Valkey 9.0. An older server grants nothing, and Check says so.
func ExampleNew() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL("redis://localhost:6379") }}
	defer pool.Close()
	locks, err := ifeq.New(redigonode.New(pool), strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	if err := locks.Check(context.Background()); errors.Is(err, strategy.ErrUnsupported) {
		log.Fatal(err) // take package luascript, or setnxpx
	}

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("only one at a time gets here")
		return nil
	})
	fmt.Println("error:", err)
}
