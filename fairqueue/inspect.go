package fairqueue

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed inspect.lua
	inspectLua string

	inspect = driver.NewScript("inspect", inspectLua)
)

// Inspect reads the lock, its queue and its fence counter in one step.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	keys := p.names.of(c.Key).keys
	if !p.fences {
		keys = keys[:2]
	}
	reply, err := p.Eval(ctx, c.Due, inspect, keys)
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 4 {
		return strategy.Info{}, driver.BadReply(p.Name(), reply)
	}
	fence, err := driver.FenceReply(p.Name(), p.names.of(c.Key).counter(), r[2])
	if err != nil {
		return strategy.Info{}, err
	}
	info := strategy.Info{Queue: tokens(r[3]), Fence: fence}
	token, held := r[0].([]byte)
	ms, ok := r[1].(int64)
	if held && ok {
		info.Held, info.Token, info.TTL = true, string(token), driver.RemainingTTL(ms)
	}
	return info, nil
}
