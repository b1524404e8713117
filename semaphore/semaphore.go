// Package semaphore is a lock on one Redis that several may hold at a time: as many as it has permits.
//
// # The idea
//
// Five jobs may use the database at once, the sixth waits. A counter would do it, if nobody died: a holder that
// dies never counts down again. So each permit is a lease, with a TTL, a deadline and a renewal of
// its own. The permit of a holder that died comes back when its TTL ends.
//
//	s, err := semaphore.New(node, 5, strategy.Options{})
//	err = strategy.Do(ctx, s.NewLock("reports"), func(ctx context.Context, lease strategy.Lease) error {
//		return work(ctx) // at most five at a time, in all processes together
//	})
//
// An acquisition may take several permits at once ([strategy.Semaphore].NewMultiPermitLock): it gets all of them or
// waits. The number of permits can be changed while they are in use ([strategy.Semaphore].SetPermits).
//
// # How it works
//
// The lock is a sorted set. Its members are the permits that are taken (permit:<token>), their scores the times at which
// they end by the server's clock. A script first drops what has lapsed; then the size of the set says how many
// permits are free. So nothing is counted that could be counted wrong.
//
// Those who wait stand in a queue, in which each process has one entry. A release serves it in the same step: it
// makes the first a holder and notifies it, as package fairqueue does (a direct grant). A process passes its permits on to those of
// its own that wait, for a turn of 2 ms or 256 holds at most.
//
// # What it guarantees
//
//   - Never more permits are taken than there are, for as long as Redis keeps the key and holders stop at
//     their deadline ([strategy.Lease.Deadline], Lost, Context). One exception: SetPermits with a lower number
//     takes no permit from a holder. Until holders release, more are taken than there are now.
//   - Ownership: only the holder releases or extends its permits. A late release changes nothing.
//   - A dead holder does not keep its permits for ever: they are free after its TTL.
//   - Fairness: processes are served in the order in which they came, and the callers of a process in theirs. A waiter for
//     many permits is not overtaken by waiters for few.
//   - Fencing: each hold has a number of its own. It is greater than that of the hold before it on the same permit, and than all
//     that were issued when no permit is taken. So the numbers of a semaphore of one permit rise as those of any lock. Those of permits
//     that are held at the same time come in any order, because each process hands its permits on with numbers that it has
//     reserved before. So a store cannot refuse all lesser numbers; it can tell holds apart, and refuse those of a holder that it
//     knows to be gone.
//   - Quiet waiting: a waiter sleeps until it has its permits. The requests for an acquisition do not grow with
//     the number of waiters.
//
// # When something breaks
//
//   - A holder dies: its permits are free after its TTL. The first in the queue knows when the next hold ends,
//     and asks.
//   - A process that waits dies: nobody listens on its channel, and the next release passes over its entry.
//   - A waiter is paused: a direct grant is for a second at most ([driver.SuccessorTTL]), and the waiter
//     extends it when it runs. So it costs that second.
//   - A reply or a message is lost: as in package fairqueue. The engine undoes an acquire, and repeats a
//     release, until Redis confirms it or the TTL has passed.
//   - Processes were started with different numbers of permits: Redis goes by that of the process
//     that sends the request. For one number everywhere call SetPermits.
//
// # What it does not guarantee
//
// An acquisition inside one's own counts as any other: if no permit is free it waits, also for the caller itself.
//
// One Redis is one point of failure. If it forgets the key (a restart without persistence, a fail-over, an
// eviction, a FLUSHALL), all permits are free again while their holders still work. If its clock is set forward, permits
// are free too early. Options.Acks are refused: a direct grant would be unconfirmed.
//
// A semaphore bounds how many work at a time. To bound requests per second, take a rate limiter.
//
// # When
//
// Take it to bound how many use something at the same time: a database, an API with a quota of connections, a
// licence. If one at a time is wanted, take package fairqueue, whose scripts do less.
//
// # On the wire
//
// Acquire, Release and Extend are one script each, one round trip. A process that waits subscribes, and asks once more for
// its place. A release with a successor in the same process is the successor's acquire, too. Renewals that are due together go in one request, up to a hundred. The braces are part of the keys (a
// hash tag).
//
//	lock:{name}               a sorted set: the permits that are taken, permit:<token>, and for the further permits
//	                          of the same hold permit:<token>:2 and so on; see holders.lua. Of holds that were granted at
//	                          once the second is that of the token 2.<token>, and so on
//	lock:{name}:waiters       the queue, while somebody waits; see queue.lua in internal/algorithm
//	lock:{name}:waiters:<line>  the channel for direct grants to one process
//	lock:{name}:fence         the last fence, a number; it expires Options.FenceTTL after it was issued
//	lock:{name}:permits       the number of permits, if SetPermits has set it; it stays
//	lock:{name}:free          the channel for those who wait by notification; a message is the token that was
//	                          released while nobody queued, or "permits" after a SetPermits
//
// No other library's lock has this form, and a key that has another form is refused. Read permits.lua,
// acquire.lua, admit.lua, release.lua and pass.lua, in this order. acquire_fast.lua and release_fast.lua stand before acquire and
// release, and answer their common case, a semaphore of which no permit is taken, with fewer commands.
//
// Redis 6.2 or later, or Valkey.
//
// Source: the sorted set of holders is that of "Redis in Action", section 6.3
// (https://redis.io/ebook/part-2-core-concepts/chapter-6-application-components-in-redis/6-3-counting-semaphores/),
// with the server's clock in place of the holders'. Permits that expire are those of Redisson's
// RPermitExpirableSemaphore.
package semaphore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/algorithm/fences"
	"github.com/lockstrategies/locks/internal/algorithm/holderset"
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/algorithm/queue"
	"github.com/lockstrategies/locks/strategy"
)

