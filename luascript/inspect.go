package luascript

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

	inspect = driver.NewScript("inspect", inspectLua)
)

// Inspect reads the lock and its fence counter in one step.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	l := p.names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, inspect, p.keys(l))
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 3 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	fence, err := rediskit.FenceReply(p.Name(), l.Keys[1], r[2])
	if err != nil {
		return strategy.Info{}, err
	}
	info := strategy.Info{Fence: fence}
	if r[0] == nil {
		return info, nil
	}
	token, ok := r[0].([]byte)
	ms, ok2 := r[1].(int64)
	if !ok || !ok2 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	info.Held, info.Token, info.TTL = true, string(token), rediskit.RemainingTTL(ms)
	return info, nil
}
