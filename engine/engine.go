// Package engine turns an algorithm into a lock: it adds waiting, renewal, undo and all else that every algorithm needs.
//
// [New] makes a strategy of what a package's On returns, on a client other than redigo, and of your own algorithm
// (package driver). [NewShare], [Exchange] and [Ask] are for authors of algorithms whose lock several may hold. Inside,
// each mechanism knows only those above it in this list:
//
//	internal/lifecycle   what Close waits for
//	internal/scheduler   one timer for all renewals and deadlines
//	internal/waitline    a FIFO of waiters
//	internal/undo        releases that are repeated until the servers confirm
//	lease                one hold: its deadline, its loss, its end
//	probe, renewal       keeping it alive; at once when a server is back that was away
//	attempt              one request to acquire
//	subscription, line   the waiters of this process, and what they hear from the servers
//	handover             how a lock passes from one holder to the next
//	acquire              waiting: from the end of the line to the lock
//	share                parts of a lock
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/engine/internal/scheduler"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// engine is the Strategy of every algorithm.
type engine struct {
	*core
	lines *lines
	asked strategy.Wait // Options.Wait as the user gave it
}

var _ strategy.Strategy = (*engine)(nil)

// New makes a strategy of an algorithm: what a package's On returns, or your own. It does no I/O: see
// [strategy.Strategy].Check. On redigo call the package's own New instead. Close closes p, too, if it is an io.Closer.
func New(p driver.Protocol, o strategy.Options) (strategy.Strategy, error) {
	if p == nil {
		return nil, errors.New("locks: the protocol is nil: allowed is what a strategy's On returns")
	}
	s := &shared{group: lifecycle.New()}
	s.undos.Group = s.group
	s.renewal = scheduler.New[*lease](s.renewDue)
	s.prober, _ = p.(driver.Prober)
	return (&engine{core: &core{p: p, shared: s}, lines: &lines{id: token.New("", false), byKey: map[string]*line{}}}).With(o)
}

func (e *engine) With(o strategy.Options) (strategy.Strategy, error) {
	if o.Key == nil {
		o.Key = e.o.Key
	}
	o, err := withDefaults(o)
	if err != nil {
		return nil, err
	}
	if v, ok := e.p.(driver.Validator); ok {
		if err := v.Validate(o); err != nil {
			return nil, err
		}
	}
	made := &engine{core: &core{p: e.p, shared: e.shared}, lines: e.lines, asked: o.Wait}
	if o.Wait, err = waitOn(e.p, o.Wait); err != nil {
		return nil, err
	}
	made.o = o
	made.bulk, _ = e.p.(driver.BulkExtender)
	made.queues = o.Wait == strategy.WaitQueue
	if sharer, ok := e.p.(driver.Sharer); ok {
		made.maxShare = sharer.MaxShare()
	}
	_, notifies := e.p.(driver.Notifier)
	made.announces = notifies && !keepsQueue(e.p)
	if r, ok := e.p.(driver.Reenterer); ok {
		made.reenters = r.Reenters()
	}
	if made.reenters && o.HandOver == strategy.HandOverBest {
		made.adopter, _ = e.p.(driver.Adopter)
	}
	return made, nil
}

func (e *engine) NewLock(name string) strategy.Lock { return e.newLock(name) }

func (e *engine) newLock(name string) *lock {
	l := &lock{target: target{c: e.core, name: name}, lines: e.lines}
	if name == "" || len(name) > strategy.MaxNameLen {
		l.err = fmt.Errorf("locks: the lock's name has %d bytes: allowed are 1 to %d", len(name), strategy.MaxNameLen)
		return l
	}
	if l.key = e.o.Key(name); l.key == "" {
		l.err = fmt.Errorf("locks: Options.Key gave an empty key for the name %q", name)
	}
	return l
}

func (e *engine) Check(ctx context.Context) error {
	checker, ok := e.p.(driver.Checker)
	if !ok {
		return fmt.Errorf("locks: Check: %w by this algorithm", strategy.ErrUnsupported)
	}
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	o := e.o
	o.Wait = e.asked
	return checker.Check(ctx, o)
}

