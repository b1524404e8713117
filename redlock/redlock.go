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
// For as long as the servers' clocks run at about one speed (1 %):
//
//   - Exclusion: at most one holder until its deadline, with a minority of the servers
//     down, frozen, slow or cut off, and without waiting for them to take or keep it;
//     also when servers restart without their data, or lose it: see the restart guard.
//   - Ownership: only the holder releases or extends, in one step on each server. A
//     lock that has lost its majority is lost; it is never completed again.
//   - It outlives the servers that it was granted by: while a majority has it, an
//     extension also asks those to take it that do not have it.
//   - No deadlock: a holder that dies is gone after its TTL, on each server by itself.
//   - Nothing stays behind of an attempt that failed, or of a lock that was released: a
//     vote whose answer was lost, or came when it was not needed any more, is undone, also
//     on a server that was frozen meanwhile.
//   - An unreachable majority is [strategy.ErrNoQuorum] and not [strategy.ErrHeld]: it
//     is not worth waiting for. A lock that is held is both: ask for ErrHeld first.
//   - Fences, if asked for ([WithFences]): see there.
//   - Quiet waiting: releases are published on every server, so a waiter hears of
//     one though a minority is down.
//
// # The restart guard
//
// A server that forgets a lock and comes back within the TTL would vote twice: one holder
// has A, B, C; C restarts without its data; another gets C, D, E. So a server that may have
// forgotten does not vote until the longest TTL ([MaxTTL]) has passed, counted from when it
// is first asked for a lock again. Each server has a key of its own for that ([GuardKey]),
// and the script that grants compares it with the process that runs, so it costs no round
// trip. A server may have forgotten if the key is missing (it is new, was emptied, or
// restarted without its data) or was written by another process (it was restarted, with
// whatever its persistence kept, or was a replica of the one that wrote it), or by one that
// has been a replica since. It learns of that, and begins to count, when it is next asked
// for a lock. Until it votes, it refuses ([GuardError]) what it is asked to grant, and
// counts as if it were down: extending and releasing what it has go on, and what a majority
// has may join it.
//
// A new cluster therefore waits, or is told that it is new: [Prime]. Servers of which more
// than a minority restart within one MaxTTL, or while nobody asks for a lock, grant nothing
// for the rest of it.
//
// The guard rests on the server's clock: one that jumps ahead opens it early. (One that is
// set back makes it wait for no longer than MaxTTL again.) It does not see what is taken
// away beside it: an eviction (maxmemory-policy must be noeviction), keys deleted by hand,
// a database swapped; nor that a whole machine or process was set back to a snapshot. Nor
// does it see that a server was a replica meanwhile, if since then it had no replica for
// repl-backlog-ttl (an hour by default) and was not asked either: where servers have
// replicas, let that be no less than MaxTTL. A server that does not tell its run_id, such
// as an embedded imitation, is guarded by the presence of the key alone. It needs the
// rights to INFO and to its key.
//
// # Fences
//
// Each server counts for itself, and the greatest of what the voters know, plus one, is
// unsound: it may be greater than what the next majority knows. So the number is written
// back. Phase one: the script that grants also tells the server's counter c; on the
// servers that granted, Q, F is the greatest c plus one. Phase two: each server of Q sets
// its counter to F if the lock there still has this attempt's token. The lock counts if a
// majority W, part of Q, has done so, within the validity.
//
// Two holds never have one number, and one that begins when another has been granted has
// the greater. For their majorities W1 and W2 share a server. From its grant to its
// write-back each hold had that server's key without a break, as tokens are fresh and are
// never set a second time before that; so the two spans lie one after the other there.
// Whichever is second has read, with its grant, what the first had written: F2 > F1. And a
// hold that was complete before the other began is the first. No clock is part of this, so
// pauses, early expiry and clocks that are set do no harm.
//
// Counters have to last for it, and they may be lost as locks are. Beside each number stands
// the name of the guard's memory that noted it (a memory ends where the guard begins to
// wait), and a server whose counter is missing or of another memory does not remember: its
// silence is not a zero. (On one that was primed, nothing has been lost, and it is.) Phase
// one waits, within [NodeTimeout], for a majority that remembers, and of it W is made: a
// write-back elsewhere does not count. A server that had forgotten, and so said when it
// granted, is told the number when all of a W have it, and remembers from then on. It then
// knows all that it forgot: whatever was noted on it before shares a server z with the W of
// the hold that tells it, was first there (it was noted before the loss, of which that
// hold had heard before it noted anything), and so has the lesser number. That is free of
// clocks, too; it would not be if any write-back made a server remember, for a grant that
// was long under way may find it without the memory that the rest of its voters had.
//
// Where fewer than a majority remember, or can be reached that do, the clocks decide, which
// are asked in any case: F is at least the greatest time, in microseconds, that a server
// of Q tells; all of Q count, and remember from then on. That is what package luascript
// does about a lost counter, and is sound unless those clocks are behind the last fence.
//
// # What it does not
//
//   - A server whose clock jumps ahead drops its vote early, and a holder with just a
//     majority shares the lock then. Let clocks be slewed, not set.
//   - Two servers that pass for one vote twice: a replica that was promoted while its old
//     primary goes on does not vote for a MaxTTL, and the old one never stops. Whoever
//     holds and extends a lock by the old one shares it with whoever sees the new one.
//     So use no replicas, or stop the old one before it is replaced.
//   - Without the guard ([WithoutGuard]) a server that forgets votes twice. Then let no
//     server come back before the longest TTL in use has passed.
//   - Without fences a holder that was paused past its deadline can still write.
//     Kleppmann's objection of 2016 stands there, and antirez's answer (compare the token
//     where you write) asks of the store what a fence does.
//   - No queue between processes: who is next is chance, and a rival that
//     asks at the same moment may cost both an attempt.
//
// # When
//
// Take it if the lock must go on when a server dies, and five (or three) servers without
// replication can be had for it. Do not take it to be safer than one server on
// a quiet day: it is not; it is more available. On one server it is package luascript
// with a guard, with fences only on request, and without bulk renewal and Acknowledged.
//
// # On the wire
//
// Acquire, Extend and Release are one round trip each, on all servers side by side: N
// requests, of which Acquire and Extend await the quickest majority, and Release all
// that may have the lock, so one that does not answer delays it by its time-out
// ([NodeTimeout]). With fences Acquire is two. An attempt that got votes, but too few,
// gives them back: one more round trip. After an extension, each server that does not have
// the lock gets one request more, for which nobody waits. Keys: lock:{name}, the same on
// each, and, with fences, lock:{name}:fence. Channel: lock:{name}:free, the token
// of whoever released. And one key for all locks, [GuardKey]: so servers, not nodes of a
// Redis Cluster.
//
// To read the algorithm, read redlock.go; for what is beside it guard.go, fence.go and
// join.go. What it asks of a ballot (which servers may have the token) is kept in
// ballot.go, and of a tally (what they said) in tally.go.
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

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