const (
	// MaxPermits is the greatest number of permits.
	MaxPermits = 1_000_000
	// MaxShare is the greatest share of one acquisition, in permits.
	MaxShare = 1000
)

var (
	//go:embed permits.lua
	permitsLua string
	//go:embed acquire_fast.lua
	acquireFastLua string
	//go:embed acquire.lua
	acquireLua string
	//go:embed admit.lua
	admitLua string
	//go:embed release_fast.lua
	releaseFastLua string
	//go:embed release.lua
	releaseLua string
	//go:embed pass.lua
	passLua string
	//go:embed limit.lua
	limitLua string

	rest   = holderset.Lua + queue.Entries + permitsLua
	shared = fences.Numbers + rest
	admits = queue.Enqueue + rest + admitLua

	acquire = driver.NewScript("acquire", fences.Numbers+holderset.Alone+acquireFastLua+admits+acquireLua)
	extend  = driver.NewScript("extend", shared+holderset.Extend)
	release = driver.NewScript("release", releaseFastLua+shared+releaseLua)
	pass    = driver.NewScript("pass", fences.Numbers+admits+passLua)
	limit   = driver.NewScript("limit", shared+limitLua)
)

// New returns the strategy on a node, with so many permits for each lock. The node is what the New of a client returns. New
// does no I/O: see [strategy.Strategy.Check]. Close closes the node, unless another strategy uses it, too; the client stays
// the caller's.
func New(n driver.Node, permits int, o strategy.Options) (strategy.Semaphore, error) {
	p := On(n, permits).(*protocol)
	s, err := engine.New(p, o)
	if err != nil {
		return nil, err
	}
	return semaphore{s, p}, nil
}

// On returns the algorithm alone, for authors of decorators and for tests.
func On(n driver.Node, permits int) driver.Protocol {
	names := keycache.New("waiters", "fence", "permits")
	return &protocol{holderset.Protocol{Node: driver.NodeOf(n, nil), Names: names, Renewal: extend}, permits}
}

// semaphore adds to the engine's strategy what only a semaphore can do.
type semaphore struct {
	engine.Strategy
	p *protocol
}

func (s semaphore) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	made, err := s.Changed(change)
	if err != nil {
		return nil, err
	}
	return semaphore{made, s.p}, nil
}

func (s semaphore) NewMultiPermitLock(name string, permits int) strategy.Lock {
	return s.NewShare(name, permits)
}

func (s semaphore) SetPermits(ctx context.Context, name string, permits int) error {
	if permits < 0 || permits > MaxPermits {
		return fmt.Errorf("locks: SetPermits of %q to %d: allowed are 1 to %d, and 0 for the number that each process was started with", name, permits, MaxPermits)
	}
	return s.Ask(ctx, name, func(ctx context.Context, c driver.Claim) error {
		l := s.p.Names.Of(c.Key)
		reply, err := s.p.Eval(ctx, c.Due, limit, l.Keys, s.p.permits, l.FenceTTL.Of(c.FenceTTL), permits, l.Free)
		if err == nil && reply != int64(1) {
			err = rediskit.BadReply(s.p.Name(), reply)
		}
		return err
	})
}

// protocol is the algorithm on one node.
type protocol struct {
	holderset.Protocol // Extend, ExtendAll, Probe; Close is the node's
	permits            int
}

var _ interface {
	driver.Protocol // also adopt.go, inspect.go, check.go
	driver.Sharer
	driver.BulkExtender
	driver.Validator
} = (*protocol)(nil)

// MaxShare is how many permits an acquisition may take.
func (p *protocol) MaxShare() int { return MaxShare }

// Excludes says no: there may be permits enough for both, or somebody may raise their number.
func (p *protocol) Excludes(_, _ int32) bool { return false }

// Groups says no: each hold is for itself.
func (p *protocol) Groups(int32) bool { return false }

