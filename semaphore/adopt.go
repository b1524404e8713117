package semaphore

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
)

var (
	//go:embed adopt.lua
	adoptLua string

	adopt = driver.NewScript("adopt", shared+adoptLua)
)

// Adopt replaces the holder's token by c's, and gives the hold a new fence. It keeps its permits.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	l := p.Names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, adopt, l.Keys, p.permits, l.FenceTTL.Of(c.FenceTTL), from, l.TTL.Of(c.TTL), c.Token)
	if err != nil {
		return driver.Grant{}, err
	}
	return p.Adopted(c, reply)
}
