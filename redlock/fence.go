package redlock

import (
	"context"
	"time"

	"github.com/lockstrategies/locks/driver"
)

// WithFences issues fences ([strategy.Lease.Fence]): a lock counts only when a quorum has noted its
// fence. So Acquire and Adopt take one more round trip. They also wait for late votes, for at most
// three times as long as the quorum took (and 1 … 50 ms). So a voter that freezes between the two
// rounds costs nobody the lock. Fences need the guard. All users of a lock must have them: a
// hold without a fence cannot be ordered. On each server a hash of two fields stays for each
// name, lock:{name}:fence, until Options.FenceTTL is over.
func WithFences() Option {
	return func(p *protocol) { p.fences = true }
}

// A fence is issued in two phases; docs/learn/redlock.md has the proof.
//
//  1. Each vote says the greatest number that the node has noted. The fence is greater than all of
//     them, and at least the nodes' greatest time in µs.
//  2. The fence is written back to the voters: each notes it if the token is still there. The lock
//     counts when a quorum has noted it.
//
// The process may pass the lock on. So it reserves the numbers that follow the fence, too, and writes back
// the last of them. Numbers then run ahead of the clock, by maxAhead at most.
//
// A counter expires FenceTTL after the time that its number says: then the node's time, which comes with
// its vote, is greater than every number that it noted.
//
// A node may have lost its counter, as it may lose a lock. So each number is noted with the
// generation of the node's guard (guard.lua): a counter that is missing, or of an older generation,
// does not remember. If the node was bootstrapped and has lost nothing since, one that is missing does.

// A fenceReply is what a node says of fences with its vote.
type fenceReply struct {
	last       int64  // the greatest number that it has noted
	remembers  bool   // it has forgotten no fence that was noted there
	now        int64  // its time, in microseconds
	generation string // of its guard
}

// enoughForFence is enough, and more. Once a quorum has voted, the round goes on until a quorum of
// nodes that remember has, or cannot any more: such a quorum has a node that noted the last fence.
// Then it goes on for late votes of nodes that are expected to answer, for patience at most: a voter
// that now freezes must not cost the fence its quorum.
func (p *protocol) enoughForFence(enough func(*voteCount) bool, said []fenceReply, start time.Time) func(*voteCount) bool {
	ending := false
	return func(vc *voteCount) bool {
		if !enough(vc) {
			return false
		}
		if vc.twin || vc.yes < p.quorum {
			return true
		}
		if !vc.remembered(said) {
			return false
		}
		if !vc.awaits(p.expected) {
			return true
		}
		if !ending {
			ending = true
			time.AfterFunc(patience(vc.answered.Sub(start)), vc.end)
		}
		return false
	}
}

func (vc *voteCount) remembered(said []fenceReply) bool {
	n := 0
	for i, err := range vc.errs {
		if err == nil && said[i].remembers {
			n++
		}
	}
	return n >= vc.quorum || n+vc.pending < vc.quorum
}

// maxAhead is how far numbers may run ahead of the nodes' clocks.
const maxAhead = 512

// issueFence issues the fence of a lock that a quorum has granted, the first of as many as it reserves. The
// write-back goes to the voters that remember, because only they make a quorum. Voters that forgot hear the
// number afterwards, and remember from then on: before a quorum has noted it, it may be less than a number
// that they forgot. If fewer than a quorum remember, the nodes' clocks decide, and all voters count. A
// number that is forgotten may have been ahead of the clocks.
func (p *protocol) issueFence(ctx context.Context, c driver.Claim, votes *nodeVotes, count *voteCount, said []fenceReply) (fence uint64, reserved int, err error) {
	var asked, forgot []int
	var now uint64
	for i, err := range count.errs {
		if err != nil {
			continue
		}
		fence, now = max(fence, uint64(said[i].last)+1), max(now, uint64(said[i].now))
		if said[i].remembers {
			asked = append(asked, i)
		} else {
			forgot = append(forgot, i)
		}
	}
	floor := now
	if len(asked) < p.quorum {
		asked, forgot, floor = append(asked, forgot...), nil, now+maxAhead
	}
	fence = max(fence, floor)
	reserved = max(c.Fences, 1)
	if fence+uint64(reserved) > now+maxAhead {
		reserved = 1
	}
	last := fence + uint64(reserved) - 1
	due := p.due(c)
	votes.cancelSilent() // stragglers are not asked
	noted := p.ask(ctx, votes, asked, due, (*voteCount).holdDecided, func(ctx context.Context, i int) error {
		return p.noteFence(ctx, due, c, votes, i, c.Token, last, said[i].generation)
	})
	if noted.yes < p.quorum {
		for i, err := range count.errs { // nodes that did not vote are part of the reason
			if err != nil {
				noted.errs[i] = err
			}
		}
		return 0, 0, p.refusal(c, noted)
	}
	for _, i := range forgot { // without waiting: this does not touch the token
		p.requests.Go(func() {
			p.noteFence(context.WithoutCancel(ctx), p.due(c), c, votes, i, "", last, said[i].generation)
		})
	}
	return fence, reserved, nil
}

// noteFence has one node note a fence, if its guard is still of that generation. With a token, the lock
// there must have it; without, a quorum has noted the fence already.
func (p *protocol) noteFence(ctx context.Context, due time.Time, c driver.Claim, votes *nodeVotes, i int, token string, fence uint64, generation string) error {
	n := p.nodes[i]
	reply, err := n.Eval(ctx, due, writeback, []string{c.Key, GuardKey, counter(c)}, token, int64(fence), generation, p.longest(c.TTL), c.FenceTTL.Milliseconds())
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	}
	if err := p.guarded(n, reply); err != nil {
		return err
	}
	return p.notThere(c, votes, i, reply)
}

// counter is the key of the lock's fence counter.
func counter(c driver.Claim) string { return driver.SiblingKey(c.Key, "fence") }

// maxFence is where Lua's numbers stop being exact.
const maxFence = 1<<53 - 1

// readFence reads what a vote says of fences: {longest TTL, last, remembers, now, generation}.
func readFence(r []any) (f fenceReply, longest int64, ok bool) {
	if len(r) != 5 {
		return fenceReply{}, 0, false
	}
	var remembers int64
	for i, v := range []*int64{&longest, &f.last, &remembers, &f.now} {
		n, is := r[i].(int64)
		if *v = n; !is || n < 0 || n > maxFence {
			return fenceReply{}, 0, false
		}
	}
	generation, ok := r[4].([]byte)
	f.remembers, f.generation = remembers == 1, string(generation)
	return f, longest, ok && longest > 0
}
