package strategy

import "context"

// A Semaphore is a [Strategy] whose lock has a number of permits. The holders together have so many at most. Package
// semaphore makes one. An acquisition gets all its permits or waits, and is a [Lease] like any other.
type Semaphore interface {
	Strategy // NewLock is for one permit

	// NewMultiPermitLock is NewLock for acquisitions of 1 to 1,000 permits each. An acquisition of more permits than there are is
	// [ErrRefused]: it never waits for what cannot come.
	NewMultiPermitLock(name string, permits int) Lock

	// SetPermits sets how many permits the lock of that name has, for all processes, until it is set again: 1 to 1,000,000. With
	// 0 each process goes by its own number again. If there are more permits now, the first waiters have them at once. If there
	// are fewer, holders keep theirs until they release them. After [ErrRefused] and [ErrUnsent] nothing has changed. After
	// [ErrUnknown] it may have been set: set it again.
	SetPermits(ctx context.Context, name string, permits int) error
}

// A ReadWriter is a [Strategy] whose lock many may hold to read, or one to write. Package rwlock makes one.
type ReadWriter interface {
	Strategy // NewLock is to write

	// NewRLock is NewLock to read: others may read at the same time, nobody writes. It does no I/O.
	NewRLock(name string) Lock

	// Downgrade turns a write lease of this strategy into a lease to read, in one step: nobody writes in between. The write lease
	// is over then. The read lease has a token, a deadline and a renewal of its own.
	//
	// If ctx is done at the call, if the lease is of another strategy, or after [ErrClosed], nothing has changed. After any other
	// error the caller holds neither lease, and the engine undoes what the servers may still keep.
	Downgrade(ctx context.Context, write Lease) (Lease, error)
}
