package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// A round asks nodes at once. The stragglers, which were not waited for, go on until due, or until the
// claim's next round ends them: see nodeVotes.
type round struct {
	all    context.Context // of its requests
	end    context.CancelCauseFunc
	silent context.Context // part of all: of the requests to nodes that have not answered of late; nil: there are none
	drop   context.CancelCauseFunc
}

func newRound(ctx context.Context) (r round) {
	r.all, r.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return r
}

// ask runs call at once for those of the nodes that may have the token, and returns when enough is
// known, or at due. When a node is free, an earlier request may have found out that the token is not
// there: then call returns errAbsent. When ctx ends, so do the requests; stragglers outlive it.
func (p *protocol) ask(ctx context.Context, votes *nodeVotes, nodes []int, due time.Time, enough func(*voteCount) bool, call func(ctx context.Context, i int) error) *voteCount {
	count := newCount(len(p.nodes), p.quorum)
	count.round, count.enough = newRound(ctx), enough
	r := &count.round
	votes.begin(r, p.patience())
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
		hasTurn, ctx := votes.tryOccupy(i) == nil, r.all
		if !p.expected(i) {
			ctx = votes.toSilent(r)
		}
		p.requests.Add(1) // not Go, which makes another closure for each
		go func() {
			defer p.requests.Done()
			if !hasTurn {
				if err := votes.occupy(ctx, due, i); err != nil {
					count.hear(i, &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrUnsent, Err: err})
					return
				}
			}
			err := call(ctx, i)
			if err != errAbsent {
				p.silent[i].Store(errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent))
			}
			votes.free(i)
			count.hear(i, ofCluster(err))
		}()
	}
	count.mu.Unlock()
	count.wait(ctx, r.end)
	return count
}

// expected reports whether the node has answered the last request to it that has ended.
func (p *protocol) expected(i int) bool { return !p.silent[i].Load() }

// patience is how long stragglers may take: three times what the quorum took, and 1 … 50 ms. A node
// that works has answered by then.
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
