package strategy

import (
	"container/heap"
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ridingTogether is how many leases are looked at, and so renewed, at a time: enough that
// to be woken for them counts for little, as that costs about what renewing hundreds does,
// here and on the server; and no more, so that both get to others in between.
const ridingTogether = 2048

// The agenda of a Strategy knows when each lease is to be renewed and when its
// deadline comes. It is one timer, armed for the earliest entry: a lease costs
// neither a goroutine nor a timer, and an agenda without entries costs nothing.
//
// Locks are taken in the order lease, agenda.
type agenda struct {
	mu      sync.Mutex
	moments moments   // the earliest first
	latest  *moment   // that a lease was entered for: those renewed together come one after another
	drawn   time.Time // the first renewal of those that were the latest to begin, and of how many
	draws   int
	timer   *time.Timer
	armed   time.Duration // for when
}

// A moment is when the agenda is to look at some leases: those that were renewed together
// share one, so that to order them costs nothing. Times count from when the house was built.
type moment struct {
	at     time.Duration
	from   time.Duration // or earlier, if it is at work then: what all of them allow
	leases []*Lease
	index  int // among the moments
}

// never is when a timer is armed for that is not.
const never = time.Duration(math.MinInt64)

// sinceBuilt is a moment's time: a number is compared sooner than a time.Time.
func (h *house) sinceBuilt(t time.Time) time.Duration { return t.Sub(h.built) }

// set makes the agenda look at l at that time, or by up to early before it if it is
// at work then. The caller holds l.mu.
func (a *agenda) set(l *Lease, at time.Time, early time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := l.s.sinceBuilt(at)
	if m := l.moment; m != nil && m.at == d {
		m.from = max(m.from, d-early)
		return
	}
	a.drop(l)
	if m := a.latest; m == nil || m.at != d {
		a.latest = &moment{at: d, from: d - early}
		heap.Push(&a.moments, a.latest)
	}
	m := a.latest
	m.from = max(m.from, d-early)
	l.moment, l.index = m, int32(len(m.leases))
	m.leases = append(m.leases, l)
	a.arm(l.s.house)
}

func (a *agenda) remove(l *Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.moment != nil {
		a.drop(l)
		a.arm(l.s.house)
	}
}

// drop takes out l's entry, if there is one. The caller holds a.mu.
func (a *agenda) drop(l *Lease) {
	m := l.moment
	if m == nil {
		return
	}
	end := len(m.leases) - 1
	last := m.leases[end]
	m.leases[l.index], last.index = last, l.index
	l.moment = nil
	a.cut(m, end)
}

// cut leaves the moment its first n leases. The caller holds a.mu.
func (a *agenda) cut(m *moment, n int) {
	clear(m.leases[n:])
	m.leases = m.leases[:n]
	if n > 0 {
		return
	}
	heap.Remove(&a.moments, m.index)
	if a.latest == m {
		a.latest = nil
	}
}

// draw is a time between these by chance; the same for as many in a row as may ride
// together, if that is between theirs, too.
func (a *agenda) draw(least, most time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.draws%ridingTogether == 0 || a.drawn.Before(least) || a.drawn.After(most) {
		a.draws, a.drawn = 0, least.Add(rand.N(most.Sub(least)+1))
	}
	a.draws++
	return a.drawn
}

// arm sets the timer for the earliest entry, unless it is set for that. The caller
// holds a.mu.
func (a *agenda) arm(h *house) {
	if len(a.moments) == 0 {
		if a.timer != nil {
			a.timer.Stop()
			a.armed = never
		}
		return
	}
	first := a.moments[0].at
	switch {
	case a.timer == nil:
		a.timer = time.AfterFunc(time.Until(h.built.Add(first)), h.wake)
	case first != a.armed:
		a.timer.Reset(time.Until(h.built.Add(first)))
	}
	a.armed = first
}

// due takes out leases whose time has come, and appends them to due: as many as may ride
// together. Those that share a moment stay together: to fill up with some of them would
// renew both halves early. If that leaves one whose time has come, the timer runs again at
// once.
func (a *agenda) due(now time.Duration, due []*Lease) []*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.moments) > 0 && a.moments[0].from <= now {
		m := a.moments[0]
		if len(due) > 0 && len(due)+len(m.leases) > ridingTogether {
			break
		}
		stay := max(len(m.leases)-ridingTogether, 0)
		due = append(due, m.leases[stay:]...)
		for _, l := range m.leases[stay:] {
			l.moment = nil
		}
		a.cut(m, stay)
	}
	return due
}

