package driver

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// The methods that a [Protocol] may have besides Acquire, Extend and Release.

// A Notification is what servers send to waiters: one of the three below. A zero Notification says
// that the subscription broke and no more will come.
type Notification struct {
	// Holder does not have the lock any more: it has released it, or another process has adopted it
	// ([Adopter]). It is called as in a [strategy.HeldError]. A waiter ignores other holders than the one
	// that it waits for, unless several may hold the lock, or others queue for it and the waiter does
	// not. This is a hint: the key is the truth.
	Holder string

	// Token is that of a queued claim, which the servers have made the holder. Grant has the fences,
	// the TTL and the ServerTime. See [Queuer].
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

// An Adopter is a [Protocol] that can give a hold to another process, which has its token.
type Adopter interface {
	// Adopt does in one step what Extend does for the hold with the token from, and replaces that
	// token by c.Token, with a new fence. So no two can adopt the same hold, and its old user can
	// neither release it nor write after the new one. Errors are those of Extend. After
	// [strategy.ErrUnknown], and after an error marked by [Remains], the engine undoes c. A [Notifier]
	// sends what a release of the old hold would send, because waiters wait for the holder that they know.
	//
	// Where owners re-enter, there are two cases. The only hold of an owner becomes c.Owner's. One hold
	// of several stays with its owner, which the Grant names, and nothing is sent. The engine hands a
	// re-entrant lock over within the process in this way: the next holder adopts it.
	Adopt(ctx context.Context, c Claim, from string) (Grant, error)
}

// An Inspector is a [Protocol] that can report who holds a lock.
type Inspector interface {
	// Inspect reads and changes nothing. c.Token and c.TTL are empty. It fills in Held, Token, TTL,
	// Fence and Queue, and, where owners re-enter, Owner and Holds. The engine adds Name, Key, Label
	// and Since, and, where owners do not re-enter, Owner and Holds.
	Inspect(ctx context.Context, c Claim) (strategy.Info, error)
}

// A Checker is a [Protocol] that can find out before the first lock whether its servers can be relied
// on.
type Checker interface {
	// Check returns nil if the servers answer, obey, allow what locks need, and keep locks; otherwise
	// an error that says what to change. o.Wait is as the user gave it: WaitBest demands nothing that
	// waiting can do without.
	Check(ctx context.Context, o strategy.Options) error
}

// A Validator is a [Protocol] whose own settings may be wrong, alone or together with Options.
type Validator interface {
	// Validate is called by engine.New and [strategy.Strategy].With, which return its error. It does
	// no I/O. The error says what is allowed.
	Validate(o strategy.Options) error
}

// A Prober is a [Protocol], or a [Node], that can find out whether a server was away: it may have
// restarted, and forgotten locks. The engine asks once a second for as long as a lease is kept alive. If
// a server was away, it renews soon, so that a holder does not learn of its loss at the next renewal only.
type Prober interface {
	// Probe asks the servers for a sign of life, and ends at due. It returns how often a server has come
	// back so far: how often a connection was made in the place of one that was lost. A number that
	// grows although no server was away costs a renewal and does no harm.
	Probe(ctx context.Context, due time.Time) (returns uint64)
}

// ProbeNodes is the Probe of a protocol on these nodes. It asks those that are a [Prober] at the same time.
func ProbeNodes(ctx context.Context, due time.Time, nodes ...Node) (returns uint64) {
	var all sync.WaitGroup
	var sum atomic.Uint64
	for _, n := range nodes {
		if p, ok := n.(Prober); ok {
			all.Go(func() { sum.Add(p.Probe(ctx, due)) })
		}
	}
	all.Wait()
	return sum.Load()
}
