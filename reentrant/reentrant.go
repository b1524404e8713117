// Package reentrant is a lock on one Redis that lets its owner in again: whoever holds
// it can take it once more, and it is free after the last release.
//
// # What it is for
//
// A function takes a lock and calls another that takes the same one. With any other
// lock that is a self-deadlock: the inner call waits for the outer, which waits for
// the inner. Better is to take the lock in one place only; where that cannot be (a
// library, a callback, a public method that calls another), re-entry helps.
//
// Who re-enters is said by the context, and by nothing else: [strategy.WithOwner], or the
// context that strategy.Do and [strategy.Lease.Context] hand out. An owner is no goroutine
// and no process: it may re-enter from another machine, if its name is sent along and given
// to WithOwner there. An acquisition whose context names nobody owns itself, and never
// re-enters.
//
//	err := strategy.Do(ctx, lock, func(ctx context.Context, outer *strategy.Lease) error {
//		return strategy.Do(ctx, lock, work) // with the outer's ctx: gets in at once
//	})
//
// # The idea
//
// The lock is a hash: its owner, its fence, and one field for each hold, named by the
// hold's token, with the time on the server's clock until which that hold counts. Each
// lease is one hold: it has a TTL, a deadline and a renewal of its own, and ends
// alone, in any order. The key expires with the last of its holds.
//
// The usual design counts the holds in one number (HINCRBY, under one TTL). Then a
// release that is sent again, because its reply was lost, ends another's hold, unless a
// second key remembers the first; a hold whose holder died is never counted down, so the
// lock stays for as long as the owner goes on elsewhere; and the first to release must
// guess how long the others rely on the lock. With a field for each hold a retry finds
// its field gone; a dead hold lapses by its own TTL; and after a release the key lives
// exactly as long as the longest of the holds that are left. That is the rule: a lease
// relies on its own TTL, whatever the others do.
//
// # What it guarantees
//
//   - Exclusion between owners, ownership, no deadlock: as package luascript.
//   - Re-entry: the owner gets in at once, also beside those who wait for it, here or in
//     other processes, who keep their order.
//   - Held until the last release; a hold that is not renewed ends by its own TTL.
//   - Fencing: re-entry does not change the fence; the next owner's is greater. So a
//     store that refuses lesser numbers lets inner and outer both write, and may compare
//     the owner, too ([strategy.Lease.Owner]).
//   - Quiet, fair waiting: whoever waits takes a place in a queue, one for each process,
//     which Redis keeps, and sleeps through inner releases. The last makes the next in the
//     queue the holder, with a fence of its own, in the same step (a direct grant), and
//     tells it. First come, first served, in a process and between processes; but who waits
//     in another way ([strategy.Options].Wait) is served when nobody queues.
//
// # What it does not
//
// It does not keep an owner's own calls apart: two goroutines with one owner are both
// in. Whoever knows an owner's name can enter; make it unique.
//
// When the lock is lost (to an operator, a flush, a fail-over), so are all its leases;
// when one hold lapses, the others stay. A waiter sleeps until the end that it was told:
// if a long hold is released and the owner then dies, it notices only at that end. An heir
// that has died is passed over, if Redis has noticed; otherwise it costs the others a
// second, for which it was made the holder. And
// an owner's contenders that wait in another process hear only when they next ask that
// it has got the lock here. As with every lock on one Redis, what Redis forgets (a
// restart without persistence, a fail-over, an eviction) is granted again.
//
// A hold that is passed on with [strategy.Lease.Detach] and [strategy.Strategy.Adopt]
// begins a new tenure, with the adopter's owner and a new fence, if it is the only one.
// If it is one of several, it stays the owner's, and the fence what it was: the adopter
// has become one of those who are in, and Lease.Owner says of whom.
//
// # When
//
// Take it where code that holds a lock calls code that takes it, and the two cannot be
// parted. Otherwise take package luascript: it costs less, and says by a deadlock what
// re-entry hides, namely that two pieces of code both believe to be alone.
//
// # On the wire
//
// Acquire, re-entry, Extend and Release are one round trip each; a direct grant costs its
// heir none, but for one to be renewed if it holds the lock for longer. Whoever releases and
// has others waiting in its own process queues for them in the same request. Holds that are
// kept alive and due at about the same time are renewed together, up to fifty per request.
//
// Keys: lock:{name}, the hash; lock:{name}:queue, a list of who waits, there while somebody
// does; lock:{name}:fence, the counter, which stays. Channels: lock:{name}:queue: and an id
// of the process, what those in the queue are told; lock:{name}:free, the owner whose last
// hold was released, where nobody queued. The work of a script grows with the number of
// holds. No other library's lock has this form: one that is given the same key is refused.
//
// The lock does not depend on its queue. Who may not use lists, subscribe or PUBLISH, and
// who finds the queue gone, asks again at random or when the holder's TTL is over.
//
// Source: the counting lock of Redisson (https://github.com/redisson/redisson), whose
// re-entry issues a new fence and whose inner release resets the TTL of all. Redis 6.2 or
// later, or Valkey.
package reentrant

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed fence.lua
	fenceLua string
	//go:embed holds.lua
	holdsLua string
	//go:embed queue.lua
	queueLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed pass.lua
	passLua string
	//go:embed force.lua
	forceLua string
	//go:embed adopt.lua
	adoptLua string
	//go:embed inspect.lua
	inspectLua string

	acquire = strategy.NewScript("acquire", strategy.EnqueueLua+fenceLua+holdsLua+queueLua+acquireLua)
	extend  = strategy.NewScript("extend", holdsLua+extendLua)
	release = strategy.NewScript("release", fenceLua+holdsLua+queueLua+releaseLua)
	pass    = strategy.NewScript("pass", strategy.EnqueueLua+fenceLua+holdsLua+queueLua+passLua)
	force   = strategy.NewScript("force", fenceLua+holdsLua+queueLua+forceLua)
	adopt   = strategy.NewScript("adopt", fenceLua+holdsLua+adoptLua)
	inspect = strategy.NewScript("inspect", fenceLua+holdsLua+queueLua+inspectLua)
)

