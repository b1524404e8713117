package main

import (
	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
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
	return luascript.New(redigonode.New(pool), strategy.Options{Observe: observe})
}
