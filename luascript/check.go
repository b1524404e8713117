package luascript

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/names"
	"github.com/lockstrategies/locks/strategy"
)

// Check looks at the server, and asks it for every right that the scripts need, on keys that nobody
// else uses.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return driver.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := driver.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		if err := driver.CheckScripts(ctx, c.Due, p, p.rights(p.names.Of(c.Key), o.Wait)...); err != nil {
			return err
		}
		return driver.CheckWatch(ctx, c, o.Wait, p)
	})
}

// rights are what the scripts cannot do without. PUBLISH is one of them only if Options.Wait is
// WaitNotification: without it releases stand, and waiters wake at the holder's TTL.
func (p *protocol) rights(l *names.Lock, w strategy.Wait) []driver.Right {
	lock := driver.Right{Key: l.Keys[0], Commands: []string{"GET", "SET", "DEL", "PTTL", "PEXPIRE"}}
	if w == strategy.WaitNotification {
		lock.Channel, lock.Commands = l.Channel(), append(lock.Commands, "PUBLISH")
	}
	if !p.fences {
		return []driver.Right{lock}
	}
	return []driver.Right{lock, {Key: l.Keys[1], Commands: []string{"GET", "SET", "TIME"}}}
}

// Probe asks the server whether it was away.
func (p *protocol) Probe(ctx context.Context, due time.Time) uint64 {
	return driver.ProbeNodes(ctx, due, p.Node)
}
