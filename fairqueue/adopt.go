package fairqueue

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed adopt.lua
	adoptLua string

	adopt = strategy.NewScript("adopt", fenceLua+adoptLua)
)

// Adopt puts c's token in the place of the holder's, with a fence of its own.
func (p *protocol) Adopt(ctx context.Context, c strategy.Claim, from string) (strategy.Grant, error) {
	keys := []string{c.Key, counter(c)}
	if !p.fences {
		keys = keys[:1]
	}
	reply, err := p.Eval(ctx, c.Due, adopt, keys, from, c.TTL.Milliseconds(), c.Token)
	if err != nil {
		return strategy.Grant{}, err
	}
	if fence, ok := reply.(int64); ok {
		return p.granted(fence, 1)
	}
	return strategy.Grant{}, p.notOurs(c, reply)
}
