package lessons

import (
	"context"
	"fmt"
	"time"
)

// clockBackLessons are about a server whose clock is set back.
func clockBackLessons() []Lesson {
	return []Lesson{{
		Number: 23, Name: "clock-back", Title: "A server's clock is set back: a dead holder's lock stays",
		Idea: "Redis notes a TTL as a moment by its server's wall clock. When an operator sets that clock back by an hour, each key lasts an hour longer. " +
			"A living holder still releases its lock, and nobody else gets in before. But a dead holder's lock keeps everybody out for the hour.",
		Fix: "Slew the servers' clocks, and never set them. A PTTL that is longer than any TTL in use shows the fault. Then an operator who knows that the holder is dead deletes the lock by its token. " +
			"With RedLock one such server of five does no harm: on the others the lock expires in time, and they are a majority.",
		Servers: 5,
		Acts: []Act{
			{Title: "one server, and its clock is set back by an hour", play: func(s *Stage, a, b *client) {
				redis := s.cast("redis")[0]
				a.takes("token-of-A")
				a.dies()
				redis.setBack()
				s.lapse()
				s.freed(b, func() bool { return b.takes("token-of-B") }, s.keptOn)
				ops := s.client("ops")
				s.note("an operator (ops) knows that A is dead, and deletes A's lock, by its token")
				ops.eval(redis, compareDelete, s.key(), "token-of-A")
				b.takes("token-of-B")
			}},
			{Title: "RedLock: the clock of one of five is set back by an hour", play: func(s *Stage, a, b *client) {
				a.elects(s.servers)
				a.dies()
				s.servers[0].setBack()
				all := s.servers
				s.servers = all[1:] // on which it lapses
				s.lapse(s.key())
				s.servers = all
				s.freed(b, func() bool { return b.elects(all) }, s.keptOn)
			}},
		},
	}}
}

// setBack is what a clock that is set back by an hour means for the lock.
func (srv *server) setBack() {
	s := srv.s
	s.happens(srv.name+"'s clock is set back by an hour (emulated: PEXPIRE)", func(context.Context) error {
		left := srv.ask("PTTL", s.key()).(int64)
		if left <= 0 {
			s.late("the lock was lost before the clock was set back")
		}
		srv.ask("PEXPIRE", s.key(), left+time.Hour.Milliseconds())
		return nil
	})
	srv.look("PTTL", s.key())
}

// keptOn is what keeps a dead holder's lock then.
func (s *Stage) keptOn() string {
	return fmt.Sprintf("a TTL after its holder's death the server keeps the key for %d ms more", s.redis().look("PTTL", s.key()))
}
