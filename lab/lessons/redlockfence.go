package lessons

import (
	"fmt"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

var (
	voteCounted = script("vote")
	voteAsked   = script("ask")
	noteFence   = script("note")
	writeFenced = script("write")
)

const fencesRise = "fences rise"

// redlockFenceLessons are about numbers from many servers, and about grants that come late.
func redlockFenceLessons() []Lesson {
	return append([]Lesson{{
		Number: 19, Name: "redlock-fence", Title: "RedLock's fences: each server counts by itself",
		Idea: "A fence is a number that comes with the lock. It is greater for each holder than for those before it, so a store can refuse a write that comes too late. " +
			"But RedLock's servers know nothing of each other: each counts for itself, and the servers that vote next may have counted less.",
		Fix: "The new fence is one more than the greatest that a majority knows, and the lock counts only when a majority has noted it. So one of the servers that vote next knows it. " +
			"Package redlock does this with its option WithFences.",
		Servers: fenceVoters + 1, Own: true, names: []string{"n1", "n2", "n3", "db"},
		Acts: []Act{
			{Title: "each server counts its votes, and the greatest count is the fence", lists: []string{"vote", "write"},
				play: func(s *Stage) {
					s.inVain(s.counts, "vote.lua grants: it returns the vote's number; -1 would be a refusal")
					s.lateWrite(s.counts)
				}},
			{Title: "a majority notes the fence before the lock counts", lists: []string{"ask", "note"}, play: func(s *Stage) {
				s.inVain(s.notes, "ask.lua grants: it returns the greatest fence noted, 0 for none; -1 would be a refusal")
				s.lateWrite(s.notes)
			}},
			{Title: "the same by package redlock, whose fences are never below the servers' time in µs", play: func(s *Stage) {
				s.vouched()
				s.oneStepAtATime()
				s.lateWrite(func(c *client) uint64 {
					c.opens(func(n []driver.Node) driver.Protocol {
						return redlock.On(n[:fenceVoters], redlock.WithFences(), redlock.WithNodeTimeout(s.ttl/2))
					}, func(o *strategy.Options) { o.OpTimeout = s.ttl / 2 }) // a machine that takes longer is too slow for the act, which is then played again
					if lease := c.acquires(); lease != nil {
						n, _ := lease.Fence()
						return n
					}
					return 0
				})
			}},
		},
	}}, lateGrantLessons()...)
}

// On the stage of the lesson are so many servers that vote, and one that is the store.
const fenceVoters, fenceQuorum = 3, 2

// counts has the client take the lock by votes that are counted, and returns its fence; 0
// if there is no majority.
func (s *Stage) counts(c *client) uint64 {
	majority, greatest := c.polls(voteCounted)
	if majority == nil {
		return 0
	}
	return uint64(greatest)
}

// notes has the client take the lock by asking, and then noting.
func (s *Stage) notes(c *client) uint64 {
	majority, greatest := c.polls(voteAsked)
	if majority == nil {
		return 0
	}
	fence, noted := greatest+1, 0
	for _, srv := range majority {
		if v, err := c.tryEval(srv, noteFence, []string{c.s.key(), "fence"}, c.name, fence); err == nil && v.is(1) {
			noted++
		}
	}
	if noted < fenceQuorum {
		return 0
	}
	return uint64(fence)
}

// polls has the client ask one server after the other until a majority has voted for it, and
// returns that and the greatest number it told. Votes that are too few are given back.
func (c *client) polls(script *driver.Script) (majority []*server, greatest int64) {
	for _, srv := range c.s.servers[:fenceVoters] {
		v, err := c.tryEval(srv, script, []string{c.s.key(), "fence"}, c.name, c.s.px())
		if n, ok := v.value.(int64); err == nil && ok && n >= 0 {
			majority, greatest = append(majority, srv), max(greatest, n)
		}
		if len(majority) == fenceQuorum {
			return majority, greatest
		}
	}
	for _, srv := range majority {
		c.eval(srv, compareDelete, c.s.key(), c.name)
	}
	return nil, 0
}

// inVain has A ask twice, when n1 alone hears of it. says is what n1's reply means.
func (s *Stage) inVain(take func(*client) uint64, says string) {
	a := s.client("A")
	a.cutOff(s.servers[1], s.servers[2])
	s.note("%s", says)
	for range 2 {
		if take(a) != 0 {
			s.Cannot("A gets the lock from a minority")
		}
	}
}

// lateWrite has B hold the lock, and then C, by majorities that share n2. B's write
// comes late. take returns the fence of the client that takes the lock.
func (s *Stage) lateWrite(take func(*client) uint64) {
	db := s.servers[fenceVoters]

	b := s.client("B")
	b.cutOff(s.servers[2])
	earlier := b.fenced(take)
	write := b.dials(db)
	write.holdUp()
	write.evals(writeFenced, "stock", earlier, "of-B")
	b.ends() // as it knows when its TTL is over
	s.lapse(s.key())

	c := s.client("C")
	c.cutOff(s.servers[0])
	later := c.fenced(take)
	fences := fmt.Sprintf("B's fence is %d, and that of C, who holds the lock later, is %d", earlier, later)
	s.decide(fencesRise, later > earlier, fences, fences)
	c.eval(db, writeFenced, "stock", later, "of-C")
	write.arrives("what B sent arrives")
	s.decide(noLateWork, !write.hears().is(1),
		"what B wrote came after C's, and was refused",
		"B, whose lock is lost, has written over what C wrote")
}

// fenced has the client hold the lock, and returns its fence.
func (c *client) fenced(take func(*client) uint64) uint64 {
	fence := take(c)
	if fence == 0 {
		c.s.Cannot("%s does not get the lock", c.name)
	}
	c.holds()
	c.s.note("%s's fence is %d", c.name, fence)
	return fence
}
