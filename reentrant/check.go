package reentrant

import (
	"context"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/strategy"
)

// Check is that of a protocol of scripts.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return rediskit.CheckScripted(ctx, o, p, func(c driver.Claim) []rediskit.Right { return rights(p.names.Of(c.Key), o.Wait) })
}

// Scripts are all that this algorithm sends.
func (p *protocol) Scripts() []*driver.Script {
	return []*driver.Script{acquire, extend, release, inspect, adopt, force}
}

// rights are the least that the scripts need, and PUBLISH if the caller demands notifications.
func rights(l *keycache.Lock, w strategy.Wait) []rediskit.Right {
	lock := rediskit.Right{Key: l.Keys[0], Commands: []string{"HGETALL", "HSET", "HDEL", "DEL", "PTTL", "PEXPIREAT", "TIME"}}
	if w == strategy.WaitNotification {
		lock.Channel, lock.Commands = l.Channel(), append(lock.Commands, "PUBLISH")
	}
	return []rediskit.Right{lock, {Key: l.Keys[1], Commands: []string{"GET", "SET"}}}
}
