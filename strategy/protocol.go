package strategy

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"
)

// A Protocol is a lock algorithm: what to say to the servers, and how to read
// what they answer. It waits for nothing but its servers, keeps no timers and
// retries nothing that is not idempotent; waiting, renewal, loss and clean-up
// are the machinery's ([New]), written once for all algorithms.
//
// Whatever a call leaves running ends by the claim's Due, and Close, if the
// protocol has one, waits for it. All methods are safe for concurrent use.
//
// A protocol may do more: see [Reenterer], [Notifier], [Queuer], [BulkExtender], [Adopter],
// [Inspector], [Checker] and [Validator]. The machinery finds these, and io.Closer,
// by type assertion.
type Protocol interface {
	// Acquire tries once to make c.Token the holder of c.Key for c.TTL. If
	// somebody else holds it the error is a *[HeldError]. If it cannot be known
	// what the servers did it is [ErrUnknown]: then the machinery calls Release
	// with Undo until that returns nil or one TTL has passed since the servers gave
	// a sign of life, and never sends this Token again. It does so, too, after an
	// error that [Remains] has marked, and gives Release the State that was returned
	// beside the error. After any other error the claim must have no effect.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes the servers count c.TTL anew if c.Token is still the holder.
	// Otherwise the error is a *[LostError], and nothing has changed: a lock that
	// is gone is never made again. An error that [Remains] has marked says that some of
	// several servers may keep the token beyond the deadline all the same.
	Extend(ctx context.Context, c Claim) (Grant, error)

	// Release ends a claim that is granted, queued or unanswered. nil means: it has no
	// effect now and can have none later. A *LostError means that the token was
	// not the holder any more; with Undo that is success, and nil, if and only if
	// an acquire still under way can no longer take effect. [Remains](nil) means: it
	// is over as far as anybody else can tell, and what is left of it must be undone.
	// With Undo the mark says that a server has not answered since the acquire was
	// sent to it, and so may not have begun to count the TTL.
	Release(ctx context.Context, c Claim) error
}

// A Claim is one contender's wish for one lock: what the machinery hands to a
// [Protocol].
type Claim struct {
	Name  string        // as the user calls the lock
	Key   string        // as the servers call it: Options.Key of Name
	Token string        // of this attempt alone, and of the holder once granted
	Owner string        // who re-enters; the Token unless ctx names an owner
	TTL   time.Duration // what the servers are to count; whole milliseconds
	Due   time.Time     // when the operation's time-out comes
	Again bool          // Acquire: only if Owner holds the lock already; see Reenterer

	// Line names the contenders of one process for whom the claim is made, to a [Queuer]:
	// if the lock is held, Acquire takes their place in the servers' queue, and Watch hears
	// what is meant for them. Empty: no place. A Release with Undo gives the place up.
	Line string
	// Fences is how many holds Acquire is to be for, one after the other in this process:
	// so many fences are reserved. Zero means one.
	Fences int

	Undo  bool  // Release: the reply to Acquire was lost, or came too late
	Force bool  // Release: an operator's, who ends all holds of Owner with Grant.Fence
	Grant Grant // Extend, Release: the last one; of a queued claim Start alone: when it was answered

	memo *memo // for its key; nil: none
}

// A memo keeps what was last derived from two of the keys that share it. Who finds neither
// makes it anew; with two of them, that is rare while there are far fewer keys in use than memos.
type memo [2]atomic.Pointer[derived]

// memos are for the keys in use: as many as callers at work, of which there are fewer than
// locks held, whose memory they would double.
type memos [1024]memo

var memoSeed = maphash.MakeSeed()

func (m *memos) at(key string) *memo { return &m[maphash.String(memoSeed, key)%uint64(len(m))] }

type derived struct {
	key  string
	what any
}

// Derived returns what from makes of c's key: names of other keys, say, of which a protocol
// needs the same for all claims of a [Lock]. They are mostly made once for it; what from
// returns is shared, and not to be changed.
func Derived[T any](c Claim, from func(key string) *T) *T {
	if c.memo == nil {
		return from(c.Key)
	}
	for i := range c.memo {
		if d := c.memo[i].Load(); d != nil && d.key == c.Key {
			if t, ok := d.what.(*T); ok {
				return t
			}
		}
	}
	t := from(c.Key)
	c.memo[1].Store(c.memo[0].Swap(&derived{c.Key, t})) // of two at once one may be lost, and is made again
	return t
}

// A Grant is what the servers gave.
type Grant struct {
	// Start is a moment not after the servers began to count TTL. Zero means
	// the moment at which the call was made.
	Start time.Time
	// TTL is what the servers count. Zero means the claim's.
	TTL time.Duration
	// Fence is this hold's number: greater than that of every earlier hold of the key,
	// except that holds of one owner who has re-entered share theirs. Zero means none.
	Fence uint64
	// Fences is for how many holds the grant is: the numbers from Fence on are theirs.
	// Zero means one.
	Fences int
	// ServerTime is what the server's clock showed when it answered or told, since 1970; a
	// [Queuer]'s.
	ServerTime time.Duration
	// Queued says, beside a *[HeldError], that the claim has its place in the queue.
	Queued bool
	// Owner is who holds the lock as the servers know it, where that is not the
	// token: what a [HeldError] and a [Notice] call the holder. Re-entrant algorithms
	// set it. Empty means the claim's Token.
	Owner string
	// Doubt says that some server has not answered, and may have what it was asked for for
	// longer than the lease: should the lease lapse, so that nobody releases it, the
	// machinery undoes it.
	Doubt bool
	// State is the protocol's own: the machinery hands it back with the claim.
	State any
}

