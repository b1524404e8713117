package faults

import (
	"time"

	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/rig"
)

// failOvers are those of a server that another takes the place of.
func failOvers() []Fault {
	const (
		unheard   = "replication does not wait: the replica has not heard of the lock when it takes over, and grants it"
		guarded   = "the new server does not vote until the longest TTL has passed, and without it a rival has no quorum; the holder, who had no vote to spare, learns at its next renewal that it has lost the lock"
		elsewhere = "what the server has synced to its own file does not help the replica: that one has not heard of the lock when it takes over, and grants it"
		unguided  = "the new server votes again for what the old one has voted for"
	)
	return []Fault{
		{Name: "fail-over, write replicated",
			Story: "A holds the lock, and its server's replica has heard of it. The server dies, and the replica takes its place. B asks, A extends and releases, C asks.",
			Cells: every(Kept, "the new server has the key, with its TTL: it keeps others out, and the lock expires in time (if the two clocks agree: to a replica an expiry is a date)",
				in(Unavailable, "the new server knows the lock, but has no replica of its own, and so grants none until it is given one", acknowledged...)),
			Turned: []Sloppy{waitsForNoReplica},
			play: func(s *Stage) {
				s.do("the server has a replica", s.victim().Replicate)
				stall := func() {
					s.do("the replica has heard of all so far, and hears nothing after that", s.victim().StallReplica)
				}
				cutOff := s.sloppy != nil && s.sloppy.cutOff
				if cutOff {
					stall()
				}
				a := s.holder("A")
				if !cutOff {
					stall()
				}
				s.do("the server dies, and the replica takes its place", s.victim().FailOver)
				if s.column.replicas > 0 {
					s.later(s.victim().Replicate) // until then nobody confirms anything
				}
				s.remembered(a)
			}},
		{Name: "fail-over, waiter's connection lives",
			Story: "A holds the lock, and B waits for it. The server and its replica change places, and all connections to the old server stay open. A releases, and B gets the lock.",
			Cells: every(Kept, "whatever asks the old server is refused there, and asks the new one; who listens is probed for, and listens at the new one within a second",
				in(Kept, "a majority of the servers is where it was", "redlock")),
			Turned: []Sloppy{{Lock: broken.LooksAtNoRole}, grantsWhatIsHeld},
			play: func(s *Stage) {
				s.do("the server has a replica", s.victim().Replicate)
				a := s.holder("A")
				served := s.waiter("B")
				s.changePlaces()
				a.release()
				released := time.Now()
				if served(); time.Since(released) > s.ttl/3 {
					s.note(Unavailable, "B, who waits, sleeps until A's TTL ends, though A has released the lock")
				}
			}},
		{Name: "fail-over, idle connection lives",
			Story: "A has had the lock. The server and its replica change places, and A's connection to the old server stays open. B gets the lock, A asks, B releases, A asks.",
			Cells: every(Kept, "the old server refuses what it is asked, and A asks the new one; no answer is a replica's",
				in(Kept, "a majority of the servers is where it was", "redlock")),
			Turned: []Sloppy{grantsWhatIsHeld},
			play: func(s *Stage) {
				s.do("the server has a replica", s.victim().Replicate)
				a := s.contender("A")
				a.connect()
				s.changePlaces()
				b := s.next("B")
				if b == nil {
					return
				}
				if h, _ := a.try(); h != nil {
					return // two have it
				}
				b.release()
				if a.acquire(s.ttl/3) == nil {
					s.note(Unavailable, "A, whose connection has stayed with the old server, does not get the lock, though it is free")
				}
			}},
		{Name: "fail-over, write not replicated", Prevent: "`Options.Acks`, or `redlock`; fences",
			Story: "A gets the lock, and its server dies before its replica has heard of it. The replica takes its place. B asks; if it is refused, A extends and releases, C asks.",
			Cells: every(Violated, unheard, in(Detected, guarded, "redlock"), in(Violated, unguided, "redlock-unguarded"),
				in(Unavailable, "A learns that it has the lock only when the replica has it, too, and so not this time; the price is that a replica that is behind stops all", acknowledged...),
				in(Violated, elsewhere, synced...)),
			play: func(s *Stage) {
				s.do("the server has a replica", s.victim().Replicate)
				s.do("the replica hears nothing from now on", s.victim().StallReplica)
				a := s.unheard("A")
				s.do("the server dies, and the replica takes its place", s.victim().FailOver)
				if a == nil {
					s.later(s.victim().Replicate) // until then nobody confirms anything
					s.next("B")
					return
				}
				s.forgotten(a)
			}},
		{Name: "fail-over, old primary goes on", Prevent: "`Options.Acks`, or `min-replicas-to-write 1`; fences",
			Story: "A server is taken for dead, and its replica takes its place. A, who is connected to the old one, still gets the lock there. B, with a new connection, asks; if it is refused, A extends and releases, C asks.",
			Cells: every(Violated, "there are two servers now, and each grants the lock once", in(Kept, "the new server does not vote until the longest TTL has passed, and the old one keeps the holder's vote; then both vote, so it has to be stopped by then", "redlock"), in(Violated, unguided, "redlock-unguarded"),
				in(Unavailable, "the old server has no replica any more, so it grants nothing; nor does the new one until it is given one", acknowledged...),
				in(Violated, "there are two servers now, each with a file of its own to sync, and each grants the lock once", synced...)),
			Turned: []Sloppy{trustsOneServer},
			play: func(s *Stage) {
				s.do("the server has a replica", s.victim().Replicate)
				c := s.contender("A")
				c.connect()
				s.do("the replica takes the server's place, and the server goes on", s.victim().FailOverKeepingOld)
				c.beyond((*rig.Link).Refuse)
				a, err := c.try()
				if err != nil && s.column.replicas > 0 {
					s.note(Unavailable, "A does not get the lock: %v", err)
					s.later(s.victim().Replicate)
					s.next("B")
					return
				}
				s.Must(err, "A gets no lock from the old server")
				c.repair()
				s.forgotten(a)
			}},
	}
}

// changePlaces makes the server a replica of its own one, with all connections left open. It hears nothing more, unless the lock
// waits for it.
func (s *Stage) changePlaces() {
	s.do("the server and its replica change places", s.victim().HandOver)
	if s.column.replicas == 0 {
		s.do("the old server hears nothing from now on", s.victim().StallReplica)
	}
}

// acknowledged are the columns that wait for a replica.
var acknowledged = []string{"setnxgetset-acknowledged", "setnxpx-acknowledged", "fairqueue-acknowledged", "reentrant-acknowledged"}

// synced are the columns that wait for the append-only file.
var synced = []string{"setnxgetset-synced", "setnxpx-synced", "fairqueue-synced", "reentrant-synced"}

// unheard is a holder of whom the replica does not hear, or nil where it must.
func (s *Stage) unheard(who string) *hold {
	if s.column.replicas == 0 {
		return s.holder(who)
	}
	return s.attempt(who)
}

// attempt is a new contender who asks once for a lock that is free.
func (s *Stage) attempt(who string) *hold {
	h, err := s.contender(who).try()
	if err != nil {
		s.note(Unavailable, "%s does not get the lock: %v", who, err)
	}
	return h
}