// rearm sets the timer when it has run.
func (a *agenda) rearm(h *house) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.armed = never
	a.arm(h)
}

// plan enters the lease in the agenda for what comes next: its renewal or its
// deadline. The caller holds mu.
func (l *Lease) plan() {
	at, early := l.deadline, time.Duration(0)
	if !l.busy && !l.next.IsZero() && l.next.Before(at) {
		at, early = l.next, l.slack()
	}
	if l.watch {
		l.s.agenda.set(l, at, early)
	}
}

// nextRenewal is when the next renewal is due that nothing makes come earlier. Zero: the
// maximum hold leaves nothing to renew. The caller holds mu.
//
// Where each renewal is a request, that is a third of the TTL after start, give or take a
// tenth, so that locks taken together do not stay together. Where one request renews many,
// what is in one stays in one, and it is later, as slack then brings together what it can;
// but not after half of the TTL, which leaves time for several more tries.
func (l *Lease) nextRenewal(start time.Time) time.Time {
	g := l.claim.Grant
	switch {
	case !l.keep && !l.brief:
		return time.Time{}
	case !l.until.IsZero() && !g.Start.Add(g.TTL+time.Millisecond).Before(l.until):
		return time.Time{} // what the servers count already reaches the end
	}
	third, half := g.TTL/3, g.TTL/2
	if l.s.bulk == nil {
		return start.Add(third - third/10 + rand.N(third/5+1))
	}
	return start.Add(half - scatter((half-third)/4, uint64(l.s.sinceBuilt(start))))
}

// firstRenewal is nextRenewal for a lease that has just begun to be kept alive. Where one
// request renews many, it is drawn from all the time there is: locks that are all taken in
// one moment are not all renewed in one moment. Those that were taken one after the other
// lie side by side, here and on the server, so they draw together: then renewing them
// costs half as much. The caller holds mu.
func (l *Lease) firstRenewal() time.Time {
	g := l.claim.Grant
	next := l.nextRenewal(g.Start)
	if l.s.bulk == nil || next.IsZero() {
		return next
	}
	return l.s.agenda.draw(g.Start.Add(g.TTL/3), g.Start.Add(g.TTL/2))
}

// scatter is below or equal to most, and the same for the same seed.
func scatter(most time.Duration, seed uint64) time.Duration {
	high, _ := bits.Mul64(seed*0x9e3779b97f4a7c15, uint64(most)+1) // seeds that are near to each other lead far apart
	return time.Duration(high)
}

// slack is how much before its time a renewal may come, to ride with another's: not
// before a third of the TTL has passed. The caller holds mu.
func (l *Lease) slack() time.Duration {
	g := l.claim.Grant
	switch {
	case l.s.bulk == nil:
		return 0
	case l.failing != nil: // what failed together is tried again together, after its pause
		return g.TTL / 30
	}
	return max(l.next.Sub(g.Start)-g.TTL/3, 0)
}

// wake runs when the agenda's timer does. Leases past their deadline are lost;
// those due for renewal are renewed, all together if the protocol can.
func (h *house) wake() {
	if h.enter() != nil {
		h.lapse()
		return
	}
	defer h.leave()
	now := time.Now()
	lent := seats.Get().(*riders)
	defer lent.giveBack()
	lent.leases = h.agenda.due(h.sinceBuilt(now), lent.leases)
	lent.claims = slices.Grow(lent.claims, len(lent.leases))
	due := riders{lent.leases[:0], lent.claims}
	for _, l := range lent.leases {
		if c, ok := l.dueForRenewal(now); ok {
			due.add(l, c)
		}
	}
	h.agenda.rearm(h)         // the next need not wait for these to be answered
	for len(due.leases) > 0 { // by options: With may have made several strategies
		s := due.leases[0].s
		var these riders
		these, due = due.of(s)
		if len(due.leases) == 0 {
			s.renew(these)
		} else {
			s.background(func() { s.renew(these) })
		}
	}
}

