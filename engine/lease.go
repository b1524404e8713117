package engine

import (
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine/internal/lifecycle"
	"github.com/lockstrategies/locks/engine/internal/scheduler"
	"github.com/lockstrategies/locks/engine/internal/undo"
	"github.com/lockstrategies/locks/internal/holdstart"
	"github.com/lockstrategies/locks/strategy"
)

// core is what the mechanisms of one strategy know: its algorithm, its options, and what it shares
// with the strategies made from it by With.
type core struct {
	p         driver.Protocol
	bulk      driver.BulkExtender // p, if it is one
	queues    bool                // Options.Wait is WaitQueue
	sharer    driver.Sharer       // p, if several may hold its locks
	maxShare  int                 // the greatest share of such a lock; 0: one holds it
	reenters  bool                // p grants an owner its lock again
	adopts    bool                // locks are handed over by adoption; see handover.go
	announces bool                // p publishes each release to waiters that subscribe
	o         strategy.Options
	*shared
}

type shared struct {
	group   *lifecycle.Group
	lines   *lines
	undos   undo.Retrier
	renewal *scheduler.Scheduler[*lease] // renewals and deadlines

	prober     driver.Prober // the protocol, if it is one
	probing    atomic.Bool   // probe will be called
	subscribed atomic.Int64  // how many subscriptions there are
	returns    uint64        // what the last probe has returned; probe's
}

// enter begins a request that Close waits for.
func (s *shared) enter() error {
	if !s.group.Enter() {
		return strategy.ErrClosed
	}
	return nil
}

func (s *shared) leave() { s.group.Leave() }

// undo ends, in the background, a claim whose end nobody knows.
func (c *core) undo(claim driver.Claim) { c.undos.Undo(c.p, claim, c.o.OpTimeout, c.leftToTTL) }

// undoFailed undoes what may remain of a claim that got g and err in place of the lock, and reports whether anything may.
func (c *core) undoFailed(claim driver.Claim, g driver.Grant, err error) bool {
	if !mayRemain(g, err) {
		return false
	}
	claim.Grant.State = g.State
	c.undo(claim)
	return true
}

// mayRemain reports whether the servers may have kept something of a claim that got g and err.
func mayRemain(g driver.Grant, err error) bool {
	return err != nil && (g.Partial || errors.Is(err, strategy.ErrUnknown))
}

// leftToTTL reports a claim that Close has left to its TTL.
func (c *core) leftToTTL(claim driver.Claim, elapsed time.Duration, err error) {
	c.observe(strategy.Event{Kind: strategy.EventUndoFailed, Context: context.Background(), Name: claim.Name, Token: claim.Token, Elapsed: elapsed, Err: err})
}

func (c *core) observe(e strategy.Event) {
	if c.o.Observe != nil {
		c.o.Observe(e)
	}
}

// lease is the Lease of every algorithm. Its size has a test.
type lease struct {
	c        *core
	granted  time.Time        // not after the servers began to count the first TTL
	start    *holdstart.Start // of its maximum hold; nil: its grant
	ownToken string           // not empty: its token, where the servers know it by that of the first hold; see handover.go
	turn     *turn            // the process's, in which the lock may be handed over; nil: it may not

	mu         sync.Mutex
	claim      driver.Claim               // with the last Grant
	deadline   time.Time                  // Drift before the lock expires at the servers
	end        error                      // nil while held; then ErrReleased or the *LostError, for ever
	renewalErr error                      // why the last renewal failed
	counted    time.Time                  // the latest time until which the servers were asked to count
	answered   chan struct{}              // closed when the renewal under way is answered; made by the first who waits for that
	lost       chan struct{}              // made by the first Lost
	contexts   map[*leaseContext]struct{} // end with the lease
	partial    bool                       // a server that has not answered may keep the lock beyond the deadline
	renewing   bool                       // a renewal is under way

	unconfirmed bool      // no answer, but a message says that it was granted: it is extended once
	keep        bool      // renewed until it ends
	watch       bool      // somebody wants to know of the loss
	begun       bool      // its caller has it, and the observer knows
	intact      bool      // set by its end: no renewal has failed, so it may be handed over as it was
	until       time.Time // keep: the end of the maximum hold; zero: none
	next        time.Time // keep: the next renewal; zero: none

	entry scheduler.Entry[*lease]
}

