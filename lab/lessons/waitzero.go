package lessons

import (
	"errors"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

// waitZeroLessons are about a replica that does not confirm.
func waitZeroLessons() []Lesson {
	return []Lesson{{
		Number: 24, Name: "wait-zero", Title: "WAIT returns 0: granted, and not confirmed", Own: true,
		Servers: 2, names: []string{"primary", "replica"},
		Idea: "WAIT returns how many replicas have confirmed the connection's last write. It returns that also when its time is over, so 0 is no error. " +
			"And 0 is no refusal: the primary has the lock, and a client that goes away leaves it there until its TTL is over.",
		Fix: "Take 0 for \"nobody knows\": delete the lock by your token, and ask again. Package luascript does so with Options.Acks, and reports ErrUnknown. " +
			"With min-replicas-to-write 1 the primary itself refuses writes when no replica has answered it for 10 s.",
		Acts: []Act{
			{Title: "A does not look at what WAIT returns", play: func(s *Stage, a, b *client) {
				primary, replica := s.cutPair()
				began := time.Now()
				a.unconfirmed(primary, "token-of-A")
				s.note("A has seen the OK, and does not look at the 0")
				a.holds()
				primary.dies()
				replica.promoted()
				b.takesAt(replica, "token-of-B")
				s.stillHeld(began)
			}},
			{Title: "A takes 0 for a refusal, and goes away", play: func(s *Stage, a, b *client) {
				primary, _ := s.cutPair()
				a.unconfirmed(primary, "token-of-A")
				s.note("A goes away")
				s.nobodys(b, func() bool { return b.takesAt(primary, "token-of-B") })
			}},
			{Title: "A deletes what nobody has confirmed", play: func(s *Stage, a, b *client) {
				primary, replica := s.cutPair()
				a.unconfirmed(primary, "token-of-A")
				a.eval(primary, compareDelete, s.key(), "token-of-A")
				replica.follows(primary)
				began := time.Now()
				s.nobodys(b, func() bool {
					b.takesAndWaits(primary, "token-of-B")
					return b.holding
				})
				primary.dies()
				replica.promoted()
				a.takesAt(replica, "token-of-A")
				s.stillHeld(began)
				b.ends()
				b.eval(replica, compareDelete, s.key(), "token-of-B")
				a.takesAt(replica, "token-of-A")
			}},
			// WAIT waits for a part of the time-out.
			// And is answered up to 100 ms late.
			{Title: "the same by package luascript, with Options.Acks", Timed: true, long: 6, play: (*Stage).unacknowledged},
		},
	}}
}

// cutPair is a primary and its replica, which hears of nothing that is written from here on.
func (s *Stage) cutPair() (primary, replica *server) {
	primary, replica = s.servers[0], s.servers[1]
	replica.follows(primary)
	replica.cutOff()
	return primary, replica
}

// unconfirmed has the client set the lock, and wait in vain for a replica.
func (c *client) unconfirmed(primary *server, token string) {
	if n, ok := c.setsAndWaits(primary, token, patience); !ok || n != 0 {
		c.s.Cannot("%s: %d replicas have confirmed the lock, which it has: %v", c.name, n, ok)
	}
}

// setsAndWaits is SET, and WAIT for one replica on the same connection. It returns how many
// have confirmed; not ok: another has the lock.
func (c *client) setsAndWaits(srv *server, token string, within time.Duration) (confirmed int64, ok bool) {
	c.session(srv, c.s.key(), func(do func(string, ...any) reply) {
		if ok = do("SET", c.s.key(), token, "NX", "PX", c.s.px()).is("OK"); ok {
			confirmed, _ = do("WAIT", 1, within.Milliseconds()).value.(int64)
		}
	})
	return confirmed, ok
}

// unacknowledged has A ask by package luascript, and B when A has had its answer.
func (s *Stage) unacknowledged() {
	s.rehearse()
	a, b := s.client("A"), s.client("B")
	primary, _ := s.cutPair()
	a.opens(byLuascript, func(o *strategy.Options) { o.OpTimeout, o.Acks = s.ttl/4, strategy.Acks{Replicas: 1} })
	_, err := a.locks.NewLock(s.name).TryAcquire(s.ctx)
	var acks *strategy.AcksError
	if !errors.Is(err, strategy.ErrUnknown) || !errors.As(err, &acks) || acks.Err != nil {
		s.late("A hears: %v", err)
	}
	s.note("A hears: %d of %d replicas have confirmed, so nobody knows (ErrUnknown)", acks.Got.Replicas, acks.Want.Replicas)
	a.locks.Close() // which waits for the undo
	s.nobodys(b, func() bool { return b.takesAt(primary, "token-of-B") })
}
