package fairqueue

import (
	"context"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Check looks at the server, and tries what the scripts need.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return driver.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := driver.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		if err := driver.CheckScripts(ctx, c.Due, p, p.rights(c, o.Wait)...); err != nil {
			return err
		}
		return driver.CheckWatch(ctx, c, o.Wait, p)
	})
}

// rights are what the scripts cannot do without, and what the way to wait needs that the user
// asked for. EXISTS, MGET and MSET only save time: where they are forbidden, GET and SET serve.
func (p *protocol) rights(c driver.Claim, w strategy.Wait) []driver.Right {
	lock := driver.Right{Key: c.Key, Commands: []string{"GET", "SET", "DEL", "PTTL", "PEXPIRE", "TIME"}}
	line := driver.Right{Key: p.names.of(c.Key).queue()} // the scripts name it in KEYS in any case
	switch w {
	case strategy.WaitNotification:
		lock.Channel, lock.Commands = p.names.of(c.Key).channel(), append(lock.Commands, "PUBLISH")
	case strategy.WaitQueue:
		line.Channel, line.Commands = p.names.of(c.Key).queue()+":"+c.Token, []string{"LINDEX", "LPOP", "LPOS", "LREM", "RPUSH", "PTTL", "PEXPIRE", "PUBLISH"}
	}
	fence := driver.Right{Key: p.names.of(c.Key).counter()} // likewise
	if p.fences {
		fence.Commands = []string{"GET", "SET"}
	}
	return []driver.Right{lock, line, fence}
}
