package main

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/mna/redisc"

	rediscnode "github.com/lockstrategies/locks/clients/redisc"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

func connect(address string) (strategy.Strategy, error) {
	node := rediscnode.New(&redisc.Cluster{
		StartupNodes: []string{address},
		DialOptions:  []redis.DialOption{redis.DialConnectTimeout(time.Second)},
	})
	return fairqueue.New(node, strategy.Options{})
}
