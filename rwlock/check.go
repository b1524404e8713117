package rwlock

import (
	"context"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/algorithm/queue"
	"github.com/lockstrategies/locks/strategy"
)

// Check is that of a protocol of scripts.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return rediskit.CheckScripted(ctx, o, p, func(c driver.Claim) []rediskit.Right { return rights(p.Names.Of(c.Key), c.Token, o.Wait) })
}

// Scripts are all that this algorithm sends.
func (p *protocol) Scripts() []*driver.Script {
	return []*driver.Script{acquire, extend, release, pass, inspect, adopt}
}

// rights are what the scripts cannot do without, and what the way to wait needs that the user asked for.
func rights(l *keycache.Lock, line string, w strategy.Wait) []rediskit.Right {
	lock := rediskit.Right{Key: l.Keys[0], Commands: []string{"ZRANGE", "ZADD", "ZREM", "ZREMRANGEBYSCORE", "ZSCORE", "ZCOUNT", "PTTL", "PEXPIREAT", "TIME"}}
	readers, writers := rediskit.Right{Key: l.Keys[1]}, rediskit.Right{Key: l.Keys[2]}
	switch w {
	case strategy.WaitNotification:
		lock.Channel, lock.Commands = l.Channel(), append(lock.Commands, "PUBLISH")
	case strategy.WaitQueue:
		for _, queued := range []*rediskit.Right{&readers, &writers} {
			queued.Channel = queue.Channel(queued.Key, line)
			queued.Commands = []string{"LINDEX", "LPOP", "LPOS", "LREM", "RPUSH", "PTTL", "PEXPIRE", "PUBLISH"}
		}
	}
	return []rediskit.Right{lock, readers, writers, {Key: l.Keys[3], Commands: []string{"GET", "SET"}}}
}
