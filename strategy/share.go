package strategy

import "context"

// A Semaphore is a [Strategy] whose lock has a number of permits: so many holders may hold it at a time. Package
// semaphore makes one. Each acquisition takes its permits together, and is a [Lease] like any other.
type Semaphore interface {
	Strategy // NewLock is for one permit

	// NewWeightedLock is NewLock for acquisitions of several permits each, from 1 to 1,000. It does no I/O. An
	// acquisition of more permits than there are is [ErrRefused]: it never waits for what cannot come.
	NewWeightedLock(name string, permits int) Lock

	// SetPermits sets how many permits the lock of that name has, from now on and for all processes: 1 to
	// 1,000,000. Zero takes that back: then the number counts that each process was started with. If there are
	// more permits now, the first who wait have them at once. If there are fewer, holders keep theirs until they
	// release them. The servers keep the number until it is set again: it does not expire.
	//
	// After [ErrRefused] and [ErrUnsent] nothing has changed. After [ErrUnknown] it may have been set: set it
	// again.
	SetPermits(ctx context.Context, name string, permits int) error
}

// A ReadWriter is a [Strategy] whose lock many may hold to read, or one to write. Package rwlock makes one.
type ReadWriter interface {
	Strategy // NewLock is to write

	// NewRLock is NewLock to read: others may read at the same time, nobody writes. It does no I/O.
	NewRLock(name string) Lock

	// Downgrade makes of a write lease of this strategy a lease to read, in one step: nobody writes in between.
	// The write lease is over then, and the read lease has a token, a deadline and a renewal of its own. After
	// an error the caller holds neither, unless the error says that the lease is not allowed here; what the
	// servers may still keep is undone.
	Downgrade(ctx context.Context, write Lease) (Lease, error)
}
