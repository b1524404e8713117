package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Lease is one hold of a lock, from its grant to its end. It ends once: by
// [Lease.Release] or [Lease.Detach], or because it was lost. It is safe for
// concurrent use.
type Lease struct {
	s       *Strategy
	granted time.Time // not after the servers began to count the first TTL
	own     string    // its token, if the servers know it by that of the one who handed it over
	line    *line     // which rests on it; nil: none
	sound   bool      // set by its end: it could be handed over as it was
	handed  bool      // and so it was

	mu       sync.Mutex
	claim    Claim           // with the last Grant
	deadline time.Time       // guarded: Drift before the servers let go
	end      error           // nil while held; then ErrReleased or the *LostError, for ever
	failing  error           // why the last renewal failed
	doubt    bool            // an answer that nobody heard of may be that of a grant, or a part of one, which outlasts the deadline
	counted  time.Time       // until when the servers were asked to count at the latest
	busy     bool            // a renewal is under way
	answered chan struct{}   // closed when it is answered; made by the first who waits for that
	lost     chan struct{}   // made by the first Lost
	contexts []*leaseContext // to be ended with the lease

	brief bool      // from a direct grant: the TTL is an heir's, and is extended once
	keep  bool      // renewed by the agenda
	watch bool      // somebody wants to know of the loss
	begun bool      // its caller has it, and the observer knows
	index int32     // the agenda's: in moment. A Lease fills 512 bytes; one more, and it takes 576
	until time.Time // keep: the end of the maximum hold; zero: none
	next  time.Time // keep: the next renewal; zero: none

	moment *moment // the agenda's; nil: no entry
}

// leaseContext is one context that ends with its lease.
type leaseContext struct{ cancel context.CancelCauseFunc }

func newLease(s *Strategy, c Claim, g Grant, start time.Time) *Lease {
	l := &Lease{s: s, claim: c}
	l.granted = l.grant(g, start).Start
	if l.claim.Grant.Fence == 0 {
		l.claim.Grant.Fences = c.Fences // there are no numbers that could run out
	}
	if g.Owner != "" {
		l.claim.Owner = g.Owner // an adopted hold may come with one
	}
	l.deadline, l.doubt = l.claim.Grant.deadline(), g.Doubt
	return l
}

// deadline counts from when the servers began to count at the earliest, not from
// the reply: a reply that was long on its way must not make the lock seem younger
// than it is.
func (g Grant) deadline() time.Time { return g.Start.Add(g.TTL - Drift(g.TTL)) }

