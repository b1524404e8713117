package reentrant

import (
	"context"

	"github.com/lockstrategies/locks/strategy"
)

// Check looks at the server, and tries what the scripts and the waiters need.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return strategy.CheckLock(ctx, o, p, p, func(c strategy.Claim) error {
		if err := strategy.CheckScripts(ctx, c.Due, p, rights(c, o.Wait)...); err != nil {
			return err
		}
		return strategy.CheckWatch(ctx, c, o.Wait, p)
	})
}

// rights are the least that the scripts need, and PUBLISH if the caller demands notifications.
func rights(c strategy.Claim, w strategy.Wait) []strategy.Right {
	lock := strategy.Right{Key: c.Key, Commands: []string{"HGETALL", "HSET", "HDEL", "DEL", "PTTL", "PEXPIREAT", "TIME"}}
	if w == strategy.WaitNotice {
		lock.Channel, lock.Commands = channel(c), append(lock.Commands, "PUBLISH")
	}
	return []strategy.Right{lock, {Key: counter(c), Commands: []string{"GET", "SET"}}}
}
