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

// Inspect reads the lock, its queue and its fence counter in one step.
func (p *protocol) Inspect(ctx context.Context, c strategy.Claim) (strategy.Info, error) {
	keys := namesOf(c).keys
	if !p.fences {
		keys = keys[:2]
	}
	reply, err := p.Eval(ctx, c.Due, inspect, keys)
	if err != nil {
		return strategy.Info{}, err
	}
	r, _ := reply.([]any)
	if len(r) != 4 {
		return strategy.Info{}, strategy.BadReply(p, reply)
	}
	info := strategy.Info{Queue: strategy.Tokens(r[3])}
	if fence, ok := r[2].([]byte); ok {
		n, err := strconv.ParseUint(string(fence), 10, 64)
		if err != nil {
			err = fmt.Errorf("the counter %s holds no fence: %.50q", counter(c), fence)
			return info, &strategy.ServerError{Node: p.Name(), Kind: strategy.ErrRefused, Err: err}
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

// Check looks at the server, and tries what the scripts need.
func (p *protocol) Check(ctx context.Context, o strategy.Options) error {
	return strategy.CheckLock(ctx, o, p, p, func(c strategy.Claim) error {
		if err := strategy.CheckScripts(ctx, c.Due, p, p.rights(c, o.Wait)...); err != nil {
			return err
		}
		return strategy.CheckWatch(ctx, c, o.Wait, p)
	})
}

// rights are what it cannot do without, and what it takes to wait in the way that was asked
// for. EXISTS and MGET of the lock save time: where they are forbidden, GET does.
func (p *protocol) rights(c strategy.Claim, w strategy.Wait) []strategy.Right {
	lock := strategy.Right{Key: c.Key, Commands: []string{"GET", "SET", "DEL", "PTTL", "PEXPIRE", "TIME"}}
	line := strategy.Right{Key: queue(c)} // in the scripts' KEYS in any case
	switch w {
	case strategy.WaitNotice:
		lock.Channel, lock.Commands = channel(c), append(lock.Commands, "PUBLISH")
	case strategy.WaitQueue:
		line.Channel, line.Commands = queue(c)+":"+c.Token, []string{"LINDEX", "LPOP", "LPOS", "LREM", "RPUSH", "PTTL", "PEXPIRE", "PUBLISH"}
	}
	fence := strategy.Right{Key: counter(c)} // likewise
	if p.fences {
		fence.Commands = []string{"GET", "SET"}
	}
	return []strategy.Right{lock, line, fence}
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
