package strategy

import "context"

// A Lock is one name that contenders compete for. It has no state: each acquisition contends on its
// own. Only a re-entrant lock lets the owner that ctx names in again ([WithOwner]). It is safe for
// concurrent use.
type Lock interface {
	Name() string // as given to NewLock; of several locks (package multilock) their names
	Key() string  // on the servers ([Options].Key); of several locks their keys

	// TryAcquire asks once and does not wait. It does not overtake the servers' queue ([WaitQueue]). Each call is
	// a request of its own, also of many calls at the same moment.
	//
	// After success the caller holds the lock until [Lease.Deadline] and must release it. After ErrHeld
	// (a *[HeldError]) somebody else holds it. After ErrRefused and ErrUnsent nothing has changed.
	// After ErrUnknown the servers may have granted it: the engine undoes that in the background, and
	// the caller does not hold it. ErrLost means that the grant came too late: the engine undoes it, too.
	// If ctx was done, or its deadline had passed by the clock, no byte was sent. If ctx ends during the request, TryAcquire returns with the
	// server's next reply, and after Options.OpTimeout at the latest.
	TryAcquire(ctx context.Context) (Lease, error)

	// Acquire waits until it has the lock or ctx ends. ctx bounds the wait, never the hold. Waiters of
	// one process are served first come, first served; with [WaitQueue] so are processes. Of many calls of one
	// process at the same moment one asks, or a few where several may hold the lock; the others wait for its answer.
	//
	// When ctx ends the wait, the error joins what the last attempt found (mostly ErrHeld) with ctx's
	// error and cause. Acquire goes on after ErrHeld, and after a grant that came too late. Any other
	// error ends it as it ends TryAcquire, unless Options.RetryOnError is set. When the servers have
	// failed two attempts in a row, all waiters of this process get that error.
	Acquire(ctx context.Context) (Lease, error)
}

type ownerKey struct{}

// WithOwner names the owner that acquires with the returned context. A re-entrant lock is granted to it
// again; other algorithms ignore it. Make it unique (a request id), at most 1024 bytes.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// OwnerFrom returns the owner that [WithOwner] put into ctx; empty: none.
func OwnerFrom(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
