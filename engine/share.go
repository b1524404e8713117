package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// NewShare is s.NewLock for a share of a lock that several may hold ([driver.Claim].Share). s is what [New] made
// of a [driver.Sharer].
func NewShare(s strategy.Strategy, name string, share int) strategy.Lock {
	e := s.(*engine)
	l := e.newLock(name)
	if l.err == nil && (share < 1 || share > e.maxShare) {
		l.err = fmt.Errorf("locks: a share of %d of the lock %q: allowed are 1 to %d", share, name, e.maxShare)
	}
	l.part = int32(share)
	return l
}

// Exchange gives up a lease for another share of its lock, in one step: nobody comes in between. s is the
// strategy of the lease, and its protocol is a [driver.Adopter], too.
//
// If the call is refused (ctx is done, the lease is another strategy's, s is closed), the lease is as it was. After
// any other error the caller holds nothing, and the engine undoes what the servers may still keep of either lease.
func Exchange(ctx context.Context, s strategy.Strategy, held strategy.Lease, share int) (strategy.Lease, error) {
	e := s.(*engine)
	to := NewShare(s, held.Name(), share).(*lock)
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

// Ask makes a request that only this algorithm knows, about a lock and not about a lease. c has no token.
func Ask(ctx context.Context, s strategy.Strategy, name string, request func(ctx context.Context, c driver.Claim) error) error {
	e := s.(*engine)
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
