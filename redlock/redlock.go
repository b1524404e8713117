// Package redlock is the lock that survives the loss of servers: RedLock, a vote of
// independent Redis servers.
//
// # The idea
//
// A lock on one Redis is lost with that Redis, and a replica may be promoted before it has heard of
// the lock. So take N servers (nodes) that know nothing of each other, five for example, and ask all
// of them at once for the same key, with the same token and TTL. More than half is a quorum: a
// contender with a quorum of the votes holds the lock, because two quorums share a node, and that
// node votes once. Two of five may be down. The vote takes time, and clocks drift apart (allowed for:
// 1 % of the TTL and 2 ms). The lock counts only if enough validity is left, which is TTL − elapsed −
// drift. The holder's deadline is where the validity ends. A contender that fails gives every vote
// back, and tries again after a random delay.
//
// # What it guarantees
//
// While the servers' clocks run at about one speed (1 %):
//
//   - Exclusion: at most one holder until its deadline, with a minority of the nodes down, frozen or
//     cut off; also if nodes lose their data, or restart without it: see [WithMaxTTL], the restart guard.
//   - Ownership: each node compares the token before it releases or extends, in one step.
//   - No deadlock: if the holder dies, its key expires on each node, one TTL after the last renewal.
//   - Availability: a minority delays nobody by more than [WithNodeTimeout] per round. An extension also
//     brings the lock back to nodes that lost it.
//   - Honest errors: if too few nodes answer, the error is [strategy.ErrNoQuorum] only. If a quorum
//     answers and the lock is taken, it matches [strategy.ErrHeld], too.
//   - Fences on request, numbers that rise with each hold: [WithFences].
//
// # When something breaks
//
//   - The holder dies: its votes expire with the TTL. Waiters know that TTL and ask when it ends.
//   - A reply is lost, or a vote comes late: the winner keeps the vote, and releases it at the end. A
//     failed attempt undoes it, and repeats that until no node can have it any more.
//   - A waiter dies in mid-attempt: the votes that it had already got expire with its TTL.
//   - A node restarts or loses its data: it does not vote until [WithMaxTTL] has passed, and counts as
//     down. It still releases and extends the locks that it kept.
//   - A message is lost: a release reaches a quorum, and a waiter listens to a quorum, so they share a
//     node. If that node had lost the lock, the waiter sleeps until the holder's TTL ends.
//
// # What it does not guarantee
//
//   - A node whose clock jumps ahead drops its vote early; a second holder may get it. Let clocks be
//     slewed, not set.
//   - A replica that is promoted while its old primary still runs makes two votes of one. Use no
//     replicas, or stop the old primary first.
//   - Without fences, a holder that was paused past its deadline can still write (Kleppmann, 2016).
//   - The guard does not see an eviction (set maxmemory-policy noeviction), a key deleted by hand, or a
//     machine set back to a snapshot. Where TTLs differ and [WithMaxTTL] is not set, it may wait too
//     briefly. With [WithoutGuard], a node that forgets votes twice.
//   - No queue between processes: the next holder is chance. Within a process the holder hands the lock
//     on, for 2 ms ([strategy.Options].NoHandOver).
//
// # When
//
// Take it if the lock must stay available when a server dies, and five (or three) servers without
// replication are available. Run `locks bootstrap` ([Bootstrap]) once, at installation; never at application
// start. Without it nothing is granted until MaxTTL has passed. While no server fails, RedLock is no
// safer than one server.
//
// # On the wire
//
// On each node:
//
//	lock:{name}         the key, with the holder's token and TTL
//	lock:{name}:fence   with fences: a hash of the last fence and its generation; it expires
//	                    Options.FenceTTL after it was issued
//	lock:redlock:guard  the restart guard of all locks ([GuardKey]), a hash; it stays
//	lock:{name}:free    the channel; a message is the token that no longer has the lock
//
// The guard is in another slot than the lock, so no node may be of a Redis Cluster. The key and its
// value are redsync's. If the holder's token does not say that its release will be published, waiters
// poll; see package luascript.
//
// Acquire, Extend and Release are one round of N requests, sent at once. Acquire and Extend wait for
// the quickest quorum; Release waits for every node that may have the lock. Fences add a round, and
// so does a failed attempt that got votes.
//
// docs/learn/redlock.md shows why this holds. Sources: "Distributed Locks with Redis"
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/); M. Kleppmann, "How to do
// distributed locking", 2016; antirez, "Is Redlock safe?", 2016. Redis 6.2 or later, or Valkey.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// protocol is the algorithm on its nodes. This file is the vote. What the other files add:
//
//	setup.go      New, the settings, and what is wrong with them
//	scripts.go    the Lua scripts, and the files that each is made of
//	round.go      one round: ask nodes at once, stop when the rest cannot change the outcome
//	count.go      what the nodes said in one round, and whether that is enough
//	votes.go      on which nodes a claim's token may be, until it is released
//	guard.go      the restart guard: a node that may have forgotten locks does not vote
//	bootstrap.go  Bootstrap: the nodes of a new cluster vote at once
//	fence.go      fences, in two phases
//	join.go       an extension brings the lock back to nodes that lost it
//	twins.go      two nodes that are one server
//	adopt.go, inspect.go, watch.go, check.go, errors.go: as they are named
type protocol struct {
	nodes  []driver.Node
	all    []int // their indices
	quorum int
	fault  error // what is wrong with the nodes, and the options

	nodeTimeout, minValidity, maxTTL *time.Duration // nil: by the TTL
	unguarded, fences                bool

	requests sync.WaitGroup // also the stragglers'
	silent   []atomic.Bool  // of each node: the last request to it has ended without an answer
	pace     atomic.Int64   // how long the last quorum took, in nanoseconds; 0: none has answered yet
	known    atomic.Int64   // the longest TTL in use that this client knows of, in milliseconds
	twin     atomic.Int64   // a node that is the same server as another, counted from 1; 0: none is known
}