var (
	//go:embed open.lua
	openLua string
	//go:embed vote.lua
	voteLua string
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

	acquire = driver.NewScript("acquire", openLua+guardLua+voteLua+acquireLua)
	extend  = driver.NewScript("extend", extendLua)
	release = driver.NewScript("release", releaseLua)
	adopt   = driver.NewScript("adopt", guardLua+voteLua+adoptLua)
	inspect = driver.NewScript("inspect", inspectLua)
)

// New returns the strategy on the Redis servers that the pools dial: one pool for each
// server, best an odd number of them (an even one bears no more losses than the odd one
// below it). It takes the pools' settings and, for two connections to each server, dials
// beside them; the pools stay the caller's to close. It does no I/O: see
// [strategy.Strategy.Check], which also tells whether two of them are one server.
func New(pools []*redis.Pool, o strategy.Options, own ...Option) (strategy.Strategy, error) {
	nodes, err := dialled(pools)
	if err != nil {
		return nil, err
	}
	return engine.New(On(nodes, own...), o)
}

// On returns the algorithm on any nodes: for other clients, decorators and tests.
// Closing the protocol closes the nodes.
func On(nodes []driver.Node, own ...Option) driver.Protocol {
	p := &protocol{nodes: slices.Clone(nodes), quorum: len(nodes)/2 + 1}
	p.silent = make([]atomic.Bool, len(nodes))
	for i := range nodes {
		p.all = append(p.all, i)
	}
	p.fault = faultOf(p.nodes)
	for i, set := range own {
		if set == nil {
			p.fault = errors.Join(p.fault, fmt.Errorf("locks: redlock's option %d is nil: allowed are what its functions return", i+1))
			continue
		}
		set(p)
	}
	return p
}

// An Option is a setting that only this algorithm has.
type Option func(*protocol)

