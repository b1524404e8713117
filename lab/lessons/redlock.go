package lessons

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// The promises of lessons about several servers, besides one holder.
const (
	outlives = "the lock is available though servers are dead"
	saysSo   = "an outage is not called held"
	comesOut = "of those who ask for a free lock, one gets it"
)

const sameMoment = "all ask at the same moment (the stage decides which is first where)"

// redlockLessons are about a lock that a majority of several servers grants.
func redlockLessons() []Lesson {
	return append([]Lesson{{
		Number: 15, Name: "quorum", Title: "RedLock: the votes of five servers",
		Idea: "A lock on one Redis is gone when that Redis is. So RedLock asks five servers that know nothing of each other, and a client with the votes of three of them holds the lock. " +
			"Each server votes for one client at a time, so two clients cannot have three votes each, and two servers may die.",
		Fix: "Of five servers two may die, of six also two, of seven three. When more are dead, package redlock says that there is no quorum (ErrNoQuorum, not ErrHeld): to wait for the holder would not help. " +
			"Votes end, too: a majority counts for the TTL less the time that the vote took, and less the drift allowance, 1 % of the TTL and 2 ms.",
		Servers: 5, Own: true,
		Acts: []Act{
			{Title: "two of five servers are dead", play: func(s *Stage) {
				die(s.servers[s.majority():])
				a, b := s.client("A"), s.client("B")
				a.joins(redlock.WithoutGuard()) // no server comes back in this lesson
				b.joins(redlock.WithoutGuard())
				lease, err := a.asksAll()
				s.had(a, err)
				b.asksAll()
				if err == nil {
					a.releases(lease)
				}
				b.asksAll()
			}},
			{Title: "three of five servers are dead", play: func(s *Stage) {
				die(s.servers[s.majority()-1:])
				a := s.client("A")
				a.joins(redlock.WithoutGuard())
				_, err := a.asksAll()
				s.had(a, err)
				s.judge(saysSo, errors.Is(err, strategy.ErrNoQuorum) && !errors.Is(err, strategy.ErrHeld), "A gets: %v", err)
			}},
			slowVotes("slow answers: votes are counted, and time is not", false),
			slowVotes("validity = TTL − elapsed − drift: time is counted, too", true),
		},
	}, {
		Number: 16, Name: "split-votes", Title: "RedLock: votes that are split, again and again",
		Idea: "When several clients ask at the same moment, each server votes for the client that reaches it first. So it can happen that nobody has a majority: all give their votes back, and ask again. " +
			"If all of them wait for the same time before they ask again, they meet again.",
		Fix:     "Each client waits for a random time before it asks again, so that one of them comes first. It also helps to ask all servers at once, and to give votes back at once.",
		Servers: 3,
		Acts: []Act{
			{Title: "three clients, and the same pause for each", play: func(s *Stage) {
				all := []*client{s.client("A"), s.client("B"), s.client("C")}
				const rounds = 2
				winners := 0
				for round := range rounds {
					if round > 0 {
						s.happens("each waits for 10 ms", sleep(10*time.Millisecond))
					}
					s.note(sameMoment)
					winners += s.split(all)
				}
				s.decide(comesOut, winners > 0,
					fmt.Sprintf("%d of %d rounds had a winner", winners, rounds),
					fmt.Sprintf("in %d rounds nobody has had %d votes of %d, and nothing makes the next one different", rounds, s.majority(), len(s.servers)))
			}},
			{Title: "a random pause for each", play: func(s *Stage) {
				all := []*client{s.client("A"), s.client("B"), s.client("C")}
				s.note(sameMoment)
				s.split(all)
				pause, said := map[*client]time.Duration{}, []string{}
				for _, c := range all {
					pause[c] = rand.N(50 * time.Millisecond)
					said = append(said, fmt.Sprintf("%s for %.1f ms", c.name, inMillis(pause[c])))
				}
				first := slices.MinFunc(all, func(a, b *client) int { return cmp.Compare(pause[a], pause[b]) })
				s.happens("each waits for a random time: "+strings.Join(said, ", "), sleep(pause[first]))
				s.decide(comesOut, first.elects(s.servers),
					first.name+", whose pause was the shortest, has got it",
					first.name+", whose pause was the shortest, does not get it")
			}},
		},
	}}, redlockTimeLessons()...)
}

// had judges whether a client has got the lock that nobody held.
func (s *Stage) had(c *client, err error) {
	dead := 0
	for _, srv := range s.servers {
		if srv.dead {
			dead++
		}
	}
	s.decide(outlives, err == nil,
		fmt.Sprintf("%s has got it, with %d of %d servers dead", c.name, dead, len(s.servers)),
		fmt.Sprintf("nobody holds the lock, and %s does not get it, with %d of %d servers dead", c.name, dead, len(s.servers)))
}

// split has as many plain clients as there are servers ask all of them at the same moment,
// and each be first at another one. It returns how many got a majority; who did not gives
// back.
func (s *Stage) split(all []*client) (winners int) {
	votes := map[*client][]*server{}
	for i, c := range all {
		votes[c] = c.canvasses(s.servers[i : i+1])
	}
	for i, c := range all {
		votes[c] = append(votes[c], c.canvasses(slices.Delete(slices.Clone(s.servers), i, i+1))...)
	}
	for _, c := range all {
		if len(votes[c]) >= s.majority() {
			winners++
			continue
		}
		c.yields(votes[c])
	}
	return winners
}

// sleep is a time that goes by, which nobody has to be spared.
func sleep(d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		time.Sleep(d)
		return nil
	}
}
