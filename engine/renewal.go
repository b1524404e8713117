package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/timeup"
	"github.com/lockstrategies/locks/strategy"
)

// How a lease is renewed: once by Extend, again and again by KeepAlive. First one lease, then many at
// a time.

func (l *lease) Extend(ctx context.Context) error {
	if err := l.c.enter(); err != nil {
		return err
	}
	defer l.c.leave()
	c, err := l.startRenewal(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	c.Due = start.Add(l.c.o.OpTimeout)
	g, err := l.c.p.Extend(ctx, c)
	return l.renewed(ctx, c, g, start, err)
}

func (l *lease) KeepAlive(maxHold time.Duration) error {
	if maxHold == 0 {
		maxHold = l.c.o.MaxHold
	}
	if maxHold != 0 && maxHold < l.c.o.TTL {
		return fmt.Errorf("locks: KeepAlive(%v): allowed are 0 (Options.MaxHold) and the TTL of %v or more", maxHold, l.c.o.TTL)
	}
	if l.c.group.Closed() {
		return strategy.ErrClosed
	}
	l.mu.Lock()
	after := l.look()
	err := l.end
	if err == nil {
		l.keep, l.watch = true, true
		l.until = time.Time{}
		if from := l.start.Of(l.granted); maxHold != 0 && !from.IsZero() {
			l.until = from.Add(maxHold)
		}
		g := l.claim.Grant
		l.next = l.firstRenewal()
		l.bind(g.Start.Add(g.TTL))
		if l.deadline.Before(deadlineOf(g)) {
			l.next = time.Now() // an earlier bound, this call's or the last one's
		}
		after = l.look()
		err = l.end
	}
	l.mu.Unlock()
	after()
	if err == nil {
		l.c.probeLater()
	}
	return err
}

func (l *lease) StopKeepAlive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keep = false; !l.unconfirmed {
		l.next = time.Time{}
	}
}

