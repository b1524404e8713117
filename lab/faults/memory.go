package faults

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/broken"
	"github.com/lockstrategies/locks/internal/testkit/rig"
)

// memoryFaults are those by which a server forgets what it has granted, or might.
func memoryFaults() []Fault {
	const (
		missing  = "the key is missing, and so the next who asks gets the lock"
		guarded  = "the server does not vote until the longest TTL has passed, and without it a rival has no quorum; the holder, who had no vote to spare, learns at its next renewal that it has lost the lock"
		unguided = "the server has forgotten its vote, and votes again"
	)
	return []Fault{
		{Name: "restart, nothing persisted", Prevent: "`appendonly yes`",
			Story: "A holds the lock. Its server is killed and comes back empty within the TTL. B asks; if it is refused, A extends and releases, C asks.",
			Cells: every(Violated, missing, in(Detected, guarded, "redlock"), in(Violated, unguided, "redlock-unguarded"),
				in(Violated, "the server comes back empty as a primary, and its replica forgets with it: WAIT counts copies, and chooses nobody", acknowledged...),
				in(Unavailable, "a server that keeps no file refuses WAITAOF, and so A does not get the lock: nobody gets one until the server keeps a file, which Check demands", synced...)),
			play: func(s *Stage) {
				a := s.inMemory("A")
				s.do("the server is killed and comes back empty", s.victim().Restart)
				s.reunited()
				if a == nil {
					s.next("B")
					return
				}
				s.forgotten(a)
			}},
		{Name: "restart, append-only file",
			Story:  "A holds the lock. Its server, which appends each write to a file before it answers, is killed and comes back. B asks, A extends and releases, C asks.",
			Cells:  every(Kept, "what was answered was written to the file, and the kernel has it though the process is dead (a machine that loses power is another thing, see below; and with appendfsync everysec a server whose disk is slow may answer up to two seconds before it writes)"),
			Turned: []Sloppy{keptInMemory},
			fsync:  "no",
			held: func(s *Stage, a *hold) {
				s.do("the server is killed and comes back with its file", s.victim().Restart)
				s.reunited()
				s.remembered(a)
			}},
		{Name: "power loss, fsync every second", Prevent: "`appendfsync always`, or `Options.Acks` with WAITAOF",
			Story: "A gets the lock. Less than a second later the machine loses power (emulated: the server is killed, and finds its files as they were before the lock, or, where the lock waits for syncs, as the last sync left them that the server has confirmed). B asks.",
			Cells: every(Violated, "the file is synced once a second, and what was answered since then is not on the disk", in(Detected, guarded, "redlock"), in(Violated, unguided, "redlock-unguarded"),
				in(Violated, "the server comes back without the lock, and its replica, which had it, forgets with it: WAIT counts copies, and chooses nobody", acknowledged...),
				in(Kept, "A learns that it has the lock only when the file is synced: that takes up to a second, and then the lock is on the disk (if the server tells the truth: Valkey 8.1 and 9.1 confirm it too soon)", synced...)),
			Turned: []Sloppy{{Lock: broken.TakesWrittenForSynced}, votesAtOnce},
			fsync:  "everysec",
			play: func(s *Stage) {
				if s.column.synced {
					s.remembered(s.lastSync())
					return
				}
				a := s.lastSecond()
				s.reunited()
				s.forgotten(a)
			}},
		{Name: "power loss, fsync always",
			Story:  "As before; but the server syncs its file before it answers, so the files are found as they were left (emulated, too: no disk lies about a sync). B asks, A extends and releases, C asks.",
			Cells:  every(Kept, "what was answered was on the disk"),
			Turned: []Sloppy{keptInMemory},
			fsync:  "always",
			held: func(s *Stage, a *hold) {
				s.do("the machine loses power", func(ctx context.Context) error { return s.victim().PowerLoss(ctx, nil) })
				s.reunited()
				s.remembered(a)
			}},
		{Name: "FLUSHALL", Prevent: "rights without `FLUSHALL` and `FLUSHDB`",
			Story: "A holds the lock. Somebody flushes the server. B asks; if it is refused, A extends and releases, C asks.",
			Cells: every(Violated, missing, in(Detected, guarded, "redlock"), in(Violated, unguided, "redlock-unguarded")),
			held: func(s *Stage, a *hold) {
				s.do("FLUSHALL", s.victim().FlushAll)
				s.forgotten(a)
			}},
		{Name: "FLUSHALL, after a renewal", Prevent: "rights without `FLUSHALL` and `FLUSHDB`",
			Story:  "A holds the lock, and has renewed it. Somebody flushes the server. B asks, A extends and releases, C asks.",
			Cells:  every(Violated, missing, in(Kept, "with the renewal the servers that were not needed at first have joined, so the holder has votes to spare", "redlock")),
			Turned: []Sloppy{trustsOneServer},
			held: func(s *Stage, a *hold) {
				a.insist()
				s.joined()
				s.do("FLUSHALL", s.victim().FlushAll)
				s.forgotten(a)
			}},
		{Name: "eviction, volatile-lru", Prevent: "`maxmemory-policy noeviction`: `Check` demands it",
			Story: "A holds the lock. Its server runs out of memory, and evicts keys that have a TTL. B asks; if it is refused, A extends and releases, C asks.",
			Cells: every(Violated, "a lock is a key with a TTL, and this policy evicts those and no others",
				in(Kept, "the key has no TTL, and so is not evicted", "setnxgetset"),
				in(Violated, "the vote is a key with a TTL, and is evicted; the guard has none, stays, and does not see it: set noeviction, which Check demands", "redlock")),
			Turned: []Sloppy{{Lock: broken.GivesItsKeyATTL}},
			play:   func(s *Stage) { s.evicted("volatile-lru") }},
		{Name: "eviction, allkeys-lru", Prevent: "`maxmemory-policy noeviction`: `Check` demands it",
			Story: "A holds the lock. Its server runs out of memory, and evicts whatever it likes: all there is. B asks; if it is refused, A extends and releases, C asks.",
			Cells: every(Violated, missing, in(Detected, "the guard is evicted, too: "+guarded+" (where a server evicts the vote and leaves the guard, it is as with volatile-lru: set noeviction, which Check demands)", "redlock"), in(Violated, unguided, "redlock-unguarded")),
			play:  func(s *Stage) { s.evicted("allkeys-lru") }},
	}
}

