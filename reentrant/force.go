package reentrant

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
)

var (
	//go:embed force.lua
	forceLua string

	force = driver.NewScript("force", holdsLua+forceLua)
)

// ForceRelease ends all holds of c.Owner that have the fence of c.Grant: what an operator has seen.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	reply, err := p.Eval(ctx, c.Due, force, []string{c.Key}, c.Owner, c.Grant.Fence, p.names.Of(c.Key).Free)
	if err == nil && reply != int64(1) {
		err = p.notHeld(c, reply)
	}
	return driver.Outcome{}, err
}
