// Package engine turns an algorithm into a lock: it adds waiting, renewal, undo and all else that every algorithm needs.
//
// Users of locks do not need it. [New] makes a strategy of your own algorithm (package driver), and of what a package's On
// returns in a decorator of yours. Inside, from the bottom to the top:
//
//	internal/lifecycle   what Close waits for
//	internal/scheduler   one timer for all renewals and deadlines
//	internal/undo        releases that are repeated until the servers confirm
//	outcome, lease       what a request has done; one hold, with its deadline, its loss, its end
//	probe, renewal       keeping it alive; at once when a server is back that was away
//	attempt              one request to acquire
//	line                 the waiters of this process for one lock: what they do, as a table of states and events
//	subscription, entry  what a line hears from the servers, and what they know of it
//	handover             how a lock passes from one holder to the next
//	acquire, waiter      waiting: from the end of the line to the lock
//	reason               why the lock is not available, and how long to sleep
//	share                shares of a lock
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
	"github.com/lockstrategies/locks/internal/contract"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/internal/token"
	"github.com/lockstrategies/locks/strategy"
)

// A Strategy is what [New] makes: a [strategy.Strategy], with more for authors of algorithms. It is an interface, so that what
// an algorithm's New returns next to an error is nil.
type Strategy interface {
	strategy.Strategy

	// Changed is With, for strategies that add methods to this one.
	Changed(change func(*strategy.Options)) (Strategy, error)

	// NewShare is NewLock for a share of a lock that several may hold ([driver.Claim].Share). The protocol is a
	// [driver.Sharer].
	NewShare(name string, share int) strategy.Lock

	// Exchange gives up a lease for another share of its lock, in one step: nobody comes in between. The
	// protocol has Adopt.
	//
	// If the call is refused (ctx is done, the lease is another strategy's, this one is closed), the lease is as it was. After
	// any other error the caller holds nothing, and the engine undoes what the servers may still keep of either lease.
	Exchange(ctx context.Context, held strategy.Lease, share int) (strategy.Lease, error)

	// Ask makes a request that only this algorithm knows, about a lock and not about a lease. c has no token.
	Ask(ctx context.Context, name string, request func(ctx context.Context, c driver.Claim) error) error
}

// engine is the Strategy of every algorithm.
type engine struct {
	*core
	userOptions strategy.Options // as the user gave them
}

var _ Strategy = (*engine)(nil)

// New makes a strategy of an algorithm. It does no I/O: see [strategy.Strategy].Check. Close closes p, too, if it is an
// io.Closer; a [driver.Node] that other strategies use, too, goes on until the last of them is closed.
func New(p driver.Protocol, o strategy.Options) (Strategy, error) {
	if p == nil {
		return nil, errors.New("locks: the protocol is nil: allowed is what a strategy's On returns")
	}
	if o.Acks != (strategy.Acks{}) {
		a, ok := p.(driver.Acknowledger)
		if !ok {
			return nil, fmt.Errorf("locks: Options.Acks: %w by this algorithm", strategy.ErrUnsupported)
		}
		p = a.Acknowledged(o.Acks)
	}
	s := &shared{group: lifecycle.New(), lines: &lines{id: token.New("", false), byKey: map[lineKey]*line{}}}
	s.undos.Group = s.group
	s.renewal = scheduler.New[*lease](s.renewDue)
	s.prober, _ = p.(driver.Prober)
	made, err := (&engine{core: &core{p: p, shared: s}}).on(o)
	if err != nil {
		return nil, err
	}
	if user, ok := p.(interface{ Use() error }); ok {
		if err := user.Use(); err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (e *engine) With(change func(*strategy.Options)) (strategy.Strategy, error) {
	return e.Changed(change)
}

func (e *engine) Changed(change func(*strategy.Options)) (Strategy, error) {
	if change == nil {
		return nil, errors.New("locks: With(nil): allowed is a function that changes options")
	}
	o := e.userOptions
	change(&o)
	if o.Acks != e.userOptions.Acks {
		return nil, fmt.Errorf("locks: With changes Options.Acks: allowed are those of New, %+v", e.userOptions.Acks)
	}
	return e.on(o)
}

// on is a strategy with these options on the same servers.
func (e *engine) on(o strategy.Options) (Strategy, error) {
	given := o
	o, err := withDefaults(o)
	if err != nil {
		return nil, err
	}
	if v, ok := e.p.(driver.Validator); ok {
		if err := v.Validate(o); err != nil {
			return nil, err
		}
	}
	if o.Wait, err = waitOn(e.p, o.Wait); err != nil {
		return nil, err
	}
	made := &engine{core: &core{p: e.p, shared: e.shared}, userOptions: given}
	made.o = o
	made.bulk, _ = e.p.(driver.BulkExtender)
	made.queues = o.Wait == strategy.WaitQueue
	if sharer, ok := e.p.(driver.Sharer); ok {
		made.sharer, made.maxShare = sharer, sharer.MaxShare()
	}
	_, notifies := e.p.(driver.Notifier)
	made.announces = notifies && !keepsQueue(e.p)
	if r, ok := e.p.(driver.Reenterer); ok {
		made.reenters = r.Reenters()
	}
	made.adopts = made.reenters && !o.NoHandOver
	return made, nil
}

func (e *engine) NewLock(name string) strategy.Lock { return e.newLock(name) }

func (e *engine) newLock(name string) *lock {
	l := &lock{target{c: e.core, name: name}}
	if name == "" || len(name) > contract.MaxNameLen {
		l.err = fmt.Errorf("locks: the lock's name has %d bytes: allowed are 1 to %d", len(name), contract.MaxNameLen)
		return l
	}
	if l.key = e.o.Key(name); l.key == "" {
		l.err = fmt.Errorf("locks: Options.Key gave an empty key for the name %q", name)
	}
	return l
}

func (e *engine) Check(ctx context.Context) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	o := e.o
	o.Wait = e.userOptions.Wait
	return e.p.Check(ctx, o)
}

func (e *engine) Inspect(ctx context.Context, name string) (strategy.Info, error) {
	c, err := e.operatorClaim(ctx, name)
	if err != nil {
		return strategy.Info{}, err
	}
	c.TTL = 0 // nothing is counted
	if err := e.enter(); err != nil {
		return strategy.Info{}, err
	}
	defer e.leave()
	info, err := e.p.Inspect(ctx, c)
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
	c.Token, c.Owner = seen.Token, seen.Owner
	c.Grant = driver.Grant{Start: time.Now(), Fence: seen.Fence} // its Acquire has been answered
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	out, err := e.p.ForceRelease(ctx, c)
	if out.Partial {
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
	if ended := timeup.Ended(ctx); ended != nil {
		return driver.Claim{}, fmt.Errorf("lock %q: %w", name, ended)
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
	c, err := e.newLock(name).claim(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	c.Due, c.Share = start.Add(e.o.OpTimeout), int32(share)
	g, err := e.p.Adopt(ctx, c, from)
	if err != nil {
		e.undoFailed(c, g, err)
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
	if closer, ok := e.p.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}
