package faults

import (
	"context"
	"errors"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/strategy"
)

// clientFaults are those of the contenders themselves.
func clientFaults() []Fault {
	return []Fault{
		{Name: "holder dies", Prevent: "a short TTL: the others wait for it",
			Story: "A holds the lock, and dies. C asks.",
			Cells: every(Unavailable, "a dead holder releases nothing: the lock is free when its TTL is over"),
			held: func(s *Stage, a *hold) {
				a.by.die()
				a.over.Store(true)
				s.next("C")
			}},
		{Name: "contender dies within its acquire", Prevent: "a short TTL: the others wait for it",
			Story: "A's first request to acquire is executed, and A dies before it hears of it. C asks.",
			Cells: every(Unavailable, "the request that takes the lock also says when it lapses, in one step: the lock is free when its TTL is over"),
			play: func(s *Stage) {
				a := s.contender("A")
				a.prepare()
				died := a.at(1, nil, func() { s.granted(); a.die() })
				h, _ := a.try()
				if died(); h != nil {
					h.over.Store(true)
				}
				s.next("C")
			}},
		{Name: "acquire cancelled",
			Story:  "A's acquire is granted, and A's context is cancelled before it hears of it. C asks.",
			Cells:  every(Kept, "A learns that it does not hold the lock, and what it might have got is undone in the background"),
			Turned: []Sloppy{{Lock: broken.UndoesNothing}, releasesNothing},
			play: func(s *Stage) {
				a := s.contender("A")
				a.prepare()
				a.beyond((*rig.Link).Refuse)
				ctx, cancel := context.WithCancel(s.ctx)
				defer cancel()
				returned := make(chan struct{})
				a.at(1, nil, func() { s.granted(); cancel(); <-returned })
				lease, err := a.locks.NewLock(s.name).TryAcquire(ctx)
				close(returned)
				if err != nil {
					s.say("A's context ends, and A hears: %s", s.words(err))
				}
				if h := a.got(lease, err); h != nil {
					s.Cannot("A hears of it in time")
				}
				s.next("C")
			}},
		{Name: "waiter gives up",
			Story: "A holds the lock, B waits for it, and gives up. A releases, C asks.",
			Cells: every(Kept, "who waits leaves nothing on a server, so there is nothing to take back",
				in(Kept, "who gives up leaves the queue, and a release passes over an entry for which nobody listens", "fairqueue", "semaphore", "rwlock")),
			Turned: []Sloppy{grantsWhatIsHeld},
			held: func(s *Stage, a *hold) {
				s.contender("B").acquire(s.brief / 4)
				a.release()
				s.next("C")
			}},
		{Name: "renewal fails to run", Prevent: "processors to spare; `Do`, whose context ends in time",
			Story: "A holds the lock and does not renew it: what was to do that has died. B waits.",
			Cells: every(Detected, "the holder's own clock tells it at its deadline that the lock is lost, and the deadline comes before the lock expires on the servers"),
			play: func(s *Stage) {
				a := s.holder("A", brief(s))
				s.succeeds("B", "its TTL")
				a.awaitLoss(0)
			}},
		{Name: "renewal outlives the work", Prevent: "`Options.MaxHold`",
			Story: "A keeps the lock alive, for a maximum hold, and forgets to release it. B waits.",
			Cells: every(Detected, "the last renewal asks for no more than is left of the maximum hold, so the lock expires when the lease is over"),
			play: func(s *Stage) {
				a := s.holder("A", brief(s))
				s.Must(a.lease.KeepAlive(3*s.brief/2), "KeepAlive")
				s.succeeds("B", "the maximum hold")
				a.awaitLoss(0)
			}},
		{Name: "pool exhausted",
			Story: "A's connection pool has one connection, and another part of A's program keeps it. A acquires, extends, B asks, A releases, C asks.",
			Cells: every(Kept, "the strategy has a connection of its own, dialled outside the pool",
				in(Unavailable, "its transactions borrow a connection of the pool, and there is none", "setnxgetset-watch"),
				in(Unavailable, "it waits for the replica on a connection of the pool, and there is none", acknowledged...),
				in(Unavailable, "it waits for the sync on a connection of the pool, and there is none", synced...)),
			Turned: []Sloppy{{Lock: broken.SharesThePool}},
			play: func(s *Stage) {
				var kept []redis.Conn
				s.tired = func(l *rig.Link) *redis.Pool {
					p := l.PoolOf(1, true)
					kept = append(kept, p.Get())
					return p
				}
				a := s.contender("A")
				s.tired = nil
				h := a.acquire(s.ttl / 3)
				if h == nil {
					s.note(Unavailable, "A does not get the lock")
				} else {
					h.insist()
					s.rival("B")
					h.release()
				}
				s.next("C")
				for _, c := range kept {
					c.Close()
				}
			}},
		{Name: "expiry within the release", Prevent: "a strategy whose release is one step",
			Story: "A releases. Just before the request that deletes, the lock expires, and B gets it. C asks.",
			Cells: every(Detected, "comparing and deleting are one step: A learns that it has lost the lock",
				in(Violated, "two steps: A compared when the lock was still its own, and now deletes B's", "setnxgetset", "setnxpx"),
				in(Violated, "DEL does not compare, and frees B's lock", "setnxgetset-blind", "setnxpx-blind"),
				in(Detected, "WATCH notices that the key has changed, so the transaction does nothing, and A learns that it has lost the lock", "setnxgetset-watch")),
			held: func(s *Stage, a *hold) {
				expired := a.by.at(s.column.deletes, func() { a.over.Store(true); s.expire(); s.rival("B") }, nil)
				a.release()
				expired()
				s.rival("C")
			}},
		{Name: "expiry within the extension", Prevent: "a strategy whose extension is one step",
			Story: "A extends. Just before the request that renews, the lock expires, and B gets it. A believes what it hears. C asks.",
			Cells: every(Detected, "comparing and renewing are one step: A learns that it has lost the lock",
				in(Violated, "two steps: A compared when the lock was still its own, and now renews B's, and believes that it is its own", "setnxgetset", "setnxpx"),
				in(Detected, "WATCH notices that the key has changed, so the transaction does nothing, and A learns that it has lost the lock", "setnxgetset-watch")),
			held: func(s *Stage, a *hold) {
				var b *hold
				expired := a.by.at(s.column.renews, func() { a.over.Store(true); s.expire(); b = s.rival("B") }, nil)
				err := a.lease.Extend(s.ctx)
				expired()
				a.saysExtended(err)
				switch {
				case errors.Is(err, strategy.ErrLost):
					s.note(Detected, "A has lost the lock, and hears: %s", s.words(err))
				case err == nil && b != nil && b.lease.Err() == nil:
					s.note(Violated, "B holds the lock, and A hears that it has extended it")
				}
				s.rival("C")
			}},
		{Name: "release after another has it", Prevent: "`Do`, which keeps the lock alive",
			Story: "The lock expires, B gets it, and A, who has not noticed, releases. C asks.",
			Cells: every(Detected, "the release compares, finds B's token, and A learns that it has lost the lock",
				in(Violated, "DEL does not compare, and frees B's lock", "setnxgetset-blind", "setnxpx-blind")),
			held: func(s *Stage, a *hold) {
				a.over.Store(true)
				s.expire()
				s.rival("B")
				a.release()
				s.rival("C")
			}},
	}
}

// misuse is what those who use a lock do to it.
func misuse() []Fault {
	return []Fault{
		{Name: "operator's release", Prevent: "the fence; end the holder before you release its lock",
			Story: "A holds the lock. An operator looks at it, and releases it by force. B asks.",
			Cells: every(Violated, "the holder is not asked, and learns of it at its next renewal: until then two believe, and only a fence keeps their writes apart"),
			held: func(s *Stage, a *hold) {
				op := s.contender("operator")
				seen, err := op.locks.Inspect(s.ctx, s.name)
				s.Must(err, "Inspect")
				err = op.locks.ForceRelease(s.ctx, seen)
				s.say("an operator takes the lock from A: %s", s.words(err))
				s.follow(a)
			}},
	}
}
