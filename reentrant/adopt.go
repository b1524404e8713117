package reentrant

import (
	"context"
	_ "embed"

	"github.com/lockstrategies/locks/driver"
)

var (
	//go:embed adopt.lua
	adoptLua string

	adopt = driver.NewScript("adopt", holdsLua+fenceLua+adoptLua)
)

// Adopt replaces the hold whose token is from by c's. If it is the only hold, c.Owner becomes
// the owner, with a new fence. If it is one of several, owner and fence stay: the adopter joins that
// owner, and Lease.Owner names it.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	l := p.names.Of(c.Key)
	token, owner := boxed(c)
	reply, err := p.Eval(ctx, c.Due, adopt, l.Keys, from, l.TTL.Of(c.TTL), token, owner, l.FenceTTL.Of(c.FenceTTL))
	if err != nil {
		return driver.Grant{}, err
	}
	if r, _ := reply.([]any); len(r) == 2 {
		fence, ok := r[0].(int64)
		holder, ok2 := r[1].([]byte)
		if ok && ok2 {
			return p.granted(fence, string(holder), token)
		}
	}
	return driver.Grant{}, p.notHeld(c, reply)
}
