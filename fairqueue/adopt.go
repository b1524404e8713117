package fairqueue

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

// Adopt replaces the holder's token by c's, and gives the hold a new fence.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	l := p.names.Of(c.Key)
	keys := []string{c.Key, counterKey(l)}
	if !p.fences {
		keys = keys[:1]
	}
	reply, err := p.Eval(ctx, c.Due, adopt, keys, from, c.TTL.Milliseconds(), c.Token, c.FenceTTL.Milliseconds(), l.Free)
	if err != nil {
		return driver.Grant{}, err
	}
	if fence, ok := reply.(int64); ok {
		return p.granted(fence, 1)
	}
	return driver.Grant{}, p.lost(c, reply)
}
