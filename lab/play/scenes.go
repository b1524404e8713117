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
}

// Hash is the scene in the page's address, with all moves still to come.
func (s Scene) Hash() string { return s.Algorithm + ",@0," + s.Moves }

// Scenes are the ready-made ones.
func Scenes() []Scene {
	return []Scene{
		{"blind", "The blind DEL", "A's DEL is slow. Meanwhile its lock ends, and B gets it. Then the DEL deletes B's lock, and C gets in. " +
			"Play the same moves with setnxpx, then with luascript.",
			"setnxpx-blind", "a.try,a.step,a.release,+ttl,b.try,a.pass,c.try", oneHolder, "fixed-value"},
		{"look", "Look, then DEL: a gap", "A looks: the lock is its own. Its DEL comes after B has got the lock. Play the same moves with luascript, whose script does both in one step.",
			"setnxpx", "a.try,a.step,a.release,a.pass,a.pass,+ttl,b.try,a.pass,c.try", oneHolder, "compare-delete"},
		{"clock", "The fast clock", "The value of the lock is the moment at which it ends, and B's clock is ahead: to B the lock has ended. Play the same moves with setnxpx, which tells Redis how long, and not until when.",
			"setnxgetset", "a.try,b.clock+11s,b.try", oneHolder, "clock"},
		{"server-clock", "The fast clock of a server", "A has three votes of five. Then one server's clock jumps, and its vote ends early: B gets that vote and two others. The guard does not see a clock.",
			"redlock", "r4.down,r5.down,a.try,r4.up,r5.up,r3.clock+11s,b.try", oneHolder, "fast-clock"},
		{"watchdog", "The watchdog for ever", "A's work hangs, but its lock is renewed for as long as the process lives: nobody else ever gets in. Put a.keepalive=30s in the place of a.keepalive: the lock ends.",
			"luascript", "a.try,a.keepalive,a.hang,b.try,+30s,b.try", comesFree, "watchdog"},
		{"restart", "RedLock without its guard: a restart", "A has three votes of five. One of these servers restarts without its data, and votes again: B gets three votes, too. Play the same moves with redlock: with its guard the server does not vote for a TTL.",
			"redlock-unguarded", "r4.down,r5.down,a.try,r4.up,r5.up,r3.restart,b.try", oneHolder, "restart"},
		{"late", "A late write", "A is paused with a write on its way. Its lock ends, B gets it, and writes. Then A's write comes. Play the same moves with luascript, whose fences tell the database.",
			"luascript-unfenced", "a.try,a.pause,a.write,+ttl,b.try,b.write,a.resume", noLate, "fence"},
		{"fence", "A fence stops the late write", "The same moves as in “A late write”: but each write carries its fence, and the database refuses one that is less than what it has seen.",
			"fairqueue", "a.try,a.pause,a.write,+ttl,b.try,b.write,a.resume", "", "fence"},
	}
}