// grant takes in what the servers gave, and fills in what they left out.
func (l *Lease) grant(g Grant, start time.Time) Grant {
	if g.Start.IsZero() {
		g.Start = start
	}
	if g.TTL == 0 {
		g.TTL = l.claim.TTL
	}
	// A renewal does not change it; of a hold that was handed over the servers know the
	// number of the first, and of those that are reserved nothing any more.
	if old := l.claim.Grant; g.Fence == 0 || l.own != "" || g.Fence == old.Fence && g.Fences == 0 {
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

// holder is who holds the lock, as the servers know it. The caller holds mu.
func (l *Lease) holder() string {
	if l.claim.Grant.Owner != "" {
		return l.claim.Grant.Owner
	}
	return l.claim.Token
}

// begin tells that the caller has the lock, and starts what must run from then on even if
// nobody asks. ctx, n and asked are its call's: which attempt got it, and when it asked.
func (l *Lease) begin(ctx context.Context, n int, asked time.Time) {
	if l.s.o.Observe == nil && !l.brief {
		return // nobody to tell: the deadline is looked at when somebody asks
	}
	l.s.observe(Event{Kind: EventAcquired, Context: ctx, Name: l.claim.Name, Token: l.Token(), Attempt: n, Took: time.Since(asked)})
	l.mu.Lock()
	l.begun = true
	end := l.end // who has looked after a line's holder may have found its deadline past
	if end == nil {
		l.watch = true
		l.next = l.nextRenewal(l.claim.Grant.Start)
		l.plan()
	}
	l.mu.Unlock()
	if end != nil {
		l.ended(context.Background(), EventLost, end)
	}
}

// ended tells of the lease's end.
func (l *Lease) ended(ctx context.Context, how EventKind, err error) {
	l.s.observe(Event{Kind: how, Context: ctx, Name: l.claim.Name, Token: l.Token(), Took: time.Since(l.granted), Err: err})
}

// Name returns the lock's name.
func (l *Lease) Name() string { return l.claim.Name }

// Token returns what the servers know this hold by. No other hold has it. It is no
// secret: whoever may read the lock's key, or is refused the lock (HeldError.Holder),
// gets to see it, and can take the lock with it ([Strategy.Adopt]).
//
// A lease that was handed over within the process ([Options].HandOver) has a token of its
// own, too; the servers know the hold by the token of the first who had it.
func (l *Lease) Token() string {
	if l.own != "" {
		return l.own
	}
	return l.claim.Token
}

// Owner returns who holds the lock: the owner that ctx named, or else the token.
func (l *Lease) Owner() string { return l.claim.Owner }

// Fence returns the number of this hold: greater than that of every earlier hold of
// the lock, and unchanged by renewal. With a re-entrant lock all holds of an owner, from
// its first until its last is over, have the same. A store that remembers the greatest
// number that has touched an item, be it to read, and refuses lesser ones cannot be
// written to by a holder that was paused and overtaken (docs/fencing.md). ok is false
// where the algorithm cannot issue such numbers soundly, and of several locks as one, whose
// parts have them ([Lease.Parts]).
//
// Should the server lose its counter, its clock stands in for it: fences go on
// rising unless that clock is behind the last fence.
func (l *Lease) Fence() (n uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claim.Grant.Fence, l.claim.Grant.Fence != 0
}

// Deadline returns until when the lock is surely held, unless it is renewed: the
// moment before the request that got or renewed it, plus the TTL, less [Drift]. It
// has a monotonic reading, so setting the clock does not move it, and it is never
// later than the servers' expiry. (While the machine is suspended the monotonic
// clock of most systems stands still.)
func (l *Lease) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Lost returns a channel that is closed when the lock is lost: when the servers
// say so, or at the deadline at the latest, with or without a network. A release
// does not close it.
func (l *Lease) Lost() <-chan struct{} {
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

// Err returns nil while the lock is held, ErrReleased after Release or Detach, and
// a *LostError (ErrLost) once it is lost. It looks at the clock, so it does not say
// nil past the deadline even if no timer has run yet. (After a suspension of the machine
// it may: see Deadline.)
func (l *Lease) Err() error {
	l.mu.Lock()
	after := l.look()
	err := l.end
	l.mu.Unlock()
	after()
	return err
}

// Failing returns why the last renewal failed while validity is left; nil if it
// did not fail, or if the lease is over. Failing is a warning, [Lease.Err] the verdict.
func (l *Lease) Failing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end != nil {
		return nil
	}
	return l.failing
}

// Context returns a context for the work that the lock protects. It ends when
// parent does, when the lease ends ([context.Cause] is then what [Lease.Err] says),
// or when cancel is called; call cancel to free what it holds. It names the
// lease's owner: see [WithOwner].
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, cancelCause := context.WithCancelCause(WithOwner(parent, l.claim.Owner))
	c := &leaseContext{cancelCause}
	l.mu.Lock()
	l.contexts = append(l.contexts, c)
	l.watch = true
	after := l.look()
	if l.end != nil {
		cancelCause(l.end)
	}
	l.mu.Unlock()
	after()
	return ctx, func() {
		l.mu.Lock()
		l.contexts = slices.DeleteFunc(l.contexts, func(x *leaseContext) bool { return x == c })
		l.mu.Unlock()
		cancelCause(context.Canceled)
	}
}

// Extend makes the servers count the TTL anew, once. After success [Lease.Deadline]
// has moved. After ErrLost the lock is lost, and never taken again; after ErrReleased
// it was over before. After any other error the lock is held until the deadline that it
// had, and Extend may be called again. If ctx was done, nothing was sent.
func (l *Lease) Extend(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("lock %q: %w", l.claim.Name, contextError(ctx))
	}
	return l.extend(ctx, l.s.o.TTL, time.Time{})
}