// New returns the strategy on the Redis that pool dials. It takes the pool's
// settings (address, password, TLS, database) and, for its own two connections,
// dials beside it; the pool stays the caller's to close. It does no I/O: see
// [strategy.Strategy.Check].
func New(pool *redis.Pool, o strategy.Options, own ...Option) (*strategy.Strategy, error) {
	n, err := node.New(pool)
	if err != nil {
		return nil, err
	}
	return strategy.New(On(n, own...), o)
}

// On returns the algorithm on any node: for other clients, decorators and tests.
// Closing the protocol closes the node.
func On(n strategy.Node, own ...Option) strategy.Protocol {
	p := &protocol{Node: n}
	for _, set := range own {
		set(p)
	}
	if p.acks != nil {
		return strategy.Acknowledged(n, *p.acks, p.on)
	}
	return p
}

// on is the same algorithm on another node.
func (p protocol) on(n strategy.Node) *protocol {
	p.Node = n
	return &p
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// Acknowledged makes what grants or prolongs a lock count only once replicas, or the
// append-only file, have confirmed it, so that fewer fail-overs, or power cuts, forget it:
// see [strategy.Acks], also for what it cannot do. Two more round trips for each, over
// connections of the pool.
func Acknowledged(a strategy.Acks) Option {
	return func(p *protocol) { p.acks = &a }
}

// protocol is the algorithm on one node.
type protocol struct {
	strategy.Node                // Close is the node's
	acks          *strategy.Acks // nil: nobody is waited for
}

var _ strategy.Protocol = (*protocol)(nil) // and more: see capabilities.go

// Acquire takes the lock if nobody has it and nobody queues for it, or holds it once more
// if its owner asks. One round trip.
func (p *protocol) Acquire(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	again := 0
	if c.Again {
		again = 1
	}
	reply, err := p.Eval(ctx, c.Due, acquire, allKeys(c), c.Owner, c.Token, c.TTL.Milliseconds(), again, entry(c))
	if err != nil {
		return strategy.Grant{}, err
	}
	if reply == nil && c.Again {
		return strategy.Grant{}, &strategy.HeldError{Name: c.Name} // by nobody: others stand in line
	}
	return p.acquired(c, reply)
}

// Extend counts the hold's TTL anew if it is still there. One round trip.
func (p *protocol) Extend(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	return p.extending().Extend(ctx, c)
}

// Release ends the hold, and with the last makes the next in the queue the holder, or
// deletes the key; an operator's ends all. One round trip.
func (p *protocol) Release(ctx context.Context, c strategy.Claim) error {
	var reply any
	var err error
	if c.Force {
		reply, err = p.Eval(ctx, c.Due, force, allKeys(c), c.Owner, c.Grant.Fence, channel(c))
	} else {
		place := "" // that is given up, too
		if c.Undo {
			place = entry(c)
		}
		reply, err = p.Eval(ctx, c.Due, release, allKeys(c), c.Token, channel(c), place)
	}
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	}
	err = p.notOurs(c, reply)
	var lost *strategy.LostError
	if errors.As(err, &lost) {
		if gone := strategy.Gone(p, c, lost.Holder); !errors.Is(gone, strategy.ErrLost) {
			return gone // an undo's success, or nobody knows
		}
	}
	return err
}

