package redlock

import (
	"context"
	_ "embed"
	"time"

	"github.com/lockstrategies/locks/driver"
)

var (
	//go:embed join.lua
	joinLua string

	join = driver.NewScript("join", guardLua+joinLua)
)

// rejoin is for what a quorum has just extended: the nodes that do not have it, because
// they lost it, refused it, or were down, are asked to take it, so that the lock survives
// the loss of others. Nobody waits for them, and they do not count in this round; in the
// next they count like any node that has the token.
//
// That is safe because a quorum has the lock: whoever else was granted it by one of
// these nodes has no quorum. It is also after the fence was written back, as the lock was
// not granted before that.
func (p *protocol) rejoin(round context.Context, c driver.Claim, b *ballot, start time.Time) {
	for i := range p.nodes {
		if b.at(i) != absent {
			continue
		}
		p.requests.Go(func() {
			if b.take(round, p.due(c), i) == nil {
				p.join(round, c, b, i, start)
				b.pass(i)
			}
		})
	}
}

// join asks one node, whose turn the caller has.
func (p *protocol) join(round context.Context, c driver.Claim, b *ballot, i int, start time.Time) {
	ttl := (c.TTL - time.Since(start)).Truncate(time.Millisecond) // not for longer than the others
	if ttl <= 0 || !b.joins(round, i) {
		return
	}
	reply, err := p.nodes[i].Eval(round, p.due(c), join, p.voteKeys(c), c.Token, ttl.Milliseconds(), p.longest(c.TTL))
	_, other := reply.([]byte)
	switch {
	case err == nil && reply == int64(1):
		b.grant(i, ttl)
	case other || certain(err):
		b.set(i, absent)
	} // or the answer was lost: then a release, or an extension, finds out
}

// joins notes that a node that is known not to have the token is to be sent it, unless
// another round has begun, such as a release. It will be asked then, too, behind the join.
func (b *ballot) joins(round context.Context, i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	if v.standing != absent || !b.latest(round) {
		return false
	}
	v.standing = unknown
	return true
}
