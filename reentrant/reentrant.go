// Package reentrant is a lock on one Redis that its owner may acquire again.
//
// # The idea
//
// A function holds a lock and calls another that takes the same one. With any other lock the
// inner call waits for the outer, which waits for the inner. Here the lock knows its owner,
// and grants it to the owner again.
//
// The context names the owner, and nothing else does: [strategy.WithOwner], or the context
// that strategy.Do and [strategy.Lease.Context] hand out. An owner is no goroutine and no
// process; it may re-enter from another machine. An acquisition whose context names no owner
// is an owner of its own, and never re-enters.
//
//	err := strategy.Do(ctx, lock, func(ctx context.Context, outer strategy.Lease) error {
//		return strategy.Do(ctx, lock, work) // with the outer's ctx it gets in at once
//	})
//
// Each lease is one hold, with a TTL, a deadline and a renewal of its own. Holds end one by one,
// in any order. A plain counter could not do that. A release that is sent twice, because its
// reply was lost, would count twice. The hold of a dead process would count for as long as its
// owner goes on elsewhere. So each hold is a field of the hash, with its own end.
//
// # What it guarantees
//
//   - Exclusion between owners. A lock that is held by one owner is granted to no other.
//   - Re-entry. The owner gets in at once, past those who wait. The lock is held until the last
//     release.
//   - A dead holder does not block for ever. A hold that is not renewed ends by its own TTL. It
//     neither shortens nor lengthens the other holds.
//   - Fencing. An owner's holds share one fence, so inner and outer may both write to a store
//     that refuses lesser numbers. The next owner's is greater, unless the counter was lost, or
//     has expired, and the server's clock is behind it.
//
// # When something breaks
//
//   - A holder dies: its hold ends with its TTL. Nobody is notified. Waiters wake at the latest
//     end that they heard of, which may be later than that of the holds that are left.
//   - A reply is lost: nobody knows what Redis did. The engine undoes such an acquire, and
//     repeats such a release, until Redis confirms it or the TTL has passed. A release that
//     Redis carries out a second time ends no other hold.
//   - A waiter dies: it has left nothing in Redis.
//
// # What it does not guarantee
//
//   - It does not keep an owner's own calls apart: two goroutines with one owner are both in.
//     A caller that names the owner enters, so make the name unique; errors and logs show only its end
//     ([strategy.ShortToken]). All its holds have one fence, so a fence does not stop a hold
//     that has lapsed while another goes on.
//   - It is first come, first served within a process only. Redis keeps no queue: of several
//     processes that wait, any may be next, and an owner that re-enters again and again keeps
//     them all waiting.
//   - Redis may grant a lock that it has forgotten (a restart without persistence, a fail-over,
//     an eviction) to another. Then all holds of the owner are lost.
//
// # When
//
// Take it where code that holds a lock calls code that takes the lock, and you cannot change
// that. Otherwise take package fairqueue: its deadlock shows you what re-entry hides, two pieces
// of code that both believe they are alone.
//
// # On the wire
//
// Acquire (also re-entry), Extend and Release are one script each, one round trip. Within a process a
// release and the next acquire are one: for 2 ms ([strategy.Options].NoHandOver) the next waiter adopts
// the hold (adopt.lua). Renewals that are due together go in one request, up to fifty. The braces are
// part of the keys (a hash tag).
//
//	lock:{name}         a hash: owner, fence, and hold:<token> for each hold, with the server's
//	                    time in ms until which it counts. It expires with the latest of its holds
//	lock:{name}:fence   the last fence, a number; it expires Options.FenceTTL after it was issued
//	lock:{name}:free    the channel; a message is the owner that no longer has the lock
//
// No other library's lock has this form, and a key that has another form is refused. Read
// holds.lua, acquire.lua, fence.lua and release.lua, in this order.
//
// Redis 6.2 or later, or Valkey.
//
// Source: the idea is that of Redisson's counting lock (https://github.com/redisson/redisson).
package reentrant

import (
	"context"
	_ "embed"
	"errors"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed holds.lua
	holdsLua string
	//go:embed fence.lua
	fenceLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string

	acquire = driver.NewScript("acquire", holdsLua+fenceLua+acquireLua)
	extend  = driver.NewScript("extend", holdsLua+extendLua)
	release = driver.NewScript("release", holdsLua+releaseLua)
)

