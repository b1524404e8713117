package lessons

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/rig"
)

// restarts is how much longer locks last, in TTLs, where a server has to come back first.
const restarts = 10

// durabilityLessons are about what becomes of a lock when its server ends.
func durabilityLessons() []Lesson { return []Lesson{powerLoss(), failOver()} }

func powerLoss() Lesson {
	return Lesson{
		Number: 13, Name: "power-loss", Title: "Power loss: Redis forgets the lock", Own: true,
		Idea: "Redis has its keys in memory, and writes them to the disk later, or never. Redis loses what is not on the disk when it ends. " +
			"A lock that Redis has forgotten is free, whatever its holder believes.",
		Fix: "appendfsync always: Redis writes to the disk before it answers, which makes every grant as slow as the disk. " +
			"Where that is too slow, keep a Redis that may have forgotten locks away until the longest TTL is over.",
		Acts: []Act{
			{Title: "nothing is kept, and Redis is killed", long: restarts, play: func(s *Stage, a, b *client) {
				s.forgotten(a, b, func() { s.restarts("starts again, and has nothing to read") })
			}},
			{Title: "snapshots (RDB): what is younger than the last one is lost", long: restarts, play: func(s *Stage, a, b *client) {
				s.redis().look("SET", "price:tea", 5)
				s.redis().look("SAVE")
				s.ending = append(s.ending, func() { // no later act reads what this one has saved
					s.redis().node.Do(s.ctx, "FLUSHALL")
					s.redis().node.Do(s.ctx, "SAVE")
				})
				s.forgotten(a, b, func() {
					s.restarts("starts again, and reads its snapshot")
					s.redis().look("GET", "price:tea")
				})
			}},
			// A power loss takes what was written in the second before it.
			{Title: "appendonly yes, appendfsync everysec: the last second is lost", long: restarts, Timed: true,
				play: func(s *Stage, a, b *client) {
					s.persists("everysec")
					var disk *rig.Checkpoint
					s.happens("a sync: this much is on the disk", func(ctx context.Context) (err error) {
						disk, err = s.redis().node.Checkpoint(ctx)
						return err
					})
					s.forgotten(a, b, func() { s.losesPower(disk) })
				}},
			{Title: "appendonly yes, appendfsync always: nothing is lost that was answered", long: restarts,
				play: func(s *Stage, a, b *client) {
					s.persists("always")
					began := time.Now()
					a.takes("token-of-A")
					b.takes("token-of-B")
					s.redis().look("PTTL", s.key())
					s.losesPower(nil)
					s.redis().look("GET", s.key())
					s.redis().look("PTTL", s.key())
					s.note("the file has the moment at which the lock ends, so reading it starts no TTL again")
					b.takes("token-of-B")
					s.stillHeld(began)
					a.eval(s.redis(), compareDelete, s.key(), "token-of-A")
					a.ends()
					b.takes("token-of-B")
				}},
		},
	}
}

// forgotten has A hold the lock, and B ask for it before and after the server has lost what it loses.
func (s *Stage) forgotten(a, b *client, loss func()) {
	began := time.Now()
	a.takes("token-of-A")
	b.takes("token-of-B")
	loss()
	s.redis().look("GET", s.key())
	b.takes("token-of-B")
	s.stillHeld(began)
}

// restarts kills Redis, and starts it again.
func (s *Stage) restarts(what string) {
	s.redis().becomes(Dead, "is killed", s.redis().node.Kill)
	s.redis().becomes(Alive, what, s.redis().node.Restart)
	s.redis().disconnected()
}

// persists has Redis keep an append-only file.
func (s *Stage) persists(fsync string) {
	s.happens("redis writes each command to a file", func(ctx context.Context) error {
		return s.redis().node.Persist(ctx, fsync)
	})
	s.redis().look("CONFIG", "GET", "appendfsync")
}

// losesPower ends Redis, and starts it with what the disk had.
func (s *Stage) losesPower(disk *rig.Checkpoint) {
	redis := s.redis()
	what := "loses its power (emulated: it is killed, and keeps its file: all in it was synced before it was answered)"
	if disk != nil {
		what = "loses its power before the next sync (emulated: it is killed, and its file put back as it was at the sync)"
	}
	// What is done is one step with the start: the moment of the loss is when that begins.
	redis.becomes(Dead, what, func(context.Context) error { return nil })
	redis.becomes(Alive, "starts again, and reads its file", func(ctx context.Context) error {
		err := redis.node.PowerLoss(ctx, disk)
		if errors.Is(err, rig.ErrStale) {
			s.late("the power loss: %w", err)
		}
		return err
	})
	redis.disconnected()
}

// served is what a lock that nobody can ask for breaks, however well it excludes.
const served = "who asks is served within a TTL"

