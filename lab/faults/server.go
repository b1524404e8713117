package faults

import (
	"context"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/rig"
)

// serverFaults are those of a server that stops, or refuses.
func serverFaults() []Fault {
	const (
		only      = "the only server is down: nobody gets the lock, and nobody has it but its holder"
		others    = "a majority of the servers goes on without it"
		refuses   = "the only server refuses, in words, and has changed nothing: nobody believes it holds what was refused"
		allowance = "one server that refuses is a minority, and the others agree without it"
	)
	return []Fault{
		{Name: "server down", Prevent: "`redlock`; `RetryOnError` to wait for the server",
			Story:  "A holds the lock, and its server is killed. B asks, A releases, C asks; then the server comes back with its file.",
			Cells:  every(Unavailable, only, in(Kept, others, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			fsync:  "always",
			held: func(s *Stage, a *hold) {
				s.down(s.victim())
				s.follow(a)
			}},
		{Name: "minority down", Prevent: "`redlock`",
			Story:  "A holds the lock. Two of five servers are killed, one of which A cannot do without; or the only one. B asks, A releases, C asks.",
			Cells:  every(Unavailable, only, in(Kept, "a majority of the servers goes on without them", "redlock")),
			Turned: []Sloppy{trustsOneServer},
			fsync:  "always",
			held: func(s *Stage, a *hold) {
				for _, n := range s.rig.Nodes[s.struck():][:len(s.rig.Nodes)-s.quorum()+1-s.spare()] {
					s.down(n)
				}
				s.follow(a)
			}},
		{Name: "majority down", Prevent: "five servers, in different places",
			Story: "A holds the lock, and three of five servers are killed. B asks, A releases, C asks.",
			Cells: every(Unavailable, only, in(Unavailable, "no majority is left to agree; the error says that, and not that the lock is held, which would be worth waiting for", "redlock")),
			fsync: "always",
			held: func(s *Stage, a *hold) {
				for _, n := range s.majority() {
					s.down(n)
				}
				s.follow(a)
			}},
		{Name: "server frozen for a moment",
			Story:  "A holds the lock. Its server is paused while A extends, and goes on before the TTL is over. A extends again.",
			Cells:  every(Kept, "an extension that was not answered leaves the deadline where it was, and the next one is answered in time"),
			Turned: []Sloppy{{Lock: broken.NeverDialsAgain}},
			held: func(s *Stage, a *hold) {
				s.do("the server is paused", s.victim().Freeze)
				a.extend()
				s.do("the server goes on", s.victim().Thaw)
				a.insist()
				s.follow(a)
			}},
		{Name: "server frozen, lock free", Prevent: "`redlock`",
			Story:  "A server is paused. A asks; if it gets the lock, B asks, A releases, and C asks.",
			Cells:  every(Unavailable, "the only server does not answer, and nobody takes silence for a yes", in(Kept, "who does not answer within the time-out for one node is not waited for, on acquire, extend and release", "redlock")),
			Turned: []Sloppy{trustsOneServer},
			play: func(s *Stage) {
				s.do("the server is paused", s.victim().Freeze)
				s.later(s.victim().Thaw)
				if a := s.next("A"); a != nil {
					a.extend()
					s.follow(a)
				}
			}},
		{Name: "server frozen past the TTL", Prevent: "a TTL longer than a server is ever paused",
			Story:  "A keeps the lock alive, and has renewed it. Its server is paused until A's deadline has come, and goes on. B asks.",
			Cells:  every(Detected, "the holder's own clock tells it at its deadline that the lock is lost, though it hears from nobody", in(Kept, "with the first renewal the servers that were not needed at first have joined, and a majority goes on renewing", "redlock")),
			Turned: []Sloppy{{Lock: broken.ExtendsAnything}, trustsOneServer},
			play: func(s *Stage) {
				a := s.holder("A", brief(s))
				a.insist()
				a.keepAlive()
				s.do("the server is paused", s.victim().Freeze)
				a.awaitLoss(3 * s.brief)
				s.do("the server goes on", s.victim().Thaw)
				s.follow(a)
			}},
		{Name: "thaw with a request in the socket",
			Story:  "A asks a server that is paused, without which it has no lock, and gives up. The server goes on, and executes what it finds. C, who cannot do without it either, asks.",
			Cells:  every(Kept, "A undoes what it does not know the end of, and the undo cannot overtake it: it goes behind it on the same connection, or on a new one when the server has dropped the old"),
			Turned: []Sloppy{{Lock: broken.UndoesNothing}},
			play: func(s *Stage) {
				c, d := s.contender("A"), s.contender("C")
				for _, who := range []*contender{c, d} {
					who.connect()
					who.beyond((*rig.Link).Refuse) // so neither can do without that server
				}
				s.do("the server is paused", s.victim().Freeze)
				c.try()
				s.do("the server goes on", s.victim().Thaw)
				if d.acquire(s.ttl/3) == nil {
					s.note(Unavailable, "C does not get the lock, though nobody works under it")
				}
			}},
		{Name: "SCRIPT FLUSH",
			Story:  "A holds the lock, and somebody empties the server's script cache. A extends, B asks, A releases, C asks.",
			Cells:  every(Kept, "a script that the server has forgotten is sent again in full; what are mere commands does not notice"),
			Turned: []Sloppy{{Lock: broken.KnowsScriptsByHash}, grantsWhatIsHeld},
			held: func(s *Stage, a *hold) {
				s.do("SCRIPT FLUSH", s.victim().FlushScripts)
				a.extend()
				s.follow(a)
			}},
		{Name: "out of memory", Prevent: "memory to spare, and an alert",
			Story: "A holds the lock, and its server is out of memory (noeviction). A extends, B asks, A releases, C asks.",
			Cells: every(Unavailable, "nothing new is granted, since that takes memory; what is held can be renewed and released, since that takes none",
				in(Unavailable, "nothing new is granted, and what is held cannot be renewed, since both write a value; it can be released", "setnxgetset"),
				in(Unavailable, "nothing new is granted, and a transaction is refused whatever is in it, so what is held can be neither renewed nor released", "setnxgetset-watch"),
				in(Kept, allowance, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			held: func(s *Stage, a *hold) {
				s.do("the server is out of memory", s.victim().FillMemory)
				s.later(s.victim().FreeMemory)
				a.extend()
				s.follow(a)
			}},
		{Name: "ACL: DEL is denied", Prevent: "the rights of [security](../run/security.md); `Check` at the start",
			Story:  "A holds the lock, and its user is denied DEL. A releases, C asks.",
			Cells:  every(Unavailable, "the release is refused, so the lock stays until its TTL is over", in(Kept, allowance, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			held: func(s *Stage, a *hold) {
				s.denied(s.deleting()...)
				s.follow(a)
			}},
		{Name: "ACL: writing is denied", Prevent: "the rights of [security](../run/security.md); `Check` at the start",
			Story:  "The contenders' user is denied all that writes. A asks; if it gets the lock, B asks, A releases, C asks.",
			Cells:  every(Unavailable, refuses, in(Kept, allowance, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			play: func(s *Stage) {
				s.denied("@write", "@scripting")
				s.beginAfterFault()
			}},
		{Name: "key of another type", Prevent: "a key prefix that only locks use",
			Story:  "Somebody has put a list where the lock should be. A asks; if it gets the lock, B asks, A releases, C asks.",
			Cells:  every(Unavailable, "the error says that the key is no lock, and the list is left alone: it may be somebody's data", in(Kept, allowance, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			play: func(s *Stage) {
				s.spoil()
				s.beginAfterFault()
				s.unspoilt()
			}},
		{Name: "lock overwritten", Prevent: "a key prefix that only locks use",
			Story: "A holds the lock, and somebody puts a list in its place. B asks, A releases, C asks.",
			Cells: every(Unavailable, "the error says that the key is no lock, and the list is left alone: it may be somebody's data",
				in(Kept, allowance, "redlock"),
				in(Violated, "DEL does not compare: it deletes whatever is there, also somebody's data", "setnxgetset-blind", "setnxpx-blind")),
			Turned: []Sloppy{trustsOneServer},
			held: func(s *Stage, a *hold) {
				s.spoil()
				s.follow(a)
				s.unspoilt()
			}},
		{Name: "primary turned into a replica", Prevent: "Sentinel or a cluster client, which follow the primary",
			Story:  "A holds the lock, and its server is made a read-only replica of nobody. B asks, A releases, C asks.",
			Cells:  every(Unavailable, refuses, in(Kept, allowance, "redlock")),
			Turned: []Sloppy{trustsOneServer},
			held: func(s *Stage, a *hold) {
				s.do("the server becomes a replica", s.victim().ReadOnly)
				s.later(s.victim().Writable)
				s.follow(a)
			}},
		{Name: "too few replicas (min-replicas-to-write)", Prevent: "one replica more than the setting needs",
			Story: "A holds the lock, and its server may write only with a replica, and has none unless the lock waits for one. B asks, A releases, C asks.",
			Cells: every(Unavailable, refuses, in(Kept, allowance, "redlock"),
				in(Kept, "the server has the replica that the lock waits for, so there are not too few", acknowledged...)),
			Turned: []Sloppy{trustsOneServer, grantsWhatIsHeld},
			held: func(s *Stage, a *hold) {
				s.do("min-replicas-to-write 1", func(ctx context.Context) error { return s.victim().MinReplicas(ctx, 1) })
				s.later(func(ctx context.Context) error { return s.victim().MinReplicas(ctx, 0) })
				s.follow(a)
			}},
	}
}

// down kills a server until the play is over.
func (s *Stage) down(n *rig.Node) {
	s.do("a server is killed", n.Kill)
	s.later(n.Restart)
}

// spare is 1 where a minority is none.
func (s *Stage) spare() int {
	if len(s.rig.Nodes) == 1 {
		return 0
	}
	return 1
}

func (s *Stage) denied(commands ...string) {
	s.do("the server's ACL denies "+commands[0], func(ctx context.Context) error { return s.victim().Deny(ctx, commands...) })
	s.later(s.victim().Allow)
}

// deleting are the commands by which the strategy may delete a key: that of a set goes with its last member.
func (s *Stage) deleting() []string {
	all := []string{"del"}
	switch kind, err := redis.String(s.victim().Do(s.ctx, "TYPE", s.key())); {
	case err != nil:
		s.Cannot("looking at the lock: %w", err)
	case kind == "zset":
		all = append(all, "zrem")
	}
	for _, cmd := range s.column.Commands {
		known, err := redis.Values(s.victim().Do(s.ctx, "COMMAND", "INFO", cmd))
		s.Must(err, "asking for %s", cmd)
		if known[0] != nil {
			all = append(all, strings.ToLower(cmd))
		}
	}
	return all
}

func (s *Stage) spoil() {
	s.do("a list is put where the lock is", func(ctx context.Context) error { return s.victim().Spoil(ctx, s.key()) })
	s.later(func(ctx context.Context) error {
		_, err := s.victim().Do(ctx, "DEL", s.key())
		return err
	})
}

// unspoilt looks whether the list is still there.
func (s *Stage) unspoilt() {
	switch is, err := redis.String(s.victim().Do(s.ctx, "TYPE", s.key())); {
	case err != nil:
		s.Cannot("looking for the list: %w", err)
	case is != "list":
		s.note(Violated, "the list, which is not theirs, is gone")
	}
}