// Acquire is the vote: each node is asked to set the key if it is free.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	keys, args := p.keys(c), []any{c.Token, c.TTL.Milliseconds(), p.longest(c.TTL)} // the same for all
	return p.elect(ctx, c, (*voteCount).acquireDecided, func(ctx context.Context, due time.Time, n driver.Node) (any, error) {
		return n.Eval(ctx, due, acquire, keys, args...)
	})
}

// An askVote asks one node for its vote.
type askVote func(ctx context.Context, due time.Time, n driver.Node) (reply any, err error)

// elect is the algorithm:
//
//  1. Note the time. Ask all nodes at once; stop at a quorum, or when none can come any more.
//  2. The lock counts if a quorum voted, and TTL − elapsed − drift leaves enough validity.
//  3. With fences, a quorum must also note the fence, within that validity.
//  4. If the lock counts, late votes count too, and Release covers them. If not, every vote is given
//     back, also those still under way. Package engine tries again after a random delay.
func (p *protocol) elect(ctx context.Context, c driver.Claim, enough func(*voteCount) bool, askOne askVote) (driver.Grant, error) {
	if err := p.lateTwin(ctx, c); err != nil { // found after the last attempt: see twins.go
		return driver.Grant{}, err
	}
	start := time.Now() // every node begins to count its TTL later
	votes := newVotes(len(p.nodes), unknown)
	count, said := p.collect(ctx, c, votes, enough, askOne)

	err := p.won(ctx, c, count, start)
	// Partial: unless all have voted, a vote may still come.
	g := driver.Grant{Start: start, TTL: c.TTL, Partial: count.yes < len(p.nodes), State: votes}
	if err == nil && p.fences {
		if g.Fence, g.Fences, err = p.issueFence(ctx, c, votes, count, said); err == nil {
			err = p.inTime(c, start)
		}
	}
	if err != nil {
		return p.giveBack(ctx, c, votes, err)
	}
	return g, nil
}

// collect asks all nodes for their votes. said is for fences: what each voter knows of them.
func (p *protocol) collect(ctx context.Context, c driver.Claim, votes *nodeVotes, enough func(*voteCount) bool, askOne askVote) (*voteCount, []fenceReply) {
	start, due := time.Now(), p.due(c)
	var said []fenceReply // each is written before its node's answer is counted
	if p.fences {
		said = make([]fenceReply, len(p.nodes))
		enough = p.enoughForFence(enough, said, start)
	}
	count := p.ask(ctx, votes, p.all, due, enough, func(ctx context.Context, i int) error {
		reply, err := askOne(ctx, due, p.nodes[i])
		if err == nil {
			err = p.readVote(c, i, reply, said)
		}
		switch {
		case err == nil:
			votes.granted(i, c.TTL)
		case err == errTwin:
			p.twin.Store(int64(i + 1))
			votes.set(i, absent) // what is there is the other name's vote
		case certain(err):
			votes.set(i, absent)
		} // or the reply was lost: the vote may be there, and stays unknown
		return err
	})
	if !count.answered.IsZero() { // stragglers get a multiple of this: see patience
		p.pace.Store(max(int64(count.answered.Sub(start)), 1))
	}
	return count, said
}