// extend is Extend for ttl, to be answered until due, if that comes before the operation
// time-out.
func (l *Lease) extend(ctx context.Context, ttl time.Duration, due time.Time) error {
	if err := l.s.enter(); err != nil {
		return err
	}
	defer l.s.leave()
	c, err := l.startRenewal(ctx, ttl)
	if err != nil {
		return err
	}
	start := time.Now()
	c.Due = start.Add(l.s.o.OpTimeout)
	if !due.IsZero() && due.Before(c.Due) {
		c.Due = due
	}
	g, err := l.s.p.Extend(ctx, c)
	return l.renewed(ctx, c, g, start, err)
}

// KeepAlive renews the lock in the background, every third of the TTL give or take
// a tenth, and again after a failure for as long as validity is left, until the
// lease ends. Where one request can renew many locks, each is renewed when between a
// third and half of its TTL has passed, with those that can be at the same moment.
// KeepAlive does no I/O itself and returns at once.
//
// maxHold bounds the hold, counted from the grant: the servers let go when it is
// over, whatever the holder does, and the lease is lost then. 0 means no bound;
// less than the TTL is an error. A second call sets another bound; if that is over
// already, the lease is lost at once.
//
// The error is what [Lease.Err] says if the lease is over, or ErrClosed.
func (l *Lease) KeepAlive(maxHold time.Duration) error {
	if maxHold != 0 && maxHold < l.s.o.TTL {
		return fmt.Errorf("locks: KeepAlive(%v): allowed are 0 (no bound) and the TTL of %v or more", maxHold, l.s.o.TTL)
	}
	if l.s.isClosed() {
		return ErrClosed
	}
	l.mu.Lock()
	after := l.look()
	err := l.end
	if err == nil {
		l.keep, l.watch = true, true
		l.until = time.Time{}
		if maxHold != 0 {
			l.until = l.granted.Add(maxHold)
		}
		g := l.claim.Grant
		l.next = l.firstRenewal()
		l.bind(g.Start.Add(g.TTL))
		if l.deadline.Before(g.deadline()) {
			l.next = time.Now() // an earlier bound, this call's or the last one's
		}
		after = l.look()
		err = l.end
	}
	l.mu.Unlock()
	after()
	return err
}

// Release gives the lock up. It goes on when ctx is cancelled, for the operation
// time-out at most: giving up early would only keep the lock for longer. A renewal
// under way is waited for first, for as long again, and nothing is sent afterwards.
// Contexts of the lease end before the lock is free.
//
// nil means: it was held until now, and is free, or has gone to the next who waits. (One that
// is handed over within the process, see [Options].HandOver, was held as far as anybody knew:
// the servers are not asked.) ErrLost means: it was lost
// before, and nothing was changed; a lease that knows so sends nothing (but for what is
// left of several locks, see [All]), however often it is released, and one that learns it here is over by its release: Err says
// ErrReleased. After any other error the release is repeated in the background until
// it is certain or the TTL has passed; for the caller the lease is over. A second
// call returns ErrReleased and does nothing. After
// [Strategy.Close] nothing is sent: the error is ErrClosed, the lease is over, and
// the lock goes with its TTL.
func (l *Lease) Release(ctx context.Context) error {
	entered := l.s.enter()
	if entered == nil {
		defer l.s.leave()
	}
	c, err := l.finish()
	if err != nil {
		if l.isWhole() { // one part was lost: the work on the others is over, too
			each(l.Parts(), func(_ int, part *Lease) { part.Release(ctx) })
		}
		return err
	}
	if err = entered; err == nil {
		err = l.letGo(ctx, c)
	} else if l.line != nil {
		l.line.untie(l)
	}
	l.ended(ctx, EventReleased, err)
	return err
}

// release ends a claim by its user's wish, and goes on in the background until that is
// certain.
func (s *Strategy) release(ctx context.Context, c Claim) error {
	c.Due = time.Now().Add(s.o.OpTimeout)
	err, remains := unmark(s.p.Release(context.WithoutCancel(ctx), c))
	if remains || err != nil && !errors.Is(err, ErrLost) {
		s.undo(c)
	}
	return err
}