var _ strategy.Lease = (*lease)(nil)

// leaseContext is one context that ends with its lease.
type leaseContext struct{ cancel context.CancelCauseFunc }

func newLease(co *core, c driver.Claim, g driver.Grant, start time.Time) *lease {
	c.Holds = 0 // it is one of them
	l := &lease{c: co, claim: c}
	l.granted = l.take(g, start).Start
	if l.claim.Grant.Fence == 0 && l.claim.Grant.Fences == 0 {
		l.claim.Grant.Fences = c.Fences // there are no numbers that could run out
	}
	if g.Owner != "" {
		l.claim.Owner = g.Owner // an adopted hold may come with one
	}
	l.deadline, l.partial = deadlineOf(l.claim.Grant), g.Partial
	return l
}

// deadlineOf counts from when the servers began to count at the earliest, not from the reply: a reply
// that was long on its way must not make the lock seem younger than it is.
func deadlineOf(g driver.Grant) time.Time { return g.Start.Add(g.TTL - driver.Drift(g.TTL)) }

// take makes g the lease's grant, and fills in what the servers left out.
func (l *lease) take(g driver.Grant, start time.Time) driver.Grant {
	if g.Start.IsZero() {
		g.Start = start
	}
	if g.TTL == 0 {
		g.TTL = l.claim.TTL
	}
	// A renewal does not change the fence. After a hand-over the servers know the number of the first
	// hold only, and they know nothing of the reserved numbers.
	if old := l.claim.Grant; g.Fence == 0 || l.ownToken != "" || g.Fence == old.Fence && g.Fences == 0 {
		g.Fence, g.Fences = old.Fence, old.Fences
	}
	if g.Owner == "" {
		g.Owner = l.claim.Grant.Owner
	}
	if g.State == nil {
		g.State = l.claim.Grant.State
	}
	l.claim.Grant = g
	if until := g.Start.Add(g.TTL); until.After(l.counted) {
		l.counted = until // servers that never shorten count until then, whatever came later
	}
	return g
}

// holder is the holder as the servers know it. The caller holds mu.
func (l *lease) holder() string {
	if l.claim.Grant.Owner != "" {
		return l.claim.Grant.Owner
	}
	return l.claim.Token
}

// begin reports that the caller has the lock, also to the waiters of its owner, and starts what runs from then on even if nobody asks.
// ctx, n and asked are those of the call: which attempt got the lock, and when the call began.
func (l *lease) begin(ctx context.Context, n int, asked time.Time) {
	l.start = holdstart.From(ctx)
	if owner := strategy.OwnerFrom(ctx); l.c.reenters && owner != "" {
		l.c.lines.tellOwner(l.claim.Key, owner)
	}
	if l.c.o.Observe == nil && !l.unconfirmed {
		return // nobody to notify: the deadline is checked when somebody asks
	}
	l.c.observe(strategy.Event{Kind: strategy.EventAcquired, Context: ctx, Name: l.claim.Name, Token: l.Token(), Attempt: n, Elapsed: time.Since(asked)})
	l.mu.Lock()
	l.begun = true
	end := l.end // the wait line may have found its deadline past
	if end == nil {
		l.watch = true
		l.next = l.nextRenewal(l.claim.Grant.Start)
		l.plan()
	}
	l.mu.Unlock()
	if end != nil {
		l.ended(context.Background(), strategy.EventLost, end)
	}
}

// ended reports the lease's end.
func (l *lease) ended(ctx context.Context, how strategy.EventKind, err error) {
	l.c.observe(strategy.Event{Kind: how, Context: ctx, Name: l.claim.Name, Token: l.Token(), Elapsed: time.Since(l.granted), Err: err})
}

func (l *lease) Name() string  { return l.claim.Name }
func (l *lease) Owner() string { return l.claim.Owner }

func (l *lease) Token() string {
	if l.ownToken != "" {
		return l.ownToken
	}
	return l.claim.Token
}

func (l *lease) Fence() (n uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claim.Grant.Fence, l.claim.Grant.Fence != 0
}

func (l *lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

func (l *lease) Lost() <-chan struct{} {
	l.mu.Lock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.isLost() {
			close(l.lost)
		}
	}
	ch := l.lost
	l.watch = true
	after := l.look()
	l.mu.Unlock()
	after()
	return ch
}

