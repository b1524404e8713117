package rwlock

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

// Adopt replaces the holder's token by c's. A hold to write gets a new fence, one to read the last. With a Share the
// hold is to read from now on (a downgrade); one that was to read stays so. Without a Share it is what it was.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	l := p.Names.Of(c.Key)
	reply, err := p.Eval(ctx, c.Due, adopt, l.Keys, l.FenceTTL.Of(c.FenceTTL), from, l.TTL.Of(c.TTL), c.Token, int(c.Share), l.Free)
	if err != nil {
		return driver.Grant{}, err
	}
	return p.Adopted(c, reply)
}
