package strategy

import "context"

// A Lock is one name that contenders compete for. It has no state: each acquisition contends on its own, but for a re-entrant
// lock, which lets the owner that ctx names in again ([WithOwner]). It is safe for concurrent use.
type Lock interface {
	Name() string // as given to NewLock; of several locks (package multilock) their names
	Key() string  // on the servers ([Options].Key); of several locks their keys

	// TryAcquire sends one request of its own and does not wait. It does not overtake the servers' queue ([WaitQueue]).
	//
	// After success the caller holds the lock until [Lease.Deadline] and must release it. ErrHeld (a *[HeldError]): somebody
	// else holds it. ErrRefused, ErrUnsent: nothing has changed. ErrUnknown, and ErrLost, if the grant came too late: the
	// servers may have granted it; the engine undoes that in the background, and the caller does not hold it. If ctx is over at
	// the call, no byte is sent. If it ends during the request, TryAcquire returns with the server's next reply, and after
	// Options.OpTimeout at the latest.
	TryAcquire(ctx context.Context) (Lease, error)

	// Acquire waits until it has the lock or ctx ends. ctx bounds the wait, never the hold. Waiters of one process are served
	// first come, first served, and share the requests; with [WaitQueue] so are processes.
	//
	// When ctx ends the wait, the error joins what the last attempt found (mostly ErrHeld) with ctx's error and cause. Acquire
	// goes on after ErrHeld, and after a grant that came too late. Any other error ends it as it ends TryAcquire, unless
	// Options.RetryOnError is set; if two in a row fail so, all waiters of this process get that error.
	Acquire(ctx context.Context) (Lease, error)
}

type ownerKey struct{}

// WithOwner names the owner that acquires with the returned context. A re-entrant lock is granted to it again; other algorithms
// ignore it. Make it unique (a request id): 1 … 1024 bytes.
func WithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// OwnerFrom returns the owner that [WithOwner] put into ctx; empty: none.
func OwnerFrom(ctx context.Context) string {
	owner, _ := ctx.Value(ownerKey{}).(string)
	return owner
}