func (e *engine) Inspect(ctx context.Context, name string) (strategy.Info, error) {
	inspector, ok := e.p.(driver.Inspector)
	if !ok {
		return strategy.Info{}, fmt.Errorf("locks: Inspect: %w by this algorithm", strategy.ErrUnsupported)
	}
	c, err := e.operatorClaim(ctx, name)
	if err != nil {
		return strategy.Info{}, err
	}
	c.TTL = 0 // nothing is counted
	if err := e.enter(); err != nil {
		return strategy.Info{}, err
	}
	defer e.leave()
	info, err := inspector.Inspect(ctx, c)
	if err != nil {
		return strategy.Info{}, err
	}
	info.Name, info.Key = name, c.Key
	info.Label, info.Since = token.Parse(info.Token)
	if info.Held && info.Owner == "" {
		info.Owner, info.Holds = info.Token, 1
	}
	return info, nil
}

func (e *engine) ForceRelease(ctx context.Context, seen strategy.Info) error {
	if !seen.Held {
		return fmt.Errorf("locks: ForceRelease of %q: allowed is what Inspect saw of a lock that is held", seen.Name)
	}
	c, err := e.operatorClaim(ctx, seen.Name)
	if err != nil {
		return err
	}
	c.Token, c.Owner, c.Grant.Fence, c.Force = seen.Token, seen.Owner, seen.Fence, true
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	err, remains := driver.Unmark(e.p.Release(ctx, c))
	if remains {
		e.undo(c)
	}
	return err
}

// operatorClaim is a claim without a token of its own.
func (e *engine) operatorClaim(ctx context.Context, name string) (driver.Claim, error) {
	l := e.newLock(name)
	if l.err != nil {
		return driver.Claim{}, l.err
	}
	if ctx.Err() != nil {
		return driver.Claim{}, fmt.Errorf("lock %q: %w", name, contextError(ctx))
	}
	return driver.Claim{Name: name, Key: l.key, TTL: e.o.TTL, FenceTTL: max(e.o.FenceTTL, 0), Due: time.Now().Add(e.o.OpTimeout)}, nil
}

func (e *engine) Adopt(ctx context.Context, name, token string) (strategy.Lease, error) {
	start := e.called(ctx, name)
	lease, err := e.adopt(ctx, name, token, 0, start)
	if err != nil {
		e.missed(ctx, name, start, err)
		return nil, err
	}
	return lease, nil
}

// adopt is Adopt for a share of the lock; zero: the one that the hold has.
func (e *engine) adopt(ctx context.Context, name, from string, share int, start time.Time) (*lease, error) {
	if from == "" {
		return nil, errors.New("locks: Adopt with an empty token: allowed is what Lease.Detach returned")
	}
	adopter, ok := e.p.(driver.Adopter)
	if !ok {
		return nil, fmt.Errorf("locks: Adopt: %w by this algorithm", strategy.ErrUnsupported)
	}
	c, err := e.newLock(name).claim(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	c.Due, c.Share = start.Add(e.o.OpTimeout), int32(share)
	g, err := adopter.Adopt(ctx, c, from)
	if err != nil {
		err, remains := driver.Unmark(err)
		if c.Grant.State = g.State; remains || errors.Is(err, strategy.ErrUnknown) {
			e.undo(c)
		}
		return nil, endedBy(ctx, err)
	}
	l := newLease(e.core, c, g, start)
	if err := l.Err(); err != nil {
		e.undo(l.claim) // renewed too late to be of use: nobody else will release it
		return nil, err
	}
	if e.group.Closed() { // Close came meanwhile: nobody would renew it
		e.undo(l.claim)
		return nil, strategy.ErrClosed
	}
	l.begin(ctx, 1, start)
	return l, nil
}

func (e *engine) Close() error {
	first := e.group.Close() // each request ends within about one operation time-out
	e.lines.close()
	if !first {
		return nil
	}
	err := e.undos.Err()
	if closer, ok := e.p.(io.Closer); ok {
		err = errors.Join(err, closer.Close())
	}
	return err
}
