package fairqueue

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/algorithm/queue"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed inspect.lua
	inspectLua string

	inspect = driver.NewScript("inspect", queue.Entries+inspectLua)
)

// Inspect reads the lock, its queue and its fence counter in one step.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	keys := p.names.Of(c.Key).Keys
	if !p.fences {
		keys = keys[:2]
	}
	reply, err := p.Eval(ctx, c.Due, inspect, keys)
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 4 {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	fence, err := rediskit.FenceReply(p.Name(), counterKey(p.names.Of(c.Key)), r[2])
	if err != nil {
		return strategy.Info{}, err
	}
	waiting, ok := r[3].([]any)
	if !ok {
		return strategy.Info{}, rediskit.BadReply(p.Name(), reply)
	}
	info := strategy.Info{Queue: queue.Tokens(waiting), Fence: fence}
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