// Detach ends the lease here and leaves the lock with the servers until its TTL
// ends: for [Strategy.Adopt], perhaps in another process, with the token by which the
// servers know the hold. One that has been an heir for less than half of its [HeirTTL] may
// have no more left: Extend it before.
//
// A lease of several locks ([All]) cannot be detached: the error is ErrUnsupported, and
// nothing has changed.
func (l *Lease) Detach() (token string, err error) {
	if l.isWhole() {
		return "", fmt.Errorf("lock %q: Detach: %w by several locks as one", l.claim.Name, ErrUnsupported)
	}
	c, err := l.finish()
	if err != nil {
		return "", err
	}
	if l.line != nil {
		l.line.untie(l)
	}
	l.ended(context.Background(), EventReleased, nil)
	return c.Token, nil
}

// finish ends the lease by its user's wish. A renewal under way is waited for (it
// ends with its operation time-out), so that none is sent after the release.
func (l *Lease) finish() (Claim, error) {
	l.mu.Lock()
	after := l.look()
	if l.end != nil {
		err := l.end
		l.mu.Unlock()
		after()
		return Claim{}, err
	}
	after = l.over(ErrReleased)
	answered := l.underWay()
	l.mu.Unlock()
	after()
	if answered != nil {
		<-answered
	}
	l.mu.Lock() // which renewed holds until it has taken in the answer
	defer l.mu.Unlock()
	l.sound = l.failing == nil && !l.doubt
	return l.claim, nil
}

// startRenewal waits for its turn and gives the claim to extend, for ttl or what
// the maximum hold leaves of it.
func (l *Lease) startRenewal(ctx context.Context, ttl time.Duration) (Claim, error) {
	for {
		l.mu.Lock()
		after := l.look()
		err, answered := l.end, l.underWay()
		if err == nil && answered == nil {
			l.busy = true
			c := l.claim
			c.TTL = l.bounded(ttl)
			l.mu.Unlock()
			return c, nil
		}
		l.mu.Unlock()
		after()
		if err != nil {
			return Claim{}, err
		}
		select {
		case <-answered:
		case <-ctx.Done():
			return Claim{}, fmt.Errorf("lock %q: %w", l.claim.Name, contextError(ctx))
		}
	}
}

// underWay is what a caller can wait for if a renewal is under way; nil: none is. The
// caller holds mu.
func (l *Lease) underWay() <-chan struct{} {
	if l.busy && l.answered == nil {
		l.answered = make(chan struct{})
	}
	return l.answered
}

// bounded cuts ttl so that the servers let go when the maximum hold is over.
func (l *Lease) bounded(ttl time.Duration) time.Duration {
	if l.until.IsZero() {
		return ttl
	}
	return max(min(ttl, time.Until(l.until).Truncate(time.Millisecond)), time.Millisecond)
}

// bind makes the lease end with the maximum hold although the servers count beyond
// it: the bound was set after they were asked to count until asked. The next
// renewal, at once, tells them; if none does, or if they never shorten, the key is
// undone at the deadline. The caller holds mu.
func (l *Lease) bind(asked time.Time) {
	g, most := l.claim.Grant, l.until.Add(time.Millisecond)
	if l.until.IsZero() || !g.Start.Add(g.TTL).After(most) {
		return
	}
	if d := l.until.Add(-Drift(max(time.Until(l.until), 0))); d.Before(l.deadline) {
		l.deadline = d
	}
	if asked.After(most) {
		l.next = time.Now()
	}
}