// Pass is both at once, for a next of the same process. One round trip.
func (p *protocol) Pass(ctx context.Context, c, next strategy.Claim) (strategy.Grant, error) {
	reply, err := p.Eval(ctx, c.Due, pass, allKeys(c), c.Token, next.Owner, next.Token, next.TTL.Milliseconds(), entry(next))
	if err != nil {
		return strategy.Grant{}, err
	}
	switch reply.(type) {
	case nil, []byte:
		return strategy.Grant{}, p.notOurs(c, reply)
	}
	return p.acquired(next, reply)
}

// acquired reads what a script says that grants, or finds the lock held by another.
func (p *protocol) acquired(c strategy.Claim, reply any) (strategy.Grant, error) {
	if fence, ok := reply.(int64); ok {
		return p.granted(fence, c.Owner)
	}
	if g, held, ok := strategy.HeldReply(c, reply); ok && held.TTL > 0 {
		return g, held
	}
	return strategy.Grant{}, strategy.BadReply(p, reply)
}

// notOurs reads the reply of a script that did not find c's hold.
func (p *protocol) notOurs(c strategy.Claim, reply any) error {
	switch r := reply.(type) {
	case nil:
		return &strategy.LostError{Name: c.Name}
	case []byte:
		if string(r) == c.Owner {
			return &strategy.LostError{Name: c.Name, Err: errSiblings}
		}
		return &strategy.LostError{Name: c.Name, Holder: string(r)}
	case []any:
		if len(r) == 1 {
			return &strategy.ServerError{Node: p.Name(), Kind: strategy.ErrRefused, Err: fmt.Errorf("%s", r[0])}
		}
	}
	return strategy.BadReply(p, reply)
}

var errSiblings = errors.New("this hold is over; its owner has the lock by another")

// granted reads a fence. One that is none was not issued by our scripts.
func (p *protocol) granted(fence int64, owner string) (strategy.Grant, error) {
	if fence <= 0 || owner == "" {
		return strategy.Grant{}, strategy.BadReply(p, fence)
	}
	return strategy.Grant{Fence: uint64(fence), Owner: owner}, nil
}

// entry is c's in the queue: see queue.lua. Empty: it does not queue.
func entry(c strategy.Claim) string {
	if c.Line == "" {
		return ""
	}
	return fmt.Sprintf("%s %d %d %s %s", c.Line, strategy.HeirTTL(c.TTL).Milliseconds(), len(c.Token), c.Token, c.Owner)
}

func keys(c strategy.Claim) []string { return []string{c.Key, counter(c)} }

// allKeys are the lock's with its queue, for the scripts that may grant it to another.
func allKeys(c strategy.Claim) []string { return []string{c.Key, queue(c), counter(c)} }

func queue(c strategy.Claim) string   { return strategy.SiblingKey(c.Key, "queue") }
func counter(c strategy.Claim) string { return strategy.SiblingKey(c.Key, "fence") }
func channel(c strategy.Claim) string { return strategy.SiblingKey(c.Key, "free") }