// startRenewal waits until no other renewal is under way, and returns the claim to extend.
func (l *lease) startRenewal(ctx context.Context) (driver.Claim, error) {
	for {
		if ended := timeup.Ended(ctx); ended != nil {
			return driver.Claim{}, fmt.Errorf("lock %q: %w", l.claim.Name, ended)
		}
		l.mu.Lock()
		after := l.look()
		err, answered := l.end, l.underWay()
		if err == nil && answered == nil {
			l.renewing = true
			c := l.claim
			c.TTL = l.bounded(l.c.o.TTL)
			l.mu.Unlock()
			return c, nil
		}
		l.mu.Unlock()
		after()
		if err != nil {
			return driver.Claim{}, err
		}
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
}

// bounded cuts ttl so that the lock expires when the maximum hold is over.
func (l *lease) bounded(ttl time.Duration) time.Duration {
	if l.until.IsZero() {
		return ttl
	}
	return max(min(ttl, time.Until(l.until).Truncate(time.Millisecond)), time.Millisecond)
}

// bind makes the lease end with the maximum hold, although the servers may count beyond it: until asked.
// The next renewal comes at once and cuts their TTL. If no renewal succeeds, the engine undoes the claim
// at the deadline. The caller holds mu.
func (l *lease) bind(asked time.Time) {
	g, most := l.claim.Grant, l.until.Add(time.Millisecond)
	if l.until.IsZero() || !g.Start.Add(g.TTL).After(most) {
		return
	}
	if d := l.until.Add(-driver.Drift(max(time.Until(l.until), 0))); d.Before(l.deadline) {
		l.deadline = d
	}
	if asked.After(most) {
		l.next = time.Now()
	}
}

// renewed takes in the answer to a renewal that began at start, and returns what the caller gets. ctx
// is for the event.
func (l *lease) renewed(ctx context.Context, c driver.Claim, g driver.Grant, start time.Time, err error) error {
	now, after := time.Now(), nothing
	err = endedBy(ctx, err)
	got := outcomeOf(g, err)
	if g.TTL == 0 {
		g.TTL = c.TTL
	}
	l.mu.Lock()
	l.renewing = false
	if l.answered != nil {
		close(l.answered)
		l.answered = nil
	}
	if l.end == nil && !now.Before(l.deadline) {
		after = l.lapse()
	}
	var kind strategy.EventKind
	switch {
	case l.end != nil:
		err = l.renewedTooLate(c, g, start, got, err)
	case got == done:
		l.extended(c, g, start)
		kind = strategy.EventRenewed
	case errors.Is(err, strategy.ErrLost):
		err = asLost(c.Name, err)
		if after = l.over(err); got == unknown {
			l.c.undo(c)
		}
	case errors.Is(err, strategy.ErrUnsent) && timeup.Over(ctx): // its caller's time was over: no renewal has failed
		l.plan()
	default:
		if had := c.Due.Sub(start); had < l.c.o.OpTimeout/2 && !now.Before(c.Due) { // see dueForRenewal: it may be no fault of the server
			err = fmt.Errorf("%w (the lease was about to end, so this renewal had only %v)", err, had.Round(time.Millisecond))
		}
		l.failed(now, mayRemain(g, err), err)
		kind = strategy.EventRenewalFailed
	}
	l.mu.Unlock()
	after()
	if kind != 0 {
		l.c.observe(strategy.Event{Kind: kind, Context: ctx, Name: c.Name, Token: l.Token(), Elapsed: now.Sub(start), Err: err})
	}
	return err
}

// renewedTooLate takes in the answer for a lease that ended while the request was under way. If the deadline ended it, the
// servers may just have begun to keep the lock for another TTL. The caller holds mu.
func (l *lease) renewedTooLate(c driver.Claim, g driver.Grant, start time.Time, got outcome, err error) error {
	l.renewalErr = err
	if got == done {
		c.Grant = l.take(g, start) // what ends the claim needs the last one
	}
	if l.isLost() && (got == done || got == unknown) {
		l.c.undo(c)
	}
	return l.end
}

// extended takes in that the servers count again. The caller holds mu.
func (l *lease) extended(c driver.Claim, g driver.Grant, start time.Time) {
	l.deadline = deadlineOf(l.take(g, start))
	l.renewalErr, l.partial = nil, g.Partial
	l.unconfirmed = false
	l.next = l.nextRenewal(start)
	l.bind(start.Add(c.TTL))
	l.plan()
}

// failed takes in that a renewal has failed: the next one comes soon. The caller holds mu.
func (l *lease) failed(now time.Time, partial bool, err error) {
	l.renewalErr = err
	l.partial = l.partial || partial
	if l.keep || l.unconfirmed {
		l.next = now.Add(max(l.claim.Grant.TTL/20, time.Millisecond))
	}
	l.plan()
}

// asLost is err, which is ErrLost, as a LostError.
func asLost(name string, err error) *strategy.LostError {
	var lost *strategy.LostError
	if !errors.As(err, &lost) {
		lost = &strategy.LostError{Name: name, Err: err}
	}
	return lost
}

// firstRenewal is nextRenewal for a lease that KeepAlive has just begun to renew. Where one request
// renews many, it is drawn from all the time there is, so that locks acquired in one moment are not all
// renewed in one moment. Leases drawn one after the other get the same time: those lie next to each
// other, here and on the server, and renewing them together costs half as much. The caller holds mu.
func (l *lease) firstRenewal() time.Time {
	g := l.claim.Grant
	next := l.nextRenewal(g.Start)
	if l.c.bulk == nil || next.IsZero() || l.unconfirmed {
		return next
	}
	return l.c.renewal.Draw(g.Start.Add(g.TTL/3), g.Start.Add(g.TTL/2))
}

// dueForRenewal begins l's renewal if its time has come, and ends l if its deadline has.
func (l *lease) dueForRenewal(now time.Time) (driver.Claim, bool) {
	l.mu.Lock()
	ready := !l.renewing && !l.next.IsZero() && !now.Add(l.slack()).Before(l.next)
	var c driver.Claim
	if left := l.deadline.Sub(now); ready && l.end == nil && left > 0 {
		l.renewing = true
		c = l.claim
		c.TTL = l.bounded(l.c.o.TTL)
		// One lost reply must not take all the time that is left for another try.
		c.Due = now.Add(min(l.c.o.OpTimeout, max(left/2, time.Millisecond)))
	} else {
		ready = false
	}
	after := l.look() // while the renewal is under way the scheduler waits for the deadline
	l.mu.Unlock()
	after()
	return c, ready
}

// renewDue is what the scheduler runs. Leases past their deadline are lost. Those due for renewal are
// renewed, all together if the protocol can.
func (s *shared) renewDue() {
	if s.enter() != nil {
		s.lapseDue()
		return
	}
	defer s.leave()
	now := time.Now()
	memory := batchMemory.Get().(*batch)
	defer memory.giveBack()
	memory.leases = s.renewal.Due(now, memory.leases)
	memory.claims = slices.Grow(memory.claims, len(memory.leases))
	due := batch{memory.leases[:0], memory.claims}
	for _, l := range memory.leases {
		if c, ok := l.dueForRenewal(now); ok {
			due.add(l, c)
		}
	}
	s.renewal.Rearm()         // the next batch need not wait for this one's answer
	for len(due.leases) > 0 { // by options: With may have made several strategies
		c := due.leases[0].c
		var one batch
		one, due = due.split(c)
		if len(due.leases) == 0 {
			c.renew(one)
		} else {
			s.group.Go(func() { c.renew(one) })
		}
	}
}

// lapseDue is renewDue after Close: leases still held reach their deadline.
func (s *shared) lapseDue() {
	for _, l := range s.renewal.Due(time.Now(), nil) {
		l.mu.Lock()
		l.next = time.Time{}
		after := l.look()
		l.mu.Unlock()
		after()
	}
	s.renewal.Rearm()
}

// A batch is leases to be renewed together, with their claims.
type batch struct {
	leases []*lease
	claims []driver.Claim
}

func (b *batch) add(l *lease, c driver.Claim) {
	b.leases, b.claims = append(b.leases, l), append(b.claims, c)
}

// batchMemory is used again: a thousand claims are hundreds of KB.
var batchMemory = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) giveBack() {
	clear(b.claims[:len(b.leases)])
	clear(b.leases)
	b.leases, b.claims = b.leases[:0], b.claims[:0]
	batchMemory.Put(b)
}