// renewed takes in the answer to a renewal that began at start, and returns what
// its caller is to know. ctx is for the event.
func (l *Lease) renewed(ctx context.Context, c Claim, g Grant, start time.Time, err error) error {
	now := time.Now()
	err, remains := unmark(err)
	remains = remains || errors.Is(err, ErrUnknown)
	l.mu.Lock()
	l.busy = false
	if l.answered != nil {
		close(l.answered)
		l.answered = nil
	}
	if g.TTL == 0 {
		g.TTL = c.TTL
	}
	after := nothing
	if l.end == nil && !now.Before(l.deadline) {
		after = l.lapse()
	}
	if l.end != nil {
		// It ended while the request was under way. If the deadline ended it, the
		// servers may just have been told to keep the lock for another TTL.
		if err == nil {
			c.Grant = l.grant(g, start) // what ends the claim is told the last one
		}
		if l.isLost() && (err == nil || remains) {
			l.s.undo(c)
		}
		end := l.end
		l.mu.Unlock()
		after()
		return end
	}
	var e Event
	switch {
	case err == nil:
		l.deadline = l.grant(g, start).deadline()
		l.failing, l.doubt = nil, g.Doubt
		l.brief = l.brief && l.claim.Grant.TTL < l.s.o.TTL
		l.next = l.nextRenewal(start)
		l.bind(start.Add(c.TTL))
		e = Event{Kind: EventRenewed, Took: now.Sub(start)}
	case errors.Is(err, ErrLost):
		var lost *LostError
		if !errors.As(err, &lost) {
			lost = &LostError{Name: c.Name, Err: err}
		}
		err = lost
		after = l.over(lost)
		if remains {
			l.s.undo(c)
		}
	default:
		l.failing = err
		l.doubt = l.doubt || remains
		if l.keep || l.brief {
			l.next = now.Add(max(l.claim.Grant.TTL/20, time.Millisecond))
		}
		e = Event{Kind: EventFailing, Took: now.Sub(start), Err: err}
	}
	if l.end == nil {
		l.plan()
	}
	l.mu.Unlock()
	after()
	if e.Kind != 0 {
		e.Context, e.Name, e.Token = ctx, c.Name, l.Token()
		l.s.observe(e)
	}
	return err
}

// isLost tells a loss from a release. The caller holds mu.
func (l *Lease) isLost() bool { return l.end != nil && l.end != ErrReleased }

// look lets the clock speak: past its deadline the lease is lost. It keeps the
// agenda up to date if it is not. The caller holds mu, and calls after without it.
func (l *Lease) look() (after func()) {
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
func (l *Lease) lapse() (after func()) {
	lost := &LostError{Name: l.claim.Name, Lapsed: true, Err: l.failing}
	switch {
	case !l.until.IsZero() && l.until.Sub(l.deadline) <= Drift(l.claim.Grant.TTL)+time.Millisecond:
		lost.Err = errMaxHold
	case l.keep && l.failing == nil && l.s.isClosed():
		lost.Err = ErrClosed // which ended the renewal
	}
	return l.over(lost)
}

var errMaxHold = errors.New("the maximum hold is over")

// over ends the lease. The caller holds mu, and calls after without it.
func (l *Lease) over(end error) (after func()) {
	l.end = end
	l.s.agenda.remove(l)
	lost, contexts, begun := l.isLost(), l.contexts, l.begun
	l.contexts = nil
	if lost && l.lost != nil {
		close(l.lost)
	}
	if lost && (l.doubt || l.outlasted(end)) && hasLapsed(end) {
		l.s.undo(l.claim) // as a renewal does that nobody heard of
	}
	if len(contexts) == 0 && !lost {
		return nothing
	}
	return func() {
		if lost && l.line != nil {
			l.line.untie(l)
		}
		for _, x := range contexts {
			x.cancel(end)
		}
		if lost && begun { // otherwise begin does, once it has told of the beginning
			l.ended(context.Background(), EventLost, end)
		}
	}
}

// outlasted tells whether the servers may count beyond the maximum hold that has ended the
// lease. The caller holds mu.
func (l *Lease) outlasted(end error) bool {
	if l.isWhole() { // what its parts' servers count, it does not know
		return errors.Is(end, errMaxHold)
	}
	return !l.until.IsZero() && l.counted.After(l.until.Add(time.Millisecond))
}

func nothing() {}

func hasLapsed(end error) bool {
	var lost *LostError
	return errors.As(end, &lost) && lost.Lapsed
}
