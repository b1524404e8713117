// Package readme has the code that documents show, so that it is compiled.
package readme

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

// First makes a first lock on redigo.
func First(address string) (strategy.Lock, error) {
	pool := &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", address, redis.DialConnectTimeout(time.Second))
	}}
	locks, err := fairqueue.New(redigonode.New(pool), strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	return locks.NewLock("invoice/42"), nil
}
