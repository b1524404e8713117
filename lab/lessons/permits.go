package lessons

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

var rankPermit = script("rank_permit")

const (
	onlySoMany = "never more holders than permits"
	inTheStep  = "who waits is served in the step that makes room"
)

// permitLessons are about locks that a number of clients may hold at the same time.
func permitLessons() []Lesson {
	return []Lesson{{
		Number: 25, Name: "permits", Title: "Several holders: a counter keeps a dead holder's permit",
		Idea: "Two jobs may use a database at the same time, and the third has to wait. With a counter each job counts up, and down when it is done. But a holder that dies never counts down, so its permit is lost for ever. " +
			"In a sorted set each holder stands with the time at which it came, and goes out when that is too long ago. But each client goes by its own clock, and a client whose clock is ahead takes a permit that is still held.",
		Fix: "Each permit is a lease with a TTL of its own, by the server's clock. The number of leases says how many permits are taken, so nobody has to count down. " +
			"Those who wait stand in a queue on the server. A release makes the first of them a holder in the same step, and so does a raise of the limit. This is package semaphore.",
		Acts: []Act{
			{Title: "a counter: INCR takes a permit, and DECR gives it back", play: func(s *Stage, a, b, c *client) {
				s.hasPermits(2)
				a.countsUp()
				b.countsUp()
				c.countsUp()
				a.dies()
				s.lapse(s.key())
				c.countsUp()
				b.ends()
				b.do(s.redis(), "DECR", s.key())
				c.countsUp()
				s.countedFree(a, b, "GET", b.countsUp)
			}},
			{Title: "a sorted set of the holders, and each client's own clock", lists: []string{"rank_permit"},
				play: func(s *Stage, a, b, c, d *client) {
					s.hasPermits(2)
					began := time.Now()
					a.ranks()
					b.ranks()
					c.ranks()
					s.stillHeld(began)
					d.runsAhead(2 * s.ttl)
					d.ranks()
					s.redis().look("ZRANGE", s.key(), 0, -1)
				}},
			{Title: "package semaphore: the server's clock, and a TTL for each permit", play: (*Stage).permitsLapse},
			// A waiter that is served has a second to extend.
			{Title: "package semaphore: a release serves the first who waits, and so does a raise of the limit", Timed: true,
				cast: "A B C D ops", play: (*Stage).permitsServe},
		},
	}}
}

// hasPermits has the lock have so many permits from here on.
func (s *Stage) hasPermits(permits int) {
	s.note("there are %d permits", permits)
	s.permits = permits
	s.shares = sharing{
		promise:  onlySoMany,
		believes: func(*client) string { return "holds a permit" },
		broken: func(c *client, others []*client) []string {
			if len(others) < s.permits {
				return nil
			}
			return []string{fmt.Sprintf("%s believe they hold a permit, and there are %d", named(append(others, c)), s.permits)}
		},
		kept: func(s *Stage) string {
			return fmt.Sprintf("%d holds, of which at most %d at the same time", s.held, s.most)
		},
	}
}

// countsUp takes a permit by a counter, and reports whether one was free.
func (c *client) countsUp() bool {
	n, ok := c.do(c.s.redis(), "INCR", c.s.key()).value.(int64)
	if !ok {
		c.s.Cannot("%s gets no count", c.name)
	}
	if n > int64(c.s.permits) {
		c.s.note("%d is more than %d, so %s counts down again, and gets none", n, c.s.permits, c.name)
		c.do(c.s.redis(), "DECR", c.s.key())
		return false
	}
	c.holds()
	return true
}

// countedFree judges whether a dead holder, which a count counts, keeps another out. look is the command,
// with what comes after the key, that says the count.
func (s *Stage) countedFree(dead, c *client, look string, try func() bool, field ...any) {
	s.freed(c, try, func() string {
		count, _ := s.redis().look(look, append([]any{s.key()}, field...)...).([]byte)
		ttl := s.redis().look("PTTL", s.key())
		at := slices.DeleteFunc(slices.Clone(s.clients), func(c *client) bool { return !c.holding || c.dead })
		if ttl != int64(-1) || string(count) != strconv.Itoa(len(at)+1) {
			s.Cannot("%s does not get in, but the count is %s, with %d who live, and its TTL %v", c.name, count, len(at), ttl)
		}
		who := "nobody alive is in"
		if len(at) > 0 {
			who = fmt.Sprintf("only %s %s", named(at), s.shares.believes(at[0]))
		}
		return fmt.Sprintf("the count is %s, and %s: it counts %s, who is dead. PTTL is -1, so it always will", count, who, dead.name)
	})
}

