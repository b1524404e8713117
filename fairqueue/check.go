package fairqueue

import (
	"context"

	"github.com/lockstrategies/locks/strategy"
)

// Check looks at the server, and tries what the scripts need.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return strategy.CheckLock(ctx, o, p, p, func(c strategy.Claim) error {
		if err := strategy.CheckScripts(ctx, c.Due, p, p.rights(c, o.Wait)...); err != nil {
			return err
		}
		return strategy.CheckWatch(ctx, c, o.Wait, p)
	})
}

// rights are what the scripts cannot do without, and what the way to wait needs that the user
// asked for. EXISTS, MGET and MSET only save time: where they are forbidden, GET and SET serve.
func (p *protocol) rights(c strategy.Claim, w strategy.Wait) []strategy.Right {
	lock := strategy.Right{Key: c.Key, Commands: []string{"GET", "SET", "DEL", "PTTL", "PEXPIRE", "TIME"}}
	line := strategy.Right{Key: queue(c)} // the scripts name it in KEYS in any case
	switch w {
	case strategy.WaitNotice:
		lock.Channel, lock.Commands = channel(c), append(lock.Commands, "PUBLISH")
	case strategy.WaitQueue:
		line.Channel, line.Commands = queue(c)+":"+c.Token, []string{"LINDEX", "LPOP", "LPOS", "LREM", "RPUSH", "PTTL", "PEXPIRE", "PUBLISH"}
	}
	fence := strategy.Right{Key: counter(c)} // likewise
	if p.fences {
		fence.Commands = []string{"GET", "SET"}
	}
	return []strategy.Right{lock, line, fence}
}
