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

// Inspect reads the lock, or else its fence counter, and its queue in one step.
func (p *protocol) Inspect(ctx context.Context, c strategy.Claim) (strategy.Info, error) {
	reply, err := p.Eval(ctx, c.Due, inspect, allKeys(c))
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 6 {
		return strategy.Info{}, strategy.BadReply(p, reply)
	}
	info := strategy.Info{Queue: strategy.Tokens(r[5])}
	if fence, ok := r[4].([]byte); ok {
		n, err := strconv.ParseUint(string(fence), 10, 64)
		if err != nil {
			err = fmt.Errorf("the counter %s holds no fence: %.50q", counter(c), fence)
			return info, &strategy.ServerError{Node: p.Name(), Kind: strategy.ErrRefused, Err: err}
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

// Check looks at the server, and tries what the scripts need.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return strategy.CheckLock(ctx, o, p, p, func(c strategy.Claim) error {
		if err := strategy.CheckScripts(ctx, c.Due, p, rights(c, o.Wait)...); err != nil {
			return err
		}
		return strategy.CheckWatch(ctx, c, o.Wait, p)
	})
}

// rights are what it cannot do without, and what it takes to wait in the way that was asked
// for.
func rights(c strategy.Claim, w strategy.Wait) []strategy.Right {
	lock := strategy.Right{Key: c.Key, Commands: []string{"HGETALL", "HSET", "HDEL", "DEL", "PTTL", "PEXPIREAT", "TIME"}}
	line := strategy.Right{Key: queue(c)} // in the scripts' KEYS in any case
	switch w {
	case strategy.WaitNotice:
		lock.Channel, lock.Commands = channel(c), append(lock.Commands, "PUBLISH")
	case strategy.WaitQueue:
		line.Channel, line.Commands = queue(c)+":"+c.Token, []string{"LINDEX", "LPOP", "LPOS", "LREM", "RPUSH", "PTTL", "PEXPIRE", "PUBLISH"}
	}
	return []strategy.Right{lock, line, {Key: counter(c), Commands: []string{"GET", "SET"}}}
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
