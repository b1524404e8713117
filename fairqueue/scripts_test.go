// Every branch of each script: what it replies and publishes, and all keys after it.
package fairqueue

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/scripttest"
)

type row = scripttest.Row

const same = scripttest.Same

var on = scripttest.On

// The common case of acquire: nobody holds the lock, and nobody queues.
func TestAcquireFastScript(t *testing.T) {
	const keys, args = "lock queue fence", "60000 1 90000 '' '' mine"
	fast := func(name, before, fence, runs string) row {
		return row{Name: name, Before: before, Reply: fence, After: "SET fence " + fence + " PX 90000; SET lock mine PX 60000", Runs: runs}
	}
	const (
		ready = "EXISTS TIME MGET SET SET"
		slow  = "EXISTS TIME MGET EXISTS TIME GET SET SET" // the rest begins
	)
	scripttest.Run(t, acquire, on(keys, args,
		fast("no counter", "", "#512", ready),
		fast("the counter is behind the clock", "SET fence #-700", "#0", ready),
		fast("one behind the clock", "SET fence #-1", "#0", ready),
		fast("at the clock", "SET fence #0", "#1", slow),
		fast("ahead of the clock", "SET fence #700", "#701", slow),
		fast("the least that is a fence", "SET fence 1000000000000000", "#0", ready),
		fast("less than that", "SET fence 0999999999999999", "#0", slow),
		fast("shorter than the clock", "SET fence 999999999999999", "#0", slow),
		row{Name: "kept for ever, no counter", Args: "60000 1 0 '' '' mine", Reply: "#512", After: "SET fence #512; SET lock mine PX 60000", Runs: ready},
		row{Name: "kept for ever", Args: "60000 1 0 '' '' mine", Before: "SET fence #-700 PX 7000", Reply: "#0", After: "SET fence #0; SET lock mine PX 60000", Runs: ready},
		row{Name: "kept for ever, and ahead of the clock", Args: "60000 1 0 '' '' mine", Before: "SET fence #700 PX 7000", Reply: "#701",
			After: "SET fence #701; SET lock mine PX 60000", Runs: slow},
		fast("spelt as a fraction", "SET fence 1.50000000000e15", "#0", ready),
		row{Name: "spelt as a fraction, and longer", Before: "SET fence 1.500000000000e15",
			Reply: "-FENCE the counter fence holds no fence: 1.500000000000e15", After: same, Runs: "EXISTS TIME MGET EXISTS TIME GET"},
		row{Name: "as long as the clock, and less", Before: "SET fence 0x00000000000001",
			Reply: "-FENCE the counter fence holds no fence: 0x00000000000001", After: same},
		row{Name: "as long as the clock, and no number", Before: "SET fence nan(00000000000)",
			Reply: "-FENCE the counter fence holds no fence: nan(00000000000)", After: same},
		row{Name: "a list", Before: "RPUSH fence x", Reply: "-WRONGTYPE", After: same, Runs: "EXISTS TIME MGET SET EXISTS TIME GET"},
		row{Name: "without fences", Args: "60000 0 90000 '' '' mine", Before: "SET fence seven",
			Reply: "0", After: "SET fence seven; SET lock mine PX 60000", Runs: "EXISTS SET"},
		row{Name: "the lock may not be written", Before: "SET fence #-700", Forbid: "SET/lock",
			Reply: "-NOPERM forbidden", After: "SET fence #1 PX 90000", Runs: "EXISTS TIME MGET SET SET EXISTS TIME GET SET SET"},
		row{Name: "the counter may not be written", Before: "SET fence #-700", Forbid: "SET/fence", Reply: "-NOPERM forbidden", After: same},
		row{Name: "EXISTS is forbidden", Forbid: "EXISTS", Reply: "#512", After: "SET fence #512 PX 90000; SET lock mine PX 60000",
			Runs: "EXISTS EXISTS GET LINDEX TIME GET SET SET"},
		row{Name: "MGET is forbidden", Before: "SET fence #-700", Forbid: "MGET", Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000"},
		row{Name: "out of memory", OOM: true, Reply: "-OOM"},
	))
	scripttest.Run(t, acquire, on(keys, args, scripttest.BadCounters(row{})...))
}

func TestAcquireScript(t *testing.T) {
	const keys, args = "lock queue fence", "60000 1 90000 '' '' mine"
	const queues = "60000 1 90000 'line 1000 1 mine' '' mine"
	const again = queues + " 1"
	const granted = "SET fence #512 PX 90000; SET lock mine PX 60000"
	scripttest.Run(t, acquire, on(keys, args,
		// Free.
		row{Name: "with an entry", Args: queues, Reply: "#512", After: granted, Runs: "EXISTS TIME GET SET SET LREM"},
		row{Name: "with an entry, which may not be taken out", Args: queues, Forbid: "LREM", Reply: "#512", After: granted},
		row{Name: "with an entry that is first in the queue", Args: queues, Before: "RPUSH queue 'line 1000 1 mine' 'b 1000 0 next'", Listening: "queue:line queue:b",
			Reply: "#512", After: "SET fence #512 PX 90000; SET lock mine PX 60000; RPUSH queue 'b 1000 0 next'", Heard: "queue:b 'next 60000'"},
		row{Name: "with an entry, where the queue is no list", Args: queues, Before: "SET queue x", Reply: "#512", After: granted + "; SET queue x"},
		row{Name: "several fences, without a counter", Args: "60000 256 90000 '' '' mine", Reply: "#512", After: granted},
		row{Name: "several fences", Args: "60000 256 90000 '' '' mine", Before: "SET fence #-700",
			Reply: "[#0 256]", After: "SET fence #255 PX 90000; SET lock mine PX 60000"},
		row{Name: "two fences", Args: "60000 2 90000 '' '' mine", Before: "SET fence #5",
			Reply: "[#6 2]", After: "SET fence #7 PX 90000; SET lock mine PX 60000", Runs: "EXISTS TIME GET SET SET"},

		// The first acquire asks whether the user may release.
		row{Name: "unproven", Args: "60000 1 90000 '' 1 mine", Reply: "#512", After: granted, Runs: "GET LINDEX TIME GET SET SET"},
		row{Name: "unproven before Redis 7.0", Args: "60000 1 90000 '' 1 mine", Old: true, Forbid: "DEL", Reply: "#512", After: granted},
		row{Name: "unproven, and DEL is forbidden", Args: "60000 1 90000 '' 1 mine", Before: "RPUSH queue 'a 1000 0 next'", Listening: "queue:a", Forbid: "DEL/lock",
			Reply: "-NOPERM a user who may not DEL this lock cannot release it: allow this user +del", After: same},
		row{Name: "unproven, and GETEX is forbidden", Args: "60000 1 90000 '' 1 mine", Before: "SET lock other PX 7000", Forbid: "GETEX/lock",
			Reply: "-NOPERM a user who may not GETEX this lock cannot wait for it: allow this user +getex", After: same},
		row{Name: "unproven, and GET is forbidden", Args: "60000 1 90000 '' 1 mine", Forbid: "GET/lock", Reply: "-NOPERM forbidden"},
		row{Name: "proven, and DEL is forbidden", Forbid: "DEL", Reply: "#512", After: granted},

		// Held.
		row{Name: "held", Before: "SET fence 7; SET lock other PX 7000", Reply: "[other 7000]", After: same, Runs: "EXISTS EXISTS GET PTTL GETEX"},
		row{Name: "held without expiry", Before: "SET lock other", Reply: "[other -1]", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "held: last in the queue", Args: queues, Before: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first' PX 5000",
			Reply: "[other 7000 1700000000 42 2 0]", After: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first' 'line 1000 1 mine' PX 188000",
			Runs: "EXISTS GET PTTL TIME RPUSH PTTL PEXPIRE GETEX"},
		row{Name: "held without expiry: in the queue", Args: queues, Before: "SET lock other",
			Reply: "[other -1 1700000000 42 1 0]", After: "SET lock other; RPUSH queue 'line 1000 1 mine' PX 121000"},
		row{Name: "held: in the queue already", Args: again, Before: "SET lock other PX 7000; RPUSH queue 'line 1000 1 mine' 'a 1000 0 next' PX 5000",
			Reply: "[other 7000 1700000000 42 1 1]", After: "SET lock other PX 7000; RPUSH queue 'line 1000 1 mine' 'a 1000 0 next' PX 128000"},
		row{Name: "held: in the queue already, not the first", Args: again, Before: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first' 'line 1000 1 mine'",
			Reply: "[other 7000 1700000000 42 2 1]", After: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first' 'line 1000 1 mine' PX 188000",
			Runs: "EXISTS GET PTTL TIME LPOS PTTL PEXPIRE GETEX"},
		row{Name: "held: not in the queue any more", Args: again, Before: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first'",
			Reply: "[other 7000 1700000000 42 2 0]", After: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first' 'line 1000 1 mine' PX 188000"},
		row{Name: "held: in a queue that lasts longer", Args: again, Before: "SET lock other PX 7000; RPUSH queue 'line 1000 1 mine' PX 130000",
			Reply: "[other 7000 1700000000 42 1 1]", After: same, Runs: "EXISTS GET PTTL TIME LPOS PTTL GETEX"},
		row{Name: "held: in the queue, and GETEX is forbidden", Args: queues, Before: "SET lock other PX 7000", Forbid: "GETEX",
			Reply: "-NOPERM forbidden", After: "SET lock other PX 7000; RPUSH queue 'line 1000 1 mine' PX 128000"},
		row{Name: "held: the queue is no list", Args: queues, Before: "SET lock other PX 7000; SET queue x",
			Reply: "[other 7000 1700000000 42 0 0]", After: same, Runs: "EXISTS GET PTTL TIME RPUSH GETEX"},
		row{Name: "held: the queue is no list any more", Args: again, Before: "SET lock other PX 7000; SET queue x",
			Reply: "[other 7000 1700000000 42 0 0]", After: same, Runs: "EXISTS GET PTTL TIME LPOS GETEX"},
		row{Name: "held: the queue may not be written", Args: queues, Before: "SET lock other PX 7000", Forbid: "RPUSH",
			Reply: "[other 7000 1700000000 42 0 0]", After: same},
		row{Name: "held: out of memory", Args: queues, Before: "SET lock other PX 7000", OOM: true, Reply: "[other 7000 1700000000 42 0 0]", After: same},
		row{Name: "held: the queue's TTL may not be read", Args: queues, Before: "SET lock other PX 7000", Forbid: "PTTL/queue",
			Reply: "[other 7000 1700000000 42 1 0]", After: "SET lock other PX 7000; RPUSH queue 'line 1000 1 mine' PX 128000"},
		row{Name: "held: the queue would not expire", Args: queues, Before: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first' PX 5000", Forbid: "PEXPIRE/queue",
			Reply: "[other 7000 1700000000 42 0 0]", After: same},

		// Granted while it queued, or the reply was lost.
		row{Name: "holds it already: nobody has reserved more than one", Args: "60000 256 90000 'line 1000 256 mine' '' mine", Before: "SET fence #-50; SET lock mine PX 900; RPUSH queue 'a 1000 0 next'",
			Reply: "#-50", After: "SET fence #-50; SET lock mine PX 60000; RPUSH queue 'a 1000 0 next'"},
		row{Name: "holds it already, without fences", Args: "60000 0 90000 '' '' mine", Before: "SET fence 7; SET lock mine PX 900",
			Reply: "0", After: "SET fence 7; SET lock mine PX 60000"},
		row{Name: "held it, and it expires now", Args: queues, Before: "SET fence #-50; SET lock mine PX 900", Lapsed: "PEXPIRE", Reply: "#0",
			After: "SET fence #0 PX 90000; SET lock mine PX 60000"},
		row{Name: "holds it already, and the counter is lost", Before: "SET lock mine PX 900", Reply: "nil", After: "SET lock mine PX 60000"},

		// The lock has lapsed, and others queue: the direct grant.
		row{Name: "the first in the queue comes first", Before: "RPUSH queue 'a 1000 1 first' 'b 2000 0 next'", Listening: "queue:a queue:b",
			Reply: "[first 1000]", After: "SET fence #512 PX 90000; SET lock first PX 1000; RPUSH queue 'b 2000 0 next'",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'next 1000'"},
		row{Name: "it wants several fences", Before: "SET fence #-700; RPUSH queue 'a 1000 256 first'", Listening: "queue:a",
			Reply: "[first 1000]", After: "SET fence #255 PX 90000; SET lock first PX 1000",
			Heard: "queue:a 'grant #0 256 1000 1700000000 42 first'"},
		row{Name: "it wants no fence", Before: "RPUSH queue 'a 1000 0 first of all'", Listening: "queue:a",
			Reply: "['first of all' 1000]", After: "SET lock 'first of all' PX 1000", Heard: "queue:a 'grant 0 0 1000 1700000000 42 first of all'"},
		row{Name: "the contender queues behind it", Args: queues, Before: "RPUSH queue 'a 1000 0 first'", Listening: "queue:a",
			Reply: "[first 1000 1700000000 42 1 0]", After: "SET lock first PX 1000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'grant 0 0 1000 1700000000 42 first'", Runs: "EXISTS GET LINDEX TIME LPOP PUBSUB SET PUBLISH LINDEX RPUSH PTTL PEXPIRE GETEX"},
		row{Name: "the contender is next in the queue", Args: again, Before: "RPUSH queue 'a 1000 0 first' 'line 1000 1 mine'", Listening: "queue:a queue:line",
			Reply: "[first 1000 1700000000 42 1 1]", After: "SET lock first PX 1000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'grant 0 0 1000 1700000000 42 first'; queue:line 'next 1000'"},
		row{Name: "two in the queue are dead", Before: "RPUSH queue 'a 1000 1 dead' 'b 1000 1 too' 'c 2000 1 third'", Listening: "queue:c",
			Reply: "[third 2000]", After: "SET fence #512 PX 90000; SET lock third PX 2000",
			Heard: "queue:a 'next 1'; queue:b 'next 1'; queue:c 'grant #512 1 2000 1700000000 42 third'"},
		row{Name: "all in the queue are dead", Before: "RPUSH queue 'a 1000 1 dead'", Reply: "#512", After: granted, Heard: "queue:a 'next 1'"},
		row{Name: "dead, and the contender is next", Args: queues, Before: "RPUSH queue 'a 1000 1 dead' 'line 1000 1 mine'", Listening: "queue:line",
			Reply: "#512", After: granted, Heard: "queue:a 'next 1'"},
		row{Name: "no entry", Before: "RPUSH queue a 'a 1000 x' 'a x 1 t' 'a -5 -5 t' 'a 1 1 ' 'b 1000 0 first'", Listening: "queue:a queue:b",
			Reply: "[first 1000]", After: "SET lock first PX 1000", Heard: "queue:b 'grant 0 0 1000 1700000000 42 first'"},
		row{Name: "NUMSUB is forbidden", Before: "RPUSH queue 'a 1000 0 dead' 'b 1000 0 first'", Listening: "queue:b", Forbid: "PUBSUB",
			Reply: "[first 1000]", After: "SET lock first PX 1000",
			Heard: "queue:a 'next 1'; queue:b 'next 1'; queue:b 'grant 0 0 1000 1700000000 42 first'"},
		row{Name: "the queue is no list", Before: "SET queue x", Reply: "#512", After: granted + "; SET queue x"},
		row{Name: "the queue may be neither read nor written", Before: "RPUSH queue 'a 1000 0 first'", Listening: "queue:a", Forbid: "LINDEX | LPOP",
			Reply: "#512", After: granted + "; RPUSH queue 'a 1000 0 first'"},
		row{Name: "the counter is bad, and both want a fence", Before: "SET fence seven; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "-FENCE the counter fence holds no fence: seven", After: same},
		row{Name: "the counter is bad, and the contender wants no fence", Args: "60000 0 90000 '' '' mine", Before: "SET fence seven; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "0", After: "SET fence seven; SET lock mine PX 60000; RPUSH queue 'a 1000 1 first'"},
		row{Name: "the counter may not be written", Args: "60000 0 90000 '' '' mine", Before: "RPUSH queue 'a 1000 1 first' 'b 1000 0 next'", Listening: "queue:a queue:b", Forbid: "SET/fence",
			Reply: "0", After: "SET lock mine PX 60000; RPUSH queue 'b 1000 0 next'"},
		row{Name: "the lock may not be written", Before: "RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "SET/lock",
			Reply: "-NOPERM forbidden", After: "SET fence #513 PX 90000"},
		row{Name: "the grant may not be published", Before: "RPUSH queue 'a 1000 1 first' 'b 1000 0 next'", Listening: "queue:a queue:b", Forbid: "PUBLISH",
			Reply: "#513", After: "SET fence #513 PX 90000; SET lock mine PX 60000; RPUSH queue 'b 1000 0 next'"},
		row{Name: "the grant may not be published, and the contender gets no fence", Before: "SET fence seven; RPUSH queue 'a 1000 0 first'", Listening: "queue:a", Forbid: "PUBLISH",
			Reply: "-FENCE the counter fence holds no fence: seven", After: "SET fence seven"},
		row{Name: "out of memory: the first in the queue comes first", OOM: true, Before: "RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "[first 1000]", After: "SET fence #512 PX 90000; SET lock first PX 1000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'"},
	))
}

// Several ask at the same time, each for a lock of its own. The order of the keys after: fa, fb, a, b.
func TestAcquireJointScript(t *testing.T) {
	const args = "60000 1 90000 '' '' A B"
	const both = "SET a A PX 60000; SET b B PX 60000; "
	const wrongType = "-WRONGTYPE"
	scripttest.Run(t, acquire, on("a b qa qb fa fb", args,
		row{Name: "no counters", Reply: "[#512 #512]", After: both + "SET fa #512 PX 90000; SET fb #512 PX 90000", Runs: "EXISTS TIME MGET SET SET SET SET"},
		row{Name: "counters behind the clock", Before: "SET fa #-1; SET fb #-700", Reply: "[#0 #0]", After: both + "SET fa #0 PX 90000; SET fb #0 PX 90000",
			Runs: "EXISTS TIME MGET SET SET SET SET"},
		row{Name: "a counter at the clock", Before: "SET fa #0; SET fb #-700", Reply: "[#1 #0]", After: both + "SET fa #1 PX 90000; SET fb #0 PX 90000",
			Runs: "EXISTS TIME MGET SET SET EXISTS TIME GET SET SET"},
		row{Name: "a counter ahead of the clock", Before: "SET fa #-700; SET fb #700", Reply: "[#0 #701]", After: both + "SET fa #0 PX 90000; SET fb #701 PX 90000"},
		row{Name: "the least that is a fence, and less", Before: "SET fa 1000000000000000; SET fb 0999999999999999",
			Reply: "[#0 #0]", After: both + "SET fa #0 PX 90000; SET fb #0 PX 90000", Runs: "EXISTS TIME MGET SET SET EXISTS TIME GET SET SET"},
		row{Name: "shorter than the clock, and as long", Before: "SET fa 999999999999999; SET fb 1.50000000000e15",
			Reply: "[#0 #0]", After: both + "SET fa #0 PX 90000; SET fb #0 PX 90000", Runs: "EXISTS TIME MGET SET SET EXISTS TIME GET SET SET"},
		row{Name: "without fences", Args: "60000 0 90000 '' '' A B", Reply: "[0 0]", After: both, Runs: "EXISTS SET SET"},
		row{Name: "a counter that is no number", Before: "SET fa seven", Reply: "[-FENCE the counter fa holds no fence: seven #512]",
			After: "SET b B PX 60000; SET fa seven; SET fb #512 PX 90000"},
		row{Name: "as long as the clock, and no number", Before: "SET fa nan(00000000000)", Reply: "[-FENCE the counter fa holds no fence: nan(00000000000) #512]",
			After: "SET b B PX 60000; SET fa nan(00000000000); SET fb #512 PX 90000"},
		row{Name: "a counter that is a list", Before: "RPUSH fb x", Reply: "[#512 " + wrongType + "]", After: "SET a A PX 60000; SET fa #512 PX 90000; RPUSH fb x"},
		row{Name: "no lock", Before: "RPUSH b x", Reply: "[#512 " + wrongType + "]", After: "SET a A PX 60000; RPUSH b x; SET fa #512 PX 90000",
			Runs: "EXISTS EXISTS TIME GET SET SET EXISTS GET"},
		row{Name: "no lock, before Redis 7.0", Old: true, Before: "RPUSH b x", Reply: "[#512 " + wrongType + "]", After: "SET a A PX 60000; RPUSH b x; SET fa #512 PX 90000"},
		row{Name: "one is held", Before: "SET b other PX 7000", Reply: "[#512 [other 7000]]", After: "SET a A PX 60000; SET b other PX 7000; SET fa #512 PX 90000"},
		row{Name: "for one of them somebody queues", Before: "RPUSH qa 'x 1000 0 first'", Listening: "qa:x",
			Reply: "[[first 1000] #512]", After: "SET a first PX 1000; SET b B PX 60000; SET fb #512 PX 90000", Heard: "qa:x 'grant 0 0 1000 1700000000 42 first'"},
		row{Name: "for the other one somebody queues", Before: "RPUSH qb 'x 1000 0 first'", Listening: "qb:x",
			Reply: "[#512 [first 1000]]", After: "SET a A PX 60000; SET b first PX 1000; SET fa #512 PX 90000", Heard: "qb:x 'grant 0 0 1000 1700000000 42 first'"},
		row{Name: "kept for ever", Args: "60000 1 0 '' '' A B", Before: "SET fa #-700 PX 7000", Reply: "[#0 #512]", After: both + "SET fa #0; SET fb #512"},
		row{Name: "a counter that is behind may not be written", Before: "SET fa #-700; SET fb #-700", Forbid: "SET/fa", Reply: "[-NOPERM forbidden #0]",
			After: "SET b B PX 60000; SET fa #-700; SET fb #0 PX 90000"},
		row{Name: "MGET is forbidden", Forbid: "MGET", Before: "SET fa #-700; SET fb #-700", Reply: "[#0 #0]", After: both + "SET fa #0 PX 90000; SET fb #0 PX 90000"},
		row{Name: "a counter may not be written", Forbid: "SET/fa", Reply: "[-NOPERM forbidden #512]", After: "SET b B PX 60000; SET fb #512 PX 90000"},
		row{Name: "a lock may not be written", Forbid: "SET/a", Before: "SET fa #-700; SET fb #-700",
			Reply: "[-NOPERM forbidden #0]", After: "SET b B PX 60000; SET fa #1 PX 90000; SET fb #0 PX 90000"},
		row{Name: "unproven, and DEL of one is forbidden", Args: "60000 1 90000 '' 1 A B", Forbid: "DEL/a",
			Reply: "[-NOPERM a user who may not DEL this lock cannot release it: allow this user +del #512]", After: "SET b B PX 60000; SET fb #512 PX 90000"},
		row{Name: "several fences", Args: "60000 256 90000 '' '' A B", Before: "SET fa #-700; SET fb #700",
			Reply: "[[#0 256] #701]", After: both + "SET fa #255 PX 90000; SET fb #701 PX 90000"},
		row{Name: "out of memory", OOM: true, Reply: "[-OOM -OOM]"},
	))
	scripttest.Run(t, acquire, on("a a q q f f", args,
		row{Name: "both want the same", Before: "SET f #-700", Reply: "[#0 [A 60000]]", After: "SET a A PX 60000; SET f #0 PX 90000"},
		row{Name: "both want the same, without a counter", Reply: "[#512 [A 60000]]", After: "SET a A PX 60000; SET f #512 PX 90000"},
		row{Name: "both want the same, without fences", Args: "60000 0 90000 '' '' A B", Reply: "[0 [A 60000]]", After: "SET a A PX 60000"},
	))
}

func TestReleaseScript(t *testing.T) {
	const keys, args = "lock queue fence", "'' 90000 mine free"
	const undo = "'line 1000 1 mine' 90000 mine free"
	scripttest.Run(t, release, on(keys, args,
		// Nobody queues.
		row{Name: "held", Before: "SET fence 7; SET lock mine PX 7000", Reply: "1", After: "SET fence 7", Heard: "free mine", Runs: "MGET EXISTS DEL PUBLISH"},
		row{Name: "gone", Before: "SET fence 7", Reply: "nil", After: same, Runs: "MGET GETEX"},
		row{Name: "gone meanwhile", Before: "SET lock mine PX 7000", Lapsed: "DEL", Reply: "1", Heard: "free mine"},
		row{Name: "another's", Before: "SET lock other PX 7000", Reply: "other", After: same},
		row{Name: "another's, and somebody queues", Before: "SET lock other PX 7000; RPUSH queue 'a 1000 0 first'", Listening: "queue:a", Reply: "other", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "DEL is forbidden", Before: "SET lock mine PX 7000", Forbid: "DEL", Reply: "-NOPERM forbidden", After: same},
		row{Name: "EXISTS is forbidden", Before: "SET lock mine PX 7000", Forbid: "EXISTS", Reply: "1", Heard: "free mine",
			Runs: "MGET EXISTS GETEX LINDEX DEL PUBLISH"},
		row{Name: "MGET is forbidden", Before: "SET lock mine PX 7000", Forbid: "MGET", Reply: "1", Heard: "free mine"},
		row{Name: "PUBLISH is forbidden", Before: "SET lock mine PX 7000", Forbid: "PUBLISH", Reply: "1"},
		row{Name: "PUBLISH and EXISTS are forbidden", Before: "SET lock mine PX 7000", Forbid: "PUBLISH EXISTS", Reply: "1"},
		row{Name: "out of memory", OOM: true, Before: "SET lock mine PX 7000", Reply: "1", Heard: "free mine"},

		// An undo.
		row{Name: "undo: it has a place", Args: undo, Before: "SET lock other PX 7000; RPUSH queue 'a 1000 0 x' 'line 1000 1 mine' 'b 1000 0 y' 'line 1000 1 mine'",
			Reply: "other", After: "SET lock other PX 7000; RPUSH queue 'a 1000 0 x' 'b 1000 0 y'"},
		row{Name: "undo: it was first in the queue", Args: undo, Before: "SET lock other PX 7000; RPUSH queue 'line 1000 1 mine' 'b 1000 0 y'", Listening: "queue:b",
			Reply: "other", After: "SET lock other PX 7000; RPUSH queue 'b 1000 0 y'", Heard: "queue:b 'next 1'"},
		row{Name: "undo: it was first, and nobody holds the lock", Args: undo, Before: "RPUSH queue 'line 1000 1 mine' 'b 1000 0 y'", Listening: "queue:b",
			Reply: "nil", After: "RPUSH queue 'b 1000 0 y'", Heard: "queue:b 'next 1'"},
		row{Name: "undo: it was alone", Args: undo, Before: "SET lock other PX 7000; RPUSH queue 'line 1000 1 mine'",
			Reply: "other", After: "SET lock other PX 7000", Runs: "LINDEX LREM GETEX LINDEX"},
		row{Name: "undo: it has been served at this moment", Args: undo, Before: "SET lock mine PX 1000; RPUSH queue 'a 1000 0 first'", Listening: "queue:a",
			Reply: "1", After: "SET lock first PX 1000", Heard: "queue:a 'grant 0 0 1000 1700000000 42 first'"},
		row{Name: "undo: served, and nobody queues", Args: undo, Before: "SET lock mine PX 1000", Reply: "1", Heard: "free mine"},
		row{Name: "undo: its own entry is not served", Args: undo, Before: "SET lock mine PX 1000; RPUSH queue 'line 1000 1 mine'", Listening: "queue:line",
			Reply: "1", Heard: "free mine"},
		row{Name: "undo: it was first, and the key is no lock", Args: undo, Before: "RPUSH lock x; RPUSH queue 'line 1000 1 mine' 'b 1000 0 y'", Listening: "queue:b",
			Reply: "-WRONGTYPE", After: "RPUSH lock x; RPUSH queue 'b 1000 0 y'", Heard: "queue:b 'next 1'"},
		row{Name: "undo: nothing has arrived", Args: undo, Reply: "nil"},
		row{Name: "undo: the queue is no list", Args: undo, Before: "SET lock mine PX 1000; SET queue x", Reply: "1", After: "SET queue x", Heard: "free mine"},

		// Somebody queues.
		row{Name: "the first in the queue is granted the lock", Before: "SET fence #-700; SET lock mine PX 7000; RPUSH queue 'a 1000 256 first' 'b 2000 0 next'", Listening: "queue:a queue:b",
			Reply: "1", After: "SET fence #255 PX 90000; SET lock first PX 1000; RPUSH queue 'b 2000 0 next'",
			Heard: "queue:a 'grant #0 256 1000 1700000000 42 first'; queue:b 'next 1000'", Runs: "MGET EXISTS GETEX LINDEX TIME GET LPOP PUBSUB SET SET PUBLISH LINDEX PUBLISH"},
		row{Name: "its fences are kept for ever", Args: "'' 0 mine free", Before: "SET fence #-700 PX 7000; SET lock mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "1", After: "SET fence #0; SET lock first PX 1000", Heard: "queue:a 'grant #0 1 1000 1700000000 42 first'"},
		row{Name: "the first is dead", Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 1 dead' 'b 2000 1 next'", Listening: "queue:b",
			Reply: "1", After: "SET fence #512 PX 90000; SET lock next PX 2000", Heard: "queue:a 'next 1'; queue:b 'grant #512 1 2000 1700000000 42 next'"},
		row{Name: "all are dead", Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 1 dead' 'b 1000 0 too'",
			Reply: "1", Heard: "queue:a 'next 1'; queue:b 'next 1'; free mine"},
		row{Name: "the counter is bad", Before: "SET fence seven; SET lock mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "1", After: "SET fence seven; RPUSH queue 'a 1000 1 first'", Heard: "free mine"},
		row{Name: "the counter is a list", Before: "RPUSH fence x; SET lock mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "1", After: "RPUSH fence x; RPUSH queue 'a 1000 1 first'", Heard: "free mine"},
		row{Name: "the counter may not be written", Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "SET/fence",
			Reply: "1", Heard: "free mine"},
		row{Name: "the lock may not be written", Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "SET/lock",
			Reply: "1", After: "SET fence #512 PX 90000", Heard: "free mine"},
		row{Name: "the grant may not be published", Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "PUBLISH",
			Reply: "1", After: "SET fence #512 PX 90000"},
		row{Name: "the grant may not be published, and DEL is forbidden", Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 0 first'", Listening: "queue:a", Forbid: "PUBLISH DEL",
			Reply: "-NOPERM forbidden", After: "SET lock first PX 1000"},
		row{Name: "out of memory: granted", OOM: true, Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "1", After: "SET fence #512 PX 90000; SET lock first PX 1000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'"},
	))
}

// Several release at the same time, each a lock of its own.
func TestReleaseJointScript(t *testing.T) {
	const args = "'' 90000 A B freeA freeB"
	const both = "SET a A PX 7000; SET b B PX 7000"
	scripttest.Run(t, release, on("a b qa qb fa fb", args,
		row{Name: "held", Before: both, Reply: "[1 1]", Heard: "freeA A; freeB B", Runs: "MGET EXISTS DEL PUBLISH PUBLISH"},
		row{Name: "one is gone", Before: "SET b B PX 7000", Reply: "[nil 1]", Heard: "freeB B"},
		row{Name: "one is gone meanwhile", Before: both, Lapsed: "DEL", Reply: "[1 1]", Heard: "freeA A; freeB B"},
		row{Name: "one is another's", Before: "SET a A PX 7000; SET b other PX 7000", Reply: "[1 other]", After: "SET b other PX 7000", Heard: "freeA A"},
		row{Name: "one is no lock", Before: "RPUSH a x; SET b B PX 7000", Reply: "[-WRONGTYPE 1]", After: "RPUSH a x", Heard: "freeB B"},
		row{Name: "for one somebody queues", Before: both + "; RPUSH qb 'x 1000 0 first'", Listening: "qb:x",
			Reply: "[1 1]", After: "SET b first PX 1000", Heard: "freeA A; qb:x 'grant 0 0 1000 1700000000 42 first'"},
		row{Name: "for the other one somebody queues", Before: both + "; RPUSH qa 'x 1000 0 first'", Listening: "qa:x",
			Reply: "[1 1]", After: "SET a first PX 1000", Heard: "qa:x 'grant 0 0 1000 1700000000 42 first'; freeB B"},
		row{Name: "MGET is forbidden", Before: both, Forbid: "MGET", Reply: "[1 1]", Heard: "freeA A; freeB B"},
		row{Name: "DEL is forbidden", Before: both, Forbid: "DEL", Reply: "[-NOPERM forbidden -NOPERM forbidden]", After: same},
		row{Name: "DEL of one is forbidden", Before: both, Forbid: "DEL/a", Reply: "[-NOPERM forbidden 1]", After: "SET a A PX 7000", Heard: "freeB B"},
		row{Name: "PUBLISH is forbidden", Before: both, Forbid: "PUBLISH", Reply: "[1 1]"},
		row{Name: "out of memory", OOM: true, Before: both, Reply: "[1 1]", Heard: "freeA A; freeB B"},
	))
	scripttest.Run(t, release, on("a b a qa qb qa fa fb fa", "'' 90000 A B A freeA freeB freeA",
		row{Name: "two release the same", Before: both, Reply: "[1 1 nil]", Heard: "freeA A; freeB B"},
	))
}

func TestPassScript(t *testing.T) {
	const args = "mine next 60000 1 'line 1000 1 next' 90000"
	const held = "SET lock mine PX 7000"
	scripttest.Run(t, pass, on("lock queue fence", args,
		row{Name: "nobody queues", Before: held, Reply: "[#512 1]", After: "SET fence #512 PX 90000; SET lock next PX 60000"},
		row{Name: "several fences", Args: "mine next 60000 256 'line 1000 256 next' 90000", Before: "SET fence #-700; " + held,
			Reply: "[#0 256]", After: "SET fence #255 PX 90000; SET lock next PX 60000"},
		row{Name: "kept for ever", Args: "mine next 60000 1 'line 1000 1 next' 0", Before: "SET fence #-700 PX 7000; " + held, Reply: "[#0 1]", After: "SET fence #0; SET lock next PX 60000"},
		row{Name: "without fences", Args: "mine next 60000 0 'line 1000 0 next' 90000", Before: held,
			Reply: "[0 0]", After: "SET lock next PX 60000", Runs: "GET LINDEX SET"},
		row{Name: "somebody queues", Before: held + "; RPUSH queue 'a 1000 1 first' 'b 2000 0 second' PX 5000", Listening: "queue:a queue:b",
			Reply: "[first 1000 1700000000 42 2 0]", After: "SET fence #512 PX 90000; SET lock first PX 1000; RPUSH queue 'b 2000 0 second' 'line 1000 1 next' PX 182000",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'next 1000'"},
		row{Name: "somebody queues, and the queue would not expire", Before: held + "; RPUSH queue 'a 1000 0 first'", Listening: "queue:a", Forbid: "PEXPIRE",
			Reply: "[first 1000 1700000000 42 0 0]", After: "SET lock first PX 1000", Heard: "queue:a 'grant 0 0 1000 1700000000 42 first'"},
		row{Name: "who queues is dead", Before: held + "; RPUSH queue 'a 1000 1 dead'",
			Reply: "[#512 1]", After: "SET fence #512 PX 90000; SET lock next PX 60000", Heard: "queue:a 'next 1'"},
		row{Name: "gone", Before: "SET fence 7", Reply: "nil", After: same},
		row{Name: "gone, and somebody queues", Before: "RPUSH queue 'a 1000 0 first'", Listening: "queue:a", Reply: "nil", After: same},
		row{Name: "another's", Before: "SET lock other PX 7000", Reply: "other", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; " + held, Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter may not be written", Before: held, Forbid: "SET/fence", Reply: "-NOPERM forbidden", After: same},
		row{Name: "the grant may not be published", Before: held + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "PUBLISH",
			Reply: "[#513 1]", After: "SET fence #513 PX 90000; SET lock next PX 60000"},
		row{Name: "the lock may not be written", Before: held, Forbid: "SET/lock", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000; " + held},
		row{Name: "out of memory", OOM: true, Before: held, Reply: "-OOM", After: same},
		row{Name: "out of memory, and somebody queues", OOM: true, Before: held + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "[first 1000 1700000000 42 1 0]", After: "SET fence #512 PX 90000; SET lock first PX 1000; RPUSH queue 'line 1000 1 next' PX 122000",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'"},
	))
	scripttest.Run(t, pass, on("lock queue fence", args, scripttest.BadCounters(row{Before: held})...))
}

func TestExtendScript(t *testing.T) {
	const wrongType = "['WRONGTYPE Operation against a key holding the wrong kind of value']"
	scripttest.Run(t, extend, on("lock", "mine 60000",
		row{Name: "longer", Before: "SET lock mine PX 7000", Reply: "1", After: "SET lock mine PX 60000", Runs: "MGET PEXPIRE"},
		row{Name: "shorter: written as it is", Before: "SET lock mine PX 70000", Reply: "1", After: same, Runs: "MGET PEXPIRE PTTL PEXPIRE"},
		row{Name: "without expiry", Before: "SET lock mine", Reply: "1", After: "SET lock mine PX 60000"},
		row{Name: "longer, before Redis 7.0", Old: true, Before: "SET lock mine PX 7000", Reply: "1", After: "SET lock mine PX 60000", Runs: "MGET PTTL PEXPIRE"},
		row{Name: "shorter, before Redis 7.0", Old: true, Before: "SET lock mine PX 70000", Reply: "1", After: same, Runs: "MGET PTTL PEXPIRE"},
		row{Name: "gone", Reply: "[nil]", Runs: "MGET GET GETEX"},
		row{Name: "gone meanwhile", Before: "SET lock mine PX 7000", Lapsed: "PEXPIRE", Reply: "[nil]"},
		row{Name: "another's", Before: "SET lock other PX 7000", Reply: "[other]", After: same, Runs: "MGET GETEX"},
		row{Name: "another's, before Redis 7.0", Old: true, Before: "SET lock other PX 7000", Reply: "[other]", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "[" + wrongType + "]", After: same},
		row{Name: "MGET is forbidden", Before: "SET lock mine PX 7000", Forbid: "MGET", Reply: "1", After: "SET lock mine PX 60000"},
		row{Name: "MGET is forbidden, and it is gone", Forbid: "MGET", Reply: "[nil]"},
		row{Name: "both reads are forbidden", Before: "SET lock mine PX 7000", Forbid: "MGET GET", Reply: "[['NOPERM forbidden']]", After: same},
		row{Name: "another's, and GETEX is forbidden", Before: "SET lock other PX 7000", Forbid: "GETEX", Reply: "-NOPERM forbidden", After: same},
		row{Name: "PEXPIRE is forbidden", Before: "SET lock mine PX 7000", Forbid: "PEXPIRE", Reply: "-NOPERM forbidden", After: same},
		row{Name: "several", Keys: "a b c", Args: "A B C 60000", Before: "SET a A PX 7000; SET b B PX 70000; SET c C PX 7000",
			Reply: "3", After: "SET a A PX 60000; SET b B PX 70000; SET c C PX 60000"},
		row{Name: "several, each with its TTL", Keys: "a b", Args: "A B 60000 30000", Before: "SET a A PX 7000; SET b B PX 7000",
			Reply: "2", After: "SET a A PX 60000; SET b B PX 30000"},
		row{Name: "several, of which not all are there", Keys: "a b c d e", Args: "A B C D E 60000", Before: "SET a A PX 7000; RPUSH b x; SET c other PX 7000; SET e E PX 70000",
			Reply: "[1 " + wrongType + " other nil 1]", After: "SET a A PX 60000; RPUSH b x; SET c other PX 7000; SET e E PX 70000"},
		row{Name: "out of memory", OOM: true, Before: "SET lock mine PX 7000", Reply: "1", After: "SET lock mine PX 60000"},
	))
}

func TestAdoptScript(t *testing.T) {
	const held = "SET lock old PX 7000"
	scripttest.Run(t, adopt, on("lock fence", "old 60000 mine 90000 free",
		row{Name: "held", Before: "SET fence #-5; " + held, Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000", Heard: "free old"},
		row{Name: "no counter", Before: held, Reply: "#512", After: "SET fence #512 PX 90000; SET lock mine PX 60000", Heard: "free old"},
		row{Name: "kept for ever", Args: "old 60000 mine 0 free", Before: held, Reply: "#512", After: "SET fence #512; SET lock mine PX 60000", Heard: "free old"},
		row{Name: "for less", Before: "SET fence #5; SET lock old PX 70000", Reply: "#6", After: "SET fence #6 PX 90000; SET lock mine PX 60000", Heard: "free old"},
		row{Name: "without fences", Keys: "lock", Before: held, Reply: "0", After: "SET lock mine PX 60000", Heard: "free old", Runs: "GET SET PUBLISH"},
		row{Name: "gone", Before: "SET fence 7", Reply: "nil", After: same},
		row{Name: "another's", Before: "SET fence 7; SET lock other PX 7000", Reply: "other", After: same},
		row{Name: "adopted already", Before: "SET fence 7; SET lock mine PX 7000", Reply: "mine", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; " + held, Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter may not be written", Before: held, Forbid: "SET/fence", Reply: "-NOPERM forbidden", After: same},
		row{Name: "the lock may not be written", Before: held, Forbid: "SET/lock", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000; " + held},
		row{Name: "waiters may not be notified", Before: held, Forbid: "PUBLISH", Reply: "#512", After: "SET fence #512 PX 90000; SET lock mine PX 60000"},
		row{Name: "out of memory", OOM: true, Before: held, Reply: "-OOM", After: same},
	))
	scripttest.Run(t, adopt, on("lock fence", "old 60000 mine 90000 free", scripttest.BadCounters(row{Before: held})...))
}

func TestInspectScript(t *testing.T) {
	scripttest.Run(t, inspect, on("lock queue fence", "",
		row{Name: "held", Before: "SET fence 7; SET lock mine PX 7000", Reply: "[mine 7000 7 []]", After: same},
		row{Name: "without expiry", Before: "SET lock mine", Reply: "[mine -1 nil []]", After: same},
		row{Name: "free", Before: "SET fence 7", Reply: "[nil -2 7 []]", After: same},
		row{Name: "without fences", Keys: "lock queue", Before: "SET fence 7; SET lock mine PX 7000", Reply: "[mine 7000 nil []]", After: same},
		row{Name: "others queue", Before: "SET lock mine PX 7000; RPUSH queue 'a 1000 1 first' junk 'b 1000 0 second one'",
			Reply: "[mine 7000 nil [first 'second one']]", After: same},
		row{Name: "the queue is no list", Before: "SET lock mine PX 7000; SET queue x", Reply: "[mine 7000 nil []]", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; SET lock mine PX 7000", Reply: "-WRONGTYPE", After: same},
	))
}
