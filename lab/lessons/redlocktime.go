package lessons

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/redlock"
)

const stopsInTime = "a holder stops before its majority ends"

// redlockTimeLessons are about servers that end a vote before its time: by their clock, or
// as they forget it.
func redlockTimeLessons() []Lesson {
	return []Lesson{{
		Number: 17, Name: "fast-clock", Title: "RedLock: a server whose clock runs fast",
		Idea: "Each server counts a vote's TTL by its own clock. If that clock runs fast, or jumps ahead, the vote ends early. " +
			"A holder with just three votes of five then has no majority, and does not know it, and another client finds three servers that are free.",
		Fix: "A holder stops before the TTL is over, by the drift allowance: 1 % of the TTL and 2 ms. So the speeds of the clocks may differ by 1 %. " +
			"Slew the servers' clocks, do not set them. If a clock jumps, only fences help.",
		Servers: 5,
		Acts: []Act{
			{Title: "a clock is set ahead", play: func(s *Stage, a, b *client) {
				start := time.Now()
				n3 := s.threeOfFive(a)
				s.happens(n3.name+"'s clock is set ahead by more than the TTL (emulated: PEXPIRE)", func(context.Context) error {
					n3.ask("PEXPIRE", s.key(), 0)
					return nil
				})
				b.elects(s.servers)
				s.stillHeld(start)
			}},
			{Title: "a clock runs fast by 1 %", play: func(s *Stage, a, b *client) {
				start := time.Now()
				n3 := s.threeOfFive(a)
				deadline := start.Add(s.ttl - driver.Drift(s.ttl))
				var drops time.Time // by A's clock, at the earliest
				s.happens(n3.name+"'s clock runs fast: it drops its vote 1 % of the TTL too early (emulated: PEXPIRE)", func(context.Context) error {
					left := n3.ask("PTTL", s.key()).(int64) - s.ttl.Milliseconds()/100
					drops = time.Now().Add(time.Duration(left-1) * time.Millisecond) // Redis counts in whole ones
					n3.ask("PEXPIRE", s.key(), left)
					return nil
				})
				n3.look("PTTL", s.key())
				b.elects(s.servers)
				s.stillHeld(start)
				comes := fmt.Sprintf("A's deadline comes: the TTL of %d ms less the allowance of %d ms is over", s.ttl.Milliseconds(), driver.Drift(s.ttl).Milliseconds())
				if s.step != nil { // nobody waits for minutes
					s.happens(comes+" (by hand)", sleep(0))
				} else {
					s.happens(comes, sleep(time.Until(deadline)))
				}
				a.ends()
				s.lapse(s.key())
				b.elects(s.servers)
				early := drops.Sub(deadline)
				s.judge(stopsInTime, early >= 0, "A's deadline was %.1f ms before %s could drop its vote", inMillis(early), n3.name)
			}},
		},
	}, {
		Number: 18, Name: "restart", Title: "RedLock: a server that restarts votes twice",
		Idea: "A server that keeps nothing on disk, or not all, comes back from a restart without the vote that it has given, and gives it again. " +
			"So a holder with just three votes of five and another client can both have a majority.",
		Fix:     "A server that may have forgotten votes does not vote for the longest TTL in use: by then all that it may have forgotten is over. Meanwhile it counts as down. The restart guard of package redlock sees to that.",
		Servers: 5, Own: true,
		Acts: []Act{
			{Title: "a server comes back, and votes", long: 10, play: func(s *Stage) {
				s.forgets(redlock.WithoutGuard())
			}},
			{Title: "a server comes back, and does not vote for a TTL: the restart guard", long: 10, play: func(s *Stage) {
				s.vouched()
				s.forgets()
			}},
		},
	}}
}

// threeOfFive has the client hold the lock by just a majority, and returns a server of it.
func (s *Stage) threeOfFive(c *client) *server {
	most := s.servers[:s.majority()]
	if !c.elects(most) {
		s.Cannot("%s does not get the lock", c.name)
	}
	s.note("%s has %d votes of %d, and asks no more servers", c.name, len(most), len(s.servers))
	return most[len(most)-1]
}

// forgets has A hold the lock by three votes, of which one server forgets one; B asks; and
// when A is done B asks again, unless it has the lock.
func (s *Stage) forgets(options ...redlock.Option) {
	a, b := s.client("A"), s.client("B")
	a.joins(options...)
	b.joins(options...)
	n3 := s.servers[s.majority()-1]
	a.cutOff(s.servers[s.majority():]...)
	since := time.Now()
	lease, err := a.asksAll()
	if err != nil {
		s.Cannot("A does not get the lock: %w", err)
	}
	n3.becomes(Dead, "dies", n3.node.Kill)
	n3.becomes(Alive, "starts again, without its data", n3.node.Restart)
	a.reconnects(n3)
	_, err = b.asksAll()
	s.stillHeld(since)
	if err == nil {
		return
	}
	a.releases(lease)
	_, err = b.asksAll()
	s.decide(outlives, err == nil,
		fmt.Sprintf("B has got it when A was done, though %s does not vote yet", n3.name),
		fmt.Sprintf("the lock is free, and B does not get it, as %s does not vote", n3.name))
}

// slowVotes is an act in which the votes of a majority come so slowly that the first has
// ended when the last one comes. counts: A counts the time as well as the votes.
func slowVotes(title string, counts bool) Act {
	return Act{
		Title: title,
		Timed: true, // the time that A counts is real
		play: func(s *Stage, a, b *client) {
			if counts {
				start := a.now()
				votes := a.canvasses(s.servers)
				if !a.countsTime(start, votes) {
					s.late("quick votes took longer than a TTL of %v", s.ttl)
				}
				a.ends()
				a.yields(votes)
			}
			most := s.servers[:s.majority()]
			for _, srv := range most {
				a.node(srv).at(func(_ string, send func()) {
					send()
					s.passes(s.ttl * 2 / 5)
				})
			}
			start := a.now()
			votes := a.canvasses(most)
			for _, srv := range most {
				a.node(srv).at(nil)
			}
			s.note("A has %d votes of %d", len(votes), len(s.servers))
			if !counts {
				a.holds()
			} else if a.countsTime(start, votes) {
				s.Cannot("the votes were not slow")
			}
			s.servers[0].look("PTTL", s.key())
			if counts {
				a.yields(votes)
			}
			b.elects(s.servers)
		},
	}
}

// countsTime: the client holds the lock for what the votes leave of the TTL, by its own clock, and says what
// that is. It returns whether anything is left.
func (c *client) countsTime(start time.Time, votes []*server) bool {
	s := c.s
	elapsed, drift := c.now().Sub(start), driver.Drift(s.ttl)
	validity := s.ttl - elapsed - drift
	sum := fmt.Sprintf("%d votes, for TTL − elapsed − drift = %d − %.1f − %d = %.1f ms", len(votes), s.ttl.Milliseconds(),
		inMillis(elapsed), drift.Milliseconds(), inMillis(validity))
	sum = strings.ReplaceAll(sum, "-", "−")
	if len(votes) < s.majority() || validity <= 0 {
		s.note("%s: %s has no lock", sum, c.name)
		return false
	}
	s.note("%s: for this time %s has the lock", sum, c.name)
	c.holds()
	return true
}

func inMillis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
