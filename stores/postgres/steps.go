package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// sweepEvery is after how many acquires one sweeps: see sweep.sql.
const sweepEvery = 32

// Acquire makes the claim the holder if nobody holds the lock and nobody queues for it. Otherwise a claim with a Line takes
// its place in the queue.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	n := p.names.of(c.Key)
	sweep := p.acquires.Add(1)%sweepEvery == 1
	args := slices.Concat(p.enter(c, n), []any{n.key, []byte(c.Token), c.TTL.Milliseconds()}, p.line(c, n), []any{sweep})
	r, err := askOne(ctx, p, c, "acquire", args, (*acquired).columns)
	if err != nil {
		return driver.Grant{}, err
	}
	return p.granted(c, r)
}

// Release makes the first in the queue the holder, or deletes the row, if it is the token's.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.release(ctx, c, false)
}

// Undo is Release, and also gives up the place in the queue. If the claim has never been answered, its request may still
// arrive: the step leaves a note, by which it is refused then. So the first Undo that is answered is enough.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	if err := p.release(ctx, c, true); !errors.Is(err, strategy.ErrLost) {
		return err
	}
	return nil
}

// ForceRelease is Release.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

func (p *protocol) release(ctx context.Context, c driver.Claim, undo bool) error {
	n, late := p.names.of(c.Key), undo && c.Grant.IsZero()
	args := append(p.enter(c, n), n.key, []byte(c.Token), n.heard, n.freed, undo, late)
	r, err := askOne(ctx, p, c, "release", args, (*changed).columns)
	if err == nil && !r.done {
		return lost(c, r.holder)
	}
	return err
}

// Pass is Release of c and Acquire for next, which waits in the same process, in one step.
func (p *protocol) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	n := p.names.of(c.Key)
	args := append(p.enter(c, n), n.key, []byte(c.Token), []byte(next.Token), next.TTL.Milliseconds())
	r, err := askOne(ctx, p, c, "pass", append(args, p.line(next, n)...), (*passed).columns)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case r.lost:
		return driver.Grant{}, lost(c, r.holder)
	}
	return p.granted(next, r.acquired)
}

// Extend starts the TTL again if the row is the token's.
func (p *protocol) Extend(ctx context.Context, c driver.Claim) (g driver.Grant, err error) {
	p.ExtendAll(ctx, []driver.Claim{c}, func(_ int, _ driver.Grant, extended error) { err = extended })
	return driver.Grant{}, err
}

// mostExtended is how many locks are extended by one statement.
const mostExtended = 256

// ExtendAll extends many locks, 256 in a request.
func (p *protocol) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	first := 0
	for some := range slices.Chunk(cs, mostExtended) {
		for i, err := range p.extend(ctx, some) {
			done(first+i, driver.Grant{}, err)
		}
		first += len(some)
	}
}

// extend returns the error of each claim.
func (p *protocol) extend(ctx context.Context, cs []driver.Claim) []error {
	c := cs[0]
	keys, tokens, ttls := make([][]byte, len(cs)), make([][]byte, len(cs)), make([]int64, len(cs))
	for i, each := range cs {
		keys[i], tokens[i], ttls[i] = []byte(each.Key), []byte(each.Token), each.TTL.Milliseconds()
		if each.Due.Before(c.Due) {
			c.Due = each.Due
		}
	}
	rows, err := ask(ctx, p, c, "extend", []any{patience(c.Due), p.settings.durability, keys, tokens, ttls}, (*extended).columns)
	if err == nil && len(rows) != len(cs) {
		err = p.badReply(fmt.Errorf("%d answers for %d locks", len(rows), len(cs)))
	}
	errs := make([]error, len(cs))
	for i := range errs {
		errs[i] = err
	}
	for _, r := range rows {
		if err == nil && !r.done && 1 <= r.n && r.n <= int64(len(cs)) {
			errs[r.n-1] = lost(cs[r.n-1], r.holder)
		}
	}
	return errs
}

