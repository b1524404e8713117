package history

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
)

const ms = time.Millisecond

// A sim is a lock, a store and their clients, played on a clock of its own: its histories
// are legal, however many replies it loses, servers it stops and clients it pauses.
type sim struct {
	simRules
	rng  *rand.Rand
	now  time.Duration
	next events
	n    int
	ops  []Op

	owner  string
	holds  map[string]simHold
	queue  []*simWaiter // first come, first served
	fence  uint64
	frozen time.Duration // until when

	value    string
	max      uint64
	maxOwner string
}

// A simHold is what the server keeps of one.
type simHold struct {
	until time.Duration
	share int
}

// A simWaiter stands in the queue.
type simWaiter struct {
	token string
	share int
	hears func(fence uint64, until time.Duration) // that it is a holder
}

type simRules struct {
	clients               int
	reentrant, fenced     bool
	permits               int  // more than one: of which some take one, and some more
	readWrite             bool // most read
	waits                 bool // in a queue, most of the time
	loseReplies, freezes  bool
	pauses                bool
	length, ttl, timeOut  time.Duration
	latency, think, pause time.Duration // at most
}

func usual() simRules {
	return simRules{clients: 4, length: 2 * time.Second, ttl: 100 * ms, timeOut: 30 * ms, latency: 4 * ms, think: 20 * ms, pause: 20 * ms}
}

const simLinger = 150 * ms

type event struct {
	at time.Duration
	n  int
	do func()
}

type events []event

func (a events) Len() int { return len(a) }
func (a events) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].n < a[j].n
}
func (a events) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *events) Push(x any)   { *a = append(*a, x.(event)) }
func (a *events) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func simulate(r simRules, seed uint64) []Op {
	s := &sim{simRules: r, rng: rand.New(rand.NewPCG(seed, 1)), holds: map[string]simHold{}, value: "0", now: ms}
	for i := range r.clients {
		c := &client{s: s, name: fmt.Sprintf("%c", 'A'+i)}
		s.after(s.some(r.pause), c.try)
	}
	if r.freezes {
		s.after(s.some(r.length/4), s.freeze)
	}
	for len(s.next) > 0 {
		e := heap.Pop(&s.next).(event)
		s.now = e.at
		e.do()
	}
	return Merge(s.ops)
}

func (s *sim) after(d time.Duration, do func()) {
	s.n++
	heap.Push(&s.next, event{s.now + d, s.n, do})
}

func (s *sim) some(most time.Duration) time.Duration {
	return time.Duration(s.rng.Int64N(int64(most))) + time.Microsecond
}

func (s *sim) chance(percent int) bool { return s.rng.IntN(100) < percent }

func (s *sim) freeze() {
	if s.now > s.length {
		return
	}
	s.frozen = s.now + s.some(2*s.ttl)
	s.ops = append(s.ops, Op{Kind: KindFault, Note: "freeze the server", Start: s.now, End: s.frozen})
	s.after(s.frozen-s.now+s.some(s.length/4), s.freeze)
}

// atServer does something there, when it has come and the server runs.
func (s *sim) atServer(do func()) {
	s.after(s.some(s.latency), func() { s.whenThawed(do) })
}

func (s *sim) whenThawed(do func()) {
	if s.now < s.frozen {
		s.after(s.frozen-s.now+s.some(100*time.Microsecond), func() { s.whenThawed(do) })
		return
	}
	for token, h := range s.holds {
		if h.until <= s.now {
			delete(s.holds, token)
		}
	}
	s.serve() // what has lapsed goes to those who wait
	do()
	s.serve()
}

// fits reports whether somebody can hold that share next to those who hold the lock.
func (s *sim) fits(share int) bool {
	taken, writes := 0, false
	for _, h := range s.holds {
		taken += max(h.share, 1)
		writes = writes || h.share == 0
	}
	switch {
	case taken == 0:
		return true
	case s.readWrite:
		return share > 0 && !writes
	}
	return taken+max(share, 1) <= s.permits
}

// grant makes a token a holder.
func (s *sim) grant(token string, share int) (fence uint64, until time.Duration) {
	if !s.readWrite || share == 0 || s.fence == 0 {
		s.fence++
	}
	until = s.now + s.ttl
	s.holds[token] = simHold{until, share}
	return s.fence, until
}

