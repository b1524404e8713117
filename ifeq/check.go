package ifeq

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Check looks at the server, tries the commands on a key that is not there, and finds the server's dialect.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return driver.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := driver.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		if err := driver.CheckCommands(ctx, c.Due, p, c.Key, []any{"GET"}, []any{"SET", c.Token, "XX", "PX", 1}); err != nil {
			return err
		}
		if _, err := p.deleteIfEqual(ctx, c); err != nil {
			return err
		}
		if o.Wait == strategy.WaitNotification {
			if err := driver.CheckCommands(ctx, c.Due, p, p.names.Of(c.Key).Channel(), []any{"PUBLISH", ""}); err != nil {
				return err
			}
		}
		return driver.CheckWatch(ctx, c, o.Wait, p)
	})
}

// Probe asks the server whether it was away.
func (p *protocol) Probe(ctx context.Context, due time.Time) uint64 {
	return driver.ProbeNodes(ctx, due, p.Node)
}
