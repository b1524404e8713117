package luascript

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/algorithm/fences"
)

var (
	//go:embed adopt.lua
	adoptLua string

	adopt = driver.NewScript("adopt", fences.Numbers+adoptLua)
)

// Adopt puts c's token in the place of the holder's, with a fence of its own.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	l := p.names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, adopt, p.keys(l), from, c.Token, c.TTL.Milliseconds(), c.FenceTTL.Milliseconds(), l.Free)
	if err != nil {
		return driver.Grant{}, err
	}
	if g, ok := p.granted(reply); ok {
		return g, nil
	}
	return driver.Grant{}, p.lost(c, reply)
}
