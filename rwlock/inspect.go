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
	l := p.names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, inspect, l.Keys)
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 5 {
		return strategy.Info{}, driver.BadReply(p.Name(), reply)
	}
	holds, ok := r[0].(int64)
	ms, ok2 := r[2].(int64)
	waiting, ok3 := r[4].([]any)
	if !ok || !ok2 || !ok3 {
		return strategy.Info{}, driver.BadReply(p.Name(), reply)
	}
	fence, err := driver.FenceReply(p.Name(), l.Keys[3], r[3])
	if err != nil {
		return strategy.Info{}, err
	}
	info := strategy.Info{Queue: queue.Tokens(waiting), Fence: fence}
	if holds == 0 {
		return info, nil
	}
	token, ok := r[1].([]byte)
	if !ok {
		return strategy.Info{}, driver.BadReply(p.Name(), reply)
	}
	info.Held, info.Token, info.Owner, info.Holds, info.TTL = true, string(token), string(token), int(holds), driver.RemainingTTL(ms)
	return info, nil
}
