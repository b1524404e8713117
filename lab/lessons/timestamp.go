package lessons

import (
	"strconv"
	"time"
)

// ownDeadline is a promise of locks whose value is their deadline.
const ownDeadline = "nobody but the holder moves its deadline"

// timestampLessons are about the lock whose value is the moment at which it lapses, in Unix
// milliseconds, by the clock of its writer. Redis knows no end of it.
func timestampLessons() []Lesson {
	return []Lesson{{
		Number: 3, Name: "take-over", Title: "A deadline in the value: two take the lapsed lock over",
		Idea: "Redis could not always set a key and its TTL in one command. So the value of the lock was the time at which it lapses, its stamp. A client that finds a stamp that has passed deletes the key, and sets its own. " +
			"But two clients may find it at the same time. The first deletes and sets; then the second deletes the first one's new lock.",
		Fix: "The command that writes has to return the value before it: GETSET.",
		Acts: []Act{
			{Title: "GET, DEL and SETNX, by one alone", play: func(s *Stage, a, b *client) {
				a.stamps()
				a.dies()
				s.lapse()
				s.freed(b, func() bool {
					if !b.findsLapsed() {
						return false
					}
					b.do(s.redis(), "DEL", s.key())
					return b.stamps() != ""
				}, s.endless)
			}},
			{Title: "GET, DEL and SETNX, by two at a time", play: func(s *Stage) {
				b, c := s.abandoned()
				if b.findsLapsed() && c.findsLapsed() {
					b.do(s.redis(), "DEL", s.key())
					mine := b.stamps()
					c.do(s.redis(), "DEL", s.key())
					b.stillHas(s.redis(), mine)
					c.stamps()
				}
			}},
		},
	}, {
		Number: 4, Name: "getset", Title: "GETSET: one wins, and the loser writes, too",
		Idea: "GETSET writes a value and returns the one before it. So of all clients that take a lapsed lock over, only the first gets back a time that has passed; a client that gets back a time in the future has lost. " +
			"But the loser has written, too. From then on the winner's lock lapses at the time that the loser wrote.",
		Fix: "A loser must not write at all. In a transaction (WATCH, MULTI, EXEC) it writes nothing if another client has written since the look: lesson 6.",
		Acts: []Act{
			{Title: "take-over by GETSET", play: func(s *Stage) {
				b, c := s.abandoned()
				if b.findsLapsed() && c.findsLapsed() {
					mine := b.swaps(s.ttl)
					s.passes(s.ttl / 4)
					c.swaps(s.ttl)
					b.deadlineIs(mine)
				}
			}},
			{Title: "the loser asks for less time than the winner", play: func(s *Stage) {
				b, c := s.abandoned()
				if b.findsLapsed() && c.findsLapsed() {
					mine := b.swaps(10 * s.ttl)
					c.swaps(s.ttl)
					b.deadlineIs(mine)
				}
				s.lapse()
				if c.findsLapsed() {
					c.swaps(s.ttl)
				}
			}},
		},
	}, {
		Number: 5, Name: "clock", Title: "Everybody's own clock: the fast one steals",
		Idea: "A deadline that is a time of day means the same to all clients only if all clocks agree, and the clocks of two machines never quite agree. " +
			"A client whose clock is ahead finds that a lock has lapsed, and takes it, while the holder is still at work.",
		Fix: "Tell Redis no time of day, only how long: a TTL, which Redis counts by one clock, its own.",
		Acts: []Act{
			{Title: "a deadline by everybody's own clock", play: func(s *Stage, a, b *client) {
				b.runsAhead(2 * s.ttl)
				a.stamps()
				if b.findsLapsed() {
					b.swaps(s.ttl)
				}
			}},
			{Title: "a TTL by the server's clock", play: func(s *Stage, a, b *client) {
				b.runsAhead(2 * s.ttl)
				a.takes("A")
				b.takes("B")
				s.redis().look("PTTL", s.key())
				a.ends()
				a.do(s.redis(), "DEL", s.key())
				b.takes("B")
			}},
		},
	}, {
		Number: 6, Name: "servicestack", Title: "ServiceStack: a correct take-over, and one timeout for two things",
		Idea: "AcquireLock(key, timeout) of ServiceStack.Redis takes a lapsed lock over in a transaction, which writes nothing for the client that comes second. " +
			"But it has one timeout for two things: how long the lock lasts, and how long others wait for it. A client that comes after the holder still waits when the holder's time is over, and takes the lock while the holder works.",
		Fix: "Two numbers: the holder says how long its lock lasts, and each waiter says how long it waits.",
		Acts: []Act{
			{Title: "WATCH, GET, MULTI, SET, EXEC, by two at a time", play: func(s *Stage) {
				b, c := s.abandoned()
				b.session(s.redis(), s.key(), func(ofB doer) {
					c.session(s.redis(), s.key(), func(ofC doer) {
						if b.watches(ofB) && c.watches(ofC) {
							mine := b.commits(ofB, s.ttl)
							s.passes(s.ttl / 4)
							c.commits(ofC, s.ttl)
							b.deadlineIs(mine)
						}
					})
				})
			}},
			{Title: "one timeout: the holder's time is over before the waiter's", play: acquireLock(1)},
			{Title: "two numbers: the lock lasts for longer than anybody waits", play: acquireLock(10)},
		},
	}}
}