// readVote reads what acquire.lua and adopt.lua reply. nil: the node granted its vote.
func (p *protocol) readVote(c driver.Claim, i int, reply any, said []fenceReply) error {
	n := p.nodes[i]
	switch r := reply.(type) {
	case int64:
		switch {
		case r == 0: // it has this token already
			return errTwin
		case r >= 1 && !p.fences: // its vote, and the longest TTL that it knows
			p.learnTTL(r)
			return nil
		}
	case []any:
		if len(r) == 3 { // another's token, how long that will last, and the longest TTL
			holder, ok := r[0].([]byte)
			ms, ok2 := r[1].(int64)
			longest, ok3 := r[2].(int64)
			if ok && ok2 && ok3 {
				p.learnTTL(longest)
				return &strategy.HeldError{Name: c.Name, Holder: string(holder), TTL: rediskit.RemainingTTL(ms)}
			}
		}
		if f, longest, ok := readFence(r); ok && p.fences { // its vote, and what it knows of fences
			p.learnTTL(longest)
			said[i] = f
			return nil
		}
		if err := p.guarded(n, reply); err != nil { // it does not vote yet
			return err
		}
	}
	return rediskit.BadReply(n.Name(), reply)
}

// certain says of a request's error that the node did nothing.
func certain(err error) bool {
	for _, known := range []error{strategy.ErrHeld, strategy.ErrLost, strategy.ErrRefused, strategy.ErrUnsent} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// won is nil if a quorum voted, and in time.
func (p *protocol) won(ctx context.Context, c driver.Claim, count *voteCount, start time.Time) error {
	switch {
	case count.twin:
		p.twin.Store(0) // reported now, not again by lateTwin
		return p.twinError(ctx, c, count.twinAt)
	case count.yes < p.quorum:
		return p.refusal(c, count)
	}
	return p.inTime(c, start)
}

// inTime is nil if enough validity is left: TTL less what has passed since before the first
// request, less drift.
func (p *protocol) inTime(c driver.Claim, start time.Time) error {
	elapsed := time.Since(start)
	validity := c.TTL - elapsed - driver.Drift(c.TTL)
	if validity >= p.leastValidity(c.TTL) {
		return nil
	}
	return &strategy.LostError{Name: c.Name, Lapsed: true, Err: fmt.Errorf("the quorum took %v, which leaves too little of the validity", elapsed)}
}

// giveBack deletes every vote of a failed attempt, also if the caller is gone. A node that does not
// answer may have one left: then the engine undoes it in the background.
func (p *protocol) giveBack(ctx context.Context, c driver.Claim, votes *nodeVotes, err error) (driver.Grant, error) {
	to := channel(c)
	if len(votes.holding()) < p.quorum {
		to = "" // nobody can have seen a quorum of it, so nobody waits for its end
	}
	p.deleteAll(context.WithoutCancel(ctx), c, votes, p.due(c), to)
	left := votes.holding()
	err = p.markUnknown(p.advised(err), left, "it may have granted its vote, and not have given it back")
	return driver.Grant{State: votes, Silent: unannounced(err), Partial: len(left) > 0}, err
}

// unannounced reports whether the lock is held, and the holder's token does not say that its release will
// be published: then waiters have to poll.
func unannounced(err error) bool {
	var held *strategy.HeldError
	if !errors.As(err, &held) {
		return false
	}
	announced, _ := token.Announced(held.Holder)
	return !announced
}

// Extend asks all nodes that may have the lock to count the TTL again. Only nodes that still have
// the token count. A minority out of reach neither prevents an extension nor ends the lock. The
// guard is not asked, here and in Release: a node that has the token has not forgotten it, and no
// other contender gets a quorum while the holder has one.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	start, due, votes := time.Now(), p.due(c), p.votesOf(c)
	var extended atomic.Bool
	count := p.ask(ctx, votes, p.all, due, (*voteCount).holdDecided, func(ctx context.Context, i int) error {
		err := p.extendOn(ctx, due, c, votes, i)
		if extended.Load() && errors.Is(err, strategy.ErrLost) { // a straggler, and it lost the lock
			p.join(ctx, c, votes, i, start)
		}
		return err
	})
	if count.yes < p.quorum {
		// A minority may have extended it. The engine undoes that, but only after the holder has
		// heard of the loss: until then the holder may be alone with the lock.
		left := votes.holding()
		err := p.markUnknown(p.refusal(c, count), left, "it may have extended the lock, but too few others did")
		return driver.Grant{Partial: len(left) > 0}, err
	}
	extended.Store(true) // before rejoin looks for nodes without the lock: it misses those that answer later
	p.rejoin(count.round.all, c, votes, start)
	return driver.Grant{Start: start, TTL: c.TTL, Partial: count.yes < len(p.nodes), State: votes}, nil
}