// NodeTimeout bounds each request to each server, so that one which does not answer
// delays a lock no longer than that for each round of requests, and only where its answer
// matters. An attempt has one round, and one more to give back what was not enough; with
// fences there is one between. An extension and a release have one. NodeTimeout must cover a
// round trip, and a dial for the first one not to fail; Options.OpTimeout bounds it. Default
// TTL/20, but at least 5 ms and at most 50 ms.
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
	nodes  []driver.Node
	all    []int // their indices
	quorum int
	fault  error // what is wrong with the nodes, and the options

	nodeTimeout, minValidity, maxTTL *time.Duration // nil: by the TTL
	unguarded, fences                bool

	requests sync.WaitGroup // also those that nobody waits for any more
	silent   []atomic.Bool  // of each node: the last request to it has ended without an answer
	pace     atomic.Int64   // how long the last quorum took, in nanoseconds
	known    atomic.Int64   // the longest TTL in use, in milliseconds, as far as it is known here
	twin     atomic.Int64   // the number from 1 of a node that is another one, too; 0: none is known
}

var _ driver.Protocol = (*protocol)(nil) // and more: see capabilities.go and watch.go

// Acquire asks all nodes for the lock, and has it if a quorum grants it in time; with
// fences, if a quorum of those that granted it has then noted its number in time.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return p.take(ctx, c, (*tally).answered, func(ctx context.Context, due time.Time, n driver.Node) (any, error) {
		reply, err := n.Eval(ctx, due, acquire, p.keys(c), c.Token, c.TTL.Milliseconds(), p.longest(c.TTL))
		if r, _ := reply.([]any); len(r) == 3 {
			holder, ok := r[0].([]byte)
			ms, ok2 := r[1].(int64)
			longest, ok3 := r[2].(int64)
			if ok && ok2 && ok3 {
				p.hear(longest)
				return nil, &strategy.HeldError{Name: c.Name, Holder: string(holder), TTL: driver.RemainingTTL(ms)}
			}
		}
		return reply, err
	})
}

// keys are those of the scripts that grant: without the guard there are no fences.
func (p *protocol) keys(c driver.Claim) []string {
	if p.fences {
		return append(p.voteKeys(c), counter(c))
	}
	return p.voteKeys(c)
}

// voteKeys are those of a vote: the lock's, and the guard's if there is one.
func (p *protocol) voteKeys(c driver.Claim) []string {
	if p.unguarded {
		return []string{c.Key}
	}
	return []string{c.Key, GuardKey}
}

// voted reads the reply of a node that has granted its vote, or does not vote yet.
func (p *protocol) voted(n driver.Node, reply any) (memory, error) {
	switch r := reply.(type) {
	case int64:
		if r == 0 {
			return memory{}, errTwin
		}
		if r > 0 && !p.fences {
			p.hear(r)
			return memory{}, nil
		}
	case []any:
		if m, longest, ok := remembered(r); ok && p.fences {
			p.hear(longest)
			return m, nil
		}
		if err := p.guarded(n, reply); err != nil {
			return memory{}, err
		}
	}
	return memory{}, driver.BadReply(n.Name(), reply)
}

// take is what Acquire and Adopt have in common: the vote, and what follows from it.
// grant asks one node, and reads those of its replies that voted does not know.
func (p *protocol) take(ctx context.Context, c driver.Claim, enough func(*tally) bool, grant func(context.Context, time.Time, driver.Node) (any, error)) (driver.Grant, error) {
	if i := p.twin.Swap(0); i != 0 { // an answer that came too late for the last attempt
		return driver.Grant{}, p.twinError(ctx, c, int(i-1))
	}
	start, due := time.Now(), p.due(c) // the servers begin to count later
	b := newBallot(len(p.nodes), unknown)
	said := make([]memory, len(p.nodes)) // each is written before its node's answer is noted
	t := p.ask(ctx, b, p.all, due, func(ctx context.Context, i int) error {
		reply, err := grant(ctx, due, p.nodes[i])
		if err == nil {
			said[i], err = p.voted(p.nodes[i], reply)
		}
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
	}, func(t *tally) bool {
		return enough(t) && (!p.fences || t.twin || t.yes < p.quorum || t.recalled(said))
	})

	if t.yes+t.held >= p.quorum {
		p.pace.Store(int64(time.Since(start)))
	}
	if p.fences && t.yes >= p.quorum {
		t.await(p.patience(), p.expected) // or one that stands still from now on would cost the lock
	}
	err := p.verdict(ctx, c, t, start)
	var fence uint64
	if err == nil && p.fences {
		if fence, err = p.number(ctx, c, b, t, said); err == nil {
			err = p.inTime(c, start)
		}
	}
	if err == nil {
		return driver.Grant{Start: start, TTL: c.TTL, Fence: fence, Doubt: t.yes < len(p.nodes), State: b}, nil
	}
	left := p.giveBack(ctx, c, b)
	err = p.changed(p.advised(err), b.holding(), "perhaps granted, and not yet given back")
	return driver.Grant{State: b}, remains(left, err)
}

