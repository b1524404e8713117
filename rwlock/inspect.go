package rwlock

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/queue"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed inspect.lua
	inspectLua string

	inspect = driver.NewScript("inspect", queue.Entries+inspectLua)
)

// Inspect reads the holds, the queue and the fence counter in one step. The Info is that of the hold that
// ends first. Holds is how many hold the lock: if they are several, they read.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	l := p.Names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, inspect, l.Keys)
	if err != nil {
		return strategy.Info{}, err
	}
	return p.Inspected(l.Keys[3], reply)
}