// serve makes those in the queue holders, as long as the first fits.
func (s *sim) serve() {
	for len(s.queue) > 0 && s.fits(s.queue[0].share) {
		w := s.queue[0]
		s.queue = s.queue[1:]
		fence, until := s.grant(w.token, w.share)
		if s.chance(10) { // it does not hear of it, and asks again
			continue
		}
		s.after(s.some(s.latency), func() { w.hears(fence, until) })
	}
}

// A request does something at the server, and has its answer or an unknown end.
func (s *sim) request(do func() Result, done func(Result)) {
	over := false
	s.after(s.timeOut, func() {
		if !over {
			over = true
			done(Unknown)
		}
	})
	s.atServer(func() {
		answer := do()
		if s.loseReplies && s.chance(4) {
			return
		}
		s.after(s.some(s.latency), func() {
			if !over {
				over = true
				done(answer)
			}
		})
	})
}

type client struct {
	s    *sim
	name string
	n    int

	hold     Op // the grant
	deadline time.Duration
}

func (c *client) begin(kind Kind) Op {
	op := Op{Client: c.name, Kind: kind, Key: "k", Start: c.s.now}
	if kind != KindAcquire {
		op.Hold, op.Owner, op.Fence, op.Share = c.hold.Hold, c.hold.Owner, c.hold.Fence, c.hold.Share
	}
	return op
}

func (c *client) end(op Op, r Result) Op {
	op.End, op.Result = c.s.now, r
	if op.Kind.silent() {
		op.Result = ""
	}
	c.s.ops = append(c.s.ops, op)
	return op
}

func (c *client) rest() { c.s.after(c.s.some(c.s.pause), c.try) }

func (c *client) try() {
	s := c.s
	if s.now > s.length {
		return
	}
	op := c.begin(KindAcquire)
	c.n++
	token := fmt.Sprintf("%s%d", c.name, c.n)
	op.Owner, op.TTL, op.Share = token, s.ttl, s.wish()
	if s.reentrant {
		op.Owner = fmt.Sprint("owner", int(c.name[0])%2)
	}
	a := &attempt{client: c, op: op, token: token, waits: s.waits && s.chance(70), heard: Unsent}
	if a.waits {
		s.after(3*s.ttl, a.giveUp)
	}
	a.ask()
}

// wish is what a client wants of a lock that several may hold.
func (s *sim) wish() int {
	switch {
	case s.readWrite && s.chance(80):
		return 1
	case s.permits > 1 && s.chance(25):
		return 1 + s.rng.IntN(s.permits)
	}
	return 0
}

// An attempt is an acquire under way.
type attempt struct {
	*client
	op    Op
	token string
	waits bool
	heard Result // what it answers that gives up
	over  bool
}

// ask asks the server, and, if a waiter has not heard of a grant for a TTL, again.
func (a *attempt) ask() {
	s := a.s
	start, fence := s.now, uint64(0)
	s.request(func() Result {
		_, mine := s.holds[a.token]
		switch {
		case a.over: // it came before what followed: a connection keeps the order
			return Held
		case mine: // nobody knows that fence
		case s.reentrant && len(s.holds) > 0:
			if s.owner != a.op.Owner {
				return Held
			}
			s.holds[a.token] = simHold{s.now + s.ttl, 0}
			fence = s.fence
			return OK
		case len(s.queue) > 0 && s.queue[0].token != a.token || !s.fits(a.op.Share):
			if a.waits && !slices.ContainsFunc(s.queue, func(w *simWaiter) bool { return w.token == a.token }) {
				s.queue = append(s.queue, &simWaiter{a.token, a.op.Share, a.hears})
			}
			return Held
		}
		s.leave(a.token)
		s.owner = a.op.Owner
		fence, _ = s.grant(a.token, a.op.Share)
		return OK
	}, func(r Result) {
		switch {
		case a.over:
		case r == OK:
			a.granted(fence, start+s.ttl)
		case a.waits:
			if r == Unknown {
				a.op.Unconfirmed++
			} else {
				a.heard = r
			}
			s.after(s.ttl, func() {
				if !a.over {
					a.ask()
				}
			})
		default:
			a.refused(r)
		}
	})
}

func (a *attempt) hears(fence uint64, until time.Duration) {
	if !a.over {
		a.granted(fence, until)
	}
}

func (a *attempt) giveUp() {
	if !a.over {
		a.op.GaveUp = true
		a.refused(a.heard)
	}
}

func (a *attempt) refused(r Result) {
	a.over = true
	a.end(a.op, r)
	if a.op.GaveUp || r != Held {
		a.s.undo(a.token)
	}
	a.rest()
}

