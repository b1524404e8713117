package luascript

import (
	"context"
	"fmt"
	"strconv"

	"github.com/lockstrategies/locks/strategy"
)

// What the protocol can do beside Acquire, Extend and Release, which are the lock.
var _ interface {
	strategy.Queuer
	strategy.BulkExtender
	strategy.Adopter
	strategy.Inspector
	strategy.Checker
} = (*protocol)(nil)

// Watch hears of direct grants to the claim's line; without one, of releases that find
// nobody in the queue. Each is published in the step that grants, or releases.
func (p *protocol) Watch(ctx context.Context, c strategy.Claim, fn func(strategy.Notice)) (stop func(), err error) {
	if c.Line != "" {
		return strategy.WatchQueue(ctx, p, c, queue(c), fn)
	}
	return strategy.WatchChannel(ctx, p, c, channel(c), fn)
}

// Inspect reads the lock and its fence counter in one step.
func (p *protocol) Inspect(ctx context.Context, c strategy.Claim) (strategy.Info, error) {
	reply, err := p.Eval(ctx, c.Due, inspect, p.keys(c))
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 3 {
		return strategy.Info{}, strategy.BadReply(p, reply)
	}
	var info strategy.Info
	if fence, ok := r[2].([]byte); ok {
		n, err := strconv.ParseUint(string(fence), 10, 64)
		if err != nil {
			return info, fmt.Errorf("%s: the counter %s holds no fence: %q", p.Name(), counter(c), fence)
		}
		info.Fence = n
	}
	token, held := r[0].([]byte)
	ms, ok := r[1].(int64)
	if held && ok {
		info.Held, info.Token, info.TTL = true, string(token), strategy.RemainingTTL(ms)
	}
	return info, nil
}

// Check looks at the server, and runs a script that changes nothing.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return strategy.CheckLock(ctx, o, p, p)
}

// ExtendAll renews many locks, a round trip for each 256.
func (p *protocol) ExtendAll(ctx context.Context, cs []strategy.Claim, done func(int, strategy.Grant, error)) {
	p.extending().ExtendAll(ctx, cs, done)
}

// extending is extend.lua, which takes many locks.
func (p *protocol) extending() strategy.BulkScript {
	return strategy.BulkScript{Node: p, Script: extend, Most: 256, Refused: p.notOurs}
}

// Adopt is Extend for a token from elsewhere, which the claim's takes the place of.
func (p *protocol) Adopt(ctx context.Context, c strategy.Claim, from string) (strategy.Grant, error) {
	reply, err := p.Eval(ctx, c.Due, adopt, p.keys(c), from, c.TTL.Milliseconds(), c.Token)
	if err != nil {
		return strategy.Grant{}, err
	}
	if fence, ok := reply.(int64); ok {
		return p.granted(fence, 1)
	}
	return strategy.Grant{}, p.notOurs(c, reply)
}
