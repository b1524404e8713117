package strategy

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The agenda of a Strategy knows when each lease is to be renewed and when its
// deadline comes. It is one timer, armed for the earliest entry: a lease costs
// neither a goroutine nor a timer, and an agenda without entries costs nothing.
//
// Locks are taken in the order lease, agenda.
type agenda struct {
	mu     sync.Mutex
	leases leaseHeap
	timer  *time.Timer
}

// set makes the agenda look at l at that time, or by up to early before it if it is
// at work then. The caller holds l.mu.
func (a *agenda) set(l *Lease, at time.Time, early time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.index >= 0 && l.wakeAt.Equal(at) && l.early == early {
		return
	}
	l.wakeAt, l.early = at, early
	if l.index >= 0 {
		heap.Fix(&a.leases, l.index)
	} else {
		heap.Push(&a.leases, l)
	}
	a.arm(l.s.house)
}

func (a *agenda) remove(l *Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.index < 0 {
		return
	}
	heap.Remove(&a.leases, l.index)
	a.arm(l.s.house)
}

// arm sets the timer for the earliest entry. The caller holds a.mu.
func (a *agenda) arm(h *house) {
	if len(a.leases) == 0 {
		if a.timer != nil {
			a.timer.Stop()
		}
		return
	}
	d := time.Until(a.leases[0].wakeAt)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, h.wake)
		return
	}
	a.timer.Reset(d)
}

// due takes out the leases whose time has come.
func (a *agenda) due(h *house) []*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var due []*Lease
	now := time.Now()
	for len(a.leases) > 0 && !a.leases[0].wakeAt.Add(-a.leases[0].early).After(now) {
		due = append(due, heap.Pop(&a.leases).(*Lease))
	}
	a.arm(h)
	return due
}

// plan enters the lease in the agenda for what comes next: its renewal or its
// deadline. The caller holds mu.
func (l *Lease) plan() {
	at, early := l.deadline, time.Duration(0)
	if l.busy == nil && !l.next.IsZero() && l.next.Before(at) {
		at, early = l.next, l.slack()
	}
	if l.watch {
		l.s.agenda.set(l, at, early)
	}
}

// nextRenewal is a third of the TTL after start, give or take a tenth. Where each
// renewal is a request, chance does that, so that locks taken together do not stay
// together; where one request renews many, the tenth before is left to slack. Zero:
// the maximum hold leaves nothing to renew. The caller holds mu.
func (l *Lease) nextRenewal(start time.Time) time.Time {
	g := l.claim.Grant
	switch {
	case !l.keep:
		return time.Time{}
	case !l.until.IsZero() && !g.Start.Add(g.TTL+time.Millisecond).Before(l.until):
		return time.Time{} // what the servers count already reaches the end
	}
	third := g.TTL / 3
	if l.s.bulk != nil {
		return start.Add(third + rand.N(third/10+1))
	}
	return start.Add(third - third/10 + rand.N(third/5+1))
}

// slack is how much before its time a renewal may come, to ride with another's. The
// caller holds mu.
func (l *Lease) slack() time.Duration {
	if l.s.bulk == nil {
		return 0
	}
	return l.claim.Grant.TTL / 30
}

// wake runs when the agenda's timer does. Leases past their deadline are lost;
// those due for renewal are renewed, all together if the protocol can.
func (h *house) wake() {
	if h.enter() != nil {
		h.lapse()
		return
	}
	defer h.leave()
	groups := map[*Strategy][]renewal{} // by options: With may have made several
	for _, l := range h.agenda.due(h) {
		if c, ok := l.dueForRenewal(); ok {
			groups[l.s] = append(groups[l.s], renewal{l, c})
		}
	}
	for s, rs := range groups {
		s.background(func() { s.renew(rs) })
	}
}

// lapse is what is left to do after Close: leases still held reach their deadline.
func (h *house) lapse() {
	for _, l := range h.agenda.due(h) {
		l.mu.Lock()
		l.next = time.Time{}
		after := l.look()
		l.mu.Unlock()
		after()
	}
}

type renewal struct {
	l *Lease
	c Claim
}

// dueForRenewal begins l's renewal if its time has come, and lets the deadline
// speak if that has.
func (l *Lease) dueForRenewal() (Claim, bool) {
	l.mu.Lock()
	now := time.Now()
	ready := l.busy == nil && !l.next.IsZero() && !now.Add(l.slack()).Before(l.next)
	var c Claim
	if left := l.deadline.Sub(now); ready && l.end == nil && left > 0 {
		l.busy = make(chan struct{})
		c = l.claim
		c.TTL = l.bounded(l.s.o.TTL)
		// One lost reply must not take all the time that is left for another try.
		c.Due = now.Add(min(l.s.o.OpTimeout, max(left/3, time.Millisecond)))
	} else {
		ready = false
	}
	after := l.look() // while the renewal is under way the agenda waits for the deadline
	l.mu.Unlock()
	after()
	return c, ready
}

// renew sends renewals and hands each answer to its lease.
func (s *Strategy) renew(rs []renewal) {
	start := time.Now() // before the request: the servers start to count later
	if s.bulk != nil {
		cs := make([]Claim, len(rs))
		for i, r := range rs {
			cs[i] = r.c
		}
		answered := make([]atomic.Bool, len(rs))
		done := func(i int, g Grant, err error) {
			if !answered[i].Swap(true) {
				rs[i].l.renewed(rs[i].c, g, start, err)
			}
		}
		s.bulk.ExtendAll(context.Background(), cs, done)
		for i := range rs {
			done(i, Grant{}, fmt.Errorf("locks: ExtendAll gave no answer: %w", ErrUnknown))
		}
		return
	}
	// Side by side: one that gets no answer must not delay the others.
	var all sync.WaitGroup
	for _, r := range rs {
		all.Go(func() {
			g, err := s.p.Extend(context.Background(), r.c)
			r.l.renewed(r.c, g, start, err)
		})
	}
	all.Wait()
}

type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].wakeAt.Before(h[j].wakeAt) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.index = -1
	return l
}
