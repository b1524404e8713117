package ifeq

import (
	"context"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// Check looks at the server, tries the commands on a key that is not there, and finds the server's dialect.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return rediskit.CheckLock(ctx, o, p, func(ctx context.Context, c driver.Claim) error {
		if err := rediskit.CheckNode(ctx, c.Due, p); err != nil {
			return err
		}
		if err := rediskit.CheckCommands(ctx, c.Due, p, c.Key, []any{"GETEX"}, []any{"SET", c.Token, "XX", "PX", 1}); err != nil {
			return err
		}
		if _, err := p.deleteIfEqual(ctx, c); err != nil {
			return err
		}
		if o.Wait == strategy.WaitNotification {
			if err := rediskit.CheckCommands(ctx, c.Due, p, p.names.Of(c.Key).Channel(), []any{"PUBLISH", ""}); err != nil {
				return err
			}
		}
		return rediskit.CheckWatch(ctx, c, o.Wait, p)
	})
}
