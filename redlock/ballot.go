package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// A ballot is what is known of one claim's token on each node: its Grant's State. It
// outlives the move that made it, because a node that was not waited for answers when
// that is over, and what it says decides who is to be asked to extend and release.
//
// A claim's moves come one after the other, in rounds. A request of an earlier round that
// is under way when the next begins is given a while and then given up; one that still
// waits for its turn is not sent any more.
type ballot struct {
	mu    sync.Mutex
	votes []vote
	round round // the last that has begun
}

// A round is what the requests of one move live for, until they are called off.
type round struct {
	all  context.Context
	end  context.CancelCauseFunc
	hope context.Context // part of all: for those to nodes that have not answered of late
	drop context.CancelCauseFunc
}

func newRound(ctx context.Context) (r round) {
	r.all, r.end = context.WithCancelCause(context.WithoutCancel(ctx))
	r.hope, r.drop = context.WithCancelCause(r.all)
	return r
}

// A vote is one node's.
type vote struct {
	standing standing
	until    time.Time     // present: by then it is gone by itself
	early    bool          // the node keeps no order: what it did not find may come yet
	turn     chan struct{} // holds one element while no request of this claim to the node is under way
}

// A standing says whether a token is on a node.
type standing int

const (
	absent  standing = iota // it is not, and cannot come
	unknown                 // the request for it is under way, or its answer was lost
	present                 // it was granted
)

func newBallot(n int, s standing) *ballot {
	b := &ballot{votes: make([]vote, n)}
	for i := range b.votes {
		b.votes[i] = vote{standing: s, turn: make(chan struct{}, 1)}
		b.pass(i)
	}
	return b
}

// ballot is the claim's. Of a claim without one, an operator's, any node may have the
// token.
func (p *protocol) ballot(c driver.Claim) *ballot {
	if b, ok := c.Grant.State.(*ballot); ok {
		return b
	}
	b := newBallot(len(p.nodes), present)
	for i := range b.votes {
		b.grant(i, strategy.MaxTTL)
	}
	return b
}

func (b *ballot) at(i int) standing {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.votes[i].standing
}

func (b *ballot) set(i int, s standing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.votes[i].standing = s
}

// grant notes that a node has just begun to count ttl, unless it counts to a later
// moment: it never shortens.
func (b *ballot) grant(i int, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	v.standing = present
	if until := time.Now().Add(ttl + driver.Drift(ttl)); until.After(v.until) {
		v.until = until
	}
}

// doubt notes that a node may begin to count ttl when nobody hears of it: as long as
// the token is there, that is. It returns until when it is there otherwise.
func (b *ballot) doubt(i int, ttl time.Duration) (otherwise time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	otherwise = v.until
	v.until = v.until.Add(ttl + driver.Drift(ttl))
	return otherwise
}

// lasts takes doubt back.
func (b *ballot) lasts(i int, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.votes[i].until = until
}

func (b *ballot) early(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.votes[i].early = true
}