func (l *lease) Err() error {
	l.mu.Lock()
	after := l.look()
	err := l.end
	l.mu.Unlock()
	after()
	return err
}

func (l *lease) RenewalErr() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return nil
	}
	return l.renewalErr
}

// within are the leases in whose Contexts a caller is. They are there where several may hold the lock.
type within struct {
	*lease
	outer *within
}

// withinKey finds in a ctx the innermost *within.
type withinKey struct{}

func (l *lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	parent = strategy.WithOwner(parent, l.claim.Owner)
	if l.c.sharer != nil {
		outer, _ := parent.Value(withinKey{}).(*within)
		parent = context.WithValue(parent, withinKey{}, &within{l, outer})
	}
	ctx, cancelCause := context.WithCancelCause(parent)
	c := &leaseContext{cancelCause}
	l.mu.Lock()
	if l.contexts == nil {
		l.contexts = map[*leaseContext]struct{}{}
	}
	l.contexts[c] = struct{}{}
	l.watch = true
	after := l.look()
	if l.end != nil {
		cancelCause(l.end)
	}
	l.mu.Unlock()
	after()
	return ctx, func() {
		l.mu.Lock()
		delete(l.contexts, c)
		l.mu.Unlock()
		cancelCause(context.Canceled)
	}
}

// Release ends the lease first, and then the lock.
func (l *lease) Release(ctx context.Context) error {
	entered := l.c.enter()
	if entered == nil {
		defer l.c.leave()
	}
	c, err := l.finish()
	if err != nil {
		return err
	}
	if err = entered; err == nil {
		err = l.release(ctx, c)
	} else {
		l.unblock()
	}
	l.ended(ctx, strategy.EventReleased, err)
	return err
}

// giveBack releases, in the background, a lock that nobody wants any more. Its lease has not begun, so
// there is no event.
func (l *lease) giveBack() {
	if c, err := l.finish(); err == nil {
		l.c.group.Go(func() { l.release(context.Background(), c) })
	}
}

// release ends a claim, and goes on in the background until that is certain.
func (c *core) release(ctx context.Context, claim driver.Claim) error {
	claim.Due = time.Now().Add(c.o.OpTimeout)
	out, err := driver.Outcome{}, errPanic
	defer func() {
		if out.Partial || err != nil && !errors.Is(err, strategy.ErrLost) {
			c.undo(claim)
		}
	}()
	out, err = c.p.Release(uncancelled(ctx), claim)
	return err
}

func (l *lease) Detach() (token string, err error) {
	c, err := l.finish()
	if err != nil {
		return "", err
	}
	l.unblock()
	l.ended(context.Background(), strategy.EventReleased, nil)
	return c.Token, nil
}

// finish ends the lease by its user's wish. It waits for a renewal under way (that ends with its
// operation time-out), so that none is sent after the release.
func (l *lease) finish() (driver.Claim, error) {
	l.mu.Lock()
	after := l.look()
	if l.end != nil {
		err := l.end
		l.mu.Unlock()
		after()
		return driver.Claim{}, err
	}
	after = l.over(strategy.ErrReleased)
	answered := l.underWay()
	l.mu.Unlock()
	after()
	if answered != nil {
		<-answered
	}
	l.mu.Lock() // which renewed holds until it has taken in the answer
	defer l.mu.Unlock()
	l.intact = l.renewalErr == nil
	return l.claim, nil
}

// isLost distinguishes a loss from a release. The caller holds mu.
func (l *lease) isLost() bool { return l.end != nil && l.end != strategy.ErrReleased }

// look checks the clock: past its deadline the lease is lost. Otherwise it keeps the schedule up to
// date. The caller holds mu, and calls after without it.
func (l *lease) look() (after func()) {
	if l.end != nil {
		return nothing
	}
	if time.Now().Before(l.deadline) {
		l.plan()
		return nothing
	}
	return l.lapse()
}

// lapse ends the lease at its deadline. The caller holds mu, and calls after without it.
func (l *lease) lapse() (after func()) {
	lost := &strategy.LostError{Name: l.claim.Name, Lapsed: true, Err: l.renewalErr}
	switch {
	case !l.until.IsZero() && l.until.Sub(l.deadline) <= driver.Drift(l.claim.Grant.TTL)+time.Millisecond:
		lost.Err = errMaxHold
	case l.keep && l.renewalErr == nil && l.c.group.Closed():
		lost.Err = strategy.ErrClosed // which ended the renewal
	case l.keep && l.renewalErr == nil && !l.renewing:
		lost.Err = errNotRun
	}
	return l.over(lost)
}