// Adopt replaces the holder's token by c's, and gives the hold a new fence.
func (p *protocol) Adopt(ctx context.Context, c driver.Claim, from string) (driver.Grant, error) {
	n := p.names.of(c.Key)
	args := append(p.enter(c, n), n.key, []byte(from), []byte(c.Token), c.TTL.Milliseconds(), n.heard, n.freed)
	r, err := askOne(ctx, p, c, "adopt", args, (*adopted).columns)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case !r.done:
		return driver.Grant{}, lost(c, r.holder)
	case r.fence == nil:
		return driver.Grant{}, p.badReply(errors.New("a grant without a fence"))
	}
	return driver.Grant{Fence: uint64(*r.fence), Fences: 1}, nil
}

// Inspect reads the lock and its queue. While nobody holds the lock, nothing says what its last fence was.
func (p *protocol) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	r, err := askOne(ctx, p, c, "inspect", []any{patience(c.Due), []byte(c.Key)}, (*seen).columns)
	if err != nil {
		return strategy.Info{}, err
	}
	var info strategy.Info
	for _, token := range r.waiting {
		info.Queue = append(info.Queue, string(token))
	}
	if r.holder == nil {
		return info, nil
	}
	if r.left == nil || r.fence == nil {
		return strategy.Info{}, p.badReply(errors.New("a holder without a TTL"))
	}
	info.Held, info.Token, info.TTL, info.Fence = true, string(r.holder), max(micros(*r.left), 1), uint64(*r.fence)
	return info, nil
}

// enter are the arguments with which most steps begin: see enter.sql.
func (p *protocol) enter(c driver.Claim, n *name) []any {
	return []any{n.slot, patience(c.Due), p.settings.durability}
}

// patience is for how many ms a step waits for others in the server. It is less than its caller waits for the answer, so that
// a step whose time is over says so, and has no effect.
func patience(due time.Time) int {
	return int(max(time.Until(due).Milliseconds()*3/4, 1))
}

// line says where a claim hears of a grant, and what it asks for: see acquire.sql.
func (p *protocol) line(c driver.Claim, n *name) []any {
	channel := ""
	if c.Line != "" {
		channel = n.line(c.Line)
	}
	return []any{p.listener(), channel, driver.SuccessorTTL(c.TTL).Milliseconds(), fencesOf(c)}
}

// fencesOf is how many fences a claim asks for. The server reserves driver.MaxFences for each.
func fencesOf(c driver.Claim) int { return max(c.Fences, 1) }

// granted reads the reply of a step that grants the lock to c or finds it held.
func (p *protocol) granted(c driver.Claim, r acquired) (driver.Grant, error) {
	switch {
	case r.clock == nil, r.granted && r.fence == nil, !r.granted && (r.holder == nil || r.left == nil || r.place == nil || r.kept == nil):
		return driver.Grant{}, p.badReply(errors.New("neither a grant nor a holder"))
	case r.granted:
		return driver.Grant{Fence: uint64(*r.fence), Fences: fencesOf(c), ServerTime: micros(*r.clock)}, nil
	}
	held := &strategy.HeldError{Name: c.Name, Holder: string(r.holder), TTL: micros(*r.left)}
	return driver.Grant{ServerTime: micros(*r.clock), Place: *r.place, Kept: *r.kept}, held
}

// lost is the error of a call for a claim that does not hold the lock; holder may be nil.
func lost(c driver.Claim, holder []byte) error {
	return &strategy.LostError{Name: c.Name, Holder: string(holder)}
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// The replies of the steps. Each SQL file says what the columns mean. A pointer is nil where the column is null.

type acquired struct {
	granted            bool
	fence, left, clock *int64
	holder             []byte
	place              *int32
	kept               *bool
}

func (r *acquired) columns() []any {
	return []any{&r.granted, &r.fence, &r.holder, &r.left, &r.place, &r.kept, &r.clock}
}

type passed struct {
	lost bool
	acquired
}

func (r *passed) columns() []any { return append([]any{&r.lost}, r.acquired.columns()...) }

type changed struct {
	done   bool
	holder []byte
}

func (r *changed) columns() []any { return []any{&r.done, &r.holder} }

type extended struct {
	n int64
	changed
}

func (r *extended) columns() []any { return append([]any{&r.n}, r.changed.columns()...) }

type adopted struct {
	changed
	fence *int64
}

func (r *adopted) columns() []any { return []any{&r.done, &r.fence, &r.holder} }

type seen struct {
	holder      []byte
	left, fence *int64
	waiting     [][]byte
}

func (r *seen) columns() []any { return []any{&r.holder, &r.left, &r.fence, &r.waiting} }