// holding are the nodes that may have the token.
func (b *ballot) holding() (nodes []int) {
	for i := range b.votes {
		if b.at(i) != absent {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// mayHold counts them.
func (b *ballot) mayHold() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for i := range b.votes {
		v := &b.votes[i]
		if v.standing == present && now.After(v.until) {
			v.standing = absent // a node that is gone for good must not be asked for ever
		}
		if v.standing != absent {
			n++
		}
	}
	return n
}

// undone is what an undo says that is not at its end. A node that has neither answered
// the acquire nor this stands still, perhaps: it has not begun to count the TTL, and
// the machinery must not count it for it. So the word of a node that has answered does
// not count then.
func (b *ballot) undone(t *tally) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var still, answered []error
	for i, err := range t.errs {
		v := &b.votes[i]
		switch {
		case v.standing == absent || err == nil:
		case v.standing == unknown && !v.early && !errors.Is(err, strategy.ErrRefused):
			still = append(still, err)
		default:
			answered = append(answered, err)
		}
	}
	if len(still) > 0 {
		return driver.Remains(errors.Join(still...))
	}
	return errors.Join(answered...)
}

// begin begins a round. The last one's requests are called off after a while: nobody
// waits for them any more.
func (b *ballot) begin(r round, patience time.Duration) {
	b.mayHold()
	b.mu.Lock()
	defer b.mu.Unlock()
	if last := b.round; last.end != nil {
		time.AfterFunc(patience, func() { last.end(errOvertaken) })
	}
	for i := range b.votes {
		b.votes[i].early = false
	}
	b.round = r
}

// hasten calls off at once what the last round has asked nodes that are not expected to
// answer. Otherwise who releases would wait each time for what he had asked a node that
// stands still, and that was not needed. An extension lets it be: nobody waits for that,
// and a node that hangs is not to be asked anew by each.
func (b *ballot) hasten() {
	b.mu.Lock()
	drop := b.round.drop
	b.mu.Unlock()
	if drop != nil {
		drop(errOvertaken)
	}
}

// free takes a node's turn if nothing is under way there. The first round, to which that
// applies everywhere, so goes before any later one, however long its goroutines take to start.
func (b *ballot) free(i int) bool {
	select {
	case <-b.votes[i].turn:
		return true
	default:
		return false
	}
}

// take waits for a node's turn: what a round sends there must not overtake what came
// before, nor come after what a later round sends. ctx is one of its round's. nil: the
// caller has to pass it on.
func (b *ballot) take(ctx context.Context, due time.Time, i int) error {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-b.votes[i].turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return errBusy
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.latest(ctx) {
		b.pass(i)
		return errOvertaken
	}
	return nil
}

// latest tells whether ctx is of the last round that has begun. The caller holds mu.
func (b *ballot) latest(ctx context.Context) bool { return ctx == b.round.all || ctx == b.round.hope }

// pass lets the next request to the node go.
func (b *ballot) pass(i int) { b.votes[i].turn <- struct{}{} }

// ask runs call for those of the nodes that may have the token, side by side, until
// enough is known. The others go on until due, or until the next round of this ballot.
func (p *protocol) ask(ctx context.Context, b *ballot, nodes []int, due time.Time, call func(ctx context.Context, i int) error, enough func(*tally) bool) *tally {
	r := newRound(ctx)
	defer context.AfterFunc(ctx, func() { r.end(context.Cause(ctx)) })() // the caller's patience is none of the others'
	b.begin(r, p.patience())

	t := newTally(len(p.nodes), p.quorum)
	t.round, t.enough = r.all, enough
	var asked []int
	for i := range p.nodes {
		switch {
		case !slices.Contains(nodes, i):
			t.note(i, errPending)
		case b.at(i) == absent:
			t.note(i, errAbsent)
		default:
			asked = append(asked, i)
		}
	}
	for _, i := range asked {
		free, ctx := b.free(i), r.all
		if !p.expected(i) {
			ctx = r.hope
		}
		p.requests.Go(func() {
			if !free {
				if err := b.take(ctx, due, i); err != nil {
					t.hear(i, &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrUnsent, Err: err})
					return
				}
			}
			err := error(errAbsent)
			if b.at(i) != absent { // as it turned out
				err = call(ctx, i)
				p.silent[i].Store(errors.Is(err, strategy.ErrUnknown) || errors.Is(err, strategy.ErrUnsent))
			}
			b.pass(i)
			t.hear(i, clustered(err))
		})
	}
	t.wait()
	return t
}

// expected tells whether a node has answered the last request to it that has ended.
func (p *protocol) expected(i int) bool { return !p.silent[i].Load() }

// patience is how long the nodes that were not needed for the last quorum may take: in
// the same way quick nodes have answered by then.
func (p *protocol) patience() time.Duration {
	return min(max(3*time.Duration(p.pace.Load()), time.Millisecond), 50*time.Millisecond)
}

var (
	errTwin      = errors.New("the node has this attempt's token already")
	errAbsent    = &strategy.LostError{}
	errOvertaken = errors.New("the answer is not needed any more")
	errBusy      = errors.New("the request before it has not been answered")
	errPending   = errors.New("not waited for")
)
