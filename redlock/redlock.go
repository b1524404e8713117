// Package redlock is the lock that survives the loss of servers: RedLock, a vote of
// independent Redis servers.
//
// # The idea
//
// A lock on one Redis is lost with that Redis, and a replica does not help, because
// it may be promoted before it has heard of the lock. So take N servers that know
// nothing of each other, five for example, and ask all of them at once for the same
// key with the same token and TTL. Whoever got more than half holds the lock: two
// majorities share a server, and that server grants once. Two of five may be down.
//
// Time is part of it. Votes are collected for a while, and the first may lapse while
// the last is still on its way. So the lock counts only if, from before the first
// request, TTL − elapsed − clock drift leaves enough validity, and its deadline is
// counted in the same way. Whoever gets too little, or too late, gives
// everything back at once. Two who split the votes try again after random pauses, so
// that one of them is first.
//
// # What it guarantees
//
// For as long as the servers' clocks run at about one speed (1 %) and none forgets what
// it granted:
//
//   - Exclusion: at most one holder until its deadline, with a minority of the servers
//     down, frozen, slow or cut off, and without waiting for them to take or keep it.
//   - Ownership: only the holder releases or extends, in one step on each server. A
//     lock that has lost its majority is lost; it is never completed again.
//   - No deadlock: a holder that dies is gone after its TTL, on each server by itself.
//   - Nothing stays behind of an attempt that failed, or of a lock that was released: a
//     vote whose answer was lost, or came when it was not needed any more, is undone, also
//     on a server that was frozen meanwhile.
//   - An unreachable majority is [strategy.ErrNoQuorum] and not [strategy.ErrHeld]: it
//     is not worth waiting for. A lock that is held is both: ask for ErrHeld first.
//   - Quiet waiting: releases are published on every server, so a waiter hears of
//     one though a minority is down.
//
// # What it does not
//
//   - A server that forgets a lock and comes back within the TTL votes twice: one
//     holder has A, B, C; C restarts without its data; another gets C, D, E. Until
//     this package keeps such a server out by itself, do it for it: let no server
//     come back before the longest TTL in use has passed, or persist every write
//     (appendfsync always). The same goes for FLUSHALL, for eviction, and for a server
//     that fails over to a replica: take servers that do none of these.
//   - A server whose clock jumps ahead drops its vote early, and a holder with just a
//     majority shares the lock then. Let clocks be slewed, not set.
//   - No fence yet ([strategy.Lease.Fence]): counters on several servers drift apart,
//     and the greatest of them is not sound without being written back. So a holder
//     that was paused past its deadline can still write. Kleppmann's objection of 2016
//     stands, and antirez's answer (compare the token where you write) asks of the
//     store what a fence does. Where a late write is
//     a disaster, take package luascript and its fence.
//   - No queue between processes: who is next is chance, and a rival that
//     asks at the same moment may cost both an attempt.
//
// # When
//
// Take it if the lock must go on when a server dies, if five (or three) servers without
// replication can be had for it, and if an exclusion broken by a restart at a bad moment
// costs no more than doing work twice. Do not take it to be safer than one server on
// a quiet day: it is not; it is more available. On one server it is package luascript
// without the fence.
//
// # On the wire
//
// Acquire, Extend and Release are one round trip each, on all servers side by side: N
// requests, of which Acquire and Extend await the quickest majority, and Release all
// that may have the lock, so one that does not answer delays it by its time-out
// ([NodeTimeout]). An attempt that got votes, but too few, gives them back: one more
// round trip. Key: lock:{name}, the same on each. Channel: lock:{name}:free, the token
// of whoever released.
//
// To read the algorithm, read redlock.go. What it asks of a ballot (which servers may
// have the token) and a tally (what they said) is kept in ballot.go.
//
// Source: "Distributed Locks with Redis"
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/); M.
// Kleppmann, "How to do distributed locking", 2016; antirez, "Is Redlock safe?", 2016.
// Redis 6.2 or later, or Valkey.
package redlock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/node"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed extend.lua
	extendLua string
	//go:embed release.lua
	releaseLua string
	//go:embed adopt.lua
	adoptLua string
	//go:embed inspect.lua
	inspectLua string

	acquire = strategy.NewScript("acquire", acquireLua)
	extend  = strategy.NewScript("extend", extendLua)
	release = strategy.NewScript("release", releaseLua)
	adopt   = strategy.NewScript("adopt", adoptLua)
	inspect = strategy.NewScript("inspect", inspectLua)
)