var (
	errMaxHold = errors.New("the maximum hold is over")
	errNotRun  = errors.New("no renewal was made in time: was the process paused, or short of CPU?")
)

// over ends the lease. The caller holds mu, and calls after without it.
func (l *lease) over(end error) (after func()) {
	l.end = end
	l.c.renewal.Remove(l)
	lost, contexts, begun := l.isLost(), l.contexts, l.begun
	l.contexts = nil
	if lost && l.lost != nil {
		close(l.lost)
	}
	if lost && (l.unconfirmed || (l.partial || l.outlasted()) && hasLapsed(end)) {
		l.c.undo(l.claim) // the servers may count for longer; or the claim may still have its place in the queue
	}
	if len(contexts) == 0 && !lost {
		return nothing
	}
	return func() {
		if lost {
			l.unblock()
		}
		for x := range contexts {
			x.cancel(end)
		}
		if lost && begun { // otherwise begin does, after it has reported the beginning
			l.ended(context.Background(), strategy.EventLost, end)
		}
	}
}

// outlasted reports whether the servers may count beyond the maximum hold. The caller holds mu.
func (l *lease) outlasted() bool {
	return !l.until.IsZero() && l.counted.After(l.until.Add(time.Millisecond))
}

func nothing() {}

func hasLapsed(end error) bool {
	var lost *strategy.LostError
	return errors.As(end, &lost) && lost.Lapsed
}

// underWay is what a caller can wait for if a renewal is under way; nil: none is. The caller holds mu.
func (l *lease) underWay() <-chan struct{} {
	if l.renewing && l.answered == nil {
		l.answered = make(chan struct{})
	}
	return l.answered
}

// Entry is for the scheduler.
func (l *lease) Entry() *scheduler.Entry[*lease] { return &l.entry }

// plan schedules the lease for what comes next: its renewal or its deadline. The caller holds mu.
func (l *lease) plan() {
	at, early := l.deadline, time.Duration(0)
	if !l.renewing && !l.next.IsZero() && l.next.Before(at) {
		at, early = l.next, l.slack()
	}
	if l.watch {
		l.c.renewal.Set(l, at, early)
	}
}

// nextRenewal returns when the next renewal is due, if nothing makes it come earlier. Zero: there is
// nothing to renew. The caller holds mu.
//
// Where each renewal is a request, that is a third of the TTL after start, give or take a tenth, so
// that locks acquired together do not stay together. Where one request renews many, a batch stays
// together. It then comes later, because slack adds the leases that are due soon; but before half of
// the TTL, which leaves time for several more tries.
func (l *lease) nextRenewal(start time.Time) time.Time {
	g := l.claim.Grant
	switch {
	case l.unconfirmed:
		return time.Now().Add(shortHold)
	case !l.keep:
		return time.Time{}
	case !l.until.IsZero() && !g.Start.Add(g.TTL+time.Millisecond).Before(l.until):
		return time.Time{} // the servers already count until the end of the maximum hold
	}
	third, half := g.TTL/3, g.TTL/2
	if l.c.bulk == nil {
		return start.Add(third - third/10 + rand.N(third/5+1))
	}
	return start.Add(half - scatter((half-third)/4, uint64(l.c.renewal.Since(start))))
}

// shortHold is how long a successor may hold without asking for its whole TTL.
const shortHold = 5 * time.Millisecond

// slack is how much before its time a renewal may join others: not before a third of the TTL has
// passed. The caller holds mu.
func (l *lease) slack() time.Duration {
	g := l.claim.Grant
	switch {
	case l.c.bulk == nil:
		return 0
	case l.renewalErr != nil: // what failed together is tried again together, after its pause
		return g.TTL / 30
	}
	return max(l.next.Sub(g.Start)-g.TTL/3, 0)
}

// scatter returns a time from 0 to most, the same for the same seed.
func scatter(most time.Duration, seed uint64) time.Duration {
	high, _ := bits.Mul64(seed*0x9e3779b97f4a7c15, uint64(most)+1) // near seeds lead far apart
	return time.Duration(high)
}