func (s *Stage) evicted(policy string) {
	a := s.holder("A")
	s.do("the server evicts by "+policy, func(ctx context.Context) error { return s.victim().Evict(ctx, policy) })
	s.forgotten(a)
}

// reunited lets the server's replica find it again where the lock waits for it: by itself it
// would look in a few seconds, which is most of a TTL.
func (s *Stage) reunited() {
	if s.column.replicas > 0 {
		s.do("its replica finds it again, and has what it has", s.victim().Replicate)
	}
}

// forgotten is how a play goes on when a server may have forgotten the lock.
func (s *Stage) forgotten(a *hold) { s.follow(a, func() { a.extend() }) }

// remembered is how a play goes on when no server has forgotten the lock: the holder, who
// has no vote to spare, can extend it. A guard alone would keep B out as well.
func (s *Stage) remembered(a *hold) { s.follow(a, a.insist) }

// joined waits until all servers have the lock, if they ever do.
func (s *Stage) joined() {
	if s.have(len(s.rig.Nodes)) {
		s.say("all servers have the lock")
	} else {
		s.say("not all servers have the lock")
	}
}

// granted waits until as many servers have the lock as it takes.
func (s *Stage) granted() {
	if !s.have(s.quorum()) {
		s.say("not enough servers have the lock")
	}
}

// have waits until so many servers have the lock, if they ever do.
func (s *Stage) have(enough int) bool {
	for limit := time.Now().Add(s.ttl / 3); ; time.Sleep(time.Millisecond) {
		held := 0
		for _, n := range s.rig.Nodes {
			has, err := redis.Int(n.Do(s.ctx, "EXISTS", s.key()))
			if err != nil {
				s.say("looking for the lock: %v", err)
			}
			held += has
		}
		if held >= enough || time.Now().After(limit) {
			return held >= enough
		}
	}
}

// inMemory is a holder whose server keeps no file, or nil where it must.
func (s *Stage) inMemory(who string) *hold {
	if !s.column.synced {
		return s.holder(who)
	}
	s.do("the server has to keep no file", s.victim().Unpersist)
	s.later(func(ctx context.Context) error { return s.victim().Persist(ctx, "always") })
	return s.attempt(who)
}

// lastSync lets the server lose what it has not synced: A gets the lock just after a sync,
// and the machine loses power as soon as A believes in it. Whatever A heard, the server
// itself says what is synced, asked for marks in its file: one before the last sync, one
// before A asks, and one behind the write that grants the lock. The file is cut behind the
// last that it confirms. Where a sync came between the last two, A takes the lock again.
func (s *Stage) lastSync() *hold {
	mark := func() *rig.Mark {
		m, err := s.victim().Mark(s.ctx)
		s.Must(err, "a mark")
		return m
	}
	synced := func(m *rig.Mark, within time.Duration) bool {
		is, err := m.Synced(within)
		s.Must(err, "asking how far the file is synced")
		return is
	}
	for range 10 {
		c := s.contender("A")
		c.connect()
		before := mark()
		if !synced(before, s.ttl) {
			s.Cannot("the server syncs nothing")
		}
		s.say("the server has synced its file")
		asked, granted := mark(), (*rig.Mark)(nil)
		marked := c.at(1, nil, func() { granted = mark() })
		a, err := c.try()
		marked()
		s.Must(err, "A gets no lock to begin with")
		if granted == nil {
			s.Cannot("A gets the lock without a request")
		}
		last, next := before, asked
		switch {
		case synced(granted, 0):
			s.say("the server confirms that it has synced what was written when A was granted the lock")
			last, next = granted, nil
		case synced(asked, 0):
			a.release() // the sync came between
			continue
		}
		switch err := s.victim().PowerLossBehind(s.ctx, last, next); {
		case err == nil:
			s.say("the machine loses power, and what is not synced")
			return a
		case !errors.Is(err, rig.ErrStale):
			s.Cannot("the power loss: %w", err)
		}
		a.release()
	}
	s.Cannot("the machine is too slow for a power loss before the next sync")
	return nil
}

// lastSecond lets the server lose what it heard within the last second, and so that A
// holds the lock. On a machine that is too slow for that, A takes the lock again.
func (s *Stage) lastSecond() *hold {
	for range 10 {
		before, err := s.victim().Checkpoint(s.ctx)
		s.Must(err, "the checkpoint")
		a := s.holder("A")
		switch err := s.victim().PowerLoss(s.ctx, before); {
		case err == nil:
			s.say("the machine loses power, and its last second")
			return a
		case !errors.Is(err, rig.ErrStale):
			s.Cannot("the power loss: %w", err)
		}
		a.release()
	}
	s.Cannot("the machine is too slow for a power loss within the second")
	return nil
}
