package play

// A Scene is a play that is written down already.
type Scene struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	About     string `json:"about"` // what happens, and what to try next
	Algorithm string `json:"algorithm"`
	Moves     string `json:"moves"`
	Promise   string `json:"promise"` // that it breaks; empty: none
	Lesson    string `json:"lesson"`  // that tells about it
	Remedy    Remedy `json:"remedy"`
}

// A Remedy is the same play with another algorithm, or other moves, in which no promise breaks.
type Remedy struct {
	With      string `json:"with"` // in words; empty: there is none
	Algorithm string `json:"algorithm"`
	Moves     string `json:"moves"`
}

// Hash is the scene in the page's address, with all moves still to come.
func (s Scene) Hash() string { return s.Algorithm + ",@0," + s.Moves }

// Scenes are the ready-made ones.
func Scenes() []Scene {
	return []Scene{
		{"blind", "The blind DEL", "A's DEL is slow. Meanwhile its lock ends, and B gets it. Then the DEL deletes B's lock, and C gets in.",
			"setnxpx-blind", "a.try,a.step,a.release,+ttl,b.try,a.pass,c.try", oneHolder, "fixed-value",
			Remedy{"luascript, which compares and deletes in one step", "luascript", "a.try,a.step,a.release,+ttl,b.try,a.pass,c.try"}},
		{"look", "Look, then DEL: a gap", "A looks: the lock is its own. Its DEL comes after B has got the lock.",
			"setnxpx", "a.try,a.step,a.release,a.pass,a.pass,+ttl,b.try,a.pass,c.try", oneHolder, "compare-delete",
			Remedy{"luascript, whose script looks and deletes in one step", "luascript", "a.try,a.step,a.release,+ttl,b.try,a.pass,c.try"}},
		{"clock", "The fast clock", "The value of the lock is the moment at which it ends, and B's clock is ahead: to B the lock has ended.",
			"setnxgetset", "a.try,b.clock+11s,b.try", oneHolder, "clock",
			Remedy{"setnxpx, which tells Redis how long, and not until when", "setnxpx", "a.try,b.clock+11s,b.try"}},
		{"server-clock", "The fast clock of a server", "A has three votes of five. Then one server's clock jumps, and its vote ends early: B gets that vote and two others. The guard does not see a clock.",
			"redlock", "r4.down,r5.down,a.try,r4.up,r5.up,r3.clock+11s,b.try", oneHolder, "fast-clock",
			Remedy{}},
		{"watchdog", "The watchdog for ever", "A's work hangs, but its lock is renewed for as long as the process lives: nobody else ever gets in.",
			"luascript", "a.try,a.keepalive,a.hang,b.try,+30s,b.try", comesFree, "watchdog",
			Remedy{"a bound for the renewal", "luascript", "a.try,a.keepalive=30s,a.hang,b.try,+30s,b.try"}},
		{"restart", "RedLock without its guard: a restart", "A has three votes of five. One of these servers restarts without its data, and votes again: B gets three votes, too.",
			"redlock-unguarded", "r4.down,r5.down,a.try,r4.up,r5.up,r3.restart,b.try", oneHolder, "restart",
			Remedy{"the guard: the server does not vote for a TTL", "redlock", "r4.down,r5.down,a.try,r4.up,r5.up,r3.restart,b.try"}},
		{"late", "A late write", "A is paused with a write on its way. Its lock ends, B gets it, and writes. Then A's write comes.",
			"luascript-unfenced", "a.try,a.pause,a.write,+ttl,b.try,b.write,a.resume", noLate, "fence",
			Remedy{"luascript, whose fences tell the database", "luascript", "a.try,a.pause,a.write,+ttl,b.try,b.write,a.resume"}},
		{"fence", "A fence stops the late write", "The same moves as in “A late write”: but each write carries its fence, and the database refuses one that is less than what it has seen.",
			"fairqueue", "a.try,a.pause,a.write,+ttl,b.try,b.write,a.resume", "", "fence",
			Remedy{}},
	}
}
