package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// All makes one lock of several: who acquires it has a lease that holds all of them, or
// none. They may be of different strategies, on different servers. The order in which they
// are given does not matter: they are taken one after the other, in the order of their keys
// on the servers, which is the same for everybody. So contenders who take several locks
// through All, and nothing else while they hold one, cannot deadlock.
//
// TryAcquire asks for each in turn, and stops at the first that it does not get. Acquire
// waits for each in turn, and keeps those before it alive while it waits. So nobody can
// overtake it for ever, and each is taken first come, first served as far as its strategy
// promises that; but who waits for the last keeps others from the first: let ctx end the
// wait, and TryAcquire where that is not wanted. If one of those in hand is lost meanwhile,
// Acquire gives the others back and begins again.
//
// Whatever the error, none of the locks is held: those in hand have been released when the
// call returns, and what could not be released for certain is undone in the background. The
// error is an [*AllError], which says which lock failed and why: errors.Is and errors.As
// find what that lock alone would have said, as a [*HeldError]. After [Strategy.Close] of a
// strategy of one of them, that is ErrClosed.
//
// Of the lease:
//   - Name is those of the locks, in the order in which they are taken, with commas.
//     Token names the acquisition in this process; the servers do not know it. Owner is
//     that of all parts, so that what is re-entrant can be re-entered. There is no one
//     fence: ok is false. Each part has its own: [Lease.Parts].
//   - Deadline is the earliest. When Acquire returns, at least nine tenths of each TTL
//     are left: what waited for longer is renewed before.
//   - Extend and KeepAlive renew all, each with a request of its own, at the pace of the
//     shortest TTL. KeepAlive's maximum hold cannot be less than the longest TTL. When it
//     is over, all are given up.
//   - To lose one is to lose all: Lost, Err and the contexts say so at once. The
//     [*LostError] bears the name of all and wraps that of the one. The others are renewed
//     no more, but kept until Release or their TTL, as the work may take a moment to stop: so
//     call Release after a loss, too. It returns ErrLost.
//   - Failing and the errors of Extend and Release are an [*AllError].
//   - Detach is not supported.
//
// Events ([Options].Observe) tell of each lock by itself.
//
// Allowed are locks that [Strategy.Lock] or All returned; those of an All are taken as if
// they had been given one by one. Each key is allowed once, also when it is re-entrant, and
// on different servers: without that there would be no order that everybody agrees on.
// Give one of the strategies another Options.Key where locks of different servers must
// have the same name.
func All(locks ...Lock) (Lock, error) {
	u := &union{}
	for i, l := range locks {
		switch l := l.(type) {
		case *lock:
			u.locks = append(u.locks, l)
		case *union:
			u.locks = append(u.locks, l.locks...)
		default:
			return nil, fmt.Errorf("locks: All: argument %d is a %T: allowed are locks that Strategy.Lock or All returned", i+1, l)
		}
	}
	if len(u.locks) == 0 {
		return nil, errors.New("locks: All of no locks: allowed is one or more")
	}
	slices.SortFunc(u.locks, func(a, b *lock) int { return strings.Compare(a.key, b.key) })
	names := make([]string, len(u.locks))
	var o Options // no strategy's: the longest, as each lock heeds its own
	for i, l := range u.locks {
		if l.err != nil {
			return nil, l.err
		}
		if i > 0 && l.key == u.locks[i-1].key {
			return nil, fmt.Errorf("locks: All: the locks %q and %q have the same key %q: allowed is each key once, also on different servers (see Options.Key)",
				u.locks[i-1].name, l.name, l.key)
		}
		names[i] = l.name
		o.TTL, o.OpTimeout = max(o.TTL, l.s.o.TTL), max(o.OpTimeout, l.s.o.OpTimeout)
	}
	u.name = strings.Join(names, ", ")
	u.s = &Strategy{p: wholes{u}, o: o, house: newHouse()}
	return u, nil
}

// Parts returns the leases of which this one is made: of a lock by [All] one for each
// lock, in the order in which they were taken; of any other the lease itself. Each part has
// its own token and fence. To release or detach one is to lose all.
func (l *Lease) Parts() []*Lease {
	if !l.isWhole() {
		return []*Lease{l}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.claim.parts())
}

// A union is several locks as one.
type union struct {
	s     *Strategy // of its leases
	locks []*lock   // by their keys
	name  string
}

func (u *union) Name() string { return u.name }

func (u *union) TryAcquire(ctx context.Context) (*Lease, error) {
	lease, _, err := u.gather(ctx, (*lock).TryAcquire)
	return lease, err
}