// extendOn asks one node.
func (p *protocol) extendOn(ctx context.Context, due time.Time, c driver.Claim, votes *nodeVotes, i int) error {
	if votes.at(i) == absent {
		return errAbsent
	}
	until := votes.extending(i, c.TTL)
	reply, err := p.nodes[i].Eval(ctx, due, extend, []string{c.Key}, c.Token, c.TTL.Milliseconds())
	if err == nil || certain(err) {
		votes.notExtended(i, until)
	}
	switch {
	case err != nil:
		return err
	case reply == int64(1): // extended
		votes.granted(i, c.TTL)
		return nil
	}
	return p.notThere(c, votes, i, reply)
}

// Release deletes the lock on all nodes that may have it, and waits for each.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	votes := p.votesOf(c)
	count := p.deleteAll(ctx, c, votes, p.due(c), channel(c))
	left := len(votes.holding())
	outcome := driver.Outcome{Partial: left > 0}
	switch {
	case count.yes+left < p.quorum: // it was lost before; not released before: the engine releases once
		return outcome, &strategy.LostError{Name: c.Name, Holder: count.holder()}
	case len(p.nodes)-left >= p.quorum: // free for others
		return outcome, nil
	}
	return outcome, p.markUnknown(p.refusal(c, count), p.all, "it may have released the lock, but too few others did")
}

// Undo is Release of an attempt, or of a lock that was lost. The engine repeats it until nothing is left.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	votes := p.votesOf(c)
	return votes.undone(p.deleteAll(ctx, c, votes, c.Due, channel(c))) // in the background a slow node gets its time
}

// ForceRelease is Release of a claim without votes: every node may have the token.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

// deleteAll deletes the lock on all nodes that may have it; on each only if the token is there.
func (p *protocol) deleteAll(ctx context.Context, c driver.Claim, votes *nodeVotes, due time.Time, to string) *voteCount {
	votes.cancelSilent()
	keys, args := []string{c.Key}, []any{c.Token, to} // the same for all
	return p.ask(ctx, votes, p.all, due, (*voteCount).complete, func(ctx context.Context, i int) error {
		if votes.at(i) == absent {
			return errAbsent
		}
		reply, err := p.nodes[i].Eval(ctx, due, release, keys, args...)
		switch {
		case err != nil:
			return err
		case reply == int64(1): // deleted
			votes.set(i, absent)
			return nil
		}
		return p.notThere(c, votes, i, reply)
	})
}

// notThere reads the reply of a node that has another token (which it says), or none (nil). If the
// token may still arrive there, the error is ErrUnknown.
func (p *protocol) notThere(c driver.Claim, votes *nodeVotes, i int, reply any) error {
	holder, held := reply.([]byte)
	if !held && reply != nil {
		return rediskit.BadReply(p.nodes[i].Name(), reply)
	}
	if votes.at(i) == unknown && !p.nodes[i].Ordered() {
		votes.tooEarly(i)
		return &strategy.ServerError{Node: p.nodes[i].Name(), Kind: strategy.ErrUnknown, Err: driver.ErrAcquireMayArrive}
	}
	votes.set(i, absent)
	return &strategy.LostError{Name: c.Name, Holder: string(holder)}
}

// channel is where a release is published.
func channel(c driver.Claim) string { return driver.SiblingKey(c.Key, "free") }
