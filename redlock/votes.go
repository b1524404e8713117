package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/strategy"
)

// nodeVotes is what is known of one claim's token on each node. It is the State of the claim's Grant,
// because stragglers answer when Acquire has returned, and their answers decide which nodes an
// extension and a release have to ask.
//
// A claim's rounds come one after the other: acquire, write back, extend, release. Each node gets the
// requests that touch the token in that order, because each waits for the one before it. When a round
// begins, requests of the last one that still wait are not sent any more.
type nodeVotes struct {
	mu      sync.Mutex
	votes   []vote
	round   *round        // the last that has begun; nil: none has
	settled chan struct{} // closed when no request of this claim is under way; made by the first who waits for that
}

// A vote is what is known of the token on one node.
type vote struct {
	standing standing
	until    time.Time   // present: by then the node has dropped it
	early    bool        // the node keeps no order: a token that was not found may still arrive
	busy     bool        // a request of this claim to the node is under way
	waiting  []*nodeCall // for that request's end
}

// A standing says whether the token is on a node.
type standing int

const (
	absent  standing = iota // it is not there, and cannot arrive
	unknown                 // the request for it is under way, or its answer was lost
	present                 // the node granted it
)

func newVotes(n int, s standing) *nodeVotes {
	vs := &nodeVotes{votes: make([]vote, n)}
	for i := range vs.votes {
		vs.votes[i].standing = s
	}
	return vs
}

// votesOf are the claim's. An operator's claim, of a forced release, comes without any: then every
// node may have the token.
func (p *protocol) votesOf(c driver.Claim) *nodeVotes {
	if vs, ok := c.Grant.State.(*nodeVotes); ok {
		return vs
	}
	vs := newVotes(len(p.nodes), present)
	for i := range vs.votes {
		vs.granted(i, contract.MaxTTL)
	}
	return vs
}

func (vs *nodeVotes) at(i int) standing {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	return vs.votes[i].standing
}

func (vs *nodeVotes) set(i int, s standing) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.votes[i].standing = s
}

// granted notes that the node has just begun to count ttl. A node never shortens a TTL, so the
// later end stands.
func (vs *nodeVotes) granted(i int, ttl time.Duration) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &vs.votes[i]
	v.standing = present
	if until := time.Now().Add(ttl + driver.Drift(ttl)); until.After(v.until) {
		v.until = until
	}
}

// extending is called before an extension. Its reply may be lost, so the token is taken to last a TTL
// longer. It returns the old end, for notExtended.
func (vs *nodeVotes) extending(i int, ttl time.Duration) (otherwise time.Time) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &vs.votes[i]
	otherwise = v.until
	v.until = v.until.Add(ttl + driver.Drift(ttl))
	return otherwise
}

// notExtended takes back what extending has noted.
func (vs *nodeVotes) notExtended(i int, until time.Time) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.votes[i].until = until
}

// tooEarly notes that a node did not find the token, which may still arrive.
func (vs *nodeVotes) tooEarly(i int) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.votes[i].early = true
}

// holding are the nodes that may have the token.
func (vs *nodeVotes) holding() (nodes []int) {
	for i := range vs.votes {
		if vs.at(i) != absent {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// mayHold counts the nodes that may have the token.
func (vs *nodeVotes) mayHold() (n int) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.expire()
	for i := range vs.votes {
		if vs.votes[i].standing != absent {
			n++
		}
	}
	return n
}

// expire gives up votes whose time is over, so that a node that never comes back is not asked for
// ever. The caller holds mu.
func (vs *nodeVotes) expire() {
	now := time.Now()
	for i := range vs.votes {
		if v := &vs.votes[i]; v.standing == present && now.After(v.until) {
			v.standing = absent
		}
	}
}

// undone is the error of an undo that left something. The engine repeats the undo for one TTL. That begins with the last
// error that is no answer: a node that has answered neither the acquire nor the undo may be frozen, and begins to count
// the TTL when it runs again. If there is such a node, the error leaves out those that have answered.
func (vs *nodeVotes) undone(count *voteCount) error {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	var still, answered []error
	for i, err := range count.errs {
		v := &vs.votes[i]
		switch {
		case v.standing == absent || err == nil:
		case v.standing == unknown && !v.early && !errors.Is(err, strategy.ErrRefused):
			still = append(still, err)
		default:
			answered = append(answered, err)
		}
	}
	if len(still) > 0 {
		return errors.Join(still...)
	}
	return errors.Join(answered...)
}

// begin begins a round.
func (vs *nodeVotes) begin(r *round) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.expire()
	for i := range vs.votes {
		vs.votes[i].early = false
	}
	vs.round = r
}

// occupy occupies q's node for it if no request is under way there, and reports whether it has. If not, q waits until
// free returns it, or until it is due.
func (vs *nodeVotes) occupy(q *nodeCall) bool {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &vs.votes[q.i]
	if !v.busy {
		v.busy = true
		return true
	}
	v.waiting = append(v.waiting, q)
	q.timer = time.AfterFunc(time.Until(q.due), q.late)
	return false
}

// free ends a request's use of its node, and returns the one whose turn it is now; nil: there is none.
func (vs *nodeVotes) free(i int) (next *nodeCall) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &vs.votes[i]
	if len(v.waiting) > 0 {
		next, v.waiting = v.waiting[0], v.waiting[1:]
		next.timer.Stop()
		return next
	}
	if v.busy = false; vs.settled != nil && !vs.underWay() {
		close(vs.settled)
		vs.settled = nil
	}
	return nil
}

// stopWaiting takes out a request that waits, and returns it; nil: all that wait.
func (vs *nodeVotes) stopWaiting(q *nodeCall) (out []*nodeCall) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	for i := range vs.votes {
		v := &vs.votes[i]
		v.waiting = slices.DeleteFunc(v.waiting, func(other *nodeCall) bool {
			stop := q == nil || q == other
			if stop {
				other.timer.Stop()
				out = append(out, other)
			}
			return stop
		})
	}
	return out
}

// underWay reports whether a request is. The caller holds mu.
func (vs *nodeVotes) underWay() bool {
	return slices.ContainsFunc(vs.votes, func(v vote) bool { return v.busy })
}

// settle waits until no request is under way. Each ends by its due time.
func (vs *nodeVotes) settle() {
	vs.mu.Lock()
	if !vs.underWay() {
		vs.mu.Unlock()
		return
	}
	if vs.settled == nil {
		vs.settled = make(chan struct{})
	}
	settled := vs.settled
	vs.mu.Unlock()
	<-settled
}

// latest reports whether ctx is of the last round that has begun: each round has a context of its own. The
// caller holds mu.
func (vs *nodeVotes) latest(ctx context.Context) bool { return ctx == vs.round.all }
