package redlock

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
)

// rejoin follows an extension by a quorum: nodes that do not have the lock, because they lost it,
// refused it or were down, are asked to take it. Then the lock survives the loss of other nodes.
// Nobody waits for them, and they do not count in this round; from the next on they count like any
// node with the token.
//
// That is safe because a quorum has the lock: no other contender to which such a node granted it
// has one. The fence was written back before the lock counted, so it is noted already.
func (p *protocol) rejoin(ctx context.Context, c driver.Claim, votes *nodeVotes, start time.Time) {
	for i := range p.nodes {
		if votes.at(i) != absent {
			continue
		}
		p.requests.Go(func() {
			if votes.occupy(ctx, p.due(c), i) == nil {
				p.join(ctx, c, votes, i, start)
				votes.free(i)
			}
		})
	}
}

// join asks one node. The caller has occupied the node. ctx is of the extension's round.
func (p *protocol) join(ctx context.Context, c driver.Claim, votes *nodeVotes, i int, start time.Time) {
	ttl := (c.TTL - time.Since(start)).Truncate(time.Millisecond) // not for longer than the others
	if ttl <= 0 || !votes.joins(ctx, i) {
		return
	}
	reply, err := p.nodes[i].Eval(ctx, p.due(c), join, p.guardedKeys(c), c.Token, ttl.Milliseconds(), p.longest(c.TTL))
	_, other := reply.([]byte)
	switch {
	case err == nil && reply == int64(1):
		votes.granted(i, ttl)
	case other || certain(err): // also if it shows our token: that is another node's vote, see twins.go
		votes.set(i, absent)
	} // or the answer was lost: then a release, or an extension, finds out
}

// joins notes that a node without the token is about to get it. It says no if a later round has
// begun, such as a release, which would not ask this node.
func (vs *nodeVotes) joins(ctx context.Context, i int) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &vs.votes[i]
	if v.standing != absent || !vs.latest(ctx) {
		return false
	}
	v.standing = unknown
	return true
}
