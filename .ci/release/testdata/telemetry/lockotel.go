package main

import (
	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockotel"
)

func connect(address string) (strategy.Strategy, error) {
	observe, err := lockotel.New(lockotel.Options{Strategy: "luascript"})
	if err != nil {
		return nil, err
	}
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", address) }}
	return luascript.New(pool, strategy.Options{Observe: observe})
}
