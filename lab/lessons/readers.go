package lessons

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/strategy"
)

var (
	countRead  = script("count_read")
	countWrite = script("count_write")
	shareRead  = script("share_read")
	shareWrite = script("share_write")
)

const (
	writesAlone = "nobody writes while another reads or writes"
	takesTurn   = "a writer waits for no reader that came after it"
	noGap       = "nobody writes between a writer's work and its reading"
)

// readerLessons are about locks that many may hold to read, or one to write.
func readerLessons() []Lesson {
	return []Lesson{{
		Number: 26, Name: "readers", Title: "Readers and writers: a dead reader, and a writer that starves",
		Idea: "Many may read at the same time, and a writer has to be alone. So the lock has to know who reads. A count does not know, and counts a dead reader for ever. " +
			"With one TTL for all readers each renewal keeps the dead readers in, too. And where a reader may come in whenever others read, one reader may follow the other without a gap, and the writer waits for ever: it starves.",
		Fix: "Each reader has a TTL of its own, and renews no other. Readers and writers take turns: a reader that comes waits behind a writer that waits, and when the writer is done, all readers that wait come in. " +
			"So neither side starves. This is package rwlock. It can also turn a writer into a reader (Downgrade), and nobody writes in between.",
		Acts: []Act{
			{Title: "a count of the readers: one dies, and nobody counts down", lists: []string{"count_read", "count_write"}, cast: "R1 R2 W",
				play: func(s *Stage, r1, r2, w *client) {
					s.hasReaders()
					r1.reads(countRead)
					r2.reads(countRead)
					w.writesBy(countWrite)
					r1.dies()
					s.lapse(s.key())
					r2.ends()
					r2.do(s.redis(), "HINCRBY", s.key(), "readers", -1)
					s.countedFree(r1, w, "HGET", func() bool { return w.writesBy(countWrite) }, "readers")
				}},
			{Title: "one TTL for all readers: those who live keep a dead one in", lists: []string{"share_read", "share_write"},
				cast: "R1 R2 W", play: (*Stage).zombie},
			{Title: "readers come in whenever others read: the writer starves", cast: "R1 R2 W", play: (*Stage).starves},
			// A waiter that is served has a second to extend.
			{Title: "package rwlock: readers and writers take turns", Timed: true, cast: "R1 R2 R3 W", play: (*Stage).alternate},
			{Title: "package rwlock: each reader has a TTL of its own", cast: "R1 R2 W", play: (*Stage).readerLapses},
			{Title: "package rwlock: a writer becomes a reader, and nobody writes in between", Timed: true,
				cast: "W R V", play: (*Stage).downgrades},
		},
	}}
}

// hasReaders: from here on many may read, or one may write.
func (s *Stage) hasReaders() {
	may := func(c *client) string {
		if c.writes {
			return "may write"
		}
		return "may read"
	}
	s.shares = sharing{
		promise:  writesAlone,
		believes: may,
		broken: func(c *client, others []*client) (texts []string) {
			for _, other := range others {
				if c.writes || other.writes {
					texts = append(texts, fmt.Sprintf("%s believes it %s, and %s believes it %s", other.name, may(other), c.name, may(c)))
				}
			}
			return texts
		},
		kept: func(s *Stage) string {
			return fmt.Sprintf("%d holds, of which none to write overlaps another", s.held)
		},
	}
}

// reads comes in by a script to read, or renews that.
func (c *client) reads(script *driver.Script, args ...any) bool {
	return c.comesIn(false, !c.eval(c.s.redis(), script, c.s.key(), args...).is(0))
}

// readsOn is reads where all readers share one TTL.
func (c *client) readsOn() bool { return c.reads(shareRead, c.name, c.s.px()) }

// writesBy comes in by a script to write.
func (c *client) writesBy(script *driver.Script) bool {
	return c.comesIn(true, c.eval(c.s.redis(), script, c.s.key(), c.name, c.s.px()).is(1))
}

// comesIn: if it is in, the client believes that from here on.
func (c *client) comesIn(writes, in bool) bool {
	if in {
		c.writes = writes
		c.holds()
	}
	return in
}

// startsTo asks once to read or to write, and has to come in.
func (c *client) startsTo(lock strategy.Lock, writes bool) strategy.Lease {
	lease := c.gets(c.s.ctx, lock)
	if !c.comesIn(writes, lease != nil) {
		c.s.Cannot("%s does not get the lock to begin with", c.name)
	}
	return lease
}

// goes is the end of a hold that is a field of a hash.
func (c *client) goes() {
	c.ends()
	c.do(c.s.redis(), "HDEL", c.s.key(), c.name)
}

// zombie: R2 renews, and that keeps R1 in, who is dead.
func (s *Stage) zombie(r1, r2, w *client) {
	s.hasReaders()
	r1.readsOn()
	renewed := time.Now()
	r2.readsOn()
	w.writesBy(shareWrite)
	r1.dies()
	death := s.clock()
	for range 3 {
		s.passes(s.ttl / 2)
		last := renewed
		renewed = time.Now()
		r2.readsOn()
		s.stillHeld(last)
	}
	r2.goes()
	since := s.clock().Sub(death)
	got := w.writesBy(shareWrite)
	s.stillHeld(renewed)
	s.freed(w, func() bool { return got }, func() string {
		s.redis().look("HKEYS", s.key())
		left := s.redis().look("PTTL", s.key())
		return fmt.Sprintf("R1 died %d ms ago, its TTL is %s ms, and it keeps W out for %d ms more: R2 has renewed R1, too", since.Milliseconds(), s.px(), left)
	})
}