// split separates the leases of one strategy from the others.
func (b batch) split(c *core) (its, others batch) {
	if !slices.ContainsFunc(b.leases, func(l *lease) bool { return l.c != c }) {
		return b, batch{}
	}
	for i, l := range b.leases {
		if l.c == c {
			its.add(l, b.claims[i])
		} else {
			others.add(l, b.claims[i])
		}
	}
	return its, others
}

// renew sends renewals and gives each answer to its lease.
func (c *core) renew(b batch) {
	start := time.Now() // before the request: the servers start to count later
	if c.bulk == nil {
		// At the same time: one without an answer must not delay the others.
		var all sync.WaitGroup
		for i, l := range b.leases {
			all.Go(func() {
				g, err := c.p.Extend(context.Background(), b.claims[i])
				l.renewed(context.Background(), b.claims[i], g, start, err)
			})
		}
		all.Wait()
		return
	}
	answered := make([]atomic.Bool, len(b.leases))
	done := func(i int, g driver.Grant, err error) {
		if !answered[i].Swap(true) {
			b.leases[i].renewed(context.Background(), b.claims[i], g, start, err)
		}
	}
	c.bulk.ExtendAll(context.Background(), b.claims, done)
	for i := range answered {
		if !answered[i].Load() {
			done(i, driver.Grant{}, fmt.Errorf("locks: ExtendAll gave no answer: %w", strategy.ErrUnknown))
		}
	}
}
