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
// begins, requests of the last one that are under way get some time more (patience), and those that
// still wait are not sent any more.
type nodeVotes struct {
	mu    sync.Mutex
	votes []vote
	round *round // the last that has begun; nil: none has
}

// A vote is what is known of the token on one node.
type vote struct {
	standing standing
	until    time.Time     // present: by then the node has dropped it
	early    bool          // the node keeps no order: a token that was not found may still arrive
	busy     bool          // a request of this claim to the node is under way
	freed    chan struct{} // closed when it is not any more; made by the first who waits for that
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
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.expire()
	for i := range vs.votes {
		if vs.votes[i].standing != absent {
			nodes = append(nodes, i)
		}
	}
	return nodes
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

// undone is the error of an undo that left something; nil: nothing is left. The engine repeats the undo for one TTL. That begins with the last
// error that is no answer: a node that has answered neither the acquire nor the undo may be frozen, and begins to count
// the TTL when it runs again. If there is such a node, the error leaves out those that have answered.
func (vs *nodeVotes) undone(count *voteCount) error {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.expire()
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

// begin begins a round. The last round's stragglers are called off after patience.
func (vs *nodeVotes) begin(r *round, patience time.Duration) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.expire()
	if last := vs.round; last != nil && slices.ContainsFunc(vs.votes, func(v vote) bool { return v.busy }) {
		time.AfterFunc(patience, func() { last.end(errOvertaken) })
	}
	for i := range vs.votes {
		vs.votes[i].early = false
	}
	vs.round = r
}

// toSilent is the context of r's requests to nodes that have not answered of late.
func (vs *nodeVotes) toSilent(r *round) context.Context {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if r.silent == nil {
		r.silent, r.drop = context.WithCancelCause(r.all)
	}
	return r.silent
}

// cancelSilent calls off at once the last round's requests to nodes that have not answered of late: a
// release would wait behind them each time. An extension does not: nobody waits
// for its stragglers, and a node that hangs should not get a new request from each extension.
func (vs *nodeVotes) cancelSilent() {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if r := vs.round; r != nil && r.drop != nil {
		r.drop(errOvertaken)
	}
}

// tryOccupy occupies a node if no request is under way there, and returns nil; otherwise it returns
// what is closed when that is over. It is called before the request's goroutine starts: a claim's first
// round occupies every node before another round can begin.
func (vs *nodeVotes) tryOccupy(i int) (freed <-chan struct{}) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &vs.votes[i]
	if !v.busy {
		v.busy = true
		return nil
	}
	if v.freed == nil {
		v.freed = make(chan struct{})
	}
	return v.freed
}

// occupy waits until a node is free: a request must not overtake one of an earlier round, nor be
// sent after one of a later round. ctx is one of its round's. If it returns nil, the caller must
// call free.
func (vs *nodeVotes) occupy(ctx context.Context, due time.Time, i int) error {
	over := time.After(time.Until(due))
	for freed := vs.tryOccupy(i); freed != nil; freed = vs.tryOccupy(i) {
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over:
			return errBusy
		}
	}
	vs.mu.Lock()
	latest := vs.latest(ctx)
	vs.mu.Unlock()
	if !latest {
		vs.free(i)
		return errOvertaken
	}
	return nil
}

// latest reports whether ctx is of the last round that has begun: each round has contexts of its own. The
// caller holds mu.
func (vs *nodeVotes) latest(ctx context.Context) bool {
	return ctx == vs.round.all || ctx == vs.round.silent
}

// free lets the next request to the node go.
func (vs *nodeVotes) free(i int) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := &vs.votes[i]
	v.busy = false
	if v.freed != nil {
		close(v.freed)
		v.freed = nil
	}
}
