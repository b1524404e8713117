package history

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
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
	holds  map[string]time.Duration // until when
	fence  uint64
	frozen time.Duration // until when

	value    string
	max      uint64
	maxOwner string
}

type simRules struct {
	clients               int
	reentrant, fenced     bool
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
	s := &sim{simRules: r, rng: rand.New(rand.NewPCG(seed, 1)), holds: map[string]time.Duration{}, value: "0", now: ms}
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
	for token, until := range s.holds {
		if until <= s.now {
			delete(s.holds, token)
		}
	}
	do()
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
		op.Hold, op.Owner, op.Fence = c.hold.Hold, c.hold.Owner, c.hold.Fence
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
	op.Owner, op.TTL = token, s.ttl
	if s.reentrant {
		op.Owner = fmt.Sprint("owner", int(c.name[0])%2)
	}
	var fence uint64
	var until time.Duration
	s.request(func() Result {
		if len(s.holds) > 0 && (!s.reentrant || s.owner != op.Owner) {
			return Held
		}
		if len(s.holds) == 0 {
			s.owner = op.Owner
			s.fence++
		}
		fence, until = s.fence, s.now+s.ttl
		s.holds[token] = until
		return OK
	}, func(r Result) {
		deadline := op.Start + s.ttl - driver.Drift(s.ttl)
		if r == OK && s.now >= deadline {
			r = Lost // too late to be of use
		}
		if r == OK {
			op.Hold, op.Deadline = token, deadline
			if s.fenced {
				op.Fence = fence
			}
		}
		op = c.end(op, r)
		if r != OK {
			if r != Held {
				s.undo(token)
			}
			c.rest()
			return
		}
		c.hold, c.deadline = op, deadline
		if s.reentrant { // holds of one owner overlap: they protect nothing from each other
			s.after(s.some(s.think), func() { c.renew(func() { s.after(s.some(s.think), c.release) }) })
			return
		}
		c.work()
	})
}

// undo goes behind what it undoes.
func (s *sim) undo(token string) {
	s.after(s.some(s.ttl), func() { s.whenThawed(func() { delete(s.holds, token) }) })
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
		s.after(d, func() {
			if s.chance(30) {
				c.renew(c.write)
				return
			}
			c.write()
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
			if op.Fence < s.max || op.Fence == s.max && op.owner() != s.maxOwner {
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
		if _, ok := s.holds[token]; !ok {
			return Lost
		}
		s.holds[token] = s.now + s.ttl
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
