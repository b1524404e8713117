package redlock

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// Adopt is the vote once more, for a caller who brings the token of a lock that is held: c.Token
// takes the place of from. Each node must still have from, and its guard must be open.
//
// If Adopt fails, the nodes that agreed have c.Token deleted, and from does not come back there: an
// attempt that fails after its quorum (too slow, or without a fence) leaves the lock free.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	g, err := p.elect(ctx, c, (*voteCount).holdDecided, func(ctx context.Context, due time.Time, n driver.Node) (any, error) {
		reply, err := n.Eval(ctx, due, adopt, p.keys(c), from, c.TTL.Milliseconds(), c.Token, p.longest(c.TTL), channel(c))
		if holder, held := reply.([]byte); err == nil && (held || reply == nil) { // it has another token, or none
			return nil, &strategy.LostError{Name: c.Name, Holder: string(holder)}
		}
		return reply, err
	})
	return g, p.markUnknown(err, p.all, "it may have adopted the lock, and given it back because too few others did")
}