// IsZero tells that nothing has been granted: the machinery fills in Start.
func (g Grant) IsZero() bool { return g.Start.IsZero() }

// A Notice is what servers tell those who wait: one of the three below. A zero Notice
// says that the subscription broke and no more will come.
type Notice struct {
	// Holder has released the lock, which is free: whose release it was, as a [HeldError]
	// names it. A waiter minds only the release of the holder that it was told of. It is
	// a hint: the key is the truth.
	Holder string

	// Token is that of a queued claim, which the servers have made the holder; Grant has
	// the fences, the TTL and the ServerTime. See [Queuer].
	Token string
	Grant Grant

	// Next says: whoever is told is first in the queue now; another has been made the
	// holder, for so long unless it extends.
	Next time.Duration
}

// Broken says that the subscription is: no more will come.
func (n Notice) Broken() bool { return n.Holder == "" && n.Token == "" && n.Next == 0 }

// A Notifier is a [Protocol] whose servers tell waiters when a lock is released.
type Notifier interface {
	// Watch returns once the servers have confirmed that they will tell, so that
	// an attempt made after it cannot miss a later release. fn must not block. A
	// watch that breaks ends with a single zero Notice. After stop has returned,
	// fn is not called again. ctx and c.Due bound only the confirmation.
	Watch(ctx context.Context, c Claim, fn func(Notice)) (stop func(), err error)
}

// A Queuer is a [Protocol] whose servers keep a queue of the claims that wait for a lock,
// and whose Release makes the next of them the holder in the same step (a direct grant):
// nobody has to ask, and nobody can come in between.
//
// A claim with a Line that finds the lock held takes a place, and keeps its Token there.
// Asked again with the same Token, Acquire does what has become due meanwhile: if the
// claim is the holder, or nobody is and it is the first that still listens, that is a
// grant. Who has gone deaf is passed over. What the queue loses, it loses to nobody's
// harm: whoever waits asks again at the holder's remaining TTL.
//
// A direct grant is for [HeirTTL] only, so that an heir that died costs that and not a
// TTL; the machinery extends it if it is held for longer.
type Queuer interface {
	Notifier

	// Pass is Release of c and then Acquire of next, which bears a Line, in one step:
	// behind those who queue already. nil: next is granted. *HeldError: next has its place
	// in the queue. Either way c is released. *LostError: c was not the holder any more,
	// and nothing has changed. After an error that is [ErrRefused] or [ErrUnsent] nothing
	// has changed either; after [ErrUnknown] both are undone.
	Pass(ctx context.Context, c, next Claim) (Grant, error)
}

// HeirTTL is for how long a direct grant makes its heir the holder: the TTL, at most a
// second.
func HeirTTL(ttl time.Duration) time.Duration { return min(ttl, time.Second) }

// MaxFences is the greatest [Claim].Fences.
const MaxFences = 256

// A Reenterer is a [Protocol] that may let the owner of a lock in again. An Acquire
// whose ctx names an owner then asks at once, though others stand in line: they may
// be waiting for that owner. It asks with Claim.Again, so as not to overtake them: if
// nobody holds the lock that is a *[HeldError] without a holder.
type Reenterer interface {
	// Reenters says whether it does.
	Reenters() bool
}

// A BulkExtender is a [Protocol] that renews many holds in few requests.
type BulkExtender interface {
	// ExtendAll does for each claim what Extend does and calls done once for
	// each, in any order or at the same time, before it returns; after that cs is the caller's again.
	ExtendAll(ctx context.Context, cs []Claim, done func(i int, g Grant, err error))
}

// An Adopter is a [Protocol] that can hand a hold on to somebody who brings its token.
type Adopter interface {
	// Adopt does in one step what Extend does for the hold whose token is from, and
	// puts c.Token in that token's place, with a fence of its own: so no two can adopt
	// the same hold, and whoever gave it up can neither release it nor write after
	// whoever took it over. Errors are those of Extend; after one that is unknown, or
	// marked by [Remains], the machinery undoes c, as after Acquire.
	Adopt(ctx context.Context, c Claim, from string) (Grant, error)
}

// An Inspector is a [Protocol] that can tell who holds a lock.
type Inspector interface {
	// Inspect reads and changes nothing. c.Token and c.TTL are empty.
	Inspect(ctx context.Context, c Claim) (Info, error)
}

// A Checker is a [Protocol] that can tell before the first lock whether its
// servers can be relied on.
type Checker interface {
	// Check returns nil if they can be reached, obey, allow what locks need, and are set up
	// in a way that keeps locks; otherwise an error that says what to change. o.Wait is what
	// the user gave: of WaitBest nothing is demanded that waiting can do without.
	Check(ctx context.Context, o Options) error
}

// A Validator is a [Protocol] whose own settings may be wrong, alone or beside Options.
type Validator interface {
	// Validate is called by [New] and [Strategy.With], which return its error. It does
	// no I/O. The error says what is allowed.
	Validate(o Options) error
}

// Info is what [Strategy.Inspect] saw of a lock.
type Info struct {
	Name  string
	Key   string
	Held  bool
	Token string        // the holder's, or that of one of its holds; empty if free
	Owner string        // who can re-enter; the Token where nobody can
	Holds int           // how often it was acquired and not yet released
	Label string        // the holder's Options.Label, if its token bears one; see [Info.Holder]
	Since time.Time     // when the holder asked for the lock, by its own clock; zero: its token does not tell
	TTL   time.Duration // until the servers let go; negative: never
	Fence uint64        // the last one issued for this key; zero: none
	// Queue has the tokens of those who wait in the servers' queue ([WaitQueue]), in their
	// order, one for each process: some may have died since. nil: nobody, or there is no queue.
	Queue []string
}