func (u *union) Acquire(ctx context.Context) (*Lease, error) {
	for n := 1; ; n++ {
		lease, again, err := u.gather(ctx, (*lock).Acquire)
		if !again {
			return lease, err
		}
		select {
		case <-time.After(u.locks[0].jitter(n)):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w; gave up: %w", err, contextError(ctx))
		}
	}
}

// gather takes the locks one after the other, or none. Those in hand are kept alive, and to
// lose one of them ends the wait for the next: to take it again then would be out of order.
// again says that another try may do better.
func (u *union) gather(ctx context.Context, take func(*lock, context.Context) (*Lease, error)) (whole *Lease, again bool, err error) {
	c, err := u.claim(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, l := range u.locks { // Close of any of them waits until nothing is in hand
		if err := l.s.enter(); err != nil {
			return nil, false, u.failed(l.name, err)
		}
		defer l.s.leave()
	}
	open, done := u.whileOpen(ctx)
	defer done()
	held := make([]*Lease, 0, len(u.locks))
	defer func() {
		if err != nil {
			each(held, func(_ int, part *Lease) { part.giveBack() })
		}
	}()
	inHand := WithOwner(open, c.Owner) // ends when one of those in hand is lost
	for _, l := range u.locks {
		lease, err := take(l, inHand)
		if err == nil {
			held = append(held, lease)
			lease.KeepAlive(0) // an error is that of a loss, or is found by the next request
		}
		if lost := u.lost(held); lost != nil {
			return nil, true, lost // and not that the wait for the next has ended so
		}
		if err != nil {
			if closed := u.closed(); closed != nil {
				l, err = closed, ErrClosed // and not that the wait for another has ended so
			}
			return nil, false, u.failed(l.name, err)
		}
		var done context.CancelFunc
		inHand, done = lease.Context(inHand)
		defer done()
	}
	if err := u.refresh(inHand, held); err != nil {
		return nil, slices.ContainsFunc(u.locks, func(l *lock) bool { return l.worthWaiting(err) }), endedBy(ctx, err)
	}
	whole = newWhole(u.s, c, held)
	if lost := u.lost(held); lost != nil {
		return nil, true, lost
	}
	return whole, false, nil
}

// whileOpen is ctx until one of the strategies is closed: who waits for a lock of another
// would not learn of it, and Close waits for what is in hand.
func (u *union) whileOpen(ctx context.Context) (open context.Context, done func()) {
	var houses []*house
	for _, l := range u.locks {
		if !slices.Contains(houses, l.s.house) {
			houses = append(houses, l.s.house)
		}
	}
	if len(houses) == 1 {
		return ctx, nothing
	}
	open, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	for _, h := range houses {
		all.Go(func() {
			select {
			case <-h.closing:
				cancel(ErrClosed)
			case <-open.Done():
			}
		})
	}
	return open, func() {
		cancel(nil)
		all.Wait()
	}
}

// closed is a lock whose strategy is; nil: none is.
func (u *union) closed() *lock {
	for _, l := range u.locks {
		if l.s.isClosed() {
			return l
		}
	}
	return nil
}

// claim is for one acquisition. It bears an owner, also if ctx names none: all parts have
// the same, so that a lease's context lets in where any of them is re-entrant.
func (u *union) claim(ctx context.Context) (Claim, error) {
	if ctx.Err() != nil {
		return Claim{}, fmt.Errorf("lock %q: %w", u.name, contextError(ctx))
	}
	token, err := newToken("", false)
	if err != nil {
		return Claim{}, err
	}
	owner := ownerOf(ctx)
	if owner == "" {
		owner = token
	}
	return Claim{Name: u.name, Token: token, Owner: owner, TTL: u.s.o.TTL}, nil
}

// lost is the error for one of held that is; nil: none is.
func (u *union) lost(held []*Lease) error {
	for _, part := range held {
		if err := part.Err(); err != nil {
			return u.failed(part.claim.Name, err)
		}
	}
	return nil
}

func (u *union) failed(name string, err error) error {
	return &AllError{Name: u.name, Failed: []PartError{{name, err}}}
}

// refresh renews what has been in hand for long, or was granted for less than its TTL, so
// that a lease of several begins with as much as any other.
func (u *union) refresh(ctx context.Context, held []*Lease) error {
	worn := slices.DeleteFunc(slices.Clone(held), func(part *Lease) bool {
		ttl := part.s.o.TTL
		return time.Until(part.Deadline()) >= (ttl-Drift(ttl))/10*9
	})
	return together(u.name, worn, func(part *Lease) error { return part.Extend(ctx) })
}

// newWhole makes one lease of those in hand. From now on they are renewed when it is, and
// it ends when one of them does.
func newWhole(s *Strategy, c Claim, parts []*Lease) *Lease {
	now := time.Now()
	whole := newLease(s, c, wholeGrant(parts), now)
	whole.granted = now
	for _, part := range parts {
		part.joinTo(whole)
	}
	return whole
}

// wholeGrant is what several grants are together: until the earliest deadline.
func wholeGrant(parts []*Lease) Grant {
	var g Grant
	for _, part := range parts {
		part.mu.Lock()
		ttl, deadline := part.claim.Grant.TTL, part.deadline
		part.mu.Unlock()
		if g.TTL == 0 || deadline.Before(g.deadline()) {
			g.TTL, g.Start = ttl, deadline.Add(Drift(ttl)-ttl)
		}
	}
	g.State = parts
	return g
}

// A wholes is the [Protocol] of the leases of a union: such a lease has a deadline, renewal
// and an end as any other, but what it says, it says to its parts. What must be undone, the
// strategies of the parts undo.
type wholes struct{ u *union }

// isWhole tells whether the lease is one of several locks.
func (l *Lease) isWhole() bool {
	_, ok := l.s.p.(wholes)
	return ok
}

// parts are those of the lease whose claim it is.
func (c Claim) parts() []*Lease {
	parts, _ := c.Grant.State.([]*Lease)
	return parts
}

// Acquire is what nobody asks: a union takes lock after lock.
func (w wholes) Acquire(context.Context, Claim) (Grant, error) {
	return Grant{}, fmt.Errorf("lock %q: one request for several locks: %w", w.u.name, ErrUnsupported)
}

func (w wholes) Extend(ctx context.Context, c Claim) (Grant, error) {
	err := together(c.Name, c.parts(), func(part *Lease) error {
		return part.extend(ctx, min(part.s.o.TTL, c.TTL), c.Due)
	})
	if err != nil {
		return Grant{}, err
	}
	return wholeGrant(c.parts()), nil
}

func (w wholes) Release(ctx context.Context, c Claim) error {
	if c.Undo { // the whole is over, and its user need not have said so
		each(c.parts(), func(_ int, part *Lease) { part.giveUp() })
		return nil
	}
	return together(c.Name, c.parts(), func(part *Lease) error { return part.Release(ctx) })
}

// joinTo leaves the renewal to the whole, and ends that with the part.
func (l *Lease) joinTo(whole *Lease) {
	l.mu.Lock()
	l.keep, l.next = false, time.Time{}
	l.contexts = append(l.contexts, &leaseContext{func(end error) { whole.losePart(l, end) }})
	after := l.look()
	l.mu.Unlock()
	after()
}

// losePart ends a whole because a part has ended.
func (l *Lease) losePart(part *Lease, end error) {
	if !errors.Is(end, ErrLost) {
		end = fmt.Errorf("lock %q: released alone", part.claim.Name)
	}
	l.mu.Lock()
	after := l.look() // if the deadline has come, it is that of the whole
	if l.end == nil {
		after = l.over(&LostError{Name: l.claim.Name, Err: end})
	}
	l.mu.Unlock()
	after()
}

// giveUp ends a part whose whole is lost, in the background.
func (l *Lease) giveUp() {
	l.mu.Lock()
	after := l.look()
	if l.end == nil {
		after = l.over(&LostError{Name: l.claim.Name, Err: errWhole})
		l.s.undo(l.claim)
	}
	l.mu.Unlock()
	after()
}

var errWhole = errors.New("given up with the others of an All")

// giveBack releases a lock that nobody wants any more.
func (l *Lease) giveBack() {
	if c, err := l.finish(); err == nil {
		err = l.letGo(context.Background(), c)
		l.ended(context.Background(), EventReleased, err)
	}
}

// each calls f for all parts, side by side: one that gets no answer must not delay the
// others.
func each(parts []*Lease, f func(i int, part *Lease)) {
	var all sync.WaitGroup
	for i, part := range parts {
		all.Go(func() { f(i, part) })
	}
	all.Wait()
}

// together does f with all parts, and puts the errors together.
func together(name string, parts []*Lease, f func(*Lease) error) error {
	errs := make([]error, len(parts))
	each(parts, func(i int, part *Lease) { errs[i] = f(part) })
	var failed []PartError
	for i, err := range errs {
		if err != nil {
			failed = append(failed, PartError{parts[i].claim.Name, err})
		}
	}
	if failed == nil {
		return nil
	}
	return &AllError{Name: name, Failed: failed}
}
