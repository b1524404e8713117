package lessons

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
)

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