// verdict is nil if a quorum has granted its votes, in time.
func (p *protocol) verdict(ctx context.Context, c driver.Claim, t *tally, start time.Time) error {
	switch {
	case t.twin:
		p.twin.Store(0)
		return p.twinError(ctx, c, t.twinAt)
	case t.yes < p.quorum:
		return p.refusal(c, t)
	}
	return p.inTime(c, start)
}

// inTime is nil if enough validity is left: TTL less what has passed since before the
// first request, less drift.
func (p *protocol) inTime(c driver.Claim, start time.Time) error {
	elapsed := time.Since(start)
	validity := c.TTL - elapsed - driver.Drift(c.TTL)
	if validity >= p.least(c.TTL) {
		return nil
	}
	return &strategy.LostError{Name: c.Name, Lapsed: true, Err: fmt.Errorf("the quorum took %v, which leaves too little of the validity", elapsed)}
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
// cannot be reached keeps nothing from being extended, and ends nothing. The guard is
// not asked, here and in Release: what has the token has not forgotten it, and nobody
// else gets in while a quorum has it.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	start, due, b := time.Now(), p.due(c), p.ballot(c)
	var extended atomic.Bool
	t := p.ask(ctx, b, p.all, due, func(ctx context.Context, i int) error {
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
		err = p.notThere(c, b, i, reply)
		if extended.Load() { // as others have said: nobody waits for this answer
			p.join(ctx, c, b, i, start)
		}
		return err
	}, (*tally).decided)

	if t.yes < p.quorum {
		// What a minority has still is in others' way, and the machinery gives it back; but
		// not before the holder is told, which may have been alone with the lock until then.
		return driver.Grant{}, remains(b.mayHold(), p.changed(p.refusal(c, t), b.holding(), "extended, if it got so far, but too few others were"))
	}
	extended.Store(true) // before the look at who does not have it, which those who answer later miss
	p.rejoin(t.round, c, b, start)
	return driver.Grant{Start: start, TTL: c.TTL, Doubt: t.yes < len(p.nodes), State: b}, nil
}

// Release deletes the lock on all nodes that may have it, and waits for each.
func (p *protocol) Release(ctx context.Context, c driver.Claim) error {
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
	return p.changed(p.refusal(c, t), p.all, "released, but too few others were")
}

// remains marks err if something may be left on some nodes.
func remains(left int, err error) error {
	if left > 0 {
		return driver.Remains(err)
	}
	return err
}

// giveBack ends what an attempt has left on any node, and returns on how
// many something may be left. A caller that is gone does not end it.
func (p *protocol) giveBack(ctx context.Context, c driver.Claim, b *ballot) (left int) {
	to := channel(c)
	if b.mayHold() < p.quorum {
		to = "" // nobody can have seen it hold the lock, and so nobody waits for it
	}
	p.clear(context.WithoutCancel(ctx), c, b, p.due(c), to)
	return b.mayHold()
}

// clear deletes the lock on all nodes that may have it.
func (p *protocol) clear(ctx context.Context, c driver.Claim, b *ballot, due time.Time, to string) *tally {
	b.hasten()
	return p.ask(ctx, b, p.all, due, func(ctx context.Context, i int) error {
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
func (p *protocol) notThere(c driver.Claim, b *ballot, i int, reply any) error {
	holder, held := reply.([]byte)
	if !held && reply != nil {
		return driver.BadReply(p.nodes[i].Name(), reply)
	}
	c.Undo = true
	if b.at(i) == present {
		c.Grant.Start = time.Now() // the acquire was answered
	} else {
		c.Grant = driver.Grant{}
	}
	if err := driver.Gone(p.nodes[i].Name(), p.nodes[i].Ordered(), c, string(holder)); err != nil {
		b.early(i)
		return err // the acquire may come yet
	}
	b.set(i, absent)
	return &strategy.LostError{Name: c.Name, Holder: string(holder)}
}

// refusal says why no quorum agreed.
func (p *protocol) refusal(c driver.Claim, t *tally) error {
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
func (p *protocol) due(c driver.Claim) time.Time {
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

func channel(c driver.Claim) string { return driver.SiblingKey(c.Key, "free") }
