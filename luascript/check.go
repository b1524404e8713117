package luascript

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

// rights are what the scripts cannot do without. PUBLISH is needed only by a user who asked
// for WaitNotice: without it releases stand, and waiters wake at the holder's TTL.
func (p *protocol) rights(c strategy.Claim, w strategy.Wait) []strategy.Right {
	lock := strategy.Right{Key: c.Key, Commands: []string{"GET", "SET", "DEL", "PTTL", "PEXPIRE"}}
	if w == strategy.WaitNotice {
		lock.Channel, lock.Commands = channel(c), append(lock.Commands, "PUBLISH")
	}
	if !p.fences {
		return []strategy.Right{lock}
	}
	return []strategy.Right{lock, {Key: counter(c), Commands: []string{"GET", "SET", "TIME"}}}
}
