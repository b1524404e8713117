// Package election elects a leader among processes, by a lock that is kept alive. A waiter campaigns, the holder
// leads, and a release resigns. A term of leadership is a [strategy.Lease].
//
// At most one candidate believes that it leads, as far as the lock keeps its promise (docs/learn/faults.md). A leader that was
// paused learns the end of its term when it runs again. So give each write the term's number, [strategy.Lease.Fence]:
// it rises from leader to leader, and the store can refuse lesser ones.
//
// The Options of the strategy are the election's:
//   - TTL is for how long nobody leads after the death of a leader.
//   - RetryOnError lets a campaign outlast a failure of the servers. Without it Campaign and Lead return the error.
//   - MaxHold bounds a term.
//   - Label is the candidate's name in what Leader and Observe return.
package election

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// An Election is one name for which candidates compete. It has no state. It is safe for concurrent use.
type Election struct {
	locks strategy.Strategy
	name  string
}

// New returns the election that the lock of that name decides. It does no I/O. If the strategy is re-entrant,
// candidates whose contexts name the same owner are one candidate.
func New(locks strategy.Strategy, name string) *Election { return &Election{locks, name} }

// Campaign waits until this candidate leads, or ctx ends. The term goes on until [strategy.Lease.Release], which
// resigns, or until the lock is lost. The errors are those of [strategy.Lock.Acquire]; after any of them the candidate
// does not lead.
func (e *Election) Campaign(ctx context.Context) (term strategy.Lease, err error) {
	term, err = e.locks.NewLock(e.name).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := term.KeepAlive(0); err != nil {
		term.Release(ctx) //nolint:errcheck // the term is over already
		return nil, err
	}
	return term, nil
}

// Lead campaigns, calls reign, resigns when reign returns, and campaigns again, until ctx ends. The context of reign
// ends when the term does: the lock is lost, or ctx has ended. reign must return soon then, because the next leader does
// not wait for it.
//
// After the loss of a term Lead campaigns again, whatever reign has returned. Any other error ends it: one of reign, of
// the campaign or of the release. So Lead never returns nil, and returns an error that is ctx's once ctx has ended.
func (e *Election) Lead(ctx context.Context, reign func(ctx context.Context, term strategy.Lease) error) error {
	for {
		var own error // reign's, which may be about the loss of another lock
		err := strategy.Do(ctx, e.locks.NewLock(e.name), func(ctx context.Context, term strategy.Lease) error {
			own = reign(ctx, term)
			return nil // so err is about the term alone
		})
		switch {
		case err == nil && own == nil, errors.Is(err, strategy.ErrLost) && !timeup.Over(ctx):
			continue
		case err == nil || errors.Is(own, err):
			err = own
		case own != nil:
			err = errors.Join(own, err)
		}
		if ended := cmp.Or(ctx.Err(), context.DeadlineExceeded); timeup.Over(ctx) && !errors.Is(err, ended) {
			err = errors.Join(err, ended)
		}
		return err
	}
}

// Leader asks who leads now. If Held is false nobody does. Label is the name of the leader, Fence the number of its
// term, Token the term's, and Queue has the candidates that wait. It may have changed when Leader returns.
func (e *Election) Leader(ctx context.Context) (strategy.Info, error) {
	return e.locks.Inspect(ctx, e.name)
}

// Observe yields what [Election.Leader] returns, at once and again each time that it has changed, as [strategy.Watch]
// does. It asks every so often, so it does not see a term that is shorter.
func (e *Election) Observe(ctx context.Context, every time.Duration) iter.Seq2[strategy.Info, error] {
	return strategy.Watch(ctx, e.locks, e.name, every)
}
