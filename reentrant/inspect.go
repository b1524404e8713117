package reentrant

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed inspect.lua
	inspectLua string

	inspect = driver.NewScript("inspect", holdsLua+fenceLua+inspectLua)
)

// Inspect reads the lock, or the last fence if nobody holds it, in one step.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	reply, err := p.Eval(ctx, c.Due, inspect, p.names.Of(c.Key).Keys)
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 1 && len(r) != 5 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	fence, ok := r[0].(int64)
	if !ok || fence < 0 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	if len(r) == 1 {
		return strategy.Info{Fence: uint64(fence)}, nil
	}
	owner, ok := r[1].([]byte)
	token, ok2 := r[2].([]byte)
	holds, ok3 := r[3].(int64)
	ms, ok4 := r[4].(int64)
	if !ok || !ok2 || !ok3 || !ok4 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	return strategy.Info{
		Held: true, Owner: string(owner), Token: string(token), Holds: int(holds),
		TTL: rediskit.RemainingTTL(ms), Fence: uint64(fence),
	}, nil
}
