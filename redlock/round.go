package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A round asks nodes at once. The stragglers, which were not waited for, go on until due; of those that still wait for
// their node, the claim's next round takes the place: see nodeVotes.
type round struct {
	all context.Context // of its requests
	end context.CancelCauseFunc
}

func newRound(ctx context.Context) (r round) {
	r.all, r.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return r
}

// A nodeCall is a round's request to one node.
type nodeCall struct {
	p     *protocol
	votes *nodeVotes
	count *voteCount // where its answer counts
	i     int
	ctx   context.Context
	due   time.Time
	call  func(ctx context.Context, i int) error
	timer *time.Timer // runs late, while it waits for the node
}

// ask runs call at once for those of the nodes that may have the token, and returns when enough is
// known, or at due. When a node is free, an earlier request may have found out that the token is not
// there: then call returns errAbsent. When ctx ends, so do the requests; stragglers outlive it.
func (p *protocol) ask(ctx context.Context, votes *nodeVotes, nodes []int, due time.Time, enough func(*voteCount) bool, call func(ctx context.Context, i int) error) *voteCount {
	count := newCount(len(p.nodes), p.quorum)
	count.round, count.enough = newRound(ctx), enough
	r := &count.round
	p.withdraw(votes, nil, errOvertaken)
	votes.begin(r)
	calls := make([]nodeCall, len(p.nodes))
	count.mu.Lock() // no answer counts before all are asked
	for i := range p.nodes {
		if !slices.Contains(nodes, i) {
			count.note(i, errPending)
			continue
		}
		if votes.at(i) == absent {
			count.note(i, errAbsent)
			continue
		}
		q := &calls[i]
		*q = nodeCall{p: p, votes: votes, count: count, i: i, ctx: r.all, due: due, call: call}
		q.submit()
	}
	count.mu.Unlock()
	if !count.wait(ctx) {
		cause := context.Cause(ctx)
		r.end(cause)
		p.withdraw(votes, nil, cause)
		<-count.done
	}
	return count
}

// submit sends q when its node is free: each node gets the requests of one claim one after the other.
func (q *nodeCall) submit() {
	q.p.requests.Add(1)
	if q.votes.occupy(q) {
		go q.send()
	}
}

// send sends q, and then those that have waited for its node.
func (q *nodeCall) send() {
	for q != nil {
		err := q.call(q.ctx, q.i)
		if err != errAbsent {
			q.p.silent[q.i].Store(errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent))
		}
		next := q.votes.free(q.i) // first, so that the next round finds the node free
		q.end(ofCluster(err))
		q = next
	}
}

// late is called when q has waited for its node until it is due.
func (q *nodeCall) late() { q.p.withdraw(q.votes, q, errBusy) }

func (q *nodeCall) end(err error) {
	q.count.hear(q.i, err)
	q.p.requests.Done()
}

// withdraw ends a request that still waits for its node; nil: each of them.
func (p *protocol) withdraw(votes *nodeVotes, q *nodeCall, why error) {
	for _, q := range votes.stopWaiting(q) {
		q.end(&strategy.ServerError{Node: p.nodes[q.i].Name(), Kind: strategy.ErrUnsent, Err: why})
	}
}

// expected reports whether the node has answered the last request to it that has ended.
func (p *protocol) expected(i int) bool { return !p.silent[i].Load() }

// patience is how long a node that works may take more than the quorum: three times what that took, and 1 … 50 ms.
func patience(elapsed time.Duration) time.Duration {
	return min(max(3*elapsed, time.Millisecond), 50*time.Millisecond)
}

// patience goes by the last quorum.
func (p *protocol) patience() time.Duration { return patience(time.Duration(p.pace.Load())) }

// The errors that ask gives for a node in its place.
var (
	errPending   = errors.New("not asked, or not waited for")
	errAbsent    = &strategy.LostError{} // it is known not to have the token
	errOvertaken = errors.New("the answer is not needed any more")
	errBusy      = errors.New("the request before it has not been answered")
)
