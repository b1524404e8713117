package faults

import (
	"context"
	_ "embed"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/broken"
)

//go:embed jump_holds.lua
var jumpHolds string

// jump is a jump of the server's clock, as far as it concerns what the server keeps.
func (s *Stage) jump(ahead time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := s.victim().Do(ctx, "EVAL", jumpHolds, 1, s.key(), ahead.Milliseconds()); err != nil {
			return err
		}
		return s.victim().JumpClock(ctx, ahead)
	}
}

// clockFaults are those of clocks.
func clockFaults() []Fault {
	// The thing to break is not there, so there is nothing to play, and no lock that a
	// play could convict. internal/layout holds the sources to it.
	monotonic := derived(Kept, "not played, as it follows from the source, to which a test holds it: no contender's wall clock is read, and no server told a date; time is counted by the servers and by monotonic clocks")
	back := func(jumps bool) func(*Stage) {
		return func(s *Stage) {
			a := s.holder("A", brief(s))
			a.by.die()
			a.over.Store(true)
			if jumps {
				s.do("the server's clock jumps back", s.jump(-s.ttl))
			}
			time.Sleep(time.Until(a.lease.Deadline().Add(s.brief / 10)))
			s.next("C")
		}
	}
	return []Fault{
		{Name: "server's clock jumps ahead", Prevent: "clocks that are slewed, never stepped",
			Story: "A holds the lock, and its server's clock jumps past the TTL (emulated: all TTLs of the server are shortened). B asks.",
			Cells: every(Violated, "the server counts the TTL by that clock, and drops the key; the holder's clock has not jumped, so it goes on believing",
				in(Kept, "the key has no TTL, so the server's clock has no part in it: the contenders' clocks decide", "setnxgetset"),
				in(Violated, "the server drops its vote early, and the restart guard sees nothing: no memory was lost", "redlock")),
			Turned: []Sloppy{{Lock: broken.GivesItsKeyATTL}},
			held: func(s *Stage, a *hold) {
				s.do("the server's clock jumps ahead", s.jump(2*s.ttl))
				s.follow(a)
			}},
		{Name: "server's clock jumps back", Prevent: "clocks that are slewed, never stepped",
			Story: "A gets the lock for a short TTL, and dies. Its server's clock jumps back (emulated: all TTLs of the server are lengthened). When the TTL should be over, C asks.",
			Cells: every(Unavailable, "a dead holder's key lives longer by the jump, and nobody else gets in until it is over",
				in(Kept, "the key has no TTL, so the server's clock has no part in it: the contenders' clocks decide", "setnxgetset"),
				in(Kept, "on the other servers the lock expires in time, and they are a majority", "redlock")),
			Turned: []Sloppy{trustsOneServer, {Lock: broken.LeavesItsEndToTheServer}},
			play:   back(true),
			calm:   back(false)},
		{Name: "contender's clock ahead", Prevent: "any strategy but `setnxgetset`",
			Story: "A holds the lock. The wall clock of B, who asks, is ahead by twice the TTL.",
			Cells: all(monotonic,
				in(Violated, "B compares A's stamp with a clock of its own, finds it lapsed, and takes the lock over", "setnxgetset")),
			held: func(s *Stage, a *hold) {
				s.skewed("B", 2*s.ttl).try()
				a.release()
				s.next("C")
			}},
		{Name: "holder's clock behind", Prevent: "any strategy but `setnxgetset`",
			Story: "The wall clock of A, who gets the lock, is behind by twice the TTL. B asks.",
			Cells: all(monotonic,
				in(Violated, "A's stamp is long past for everybody else, who take the lock over", "setnxgetset")),
			play: func(s *Stage) {
				a, err := s.skewed("A", -2*s.ttl).try()
				s.Must(err, "A gets no lock to begin with")
				s.follow(a)
			}},
	}
}
