package semaphore

import (
	"context"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/algorithm/holderset"
	"github.com/lockstrategies/locks/strategy"
)

var inspect = driver.NewScript("inspect", shared+holderset.Inspect)

// Inspect reads the permits, the queue and the fence counter in one step. The Info is that of the hold that
// ends first; of several that end in the same millisecond, always of the same one.
// Holds is how many permits are taken.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	l := p.Names.Of(c.Key)
	return p.Inspected(ctx, c, inspect, l.Keys[0], l.Keys[2], l.Keys[1])
}
