package fairqueue

import (
	"context"
	"time"

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
// asked for. EXISTS and MGET only save time: where they are forbidden, GET and SET serve.
func (p *protocol) rights(c driver.Claim, w strategy.Wait) []driver.Right {
	l := p.names.Of(c.Key)
	// The scripts name all three in KEYS, so the user needs them even where no command is needed.
	lock := driver.Right{Key: c.Key, Commands: []string{"GET", "SET", "DEL", "PTTL", "PEXPIRE", "TIME"}}
	queue := driver.Right{Key: queueKey(l)}
	counter := driver.Right{Key: counterKey(l)}
	switch w {
	case strategy.WaitNotification:
		lock.Channel, lock.Commands = l.Channel(), append(lock.Commands, "PUBLISH")
	case strategy.WaitQueue:
		queue.Channel = lineChannel(l, c.Token) // a check has no line; the token is as good an id
		queue.Commands = []string{"LINDEX", "LPOP", "LPOS", "LREM", "RPUSH", "PTTL", "PEXPIRE", "PUBLISH"}
	}
	if p.fences {
		counter.Commands = []string{"GET", "SET"}
	}
	return []driver.Right{lock, queue, counter}
}

// Probe asks the server whether it was away.
func (p *protocol) Probe(ctx context.Context, due time.Time) uint64 {
	return driver.ProbeNodes(ctx, due, p.Node)
}