// lapse is what is left to do after Close: leases still held reach their deadline.
func (h *house) lapse() {
	for _, l := range h.agenda.due(h.sinceBuilt(time.Now()), nil) {
		l.mu.Lock()
		l.next = time.Time{}
		after := l.look()
		l.mu.Unlock()
		after()
	}
	h.agenda.rearm(h)
}

// riders are leases to be renewed, with their claims.
type riders struct {
	leases []*Lease
	claims []Claim
}

func (r *riders) add(l *Lease, c Claim) {
	r.leases, r.claims = append(r.leases, l), append(r.claims, c)
}

// seats are riders' memory, for the next: a thousand claims are hundreds of KB.
var seats = sync.Pool{New: func() any { return new(riders) }}

func (r *riders) giveBack() {
	clear(r.claims[:len(r.leases)])
	clear(r.leases)
	r.leases, r.claims = r.leases[:0], r.claims[:0]
	seats.Put(r)
}

// of parts those of one strategy from the others.
func (r riders) of(s *Strategy) (its, others riders) {
	if !slices.ContainsFunc(r.leases, func(l *Lease) bool { return l.s != s }) {
		return r, riders{}
	}
	for i, l := range r.leases {
		if l.s == s {
			its.add(l, r.claims[i])
		} else {
			others.add(l, r.claims[i])
		}
	}
	return its, others
}

// dueForRenewal begins l's renewal if its time has come, and lets the deadline
// speak if that has.
func (l *Lease) dueForRenewal(now time.Time) (Claim, bool) {
	l.mu.Lock()
	ready := !l.busy && !l.next.IsZero() && !now.Add(l.slack()).Before(l.next)
	var c Claim
	if left := l.deadline.Sub(now); ready && l.end == nil && left > 0 {
		l.busy = true
		c = l.claim
		c.TTL = l.bounded(l.s.o.TTL)
		// One lost reply must not take all the time that is left for another try.
		c.Due = now.Add(min(l.s.o.OpTimeout, max(left/2, time.Millisecond)))
	} else {
		ready = false
	}
	after := l.look() // while the renewal is under way the agenda waits for the deadline
	l.mu.Unlock()
	after()
	return c, ready
}

// renew sends renewals and hands each answer to its lease.
func (s *Strategy) renew(rs riders) {
	start := time.Now() // before the request: the servers start to count later
	if s.bulk != nil {
		answered := make([]atomic.Bool, len(rs.leases))
		done := func(i int, g Grant, err error) {
			if !answered[i].Swap(true) {
				rs.leases[i].renewed(context.Background(), rs.claims[i], g, start, err)
			}
		}
		s.bulk.ExtendAll(context.Background(), rs.claims, done)
		for i := range answered {
			if !answered[i].Load() {
				done(i, Grant{}, fmt.Errorf("locks: ExtendAll gave no answer: %w", ErrUnknown))
			}
		}
		return
	}
	// Side by side: one that gets no answer must not delay the others.
	var all sync.WaitGroup
	for i, l := range rs.leases {
		all.Go(func() {
			g, err := s.p.Extend(context.Background(), rs.claims[i])
			l.renewed(context.Background(), rs.claims[i], g, start, err)
		})
	}
	all.Wait()
}

// moments are a heap.
type moments []*moment

func (h moments) Len() int           { return len(h) }
func (h moments) Less(i, j int) bool { return h[i].at < h[j].at }
func (h moments) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *moments) Push(x any) {
	m := x.(*moment)
	m.index = len(*h)
	*h = append(*h, m)
}

func (h *moments) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return m
}
