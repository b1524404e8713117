package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

func (e *engine) NewShare(name string, share int) strategy.Lock { return e.newShare(name, share) }

func (e *engine) newShare(name string, share int) *lock {
	l := e.newLock(name)
	if l.err == nil && (share < 1 || share > e.maxShare) {
		l.err = fmt.Errorf("locks: a share of %d of the lock %q: allowed are 1 to %d", share, name, e.maxShare)
	}
	l.share = int32(share)
	return l
}

func (e *engine) Exchange(ctx context.Context, held strategy.Lease, share int) (strategy.Lease, error) {
	to := e.newShare(held.Name(), share)
	if err := to.refuse(ctx); err != nil {
		return nil, err // the lease is as it was
	}
	from, ok := held.(*lease)
	if !ok || from.c.shared != e.shared || from.claim.Key != to.key {
		return nil, fmt.Errorf("locks: the lease of %q is another strategy's: allowed is one that this strategy granted", held.Name())
	}
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	old, err := from.finish()
	if err != nil {
		return nil, err
	}
	defer from.unblock()
	from.ended(ctx, strategy.EventReleased, nil)
	start := e.called(ctx, held.Name())
	l, err := e.adopt(ctx, held.Name(), old.Token, share, start)
	if err != nil {
		e.missed(ctx, held.Name(), start, err)
		if !errors.Is(err, strategy.ErrLost) {
			e.undo(old)
		}
		return nil, err
	}
	return l, nil
}

func (e *engine) Ask(ctx context.Context, name string, request func(ctx context.Context, c driver.Claim) error) error {
	c, err := e.operatorClaim(ctx, name)
	if err != nil {
		return err
	}
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	return request(ctx, c)
}
