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
	silent context.Context // part of all: of the requests to nodes that have not answered of late
	drop   context.CancelCauseFunc
}

func newRound(ctx context.Context) (r round) {
	r.all, r.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.silent, r.drop = context.WithCancelCause(r.all)
	return r
}

// ask runs call at once for those of the nodes that may have the token, and returns when enough is
// known, or at due. When a node's turn comes, an earlier request may have found out that the token is not
// there: then call returns errAbsent. ctx ends the whole round: when the caller gives up, so do the requests.
func (p *protocol) ask(ctx context.Context, votes *nodeVotes, nodes []int, due time.Time, enough func(*voteCount) bool, call func(ctx context.Context, i int) error) *voteCount {
	r := newRound(ctx)
	stop := context.AfterFunc(ctx, func() { r.end(context.Cause(ctx)) })
	defer stop() // stragglers outlive ctx
	votes.begin(r, p.patience())

	count := newCount(len(p.nodes), p.quorum)
	count.ctx, count.enough = r.all, enough
	var asked []int
	for i := range p.nodes {
		switch {
		case !slices.Contains(nodes, i):
			count.note(i, errPending)
		case votes.at(i) == absent:
			count.note(i, errAbsent)
		default:
			asked = append(asked, i)
		}
	}
	for _, i := range asked {
		hasTurn, ctx := votes.tryTurn(i), r.all
		if !p.expected(i) {
			ctx = r.silent
		}
		p.requests.Go(func() {
			if !hasTurn {
				if err := votes.waitTurn(ctx, due, i); err != nil {
					count.hear(i, &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrUnsent, Err: err})
					return
				}
			}
			err := call(ctx, i)
			if err != errAbsent {
				p.silent[i].Store(errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent))
			}
			votes.endTurn(i)
			count.hear(i, ofCluster(err))
		})
	}
	count.wait()
	return count
}

// expected tells whether the node has answered the last request to it that has ended.
func (p *protocol) expected(i int) bool { return !p.silent[i].Load() }

// patience is how long stragglers may take: three times what the quorum took, and 1 … 50 ms. A node
// that works has answered by then.
func patience(took time.Duration) time.Duration {
	return min(max(3*took, time.Millisecond), 50*time.Millisecond)
}

// patience goes by the last quorum.
func (p *protocol) patience() time.Duration { return patience(time.Duration(p.pace.Load())) }

// What ask says of a node for the node.
var (
	errPending   = errors.New("not asked, or not waited for")
	errAbsent    = &strategy.LostError{} // it is known not to have the token
	errOvertaken = errors.New("the answer is not needed any more")
	errBusy      = errors.New("the request before it has not been answered")
)