// rounds are how often a reader comes in before the other goes. The first of them are drawn. The number of
// those that are not is even, so the same reader is in after them.
const rounds, drawn = 100, 2

// starves: of two readers each comes back before the other goes.
func (s *Stage) starves(r1, r2, w *client) {
	s.hasReaders()
	in, out := r1, r2
	in.readsOn()
	w.writesBy(shareWrite)
	asked, came := 1, 0
	turn := func() {
		in, out = out, in
		if in.readsOn() {
			came++
		}
		out.goes()
		w.writesBy(shareWrite)
		asked++
	}
	for range drawn {
		turn()
	}
	s.offstage(func() {
		for range rounds - drawn {
			turn()
		}
	})
	s.note("and so on: %d times in all", rounds)
	s.decide(takesTurn, came == 0,
		"no reader came in before W",
		fmt.Sprintf("R1 read when W came. Since then readers have come in %d times, and W has asked %d times in vain", came, asked))
	s.note("at last no reader comes back")
	in.goes()
	w.writesBy(shareWrite)
}

// opensReaders has all clients lock by package rwlock.
func (s *Stage) opensReaders() map[*client]strategy.ReadWriter {
	s.hasReaders()
	s.leavesFence()
	return openAll(s, func(n driver.Node, o strategy.Options) (strategy.ReadWriter, error) { return rwlock.New(n, o) })
}

// alternate: readers that come while a writer waits come in when it is done.
func (s *Stage) alternate(r1, r2, r3, w *client) {
	all := s.opensReaders()
	began := time.Now()
	first := r1.startsTo(all[r1].NewRLock(s.name), false)
	ofW := w.queues(all[w].NewLock(s.name), "writers", 1)
	ofR2 := r2.queues(all[r2].NewRLock(s.name), "readers", 1)
	ofR3 := r3.queues(all[r3].NewRLock(s.name), "readers", 2)

	r1.releases(first)
	afterR1 := s.holders()
	leaseW := w.leased(ofW) // it hears that it is the holder
	w.comesIn(true, true)
	early := slices.DeleteFunc([]*client{r2, r3}, func(c *client) bool { return !c.holding })
	s.decide(takesTurn, len(early) == 0,
		"R2 and R3 came after W, and did not come in before it",
		fmt.Sprintf("%s came after W, and came in before it", named(early)))
	r2.hears() // that it is the next

	w.releases(leaseW)
	afterW := s.holders()
	leaseR2 := r2.leased(ofR2)
	r2.comesIn(false, true)
	leaseR3 := r3.leased(ofR3)
	r3.comesIn(false, true)
	s.stillHeld(began)
	s.decide(inTheStep, slices.Contains(afterR1, "write:"+leaseW.Token()) && slices.Contains(afterW, "read:"+leaseR2.Token()) && slices.Contains(afterW, "read:"+leaseR3.Token()),
		"Redis had W as the holder after R1's release, and R2 and R3 after W's, before they heard of it",
		"Redis had no hold of W's after R1's release, or none of R2's or R3's after W's")
}

// readerLapses: R2 renews, and R1, who is dead, lapses all the same.
func (s *Stage) readerLapses(r1, r2, w *client) {
	all := s.opensReaders()
	began := time.Now()
	dead := r1.startsTo(all[r1].NewRLock(s.name), false)
	lease := r2.startsTo(all[r2].NewRLock(s.name), false)
	write := all[w].NewLock(s.name)
	w.comesIn(true, w.gets(s.ctx, write) != nil)
	s.stillHeld(began)
	r1.dies()
	s.passes(s.ttl / 2)
	r2.renews(lease)
	s.lapseOf(r1, "read:"+dead.Token())
	r2.renews(lease)
	s.holders()
	r2.releases(lease)
	s.decide(comesFree, w.comesIn(true, w.gets(s.ctx, write) != nil),
		"W has got in when R2 was done: R1's TTL had ended, as R2 renewed none but its own",
		"R1's TTL is over, R2 is done, and W does not get in")
}

// downgrades: W has written, and reads on. V, which waits to write, does not come in between, and R, which waits
// to read, comes in at once.
func (s *Stage) downgrades(w, r, v *client) {
	all := s.opensReaders()
	began := time.Now()
	wrote := w.startsTo(all[w].NewLock(s.name), true)
	ofV := v.queues(all[v].NewLock(s.name), "writers", 1)
	ofR := r.queues(all[r].NewRLock(s.name), "readers", 1)
	s.note("W has written, and goes on to read: Downgrade")
	reading, err := all[w].Downgrade(s.ctx, wrote)
	if err != nil {
		s.late("W does not downgrade: %w", err)
	}
	w.writes = false
	s.holders()
	s.note("W may read from here on, and write no more")
	before, _ := wrote.Fence()
	after, _ := reading.Fence()
	s.decide(noGap, before == after,
		fmt.Sprintf("a writer gets a new fence, and one that downgrades keeps its own: W's is %d before and after, so nobody wrote", after),
		fmt.Sprintf("W's fence was %d, and is %d: somebody wrote in between", before, after))
	leaseR := r.leased(ofR) // it hears that it is a holder
	r.comesIn(false, true)
	v.hears() // that it is still the first
	r.releases(leaseR)
	w.releases(reading)
	v.leased(ofV)
	v.comesIn(true, true)
	s.stillHeld(began)
}