// New returns the strategy on the Redis servers that the pools dial: one pool for each
// server, best an odd number of them (an even one bears no more losses than the odd one
// below it). It takes the pools' settings and, for two connections to each server, dials
// beside them; the pools stay the caller's to close. It does no I/O: see
// [strategy.Strategy.Check], which also tells whether two of them are one server.
func New(pools []*redis.Pool, o strategy.Options, own ...Option) (*strategy.Strategy, error) {
	nodes := make([]strategy.Node, len(pools))
	for i, pool := range pools {
		if j := slices.Index(pools[:i], pool); j >= 0 {
			return nil, fmt.Errorf("locks: redlock's pools %d and %d are one: allowed is one for each server", j+1, i+1)
		}
		n, err := node.New(pool)
		if err != nil {
			return nil, fmt.Errorf("%w (number %d of %d)", err, i+1, len(pools))
		}
		nodes[i] = n
	}
	return strategy.New(On(nodes, own...), o)
}

// On returns the algorithm on any nodes: for other clients, decorators and tests.
// Closing the protocol closes the nodes.
func On(nodes []strategy.Node, own ...Option) strategy.Protocol {
	p := &protocol{nodes: slices.Clone(nodes), quorum: len(nodes)/2 + 1}
	p.fault = faultOf(p.nodes)
	for _, set := range own {
		set(p)
	}
	return p
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// NodeTimeout bounds each request to each server, so that one which does not answer
// delays a lock no longer than that, and only where its answer matters. It must cover a
// round trip, and a dial for the first one not to fail; Options.OpTimeout bounds it.
// Default TTL/20, but at least 5 ms and at most 50 ms.
func NodeTimeout(d time.Duration) Option {
	return func(p *protocol) { p.nodeTimeout = &d }
}

// MinValidity is how much of a lock's validity must be left when the majority has been
// found; with less it is given back, and the attempt has failed. Default TTL/10.
func MinValidity(d time.Duration) Option {
	return func(p *protocol) { p.minValidity = &d }
}

// protocol is the algorithm on its nodes.
type protocol struct {
	nodes  []strategy.Node
	quorum int
	fault  error // what is wrong with the nodes

	nodeTimeout, minValidity *time.Duration // nil: by the TTL

	requests sync.WaitGroup // also those that nobody waits for any more
	pace     atomic.Int64   // how long the last quorum took, in nanoseconds
	twin     atomic.Int64   // the number from 1 of a node that is another one, too; 0: none is known
}

var _ strategy.Protocol = (*protocol)(nil) // and more: see capabilities.go and watch.go

// Acquire asks all nodes for the lock, and has it if a quorum grants it in time.
func (p *protocol) Acquire(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	return p.take(ctx, c, (*tally).answered, func(ctx context.Context, due time.Time, n strategy.Node) error {
		reply, err := n.Eval(ctx, due, acquire, []string{c.Key}, c.Token, c.TTL.Milliseconds())
		if err != nil {
			return err
		}
		switch r := reply.(type) {
		case int64:
			return granted(n, r)
		case []any:
			if len(r) == 2 {
				holder, ok := r[0].([]byte)
				ms, ok2 := r[1].(int64)
				if ok && ok2 {
					return &strategy.HeldError{Name: c.Name, Holder: string(holder), TTL: strategy.RemainingTTL(ms)}
				}
			}
		}
		return strategy.BadReply(n, reply)
	})
}

// granted reads the number that a node gives whose vote is, or was, ours.
func granted(n strategy.Node, reply int64) error {
	switch reply {
	case 1:
		return nil
	case 0:
		return errTwin
	}
	return strategy.BadReply(n, reply)
}

// take is what Acquire and Adopt have in common: the vote, and what follows from it.
// grant asks one node.
func (p *protocol) take(ctx context.Context, c strategy.Claim, enough func(*tally) bool, grant func(context.Context, time.Time, strategy.Node) error) (strategy.Grant, error) {
	if i := p.twin.Swap(0); i != 0 { // an answer that came too late for the last attempt
		return strategy.Grant{}, p.twinError(ctx, c, int(i-1))
	}
	start, due := time.Now(), p.due(c) // the servers begin to count later
	b := newBallot(len(p.nodes), unknown)
	t := p.ask(ctx, b, due, func(ctx context.Context, i int) error {
		err := grant(ctx, due, p.nodes[i])
		switch {
		case err == nil:
			b.grant(i, c.TTL)
		case err == errTwin:
			p.twin.Store(int64(i + 1))
			b.set(i, absent) // what is there is the other's vote
		case certain(err):
			b.set(i, absent)
		}
		return err
	}, enough)

	elapsed := time.Since(start)
	validity := c.TTL - elapsed - strategy.Drift(c.TTL)
	if t.yes+t.held >= p.quorum {
		p.pace.Store(int64(elapsed))
	}
	if !t.twin && t.yes >= p.quorum && validity >= p.least(c.TTL) {
		return strategy.Grant{Start: start, TTL: c.TTL, State: b}, nil
	}
	left := p.giveBack(ctx, c, b)
	var err error
	switch {
	case t.twin:
		p.twin.Store(0)
		err = p.twinError(ctx, c, t.twinAt)
	case t.yes < p.quorum:
		err = p.refusal(c, t)
	default:
		err = &strategy.LostError{Name: c.Name, Lapsed: true, Err: fmt.Errorf("the quorum took %v, which leaves too little of the validity", elapsed)}
	}
	return strategy.Grant{State: b}, remains(left, err)
}

// certain tells whether err says that nothing was granted.
func certain(err error) bool {
	for _, known := range []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrRefused, strategy.ErrUnsent} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// Extend asks all nodes that may have the lock to count the TTL anew. A minority that
// cannot be reached keeps nothing from being extended, and ends nothing.
func (p *protocol) Extend(ctx context.Context, c strategy.Claim) (strategy.Grant, error) {
	start, due, b := time.Now(), p.due(c), p.ballot(c)
	t := p.ask(ctx, b, due, func(ctx context.Context, i int) error {
		until := b.doubt(i, c.TTL) // should the answer be lost, the key may last so much longer
		reply, err := p.nodes[i].Eval(ctx, due, extend, []string{c.Key}, c.Token, c.TTL.Milliseconds())
		if err == nil || certain(err) {
			b.lasts(i, until)
		}
		switch {
		case err != nil:
			return err
		case reply == int64(1):
			b.grant(i, c.TTL)
			return nil
		}
		return p.notThere(c, b, i, reply)
	}, (*tally).decided)

	switch {
	case t.yes >= p.quorum:
		return strategy.Grant{Start: start, TTL: c.TTL, State: b}, nil
	case t.lost > len(p.nodes)-p.quorum: // a minority that has it still: in nobody's way then
		p.clear(context.WithoutCancel(ctx), c, b, p.due(c), channel(c))
	}
	return strategy.Grant{}, remains(b.mayHold(), p.refusal(c, t))
}

// Release deletes the lock on all nodes that may have it, and waits for each.
func (p *protocol) Release(ctx context.Context, c strategy.Claim) error {
	b, due := p.ballot(c), p.due(c)
	if c.Undo {
		due = c.Due // in the background: a slow node gets its time
	}
	t := p.clear(ctx, c, b, due, channel(c))
	left := b.mayHold()
	switch {
	case c.Undo && left == 0:
		return nil
	case c.Undo:
		return b.undone(t)
	case t.yes+left < p.quorum: // it was lost before
		return remains(left, &strategy.LostError{Name: c.Name, Holder: t.holder(p.quorum)})
	case len(p.nodes)-left >= p.quorum: // free for others
		return remains(left, nil)
	}
	return p.changed(p.refusal(c, t), "released, but too few others were")
}

// remains marks err if something may be left on some nodes.
func remains(left int, err error) error {
	if left > 0 {
		return strategy.Remains(err)
	}
	return err
}

// giveBack ends what an attempt has left on any node, and returns on how
// many something may be left. A caller that is gone does not end it.
func (p *protocol) giveBack(ctx context.Context, c strategy.Claim, b *ballot) (left int) {
	to := channel(c)
	if b.mayHold() < p.quorum {
		to = "" // nobody can have seen it hold the lock, and so nobody waits for it
	}
	p.clear(context.WithoutCancel(ctx), c, b, p.due(c), to)
	return b.mayHold()
}

// clear deletes the lock on all nodes that may have it.
func (p *protocol) clear(ctx context.Context, c strategy.Claim, b *ballot, due time.Time, to string) *tally {
	return p.ask(ctx, b, due, func(ctx context.Context, i int) error {
		reply, err := p.nodes[i].Eval(ctx, due, release, []string{c.Key}, c.Token, to)
		switch {
		case err != nil:
			return err
		case reply == int64(1):
			b.set(i, absent)
			return nil
		}
		return p.notThere(c, b, i, reply)
	}, (*tally).complete)
}

// notThere reads the reply of a node that has another token, or none.
func (p *protocol) notThere(c strategy.Claim, b *ballot, i int, reply any) error {
	holder, held := reply.([]byte)
	if !held && reply != nil {
		return strategy.BadReply(p.nodes[i], reply)
	}
	c.Undo = true
	if b.at(i) == present {
		c.Grant.Start = time.Now() // the acquire was answered
	} else {
		c.Grant = strategy.Grant{}
	}
	if err := strategy.Gone(p.nodes[i], c, string(holder)); err != nil {
		b.early(i)
		return err // the acquire may come yet
	}
	b.set(i, absent)
	return &strategy.LostError{Name: c.Name, Holder: string(holder)}
}

// refusal says why no quorum agreed.
func (p *protocol) refusal(c strategy.Claim, t *tally) error {
	if t.lost > len(p.nodes)-p.quorum {
		return &strategy.LostError{Name: c.Name, Holder: t.holder(p.quorum)}
	}
	e := &strategy.QuorumError{Name: c.Name, Need: p.quorum, Nodes: p.answers(c, t)}
	if t.lost == 0 && t.yes+t.held >= p.quorum {
		e.Held = t.heldError(c.Name, p.quorum)
	}
	return e
}

// due is when a request that begins now has to be answered.
func (p *protocol) due(c strategy.Claim) time.Time {
	d := 50 * time.Millisecond
	switch {
	case p.nodeTimeout != nil:
		d = *p.nodeTimeout
	case c.TTL > 0: // not Inspect's
		d = min(max(c.TTL/20, 5*time.Millisecond), d)
	}
	if due := time.Now().Add(d); due.Before(c.Due) {
		return due
	}
	return c.Due
}

// least is the validity that an attempt must leave.
func (p *protocol) least(ttl time.Duration) time.Duration {
	if p.minValidity != nil {
		return *p.minValidity
	}
	return ttl / 10
}

func channel(c strategy.Claim) string { return strategy.SiblingKey(c.Key, "free") }
