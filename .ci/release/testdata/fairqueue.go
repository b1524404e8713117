package main

import (
	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

func connect(address string) (strategy.Strategy, error) {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", address) }}
	return fairqueue.New(redigonode.New(pool), strategy.Options{})
}