func failOver() Lesson {
	return Lesson{
		Number: 14, Name: "fail-over", Title: "Fail-over: the replica has not heard of the lock", Own: true, Servers: 3,
		Idea: "A replica has a copy of its primary's keys. When the primary dies the replica takes over, so that there is a Redis to ask. " +
			"But a primary answers first and tells its replicas after that. A lock that it did not tell them of dies with it.",
		Fix: "Promote a replica only when a TTL has gone by; until then nobody gets a lock. Or believe in a grant only when every replica that may be promoted has it (luascript.Acknowledged); " +
			"then nobody gets a lock while one of them is down. Or let several servers vote that know nothing of each other: RedLock, the next lesson.",
		Acts: []Act{
			{Title: "the replica is behind, and is promoted at once", play: func(s *Stage, a, b *client) {
				s.cast("primary", "replica")
				primary, replica := s.cutPair()
				began := time.Now()
				a.takesAt(primary, "token-of-A")
				b.takesAt(primary, "token-of-B")
				died := primary.dies()
				replica.look("GET", s.key())
				replica.promoted()
				b.takesAt(replica, "token-of-B")
				s.serves(b, died)
				s.stillHeld(began)
			}},
			{Title: "the replica is promoted when a TTL has gone by", play: func(s *Stage, a, b *client) {
				s.cast("primary", "replica")
				primary, replica := s.cutPair()
				deadline := a.now().Add(s.ttl)
				a.takesAt(primary, "token-of-A")
				b.takesAt(primary, "token-of-B")
				died := primary.dies()
				b.tries(primary, "token-of-B")
				b.tries(replica, "token-of-B")
				s.lapse()
				a.stops(deadline)
				replica.promoted()
				b.takesAt(replica, "token-of-B")
				s.serves(b, died)
			}},
			{Title: "WAIT: A believes in a lock that the replica has", play: func(s *Stage, a, b *client) {
				c := s.cast("primary", "replica")
				primary, replica := c[0], c[1]
				replica.follows(primary)
				began := time.Now()
				a.takesAndWaits(primary, "token-of-A")
				died := primary.dies()
				replica.promoted()
				b.takesAt(replica, "token-of-B")
				s.serves(b, died)
				s.stillHeld(began)
				a.eval(replica, compareDelete, s.key(), "token-of-A")
				a.ends()
				b.takesAt(replica, "token-of-B")
			}},
			{Title: "WAIT, and another replica is promoted than the one that has the lock", play: func(s *Stage, a, b *client) {
				c := s.cast("primary", "r1", "r2")
				primary, first, second := c[0], c[1], c[2]
				first.follows(primary)
				second.follows(primary)
				second.cutOff()
				began := time.Now()
				a.takesAndWaits(primary, "token-of-A")
				first.look("GET", s.key())
				second.look("GET", s.key())
				died := primary.dies()
				second.promoted()
				b.takesAt(second, "token-of-B")
				s.serves(b, died)
				s.stillHeld(began)
			}},
		},
	}
}

// cast gives as many of the servers as are named these names, and leaves the others out.
func (s *Stage) cast(names ...string) []*server {
	actors := s.trace.Actors
	for len(actors) > 0 && actors[len(actors)-1].Server {
		actors = actors[:len(actors)-1]
	}
	s.servers = s.servers[:len(names)]
	for i, name := range names {
		s.servers[i].name = name
		actors = append(actors, Actor{Name: name, Server: true, URL: s.servers[i].url()})
	}
	s.trace.Actors = actors
	return s.servers
}

// follows makes it the primary's replica.
func (srv *server) follows(primary *server) {
	srv.s.happens(srv.name+" copies "+primary.name+", and follows it", func(ctx context.Context) error {
		return srv.node.Follow(ctx, primary.node)
	})
}

// cutOff: it hears nothing of its primary any more.
func (srv *server) cutOff() {
	srv.s.happens(srv.name+" is cut off, and falls behind", srv.node.ReadOnly)
}

// dies is the end of a primary. It returns when that was.
func (srv *server) dies() time.Time {
	srv.becomes(Dead, "dies", srv.node.Kill)
	srv.disconnected()
	return srv.s.clock()
}

// promoted makes a replica a primary, to which clients turn.
func (srv *server) promoted() {
	srv.s.happens(srv.name+" is promoted: clients turn to it", srv.node.Writable)
}

// clock is the clients' common wall clock.
func (s *Stage) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.moved)
}

// serves judges how long nobody was served: until now, when c has been.
func (s *Stage) serves(c *client, died time.Time) {
	gap := s.clock().Sub(died)
	s.decide(served, gap < s.ttl,
		fmt.Sprintf("%s is served %v after the primary's death, and a TTL is %v", c.name, gap.Round(time.Millisecond), s.ttl),
		fmt.Sprintf("nobody is served for %v after the primary's death, and a TTL is %v", gap.Round(time.Millisecond), s.ttl))
}

// stops: its own clock tells the holder that the lock is over.
func (c *client) stops(deadline time.Time) {
	if now := c.now(); now.Before(deadline) {
		c.s.Cannot("%s still has %v", c.name, deadline.Sub(now))
	}
	c.s.note("%s's deadline has come, by its own clock", c.name)
	c.ends()
}

// tries is takesAt where no answer, or a refusal, is to be expected.
func (c *client) tries(srv *server, token string) {
	got, err := c.try(srv, "SET", c.s.key(), token, "NX", "PX", c.s.px())
	if err == nil && got.is("OK") {
		c.holds()
	}
}

// takesAndWaits is takesAt, and the lock counts only if one replica has it.
func (c *client) takesAndWaits(srv *server, token string) {
	switch n, ok := c.setsAndWaits(srv, token, c.s.ttl/4); {
	case ok && n > 0:
		c.holds()
	case ok:
		c.s.late("no replica has confirmed the lock")
	}
}
