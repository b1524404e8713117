package lessons

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/strategy"
)

const freeIfUnheld = "a lock that nobody holds is free"

// lateGrantLessons are about a request that takes effect when nobody waits for it any more.
func lateGrantLessons() []Lesson {
	return []Lesson{{
		Number: 20, Name: "late-grant", Title: "A late grant: the undo overtakes the request",
		Idea: "A client without an answer in time does not know whether it has got the lock. So it gives up, and takes back what it may have got. " +
			"But its request may still be on its way. If it arrives after that, the server grants the lock to a client that has left.",
		Fix: "The undo has to arrive after the request: on the same connection, or on another one when the server has closed the first. " +
			"This module's connections see to that.",
		Own: true,
		Acts: []Act{
			{Title: "undone on another connection", lists: []string{"compare_delete"}, play: func(s *Stage, a *client) {
				first := a.dials(s.redis())
				first.holdUp()
				first.sends("SET", s.key(), "token-of-A", "NX", "PX", s.px())
				first.receives(patience)
				s.note("A gives up, and opens another connection")
				second := a.dials(s.redis())
				second.evals(compareDelete, s.key(), "token-of-A")
				second.hears()
				first.arrives("what was held up arrives")
				b := s.client("B")
				s.nobodys(b, func() bool { return b.takes("token-of-B") })
				s.lapse(s.key())
				b.takes("token-of-B")
			}},
			{Title: "undone on the same connection, behind the request", play: func(s *Stage, a *client) {
				only := a.dials(s.redis())
				only.holdUp()
				only.sends("SET", s.key(), "token-of-A", "NX", "PX", s.px())
				s.note("A gives up")
				only.evals(compareDelete, s.key(), "token-of-A")
				only.arrives("what was held up arrives, in order")
				only.hears()
				only.hears()
				b := s.client("B")
				s.nobodys(b, func() bool { return b.takes("token-of-B") })
			}},
			{Title: "undone on another connection, when the first is known to be dead", play: func(s *Stage, a *client) {
				first := a.dials(s.redis())
				first.sends("CLIENT", "ID")
				id := first.hears().text()
				first.holdUp()
				first.sends("SET", s.key(), "token-of-A", "NX", "PX", s.px())
				first.receives(patience)
				s.note("A gives up, and opens another connection")
				second := a.dials(s.redis())
				second.sends("CLIENT", "KILL", "ID", id)
				second.hears()
				second.evals(compareDelete, s.key(), "token-of-A")
				second.hears()
				first.arrives("what was held up goes on, on a connection that the server has closed")
				b := s.client("B")
				s.nobodys(b, func() bool { return b.takes("token-of-B") })
			}},
			// A has to give up before the reader who steps has read on.
			{Title: "the same by package luascript", Timed: true, play: (*Stage).undoneByModule},
		},
	}}
}

// undoneByModule has A ask for the lock by package luascript, and hear nothing. Its first
// connection is held up, and those that it opens then are not.
func (s *Stage) undoneByModule() {
	srv := s.redis()
	s.rehearse()
	a, b := s.client("A"), s.client("B")
	first, others := srv.node.Link(), srv.node.Link()
	var to atomic.Pointer[redis.Pool]
	to.Store(first.Pool())
	n := redigonode.New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return to.Load().DialContext(ctx)
	}})
	a.goesBy(srv, n)
	id, err := redis.Int64(n.Do(s.ctx, s.due(), "CLIENT", "ID"))
	if err != nil {
		s.Cannot("A has no connection: %w", err)
	}
	to.Store(others.Pool())
	a.opens(byLuascript, func(o *strategy.Options) { o.OpTimeout = patience })
	b.opens(byLuascript, func(o *strategy.Options) { o.OpTimeout = s.ttl / 2 })

	s.happens("what A sends from here on is held up on the way", func(context.Context) error {
		first.Hold(rig.Requests)
		return nil
	})
	if _, err := a.locks.NewLock(s.name).TryAcquire(s.ctx); !errors.Is(err, strategy.ErrUnknown) {
		s.Cannot("A hears of its request: %v", err)
	}
	s.note("A gives up")
	a.locks.Close() // which waits for the undo
	s.happens("what was held up goes on", func(context.Context) error {
		first.Heal()
		return srv.ends(id)
	})
	s.nobodys(b, func() bool { return b.acquires() != nil })
}

// patience is how long a client waits for an answer of which the stage knows that it is held up.
const patience = 50 * time.Millisecond

// nobodys judges whether a lock that nobody believes it holds is free: the next client to ask gets it.
func (s *Stage) nobodys(c *client, try func() bool) {
	for _, other := range s.clients {
		if other.holding && !other.dead {
			s.Cannot("%s holds the lock", other.name)
		}
	}
	if try() {
		s.judge(freeIfUnheld, true, "nobody held it, and %s, who asked, has got it", c.name)
		return
	}
	s.redis().look("GET", s.key())
	ms := s.redis().look("PTTL", s.key())
	s.broken(freeIfUnheld, "nobody holds it, and nobody gets it for %d ms more", ms)
}

// rehearse has the server know the scripts of package luascript, so that none needs to be sent
// again in full.
func (s *Stage) rehearse() {
	s.offstage(func() {
		c := s.client("rehearsal")
		c.opens(byLuascript)
		lease, err := c.locks.NewLock("rehearsal").TryAcquire(s.ctx)
		if err == nil {
			err = lease.Release(s.ctx)
		}
		if err != nil {
			s.Cannot("rehearsal: %w", err)
		}
	})
}
