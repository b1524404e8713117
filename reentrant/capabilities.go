package reentrant

import (
	"context"
	"fmt"
	"strconv"

	"github.com/lockstrategies/locks/strategy"
)

// What the protocol can do beside Acquire, Extend and Release, which are the lock.
var _ interface {
	strategy.Reenterer
	strategy.Queuer
	strategy.BulkExtender
	strategy.Adopter
	strategy.Inspector
	strategy.Checker
} = (*protocol)(nil)

// Reenters says yes: acquire.lua lets the owner in again.
func (p *protocol) Reenters() bool { return true }

// Watch hears of direct grants to the claim's line; without one, of last releases that find
// nobody in the queue, by owner. Each is published in the step that grants, or releases.
func (p *protocol) Watch(ctx context.Context, c strategy.Claim, fn func(strategy.Notice)) (stop func(), err error) {
	if c.Line != "" {
		return strategy.WatchQueue(ctx, p, c, queue(c), fn)
	}
	return strategy.WatchChannel(ctx, p, c, channel(c), fn)
}

// Inspect reads the lock, or else its fence counter, in one step.
func (p *protocol) Inspect(ctx context.Context, c strategy.Claim) (strategy.Info, error) {
	reply, err := p.Eval(ctx, c.Due, inspect, keys(c))
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 5 {
		return strategy.Info{}, strategy.BadReply(p, reply)
	}
	var info strategy.Info
	if fence, ok := r[4].([]byte); ok {
		n, err := strconv.ParseUint(string(fence), 10, 64)
		if err != nil {
			return info, fmt.Errorf("%s: the counter %s holds no fence: %.50q", p.Name(), counter(c), fence)
		}
		info.Fence = n
	}
	owner, held := r[0].([]byte)
	token, ok := r[1].([]byte)
	holds, ok2 := r[2].(int64)
	ms, ok3 := r[3].(int64)
	switch {
	case !held:
	case ok && ok2 && ok3:
		info.Held, info.Token, info.Owner, info.Holds = true, string(token), string(owner), int(holds)
		info.TTL = strategy.RemainingTTL(ms)
	default:
		return strategy.Info{}, strategy.BadReply(p, reply)
	}
	return info, nil
}

// Check looks at the server, and runs a script that changes nothing.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return strategy.CheckLock(ctx, o, p, p)
}

// ExtendAll renews many holds, a round trip for each fifty.
func (p *protocol) ExtendAll(ctx context.Context, cs []strategy.Claim, done func(int, strategy.Grant, error)) {
	p.extending().ExtendAll(ctx, cs, done)
}

// extending is extend.lua, which takes many holds.
func (p *protocol) extending() strategy.BulkScript {
	return strategy.BulkScript{Node: p, Script: extend, Most: 50, Refused: p.notOurs}
}

// Adopt is Extend for a hold from elsewhere, whose token the claim's takes the place of.
func (p *protocol) Adopt(ctx context.Context, c strategy.Claim, from string) (strategy.Grant, error) {
	reply, err := p.Eval(ctx, c.Due, adopt, keys(c), from, c.TTL.Milliseconds(), c.Token, c.Owner)
	if err != nil {
		return strategy.Grant{}, err
	}
	if r, _ := reply.([]any); len(r) == 2 {
		fence, ok := r[0].(int64)
		owner, ok2 := r[1].([]byte)
		if ok && ok2 {
			return p.granted(fence, string(owner))
		}
		return strategy.Grant{}, strategy.BadReply(p, reply)
	}
	return strategy.Grant{}, p.notOurs(c, reply)
}
