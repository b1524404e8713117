package lessons

import (
	"fmt"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/luascript"
)

var fencedWrite = script("fenced_write")

// fenceLessons are about holders that go on when their lock is lost.
func fenceLessons() []Lesson {
	return []Lesson{{
		Number: 11, Name: "fence", Title: "The late write: a holder is paused, and goes on",
		Idea: "A program can be paused at any moment, while its garbage is collected or its machine is moved. When it goes on, it does not know that its lock's TTL is over. " +
			"So it writes what it was about to write, over what the next holder has written. No lock can stop it, because it does not ask.",
		Fix: "The store can stop it. Each hold has a number, its fence, greater than those of all holds before, and the store refuses a write with a lesser fence than it has seen. " +
			"Two clients may still believe they hold the lock, but only the later one can write.",
		Acts: []Act{
			{Title: "a store that takes every write", play: func(s *Stage, a, b *client) {
				price := s.leaves("price:" + s.name)
				a.takes("token-of-A")
				s.note("A is about to write")
				a.pauses()
				s.lapse(s.key())
				b.takes("token-of-B")
				b.do(s.redis(), "SET", price, "by-B")
				a.wakes()
				a.do(s.redis(), "SET", price, "by-A")
				s.noLateWork(a, "token-of-A", "by-A", func() any { return s.redis().look("GET", price) })
			}},
			{Title: "a store that refuses lesser fences", lists: []string{"fenced_write"}, play: func(s *Stage, a, b *client) {
				price := s.leaves("price:" + s.name)
				s.leavesFence()
				hold := func(c *client) (token string, fence uint64) {
					c.opens(func(n []driver.Node) driver.Protocol { return luascript.On(n[0]) })
					lease := c.begins()
					fence, ok := lease.Fence()
					if !ok {
						s.Cannot("%s has no fence", c.name)
					}
					s.note("%s's fence is %d", c.name, fence)
					return lease.Token(), fence
				}
				token, fence := hold(a)
				s.note("A is about to write")
				a.pauses()
				s.lapse(s.key())
				_, next := hold(b)
				b.eval(s.redis(), fencedWrite, price, next, "by-B")
				a.wakes()
				if a.eval(s.redis(), fencedWrite, price, fence, "by-A").is(0) {
					s.note("refused: %d is less than %d", fence, next)
				}
				s.noLateWork(a, token, "by-A", func() any { return s.redis().look("HGET", price, "value") })
			}},
		},
	}}
}

// noLateWork judges whether the store has what a client wrote whose lock is lost, after the
// next holder has written.
func (s *Stage) noLateWork(late *client, token, wrote string, stored func() any) {
	holder, _ := s.redis().look("GET", s.key()).([]byte)
	if string(holder) == token {
		s.Cannot("%s still holds the lock: its write is not late", late.name)
	}
	value, _ := stored().([]byte)
	s.decide(noLateWork, string(value) != wrote,
		fmt.Sprintf("the lock is not %s's any more, and what %s wrote was refused: the store has %s", late.name, late.name, value),
		fmt.Sprintf("the lock is not %s's any more, and %s has written over what the next holder wrote: the store has %s", late.name, late.name, value))
}