// ranks takes a permit by a sorted set, and the client's own clock.
func (c *client) ranks() {
	if c.eval(c.s.redis(), rankPermit, c.s.key(), c.name, c.stamp(0), c.s.px(), c.s.permits).is(1) {
		c.holds()
	}
}

// opensPermits has all clients lock by package semaphore.
func (s *Stage) opensPermits(permits int) map[*client]strategy.Semaphore {
	s.hasPermits(permits)
	s.leavesFence()
	s.leaves(driver.SiblingKey(s.key(), "permits"))
	return openAll(s, func(n driver.Node, o strategy.Options) (strategy.Semaphore, error) {
		return semaphore.New(n, permits, o)
	})
}

// renews extends a lease that is to be valid still.
func (c *client) renews(lease strategy.Lease) {
	if err := lease.Extend(c.s.ctx); err != nil {
		c.s.late("%s does not renew: %w", c.name, err)
	}
}

// permitsLapse: a client whose clock is ahead gets nothing that is held, and a dead holder's permit comes back.
func (s *Stage) permitsLapse(a, b, c *client) {
	s.opensPermits(2)
	began := time.Now()
	dead := a.begins()
	lease := b.begins()
	c.runsAhead(2 * s.ttl)
	c.acquires()
	s.stillHeld(began)
	a.dies()
	s.passes(s.ttl / 2)
	b.renews(lease)
	s.lapseOf(a, "permit:"+dead.Token())
	s.freed(c, func() bool { return c.acquires() != nil }, func() string { return "A's TTL is over, and C gets no permit" })
	if !slices.Contains(s.holders(), "permit:"+lease.Token()) {
		s.late("B has lost its permit")
	}
}

// lapseOf is the time in which one hold ends of a lock that several hold: a member of a sorted set, with its
// end by the server's clock. A reader who steps does not wait for minutes: its end is put into the past.
func (s *Stage) lapseOf(c *client, member string) {
	what, srv := fmt.Sprintf("%s's TTL goes by", c.name), s.redis()
	if s.step != nil {
		s.pause(Event{Kind: Note, Text: what})
		srv.ask("ZADD", s.key(), "XX", 1, member)
		s.note("%s (by hand: ZADD)", what)
		return
	}
	for limit := s.due(); ; time.Sleep(time.Millisecond) {
		score, _ := srv.ask("ZSCORE", s.key(), member).([]byte)
		ends, err := strconv.ParseInt(string(score), 10, 64)
		if err != nil {
			s.Cannot("%s is no hold of %s: %q", member, c.name, score)
		}
		if srv.clock() > ends {
			break
		}
		if time.Now().After(limit) {
			s.Cannot("%s's TTL does not end", c.name)
		}
	}
	s.waited()
	s.note("%s", what)
}

// clock is the server's wall clock, in Unix milliseconds.
func (srv *server) clock() int64 {
	var parts [2]int64
	for i, p := range srv.ask("TIME").([]any) {
		parts[i], _ = strconv.ParseInt(string(p.([]byte)), 10, 64)
	}
	return parts[0]*1000 + parts[1]/1000
}

// permitsServe has C and D wait. A release serves C; then an operator raises the limit, and that serves D.
func (s *Stage) permitsServe(a, b, c, d, ops *client) {
	all := s.opensPermits(2)
	began := time.Now()
	first := a.begins()
	b.begins()
	ofC := c.queues(c.locks.NewLock(s.name), "waiters", 1)
	ofD := d.queues(d.locks.NewLock(s.name), "waiters", 2)
	a.releases(first)
	seenC := s.holders()
	leaseC := c.leased(ofC) // it hears that it is a holder
	c.holds()
	s.served(c)
	d.hears() // that it is the next

	s.note("an operator (ops) raises the limit to 3")
	s.permits = 3
	if err := all[ops].SetPermits(s.ctx, s.name, 3); err != nil {
		s.Cannot("ops: %w", err)
	}
	seenD := s.holders()
	leaseD := d.leased(ofD)
	d.holds()
	s.served(d)
	s.stillHeld(began)
	s.decide(inTheStep, slices.Contains(seenC, "permit:"+leaseC.Token()) && slices.Contains(seenD, "permit:"+leaseD.Token()),
		"after the release Redis had a permit of C's, and after the raise one of D's, before they heard of it",
		"Redis had no permit of C's after the release, or none of D's after the raise")
	s.firstComeFirstServed()
}

// holders are the members of a lock that several hold, as the reader sees them.
func (s *Stage) holders() (members []string) {
	for _, m := range s.redis().look("ZRANGE", s.key(), 0, -1).([]any) {
		members = append(members, string(m.([]byte)))
	}
	return members
}