// acquireLock has A work for longer than a TTL, and B come in the middle of that, and wait
// for a TTL at most. counts is the number of TTLs for which the lock counts.
func acquireLock(counts int) func(*Stage) {
	return func(s *Stage) {
		a, b := s.client("A"), s.client("B")
		valid := time.Duration(counts) * s.ttl
		try := func() {
			if b.stampsFor(valid) != "" {
				return
			}
			b.session(s.redis(), s.key(), func(do doer) {
				if b.watches(do) {
					b.commits(do, valid)
				} else {
					do("UNWATCH")
				}
			})
		}
		a.stampsFor(valid)
		s.passes(s.ttl / 2)
		s.note("B is ready to wait for %v", s.ttl)
		for since := b.now(); b.now().Sub(since) < s.ttl; {
			if try(); b.holding {
				return
			}
			s.passes(s.ttl / 2)
			s.note("B has waited for %v", b.now().Sub(since).Round(time.Millisecond))
		}
		s.note("B gives up")
		a.ends()
		a.do(s.redis(), "DEL", s.key())
		try()
	}
}

// doer sends a command in a session.
type doer = func(cmd string, args ...any) reply

// abandoned is what take-overs begin with: a holder that is dead, its deadline, which has
// passed, and two who are going to see that.
func (s *Stage) abandoned() (b, c *client) {
	a := s.client("A")
	b, c = s.client("B"), s.client("C")
	a.stamps()
	a.dies()
	s.lapse()
	return b, c
}

// stamps is SETNX with a deadline a TTL ahead. It returns that, or nothing if another has
// the lock.
func (c *client) stamps() string { return c.stampsFor(c.s.ttl) }

func (c *client) stampsFor(d time.Duration) string {
	mine := c.stamp(d)
	if !c.do(c.s.redis(), "SETNX", c.s.key(), mine).is(1) {
		return ""
	}
	c.holds()
	return mine
}

// findsLapsed is SETNX in vain, and a look at the deadline.
func (c *client) findsLapsed() bool {
	return c.stamps() == "" && c.past(c.do(c.s.redis(), "GET", c.s.key()))
}

// past reports whether a deadline has passed, by the client's clock, and shows that.
func (c *client) past(deadline reply) bool {
	left := time.Duration(c.s.moment(deadline.text())-c.now().UnixMilli()) * time.Millisecond
	if left > 0 {
		c.s.note("%s's clock: lapses in %v", c.name, left)
		return false
	}
	c.s.note("%s's clock: lapsed %v ago", c.name, -left)
	return true
}

func (s *Stage) moment(stamp string) int64 {
	ms, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		s.Cannot("%q is no deadline", stamp)
	}
	return ms
}

// swaps is GETSET with a deadline so far ahead, which it returns.
func (c *client) swaps(ahead time.Duration) string {
	mine := c.stamp(ahead)
	c.wins(c.past(c.do(c.s.redis(), "GETSET", c.s.key(), mine)))
	return mine
}

// watches is a look at the deadline, of which EXEC will know whether it is still true.
func (c *client) watches(do doer) bool {
	do("WATCH", c.s.key())
	return c.past(do("GET", c.s.key()))
}

// commits takes the lock over, with a deadline so far ahead, unless somebody has written
// since the look.
func (c *client) commits(do doer, ahead time.Duration) string {
	mine := c.stamp(ahead)
	do("MULTI")
	do("SET", c.s.key(), mine)
	c.wins(!do("EXEC").is(nil))
	return mine
}

// wins is the end of a take-over.
func (c *client) wins(won bool) {
	if won {
		c.holds()
	} else {
		c.s.note("%s has lost", c.name)
	}
}

// runsAhead sets the client's clock forward.
func (c *client) runsAhead(d time.Duration) {
	c.ahead = d
	c.s.note("%s's clock is ahead by %v", c.name, d)
}

// deadlineIs judges whether the key says what the holder has written.
func (c *client) deadlineIs(mine string) {
	got, ok := c.s.redis().look("GET", c.s.key()).([]byte)
	switch {
	case !c.holding || !ok:
		c.s.Cannot("%s holds no lock that could be looked at", c.name)
	case string(got) == mine:
		c.s.judge(ownDeadline, true, "%s wrote %s, and that is what the key says", c.name, mine)
	default:
		moved, way := time.Duration(c.s.moment(string(got))-c.s.moment(mine))*time.Millisecond, "later"
		if moved < 0 {
			moved, way = -moved, "earlier"
		}
		c.s.broken(ownDeadline, "%s wrote %s, and the key says %s, which is %v %s", c.name, mine, got, moved, way)
	}
}