// Validate refuses a number of permits that is not allowed.
func (p *protocol) Validate(strategy.Options) error {
	if p.permits < 1 || p.permits > MaxPermits {
		return fmt.Errorf("locks: a semaphore of %d permits: allowed are 1 to %d", p.permits, MaxPermits)
	}
	return nil
}

// Acquire takes permits if they are free and nobody waits for some, for as many of c.Holds as it can. Otherwise a claim with a Line
// takes its place in the queue.
func (p *protocol) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	l := p.Names.Of(c.Key)
	args := []any{p.permits, l.FenceTTL.Of(c.FenceTTL), l.TTL.Of(c.TTL), c.Token, wanted(c), queue.Entry(c, wanted(c))}
	asked, prove := queue.Asked(c), holderset.Prove(l)
	switch {
	case c.Fences > 1 || c.Holds > 1:
		args = append(args, asked, prove, max(c.Fences, 1), max(c.Holds, 1))
	case asked+prove != "":
		args = append(args, asked, prove)
	}
	reply, err := p.Eval(ctx, c.Due, acquire, l.Keys, args...)
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := p.acquired(c, reply)
	holderset.Proved(l, c, err)
	return g, err
}

// wanted is how many permits c asks for.
func wanted(c driver.Claim) int { return int(max(c.Share, 1)) }

// acquired reads the reply of an acquire. With several fences it is the first, how many a hold has, and how many holds. Where too
// few permits are free, it says how many are taken, of how many, after the hold that ends first and its TTL.
func (p *protocol) acquired(c driver.Claim, reply any) (driver.Grant, error) {
	r, _ := reply.([]any)
	if len(r) == 3 {
		fences, ok := r[1].(int64)
		holds, ok2 := r[2].(int64)
		if _, fence := r[0].(int64); !fence || !ok || !ok2 || !atMost(fences, c.Fences) || !atMost(holds, int(c.Holds)) {
			return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
		}
		g, err := p.Acquired(c, r[0])
		g.Fences, g.Holds = int(fences), int32(holds)
		return g, err
	}
	if len(r) < 4 {
		return p.Acquired(c, reply)
	}
	taken, ok := r[2].(int64)
	permits, ok2 := r[3].(int64)
	if !ok || !ok2 {
		return driver.Grant{}, rediskit.BadReply(p.Name(), reply)
	}
	g, err := p.Acquired(c, slices.Concat(r[:2], r[4:]))
	var held *strategy.HeldError
	if errors.As(err, &held) {
		held.Taken, held.Permits = int(taken), int(permits)
	}
	return g, err
}

// atMost reports whether the servers may have given n where so many were asked for; 0: one.
func atMost(n int64, asked int) bool { return n >= 1 && n <= int64(max(asked, 1)) }

// Release gives the permits back, and serves the queue.
func (p *protocol) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, p.release(ctx, c, "")
}

// Undo is Release of all holds that the claim is for, and also gives up the place in the queue.
func (p *protocol) Undo(ctx context.Context, c driver.Claim) error {
	var holds []any
	if c.Holds > 1 {
		holds = []any{c.Holds}
	}
	return rediskit.Undone(p, c, p.release(ctx, c, queue.Entry(c, wanted(c)), holds...))
}

// ForceRelease is Release.
func (p *protocol) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return p.Release(ctx, c)
}

func (p *protocol) release(ctx context.Context, c driver.Claim, entry string, undoes ...any) error {
	l := p.Names.Of(c.Key)
	args := append([]any{p.permits, l.FenceTTL.Of(c.FenceTTL), c.Token, entry, l.Free}, undoes...)
	reply, err := p.Eval(ctx, c.Due, release, l.Keys, args...)
	if err != nil {
		l.Proven.Store(false)
		return err
	}
	return rediskit.ReleaseReply(p.Name(), c, reply)
}

// Pass is Release of c and Acquire of next, in one step.
func (p *protocol) Pass(ctx context.Context, c, next driver.Claim) (driver.Grant, error) {
	l := p.Names.Of(c.Key)
	args := []any{p.permits, l.FenceTTL.Of(next.FenceTTL), l.TTL.Of(next.TTL), next.Token, wanted(next), queue.Entry(next, wanted(next)),
		queue.Asked(next), c.Token, l.Free}
	if next.Fences > 1 {
		args = append(args, next.Fences)
	}
	reply, err := p.Eval(ctx, c.Due, pass, l.Keys, args...)
	if err != nil {
		return driver.Grant{}, err
	}
	if reply == nil {
		return driver.Grant{}, &strategy.LostError{Name: c.Name}
	}
	return p.acquired(next, reply)
}

// Watch hears of direct grants to the claim's line; without a line, of releases that find nobody in the queue.
func (p *protocol) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (stop func(), err error) {
	l := p.Names.Of(c.Key)
	if c.Line != "" {
		return queue.Watch(ctx, p, c, queue.Channel(l.Keys[1], c.Line), true, fn)
	}
	return rediskit.WatchChannel(ctx, p, c, l.Channel(), fn)
}
