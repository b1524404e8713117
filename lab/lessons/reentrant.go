package lessons

import (
	"errors"
	"fmt"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

var (
	countLock   = script("count_lock")
	countUnlock = script("count_unlock")
)

const (
	mayEnterAgain = "a holder may enter again"
	innerOnly     = "an inner release ends no outer hold"
)

// reentrantLessons are about a holder that asks again.
func reentrantLessons() []Lesson {
	return []Lesson{{
		Number: 12, Name: "reentrant", Title: "The holder asks again: re-entry",
		Idea: "A function that holds a lock calls another function that takes the same lock, and keeps itself out. A re-entrant lock knows its owner, grants it the lock again, and counts how often. " +
			"But if the answer to an unlock is lost, the client sends the unlock again, and the lock counts it twice: the inner function has given up the outer one's lock.",
		Fix: "Each hold has an id of its own, and a release says which hold it ends. A release that comes a second time finds that hold gone, and ends no other: package reentrant. " +
			"Better still, take a lock in one place only.",
		Acts: []Act{
			{Title: "a lock that does not know its owner: luascript", play: func(s *Stage, a *client) {
				a.opens(byLuascript)
				a.enters()
				s.note("A calls a function that takes the lock, too")
				s.reentered(a, a.enters() != nil)
			}},
			{Title: "the same value may lock again, and nobody counts", play: func(s *Stage, a, b *client) {
				a.takes("A")
				s.note("A calls a function that takes the lock, too")
				s.reentered(a, !a.takes("A") && a.do(s.redis(), "GET", s.key()).is("A"))
				s.note("the function is done, and unlocks")
				a.eval(s.redis(), compareDelete, s.key(), "A")
				if s.redis().look("EXISTS", s.key()) == int64(0) {
					s.broken(innerOnly, "A believes it holds the lock, and its function has released it")
				}
				b.takes("B")
			}},
			{Title: "a count, and an unlock that is sent twice", lists: []string{"count_lock", "count_unlock"},
				play: func(s *Stage, a, b *client) {
					lock := func(c *client) bool {
						got := !c.eval(s.redis(), countLock, s.key(), c.name, s.px()).is(0)
						if got {
							c.holds()
						}
						return got
					}
					lock(a)
					s.note("count_lock.lua returns the count: 0 would be a refusal")
					s.note("A calls a function that takes the lock, too")
					s.reentered(a, lock(a))
					s.note("the function is done, and unlocks")
					a.node(s.redis()).loses("count_unlock")
					if _, err := a.tryEval(s.redis(), countUnlock, []string{s.key()}, a.name); err == nil {
						s.Cannot("the reply has not been lost")
					}
					a.eval(s.redis(), countUnlock, s.key(), a.name) // again, as nobody knows
					s.stillOwns(a, "owner")
					lock(b)
				}},
			{Title: "an id for each hold: package reentrant", play: func(s *Stage, a, b *client) {
				s.leavesFence()
				for _, who := range s.clients {
					who.opens(func(n []driver.Node) driver.Protocol { return reentrant.On(n[0]) })
				}
				outer := a.enters()
				s.note("acquire.lua grants: it returns the fence of A's first hold; an owner and a time would be a refusal")
				s.note("A calls a function that takes the lock, too")
				inner := a.enters()
				s.reentered(a, inner != nil)
				s.note("the function is done, and releases its hold")
				a.node(s.redis()).loses("release")
				if err := inner.Release(s.ctx); !errors.Is(err, strategy.ErrUnknown) {
					s.Cannot("the reply has not been lost: %v", err)
				}
				s.until("the release is repeated", func() bool { return s.answers(a, "release") == 2 })
				s.stillOwns(a, "hold:"+outer.Token())
				b.acquires()
				a.releases(outer)
				b.acquires()
			}},
		},
	}}
}

// reentered judges whether the holder of the lock got it once more.
func (s *Stage) reentered(c *client, got bool) {
	s.decide(mayEnterAgain, got,
		fmt.Sprintf("%s holds the lock, and has got it once more", c.name),
		fmt.Sprintf("%s is kept out by itself: if it waits, it waits for its own release", c.name))
}

// stillOwns judges whether the hash of the lock has a field that is there while the holder's
// first hold is.
func (s *Stage) stillOwns(c *client, field string) {
	if !c.holding {
		s.Cannot("%s holds no lock that could be looked at", c.name)
	}
	s.decide(ownRelease, s.redis().look("HEXISTS", s.key(), field) == int64(1),
		fmt.Sprintf("%s believes it holds the lock, and Redis has its first hold", c.name),
		fmt.Sprintf("%s believes it holds the lock, and Redis has none: what was sent again has ended %s's first hold", c.name, c.name))
}

// enters asks once, in its own name, as each of its functions does. It returns nil where it is
// kept out.
func (c *client) enters() strategy.Lease { return c.acquiresAs(strategy.WithOwner(c.s.ctx, c.name)) }
