package redlock

import (
	"context"
	_ "embed"
	"time"

	"github.com/lockstrategies/locks/driver"
)

var (
	//go:embed writeback.lua
	writebackLua string

	writeback = driver.NewScript("writeback", guardLua+writebackLua)
)

// WithFences issues fences ([strategy.Lease.Fence]): a lock counts only when a majority
// has noted its number, so Acquire and Adopt take one more round trip, and, so that a server
// which stands still from now on costs nobody the lock, wait for late votes, for three times
// as long as the majority took (and 1 … 50 ms) at most. It needs the guard.
// All users of a lock must have it, or the others' holds come between the numbers. On
// each server a hash of two fields stays for each name, lock:{name}:fence, for ever.
func WithFences() Option {
	return func(p *protocol) { p.fences = true }
}

// A memory is what a node says of fences when it grants a lock.
type memory struct {
	last    int64  // the greatest that it knows
	recalls bool   // it has forgotten none that was noted there
	now     int64  // its time, in microseconds
	gen     string // its name: another one may have forgotten
}

// recalled tells whether a quorum of nodes that remember has granted the lock, or will
// not. Of a quorum that remembers, one has noted the last fence.
func (t *tally) recalled(said []memory) bool {
	n := 0
	for i, err := range t.errs {
		if err == nil && said[i].recalls {
			n++
		}
	}
	return n >= t.quorum || n+t.pending < t.quorum
}

// number gives a lock that a quorum has granted its fence: greater than those that the
// nodes have noted. It is sound once a quorum of those that remember has noted it, each while
// the lock is there. Those that had forgotten are told afterwards, and remember from then on:
// before a quorum has noted it nobody knows whether it is greater than what they forgot,
// as their grant may have been long under way. Where too few remember, the nodes' clocks
// decide, and all count.
func (p *protocol) number(ctx context.Context, c driver.Claim, b *ballot, t *tally, said []memory) (uint64, error) {
	var asked, forgot []int
	var fence uint64
	for i, err := range t.errs {
		if err != nil {
			continue
		}
		fence = max(fence, uint64(said[i].last)+1, uint64(said[i].now))
		if said[i].recalls {
			asked = append(asked, i)
		} else {
			forgot = append(forgot, i)
		}
	}
	if len(asked) < p.quorum {
		asked, forgot = append(asked, forgot...), nil
	}
	due := p.due(c)
	b.hasten() // who has not voted by now is not asked
	noted := p.ask(ctx, b, asked, due, func(ctx context.Context, i int) error {
		return p.note(ctx, due, c, b, i, c.Token, fence, said[i].gen)
	}, (*tally).decided)
	if noted.yes < p.quorum {
		for i, err := range t.errs { // what those said that have not granted it is part of the reason
			if err != nil {
				noted.errs[i] = err
			}
		}
		return 0, p.refusal(c, noted)
	}
	for _, i := range forgot {
		p.requests.Go(func() { p.note(context.WithoutCancel(ctx), p.due(c), c, b, i, "", fence, said[i].gen) })
	}
	return fence, nil
}

// note has one node note a fence, if it has that memory still, and, where a token is
// given, that token.
func (p *protocol) note(ctx context.Context, due time.Time, c driver.Claim, b *ballot, i int, token string, fence uint64, gen string) error {
	n := p.nodes[i]
	reply, err := n.Eval(ctx, due, writeback, []string{c.Key, GuardKey, counter(c)}, token, int64(fence), gen, p.longest(c.TTL))
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	}
	if err := p.guarded(n, reply); err != nil {
		return err
	}
	return p.notThere(c, b, i, reply)
}

func counter(c driver.Claim) string { return driver.SiblingKey(c.Key, "fence") }

// maxFence is where Lua's numbers stop being exact.
const maxFence = 1<<53 - 1

// remembered reads what a node says of fences.
func remembered(r []any) (m memory, longest int64, ok bool) {
	if len(r) != 5 {
		return memory{}, 0, false
	}
	var recalls int64
	var gen []byte
	for i, v := range []*int64{&longest, &m.last, &recalls, &m.now} {
		n, is := r[i].(int64)
		if *v = n; !is || n < 0 || n > maxFence {
			return memory{}, 0, false
		}
	}
	gen, ok = r[4].([]byte)
	m.recalls, m.gen = recalls == 1, string(gen)
	return m, longest, ok && longest > 0
}
