package fairqueue

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"

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
	info := strategy.Info{Queue: driver.Tokens(r[3])}
	if fence, ok := r[2].([]byte); ok {
		n, err := strconv.ParseUint(string(fence), 10, 64)
		if err != nil {
			err = fmt.Errorf("the counter %s holds no fence: %.50q", p.names.of(c.Key).counter(), fence)
			return info, &strategy.ServerError{Node: p.Name(), Kind: strategy.ErrRefused, Err: err}
		}
		info.Fence = n
	}
	token, held := r[0].([]byte)
	ms, ok := r[1].(int64)
	if held && ok {
		info.Held, info.Token, info.TTL = true, string(token), driver.RemainingTTL(ms)
	}
	return info, nil
}
