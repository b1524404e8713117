package driver

import (
	"context"
	"strconv"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// These interfaces are those of some protocols only.

// A Notification is what servers send to waiters: one of the three below. A zero Notification says that the subscription broke,
// and is the last.
//
// It is a hint, because others may be able to send it, too. The engine believes a grant for [SuccessorTTL] at most, and nothing
// that cannot be true next to the last answer. No notification makes a waiter sleep for longer than that answer said, or
// than its own TTL.
type Notification struct {
	// Holder does not have the lock any more: it has released it, or another process has adopted it. It is called as in a
	// [strategy.HeldError].
	Holder string
	// Token is that of a queued claim, which the servers have made the holder. Grant has the fences, the TTL and the
	// ServerTime; a zero Grant: the waiter is to ask. See [Queuer].
	Token string
	Grant Grant
	// Next says that this line is the first in the queue now, and that the servers have made another the holder: for this long,
	// unless it extends.
	Next time.Duration
}

// Broken reports whether n says that the subscription broke.
func (n Notification) Broken() bool { return n.Holder == "" && n.Token == "" && n.Next == 0 }

// A Notifier is a [Protocol] whose servers notify waiters of a release.
type Notifier interface {
	// Watch returns once the servers have confirmed the subscription, so an attempt made after it cannot miss a later release.
	// ctx and c.Due bound only the confirmation. fn gets one notification at a time. It does not block, and does not call stop.
	// stop waits for a call of fn under way; there is none after it.
	Watch(ctx context.Context, c Claim, fn func(Notification)) (stop func(), err error)
}

// A Queuer is a [Protocol] whose servers keep a queue of the claims that wait for a lock. Its Release makes the first that still
// listens the holder, in the same step (a direct grant). That is for [SuccessorTTL] only, so a successor that died costs that and
// not a TTL; the engine extends the grant of one that holds for longer. A claim that becomes the first is notified
// ([Notification].Next) in the step in which the one before it leaves the queue.
//
// An Acquire with a Line that finds the lock held takes a place, and leaves its Token there. Later calls for that claim name the
// same Line and Token. Acquire then grants the lock in two cases: the claim is the holder already, or nobody holds the lock and
// the claim is the first that still listens. So the loss of an entry, or of a notification, does no harm.
type Queuer interface {
	Notifier

	// Pass is Release of c and then Acquire of next, which has a Line, in one step: behind those who queue before it. nil: next is
	// granted. *[strategy.HeldError]: next has its place in the queue. Either way c is released. *[strategy.LostError]: c was
	// not the holder any more. After that, [strategy.ErrRefused] and [strategy.ErrUnsent] nothing has changed. After
	// [strategy.ErrUnknown] the engine undoes both.
	Pass(ctx context.Context, c, next Claim) (Grant, error)
}

// A Sharer is a [Queuer] of a lock that several may hold at a time: a step that frees a part of it admits as many waiters as
// have room. Undo is for all holds of a claim.
type Sharer interface {
	Queuer
	// MaxShare is the greatest [Claim].Share.
	MaxShare() int
	// Excludes reports whether nobody gets the one share while somebody holds the other. An Acquire in the context of
	// such a hold would wait for itself, so the engine refuses it.
	Excludes(held, asked int32) bool
	// Groups reports whether any number may hold this share together. They queue apart and get in together: a grant is for all
	// Claim.Holds, with one fence. Otherwise Acquire grants as many as have room, with Grant.Fences numbers each, and the queue one.
	Groups(share int32) bool
}

// HoldToken is the token of the i-th hold, from 0, of a claim for several.
func HoldToken(token string, i int) string {
	if i == 0 {
		return token
	}
	return strconv.Itoa(i+1) + "." + token
}

// SuccessorTTL is how long a direct grant lasts if the successor does not extend it: the TTL, at most a second.
func SuccessorTTL(ttl time.Duration) time.Duration { return min(ttl, time.Second) }

// MaxFences is the greatest [Claim].Fences.
const MaxFences = 256

// A Reenterer is a [Protocol] that may let the owner of a lock in again. If ctx names an owner, the engine asks at once with
// Claim.Again, although others wait: they may be waiting for that owner. If the owner does not hold the lock, the error is a
// *[strategy.HeldError], without a holder if nobody does.
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
	// Acknowledged is this algorithm, on the same servers, with confirmations.
	Acknowledged(a strategy.Acks) Protocol
}

// A Validator is a [Protocol] whose own settings may be wrong, alone or together with Options.
type Validator interface {
	// Validate is called by engine.New and [strategy.Strategy].With, which return its error. It does no I/O. The error says what
	// is allowed.
	Validate(o strategy.Options) error
}

// A Prober is a [Protocol] that finds out whether a server was away, or is no primary any more: it may have forgotten locks. The
// engine asks every 0.75 s for as long as a lease is kept alive or somebody waits, and renews soon after the number has grown.
// A protocol that embeds its Node is one.
type Prober interface {
	// Probe is [Node].Probe; of several nodes, the sum.
	Probe(ctx context.Context, due time.Time) (returns uint64)
}