func (a *attempt) granted(fence uint64, until time.Duration) {
	s, deadline := a.s, until-driver.Drift(a.s.ttl)
	if s.now >= deadline { // too late to be of use
		a.refused(Lost)
		return
	}
	a.over = true
	a.op.Hold, a.op.Deadline = a.token, deadline
	if s.fenced {
		a.op.Fence = fence
	}
	a.hold, a.deadline = a.end(a.op, OK), deadline
	if s.reentrant || s.permits > 1 { // holds overlap: they protect nothing from each other
		s.after(s.some(s.think), func() { a.renew(func() { s.after(s.some(s.think), a.release) }) })
		return
	}
	a.work()
}

// leave takes a waiter out of the queue.
func (s *sim) leave(token string) {
	s.queue = slices.DeleteFunc(s.queue, func(w *simWaiter) bool { return w.token == token })
}

// undo goes behind what it undoes.
func (s *sim) undo(token string) {
	s.after(s.some(s.ttl), func() {
		s.whenThawed(func() {
			s.leave(token)
			delete(s.holds, token)
		})
	})
}

// lost reports whether the deadline has come, and if so, that the client knows.
func (c *client) lost() bool {
	if c.s.now < c.deadline {
		return false
	}
	c.end(c.begin(KindLost), "")
	c.rest()
	return true
}

func (c *client) work() {
	s := c.s
	read := c.begin(KindRead)
	if c.lost() {
		return
	}
	c.store(read, func(read Op) {
		if read.Result == Refused {
			c.release()
			return
		}
		d := s.some(s.think)
		if s.pauses && s.chance(10) {
			d = s.some(2 * s.ttl)
			s.ops = append(s.ops, Op{Client: c.name, Kind: KindFault, Note: "pause " + c.name, Start: s.now, End: s.now + d})
		}
		then := c.write
		if s.readWrite && c.hold.Share > 0 {
			then = c.release
		}
		s.after(d, func() {
			if s.chance(30) {
				c.renew(then)
				return
			}
			then()
		})
	})
}

func (c *client) write() {
	write := c.begin(KindWrite)
	if c.lost() {
		return
	}
	write.Value = fmt.Sprintf("%s of %s", c.hold.Hold, c.name)
	c.store(write, func(Op) { c.s.after(c.s.some(c.s.think), c.release) })
}

// store is the store that the lock protects. With fences it may get what it is asked for
// late; without, nothing would protect it from that.
func (c *client) store(op Op, done func(Op)) {
	s := c.s
	answer := func() Op {
		if s.fenced {
			if op.Fence < s.max || op.Fence == s.max && op.owner() != s.maxOwner && !(op.Kind == KindRead && op.Share > 0) {
				op.Result = Refused
				return op
			}
			s.max, s.maxOwner = op.Fence, op.owner()
		}
		if op.Kind == KindRead {
			op.Value = s.value
		} else {
			s.value = op.Value
		}
		op.Result = OK
		return op
	}
	var late time.Duration
	if s.fenced {
		late = s.some(2 * s.latency)
		if s.pauses && s.chance(5) {
			late = s.some(2 * s.ttl)
		}
	}
	s.after(late, func() {
		op := answer()
		s.after(s.some(s.latency), func() { done(c.end(op, op.Result)) })
	})
}

func (c *client) renew(then func()) {
	s := c.s
	if c.lost() {
		return
	}
	op := c.begin(KindRenew)
	op.TTL = s.ttl
	token := c.hold.Hold
	s.request(func() Result {
		h, ok := s.holds[token]
		if !ok {
			return Lost
		}
		s.holds[token] = simHold{s.now + s.ttl, h.share}
		return OK
	}, func(r Result) {
		if s.now >= c.deadline && r == OK {
			r = Lost // it had ended before
		}
		if r == OK {
			c.deadline = op.Start + s.ttl - driver.Drift(s.ttl)
			op.Deadline = c.deadline
		}
		c.end(op, r)
		if r == Lost {
			s.undo(token)
			c.rest()
			return
		}
		then()
	})
}

func (c *client) release() {
	s := c.s
	if c.lost() {
		return
	}
	token := c.hold.Hold
	op := c.begin(KindRelease)
	s.request(func() Result {
		if _, ok := s.holds[token]; !ok {
			return Lost
		}
		delete(s.holds, token)
		return OK
	}, func(r Result) {
		c.end(op, r)
		if r == Unknown {
			s.undo(token)
		}
		c.rest()
	})
}
