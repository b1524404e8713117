package redlock

import (
	"context"
	"slices"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/strategy"
)

// Inspect asks all nodes. The lock is held if a quorum shows one token.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	due := p.due(c)
	keys := []string{c.Key}
	if p.fences {
		keys = append(keys, counter(c))
	}
	fences := make([]uint64, len(p.nodes)) // each is written before its node's answer is counted
	count := p.ask(ctx, newVotes(len(p.nodes), unknown), p.all, due, (*voteCount).complete, func(ctx context.Context, i int) error {
		reply, err := p.nodes[i].Eval(ctx, due, inspect, keys)
		if err != nil {
			return err
		}
		if r, _ := reply.([]any); len(r) == 3 {
			token, held := r[0].([]byte)
			ms, ok := r[1].(int64)
			fence, ok2 := r[2].(int64)
			fences[i] = uint64(max(fence, 0))
			switch {
			case !ok || !ok2:
			case !held:
				return nil
			default:
				return &strategy.HeldError{Name: c.Name, Holder: string(token), TTL: rediskit.RemainingTTL(ms)}
			}
		}
		return rediskit.BadReply(p.nodes[i].Name(), reply)
	})

	token, most := count.leader()
	failed := len(p.nodes) - count.yes - count.held
	info := strategy.Info{Fence: slices.Max(fences)} // at least the holder's: a quorum has noted the last one reserved, and a failed attempt may have left a greater one
	switch {
	case most >= p.quorum:
		info.Held, info.Token, info.TTL = true, token, count.keeps(token)
	case most+failed >= p.quorum: // nodes that did not answer may make a quorum, or not
		return strategy.Info{}, &strategy.QuorumError{Name: c.Name, Need: p.quorum, Nodes: p.answers(c, count)}
	}
	return info, nil
}