// New returns the strategy on a node: what the New of a client returns. It does no I/O: see [strategy.Strategy.Check].
// Close closes the node, unless another strategy uses it, too; the client stays the caller's.
func New(n driver.Node, o strategy.Options) (strategy.Strategy, error) {
	return engine.New(On(n), o)
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(n driver.Node) driver.Protocol {
	return &protocol{Node: driver.NodeOf(n, nil), names: keycache.New("fence")}
}

// Acknowledged is the same lock for [strategy.Options].Acks.
func (p *protocol) Acknowledged(a strategy.Acks) driver.Protocol {
	return rediskit.Acknowledged(p.Node, a, func(n driver.Node) rediskit.Confirmable {
		q := *p
		q.Node = n
		return &q
	})
}

// protocol is the algorithm on one node.
type protocol struct {
	driver.Node // Close is the node's
	names       *keycache.Cache
}

var _ interface {
	driver.Protocol // also adopt.go, force.go, inspect.go, check.go
	driver.Acknowledger
	driver.Reenterer
	driver.Notifier
	driver.BulkExtender
} = (*protocol)(nil)

// Reenters says yes: acquire.lua grants the lock to its owner again.
func (p *protocol) Reenters() bool { return true }

// Acquire takes the lock if nobody holds it, or holds it once more if its owner asks.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	again := 0
	if c.Again {
		again = 1
	}
	l := p.names.Of(c.Key)
	token, owner := boxed(c)
	reply, err := p.Eval(ctx, c.Due, acquire, l.Keys, owner, token, l.TTL.Of(c.TTL), again, l.FenceTTL.Of(c.FenceTTL))
	if err != nil {
		return driver.Grant{}, err
	}
	if fence, ok := reply.(int64); ok {
		return p.granted(fence, c.Owner, token)
	}
	if held, ok := rediskit.HeldReply(c, reply); ok && held.TTL > 0 {
		return driver.Grant{}, held
	}
	if reply == nil && c.Again {
		return driver.Grant{}, &strategy.HeldError{Name: c.Name} // free, but this claim may only re-enter: others of this process come first
	}
	return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
}

// Extend lets the hold last for its TTL from now, if it still counts.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return p.extending().Extend(ctx, c)
}

// ExtendAll does the same for many holds, up to fifty in a request.
func (p *protocol) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	p.extending().ExtendAll(ctx, cs, done)
}

func (p *protocol) extending() rediskit.BulkScript {
	return rediskit.BulkScript{Node: p, Script: extend, Most: 50, Refused: p.notHeld}
}

// Release ends the hold. With the last one the lock is free, and its waiters are notified.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	l := p.names.Of(c.Key)
	token, _ := boxed(c)
	reply, err := p.Eval(ctx, c.Due, release, l.Keys[:1], token, l.Free)
	if err == nil && reply != int64(1) {
		err = p.notHeld(c, reply)
	}
	return driver.Outcome{}, err
}

// Undo is Release: see [rediskit.Undone].
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	_, err := p.Release(ctx, c)
	return rediskit.Undone(p, c, err)
}

// Watch reports each release that freed the lock, by its owner.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	return rediskit.WatchChannel(ctx, p, c, p.names.Of(c.Key).Channel(), fn)
}

// boxed returns the claim's token and owner as arguments of a command, with few allocations: the grant keeps the token's box for
// the release, and an owner that ctx does not name is the token.
func boxed(c driver.Claim) (token, owner any) {
	if token = c.Grant.State; token != c.Token {
		token = c.Token
	}
	if owner = token; c.Owner != c.Token {
		owner = c.Owner
	}
	return token, owner
}

// granted reads the fence of a grant.
func (p *protocol) granted(fence int64, owner string, token any) (driver.Grant, error) {
	if fence <= 0 || owner == "" { // no script of ours answers that
		return driver.Grant{}, rediskit.BadReply(p.Name(), fence)
	}
	return driver.Grant{Fence: uint64(fence), Owner: owner, State: token}, nil
}

// notHeld reads the reply of a script that did not find c's hold: nil, nobody holds the lock; an owner,
// that one does.
func (p *protocol) notHeld(c driver.Claim, reply any) error {
	if owner, ok := reply.([]byte); ok && string(owner) == c.Owner {
		return &strategy.LostError{Name: c.Name, Err: errOtherHold}
	}
	return rediskit.LostReply(p.Name(), c, reply)
}

var errOtherHold = errors.New("this hold is over; its owner holds the lock by another hold")
