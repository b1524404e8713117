package driver

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// These interfaces are those of some protocols only.

// A Notification is what servers send to waiters: one of the three below. A zero Notification says
// that the subscription broke and no more will come.
//
// It is a hint: others may be able to send it, too. Whatever it says, the engine believes a grant for [SuccessorTTL] at most,
// and renews it at once if the lock is held for longer than a few milliseconds. It believes nothing that cannot be true next
// to the last answer. No notification makes a waiter sleep for longer than that answer said, or its own TTL.
type Notification struct {
	// Holder does not have the lock any more: it has released it, or another process has adopted it
	// ([Protocol].Adopt). It is called as in a [strategy.HeldError]. A waiter ignores other holders than the one
	// that it waits for, unless several may hold the lock, or others queue for it and the waiter does
	// not.
	Holder string

	// Token is that of a queued claim, which the servers have made the holder. Grant has the fences,
	// the TTL and the ServerTime; a zero Grant: the waiter is to ask. See [Queuer].
	Token string
	Grant Grant

	// Next says that this line is first in the queue now, and that the servers have made another the
	// holder: for this long, unless it extends.
	Next time.Duration
}

// Broken reports whether n says that the subscription broke.
func (n Notification) Broken() bool { return n.Holder == "" && n.Token == "" && n.Next == 0 }

// A Notifier is a [Protocol] whose servers notify waiters of a release.
type Notifier interface {
	// Watch returns once the servers have confirmed the subscription, so an attempt made after it
	// cannot miss a later release. ctx and c.Due bound only the confirmation.
	//
	// fn is called by one goroutine at a time. It does not block, and does not call stop. A watch that
	// breaks ends with a single zero Notification. After stop has returned, fn is not called again;
	// stop waits for a call under way.
	Watch(ctx context.Context, c Claim, fn func(Notification)) (stop func(), err error)
}

// A Queuer is a [Protocol] whose servers keep a queue of the claims that wait for a lock. Its Release
// makes the first of them the holder in the same step (a direct grant): no waiter has to ask, and no
// other contender can come in between.
//
// A claim with a Line that finds the lock held takes a place, and keeps its Token there. Asked again
// with the same Token, Acquire grants the lock in two cases: the claim is the holder already, or nobody
// holds the lock and the claim is the first that still listens. It passes over lines that no longer
// listen. Grant.Place is the claim's place in the queue. The first asks again when the holder's TTL
// ends; the n-th after up to n - 1 TTLs more. So a lost queue entry does no harm, and the number of
// requests does not grow with the number of waiters.
//
// A claim that becomes the first is notified (Notification.Next), in the step in which the claim before it
// leaves the queue: because a release or its own attempt made it the holder, or because it withdrew.
//
// A direct grant is for [SuccessorTTL] only, so a successor that died costs that and not a TTL. The
// engine extends the grant of a successor that holds for longer.
type Queuer interface {
	Notifier

	// Pass is Release of c and then Acquire of next, which has a Line, in one step: behind those who
	// queue already. nil: next is granted. *[strategy.HeldError]: next has its place in the queue.
	// Either way c is released. *[strategy.LostError]: c was not the holder any more, and nothing has
	// changed. After [strategy.ErrRefused] and [strategy.ErrUnsent] nothing has changed either. After
	// [strategy.ErrUnknown] the engine undoes both.
	Pass(ctx context.Context, c, next Claim) (Grant, error)
}

// A Sharer is a [Protocol] of a lock that several may hold at a time. Its servers keep a queue as those of
// a [Queuer] do, with two differences. Each waiter has an entry of its own, because one may get in while
// another waits: so the Line is the waiter's, and nobody else's. Each step that frees a part of the lock makes
// those holders whose turn it is, as many as there is room for: a release, an undo, an attempt that finds that a
// holder's TTL is over.
//
// The engine does not hand such a lock over within the process.
type Sharer interface {
	Notifier
	// MaxShare is the greatest [Claim].Share.
	MaxShare() int
	// Excludes reports whether nobody gets the one share while somebody holds the other. An Acquire in the context of
	// such a hold would wait for itself, so the engine refuses it.
	Excludes(held, asked int32) bool
}

// SuccessorTTL is how long a direct grant lasts, if the successor does not extend it: the TTL, at most
// a second.
func SuccessorTTL(ttl time.Duration) time.Duration { return min(ttl, time.Second) }

// MaxFences is the greatest [Claim].Fences.
const MaxFences = 256

// A Reenterer is a [Protocol] that may let the owner of a lock in again. An Acquire whose ctx names an
// owner then asks at once, although others wait: they may be waiting for that owner. It asks with
// Claim.Again, so as not to overtake them: if nobody holds the lock, that is a
// *[strategy.HeldError] without a holder.
type Reenterer interface {
	// Reenters reports whether it does.
	Reenters() bool
}

// A BulkExtender is a [Protocol] that renews many holds in few requests.
type BulkExtender interface {
	// ExtendAll does for each claim what Extend does. It calls done once for each, in any order or at
	// the same time, before it returns. Then cs is the caller's again.
	ExtendAll(ctx context.Context, cs []Claim, done func(i int, g Grant, err error))
}

// An Acknowledger is a [Protocol] that can have its grants and renewals confirmed: see [strategy.Options].Acks.
type Acknowledger interface {
	// Acknowledged is this algorithm, on the same node, with confirmations: what rediskit.Acknowledged returns.
	Acknowledged(a strategy.Acks) Protocol
}

// A Validator is a [Protocol] whose own settings may be wrong, alone or together with Options.
type Validator interface {
	// Validate is called by engine.New and [strategy.Strategy].With, which return its error. It does
	// no I/O. The error says what is allowed.
	Validate(o strategy.Options) error
}

// A Prober is a [Protocol] that can find out whether a server was away, or is no primary any more: it may have
// forgotten locks. The engine asks every 0.75 s for as long as a lease is kept alive, or somebody waits. If a server was
// away, it renews soon, so that a holder does not learn of its loss at the next renewal only. A protocol that embeds its
// Node is one.
type Prober interface {
	// Probe is [Node].Probe; of several nodes, the sum.
	Probe(ctx context.Context, due time.Time) (returns uint64)
}
