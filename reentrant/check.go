package reentrant

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/names"
	"github.com/lockstrategies/locks/strategy"
)

// Check looks at the server, and tries what the scripts and the waiters need.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return driver.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := driver.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		if err := driver.CheckScripts(ctx, c.Due, p, rights(p.names.Of(c.Key), o.Wait)...); err != nil {
			return err
		}
		return driver.CheckWatch(ctx, c, o.Wait, p)
	})
}

// rights are the least that the scripts need, and PUBLISH if the caller demands notifications.
func rights(l *names.Lock, w strategy.Wait) []driver.Right {
	lock := driver.Right{Key: l.Keys[0], Commands: []string{"HGETALL", "HSET", "HDEL", "DEL", "PTTL", "PEXPIREAT", "TIME"}}
	if w == strategy.WaitNotification {
		lock.Channel, lock.Commands = l.Channel(), append(lock.Commands, "PUBLISH")
	}
	return []driver.Right{lock, {Key: l.Keys[1], Commands: []string{"GET", "SET"}}}
}

// Probe asks the server whether it was away.
func (p *protocol) Probe(ctx context.Context, due time.Time) uint64 {
	return driver.ProbeNodes(ctx, due, p.Node)
}
