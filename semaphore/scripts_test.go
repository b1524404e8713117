// Every branch of each script: what it replies and publishes, and all keys after it.
package semaphore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/scripttest"
)

type row = scripttest.Row

const (
	same = scripttest.Same
	keys = "lock queue fence permits"

	inspected = "lock fence queue"
)

func on(args string, rows ...row) []row { return scripttest.On(keys, args, rows...) }

const (
	full   = "ZADD lock @5000 permit:a @7000 permit:b @9000 permit:c PX 9000" // three permits of three
	two    = "ZADD lock @5000 permit:a @9000 permit:b PX 9000"
	heavy  = "ZADD lock @7000 permit:mine @7000 permit:mine:2 @7000 permit:mine:3 PX 7000"
	lapsed = "ZADD lock @-3 permit:x @-2 permit:y @-1 permit:z PX 9000"

	begin  = "ZRANGE PTTL TIME "                             // of every script that opens the semaphore; no PTTL if there is no key
	asks   = begin + "ZSCORE GET LINDEX ZCARD "              // of acquire
	ends   = begin + "ZREM ZREM ZRANGE PEXPIREAT "           // of release, if others hold some
	grants = "GET SET ZRANGE ZADD PEXPIREAT"                 // a grant
	alone  = "EXISTS TIME GET SET ZADD PEXPIREAT"            // of acquire, where nobody else holds or waits
	proven = "ZRANGE TIME GET LINDEX GET SET ZADD PEXPIREAT" // the same, where the user's rights are to be proven, or it queues
)

func TestAcquireScript(t *testing.T) {
	const mine = "3 90000 60000 mine 1 ''"
	const proves = mine + " '' 1"
	const made = "SET fence #512 PX 90000; ZADD lock @60000 permit:mine PX 60000"
	rows := on(mine,
		// Enough permits are free, and nobody queues.
		row{Name: "free", Before: "SET fence #-1", Reply: "#0", After: "SET fence #0 PX 90000; ZADD lock @60000 permit:mine PX 60000", Runs: alone},
		row{Name: "free, and there is no counter", Reply: "#512", After: made, Runs: "EXISTS TIME GET SET ZADD PEXPIREAT"},
		row{Name: "free, and rights are to be proven", Args: proves, Reply: "#512", After: made, Runs: proven},
		row{Name: "free, and rights are to be proven, before Redis 7.0", Args: proves, Old: true, Reply: "#512", After: made,
			Runs: "ZRANGE PTTL TIME ZSCORE GET LINDEX ZCARD ZADD ZREM GET SET PEXPIREAT ZADD PEXPIREAT"},
		row{Name: "all that there are", Args: "3 90000 60000 mine 3 ''", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000"},
		row{Name: "the last one", Before: two, Reply: "#512", After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000"},
		row{Name: "the last two", Args: "3 90000 60000 mine 2 ''", Before: "ZADD lock @5000 permit:a PX 5000", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @60000 permit:mine @60000 permit:mine:2 PX 60000"},
		row{Name: "for less than another", Args: "3 90000 4000 mine 1 ''", Before: two, Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @4000 permit:mine @5000 permit:a @9000 permit:b PX 9000"},
		row{Name: "a hold has lapsed", Before: "ZADD lock @-1 permit:old @5000 permit:a @9000 permit:b PX 9000", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000",
			Runs:  "EXISTS ZRANGE PTTL TIME ZREMRANGEBYSCORE ZSCORE GET LINDEX ZCARD " + grants},
		row{Name: "all holds have lapsed", Args: "3 90000 60000 mine 3 ''", Before: lapsed, Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000"},
		row{Name: "a hold whose end is now counts", Before: "ZADD lock @0 permit:old @5000 permit:a @9000 permit:b PX 9000", Reply: "[old 0 3 3]", After: same,
			Runs: "EXISTS " + asks + "ZREMRANGEBYSCORE"},
		row{Name: "the counter is at the clock", Before: "SET fence #0", Reply: "#1", After: "SET fence #1 PX 90000; ZADD lock @60000 permit:mine PX 60000"},
		row{Name: "the counter is kept for ever", Args: "3 0 60000 mine 1 ''", Before: "SET fence #-1 PX 7000", Reply: "#0", After: "SET fence #0; ZADD lock @60000 permit:mine PX 60000"},
		row{Name: "the counter is a list", Before: "RPUSH fence x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is bad, and expires", Before: "SET fence seven PX 7000", Reply: "-FENCE the counter fence holds no fence: seven", After: same},
		row{Name: "with an entry", Args: "3 90000 60000 mine 1 'line 1000 1 mine'", Reply: "#512", After: made, Runs: proven},
		row{Name: "with an entry, which may not be taken out", Args: "3 90000 60000 mine 1 'line 1000 1 mine' 1", Forbid: "LREM", Reply: "#512", After: made},
		row{Name: "the queue is no list", Args: "3 90000 60000 mine 1 'line 1000 1 mine' 1", Before: "SET queue x", Reply: "#512", After: made + "; SET queue x"},

		// Forbidden commands, and other faults, for a user whose rights have been proven.
		row{Name: "proven: the counter may not be written", Forbid: "SET", Reply: "-NOPERM forbidden"},
		row{Name: "proven, and forbidden", Forbid: "ZADD | PEXPIREAT", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000"},
		row{Name: "proven: EXISTS is forbidden", Forbid: "EXISTS", Reply: "#512", After: made},
		row{Name: "proven: out of memory", OOM: true, Reply: "-OOM"},
		row{Name: "proven: the time of its end has passed: no key stays", Lapsed: "PEXPIREAT", Reply: "#512", After: "SET fence #512 PX 90000"},

		// What is forbidden.
		row{Name: "forbidden", Args: proves, Forbid: "GET/fence | SET | ZRANGE | PTTL | TIME | ZSCORE | ZCARD | ZREM | ZADD", Reply: "-NOPERM forbidden"},
		row{Name: "ZCARD is forbidden, and somebody queues", Before: two + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "ZCARD", Reply: "-NOPERM forbidden", After: same},
		row{Name: "PEXPIREAT is forbidden: no permit would end", Args: proves, Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000"},
		row{Name: "forbidden, before Redis 7.0", Args: proves, Old: true, Forbid: "ZADD | ZREM", Reply: "-NOPERM forbidden"},
		row{Name: "PEXPIREAT is forbidden, before Redis 7.0", Args: proves, Old: true, Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000"},
		row{Name: "the time of its end has passed: no key stays", Args: proves, Lapsed: "PEXPIREAT", Reply: "#512", After: "SET fence #512 PX 90000"},
		row{Name: "ZREMRANGEBYSCORE is forbidden", Before: lapsed, Forbid: "ZREMRANGEBYSCORE", Reply: "-NOPERM forbidden", After: same},
		row{Name: "LINDEX is forbidden: nobody can queue", Before: "RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "LINDEX", Reply: "#512",
			After: made + "; RPUSH queue 'a 1000 1 first'"},
		row{Name: "out of memory", Args: proves, OOM: true, Reply: "-OOM"},
		row{Name: "out of memory, and a hold has lapsed: that made room", OOM: true, Before: lapsed, Reply: "#512", After: made},

		// Too few are free.
		row{Name: "held", Before: "SET fence 7; " + full, Reply: "[a 5000 3 3]", After: same, Runs: "EXISTS " + asks + "ZREMRANGEBYSCORE"},
		row{Name: "one too few", Args: "3 90000 60000 mine 2 ''", Before: two, Reply: "[a 5000 2 3]", After: same},
		row{Name: "held by one with several", Args: "3 90000 60000 other 1 ''", Before: heavy, Reply: "[mine 7000 3 3]", After: same},
		row{Name: "held, ZRANGE ends with the first", Before: "ZADD lock @-9 permit:x @5000 permit:a @7000 permit:b @9000 permit:c PX 9000", Reply: "[a 5000 3 3]", After: full},

		// More than there are, now and ever.
		row{Name: "more than there are", Args: "3 90000 60000 mine 4 ''", Reply: "-LIMIT 4 permits are asked for, and there are 3", Runs: "ZRANGE TIME GET ZREMRANGEBYSCORE"},
		row{Name: "more than there are, with an entry", Args: "3 90000 60000 mine 4 'line 1000 4 mine'", Before: full, Reply: "-LIMIT 4 permits are asked for, and there are 3", After: same},
		row{Name: "more were set at run time", Args: "3 90000 60000 mine 5 ''", Before: "SET permits 5", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 @60000 permit:mine:4 @60000 permit:mine:5 PX 60000; SET permits 5"},
		row{Name: "fewer were set at run time", Args: "3 90000 60000 mine 2 ''", Before: "SET permits 1", Reply: "-LIMIT 2 permits are asked for, and there are 1", After: same},
		row{Name: "fewer were set than are taken", Before: full + "; SET permits 2", Reply: "[a 5000 3 2]", After: same},
		row{Name: "fewer were set, and so many are taken", Before: two + "; SET permits 2", Reply: "[a 5000 2 2]", After: same},

		// It holds permits already: granted while it queued, or the reply was lost.
		row{Name: "holds them already", Before: "SET fence #-50; ZADD lock @900 permit:mine PX 900", Reply: "#0", After: "SET fence #0 PX 90000; ZADD lock @60000 permit:mine PX 60000",
			Runs: "EXISTS " + begin + "ZSCORE ZSCORE GET SET ZADD PEXPIREAT"},
		row{Name: "holds several already", Args: "3 90000 60000 mine 3 'line 1000 3 mine' 1", Before: heavy, Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000"},
		row{Name: "holds them already, for longer", Args: "3 90000 4000 mine 3 ''", Before: heavy, Reply: "#512", After: "SET fence #512 PX 90000; " + heavy},
		row{Name: "holds them already, and others queue", Args: "3 90000 60000 b 1 'line 1000 1 b' 1", Before: full + "; RPUSH queue 'x 1000 1 first'", Listening: "queue:x",
			Reply: "#512", After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:c @60000 permit:b PX 60000; RPUSH queue 'x 1000 1 first'"},
		row{Name: "holds more than there are now", Args: "3 90000 60000 mine 3 ''", Before: heavy + "; SET permits 1", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000; SET permits 1"},
		row{Name: "holds them already, and the counter is bad", Before: "SET fence seven; ZADD lock @900 permit:mine PX 900",
			Reply: "-FENCE the counter fence holds no fence: seven", After: same},
		row{Name: "its hold has lapsed", Before: "ZADD lock @-1 permit:mine PX 900", Reply: "#512", After: made},
	)
	// Several fences.
	const several = mine + " '' '' 16"
	const got16 = "SET fence #15 PX 90000; ZADD lock @60000 permit:mine PX 60000"
	rows = append(rows, on(several,
		row{Name: "several fences", Before: "SET fence #-1", Reply: "[#0 16 1]", After: got16, Runs: proven},
		row{Name: "several fences of several permits", Args: "3 90000 60000 mine 2 '' '' '' 16", Before: "SET fence #-1", Reply: "[#0 16 1]",
			After: "SET fence #15 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 PX 60000"},
		row{Name: "several fences, and there is no counter: one", Reply: "#512", After: made},
		row{Name: "several fences, and rights are to be proven", Args: mine + " '' 1 16", Before: "SET fence #-1", Reply: "[#0 16 1]", After: got16},
		row{Name: "several fences, and it holds them already", Before: "SET fence #-1; ZADD lock @900 permit:mine PX 900", Reply: "[#0 16 1]", After: got16},
		row{Name: "several fences, and it is the first in the queue", Args: "3 90000 60000 mine 1 'line 1000 1 mine' 1 '' 16",
			Before: "SET fence #-1; " + two + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 next'", Listening: "queue:line queue:b", Reply: "[#0 16 1]",
			After: "SET fence #15 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000; RPUSH queue 'b 1000 1 next'", Heard: "queue:b 'next 5000'"},
		// Several holds.
		row{Name: "several holds", Args: "5 90000 60000 mine 1 '' '' '' 16 4", Before: "SET fence #-1", Reply: "[#0 16 4]",
			After: "SET fence #63 PX 90000; ZADD lock @60000 permit:2.mine @60000 permit:3.mine @60000 permit:4.mine @60000 permit:mine PX 60000", Runs: proven},
		row{Name: "several holds, and two are free", Args: "4 90000 60000 mine 1 '' '' '' 16 4", Before: "SET fence #-1; " + two, Reply: "[#0 16 2]",
			After: "SET fence #31 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:2.mine @60000 permit:mine PX 60000"},
		row{Name: "several holds, and one is free: it has the fences", Args: mine + " '' '' 16 4", Before: "SET fence #-1; " + two, Reply: "[#0 16 1]",
			After: "SET fence #15 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000"},
		row{Name: "several holds of several permits", Args: "5 90000 60000 mine 2 '' '' '' 16 4", Before: "SET fence #-1", Reply: "[#0 16 2]",
			After: "SET fence #31 PX 90000; ZADD lock @60000 permit:2.mine @60000 permit:2.mine:2 @60000 permit:mine @60000 permit:mine:2 PX 60000"},
		row{Name: "several holds, and none is free", Args: mine + " '' '' 16 4", Before: full, Reply: "[a 5000 3 3]", After: same},
		row{Name: "several holds, and it queues for one", Args: "3 90000 60000 mine 1 'line 1000 1 mine' '' '' 16 4", Before: full, Reply: "[a 5000 3 3 1700000000 42 1 0]",
			After: full + "; RPUSH queue 'line 1000 1 mine' PX 126000"},
		row{Name: "several holds, and there is no counter", Args: mine + " '' '' 16 2", Reply: "[#512 1 2]",
			After: "SET fence #513 PX 90000; ZADD lock @60000 permit:2.mine @60000 permit:mine PX 60000"},
		row{Name: "several holds, and numbers are far ahead of the clock", Args: mine + " '' '' 16 2", Before: "SET fence #512", Reply: "[#513 1 2]",
			After: "SET fence #514 PX 90000; ZADD lock @60000 permit:2.mine @60000 permit:mine PX 60000"},
		row{Name: "several holds, and it has two already", Args: mine + " '' '' 16 4", Before: "SET fence #-1; ZADD lock @900 permit:2.mine @900 permit:mine PX 900", Reply: "[#0 16 2]",
			After: "SET fence #31 PX 90000; ZADD lock @60000 permit:2.mine @60000 permit:mine PX 60000"},
		row{Name: "several holds, and another waits behind it", Args: "5 90000 60000 mine 1 'line 1000 1 mine' 1 '' 16 2",
			Before: "SET fence #-1; " + two + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 next'", Listening: "queue:line queue:b", Reply: "[#0 16 2]",
			After: "SET fence #47 PX 90000; ZADD lock @1000 permit:next @5000 permit:a @9000 permit:b @60000 permit:2.mine @60000 permit:mine PX 60000",
			Heard: "queue:b 'grant #32 16 1000 1700000000 42 next'"},
		row{Name: "several fences, and the counter is bad", Before: "SET fence seven", Reply: "-FENCE the counter fence holds no fence: seven", After: same},
		row{Name: "several fences, and too few are free", Before: full, Reply: "[a 5000 3 3]", After: same},
	)...)
	rows = append(rows, on(mine, scripttest.BadCounters(row{})...)...)
	scripttest.Run(t, acquire, rows)
}

// A value that is set at run time counts if it is a number. Any other is as if nothing were set.
func TestLimitOfAcquireScript(t *testing.T) {
	var rows []row
	for _, value := range []string{"many", "''", "nan", "inf", "-1", "2.5", "0x10", "1e3", "' 7'", "'7 '", "7x"} {
		rows = append(rows,
			row{Name: "set to " + value, Before: full + "; SET permits " + value, Reply: "[a 5000 3 3]", After: same},
			row{Name: "set to " + value + ", and some are free", Before: two + "; SET permits " + value, Reply: "#512",
				After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000; SET permits " + value},
			row{Name: "set to " + value + ", and somebody queues", Before: full + "; SET permits " + value + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
				Reply: "[a 5000 3 3]", After: same})
	}
	rows = append(rows,
		row{Name: "no text", Before: full + "; RPUSH permits x", Reply: "[a 5000 3 3]", After: same},
		row{Name: "it may not be read", Before: full + "; SET permits 9", Forbid: "GET/permits", Reply: "[a 5000 3 3]", After: same},
	)
	scripttest.Run(t, acquire, on("3 90000 60000 mine 1 ''", rows...))
}

func TestQueueOfAcquireScript(t *testing.T) {
	const queues = "3 90000 60000 mine 1 'line 1000 1 mine'"
	const again = queues + " 1"
	const threeAgain = "3 90000 60000 mine 3 'line 1000 3 mine' 1"
	scripttest.Run(t, acquire, on(queues,
		// Its place.
		row{Name: "first in the queue", Before: full, Reply: "[a 5000 3 3 1700000000 42 1 0]", After: full + "; RPUSH queue 'line 1000 1 mine' PX 126000",
			Runs: asks + "RPUSH PTTL PEXPIRE ZREMRANGEBYSCORE"},
		row{Name: "last in the queue", Before: full + "; RPUSH queue 'a 1000 1 first' PX 5000", Listening: "queue:a",
			Reply: "[a 5000 3 3 1700000000 42 2 0]", After: full + "; RPUSH queue 'a 1000 1 first' 'line 1000 1 mine' PX 186000"},
		row{Name: "in the queue already", Args: again, Before: full + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 next' PX 5000",
			Reply: "[a 5000 3 3 1700000000 42 1 1]", After: full + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 next' PX 126000"},
		row{Name: "in the queue already, not the first", Args: again, Before: full + "; RPUSH queue 'a 1000 1 first' 'line 1000 1 mine'", Listening: "queue:a",
			Reply: "[a 5000 3 3 1700000000 42 2 1]", After: full + "; RPUSH queue 'a 1000 1 first' 'line 1000 1 mine' PX 186000",
			Runs: asks + "ZCARD LPOS PTTL PEXPIRE ZREMRANGEBYSCORE"},
		row{Name: "not in the queue any more", Args: again, Before: full + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "[a 5000 3 3 1700000000 42 2 0]", After: full + "; RPUSH queue 'a 1000 1 first' 'line 1000 1 mine' PX 186000"},
		row{Name: "in a queue that lasts longer", Args: again, Before: full + "; RPUSH queue 'line 1000 1 mine' PX 130000", Reply: "[a 5000 3 3 1700000000 42 1 1]", After: same},
		row{Name: "the queue is no list", Before: full + "; SET queue x", Reply: "[a 5000 3 3 1700000000 42 0 0]", After: same},
		row{Name: "the queue is no list any more", Args: again, Before: full + "; SET queue x", Reply: "[a 5000 3 3 1700000000 42 0 0]", After: same},
		row{Name: "in the queue, and ZREMRANGEBYSCORE is forbidden", Before: full, Forbid: "ZREMRANGEBYSCORE",
			Reply: "-NOPERM forbidden", After: full + "; RPUSH queue 'line 1000 1 mine' PX 126000"},
		row{Name: "RPUSH is forbidden", Before: full, Forbid: "RPUSH", Reply: "[a 5000 3 3 1700000000 42 0 0]", After: same},
		row{Name: "LPOS is forbidden", Args: again, Before: full, Forbid: "LPOS", Reply: "[a 5000 3 3 1700000000 42 0 0]", After: same},
		row{Name: "PTTL of the queue is forbidden", Before: full, Forbid: "PTTL/queue", Reply: "[a 5000 3 3 1700000000 42 1 0]", After: full + "; RPUSH queue 'line 1000 1 mine' PX 126000"},
		row{Name: "PEXPIRE is forbidden: the queue would not expire", Before: full + "; RPUSH queue 'a 1000 1 first' PX 5000", Listening: "queue:a", Forbid: "PEXPIRE",
			Reply: "[a 5000 3 3 1700000000 42 0 0]", After: same},
		row{Name: "out of memory: no place", OOM: true, Before: full, Reply: "[a 5000 3 3 1700000000 42 0 0]", After: same},

		// Permits are free, and somebody queues.
		row{Name: "the first in the queue comes first", Before: two + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "[first 1000 3 3 1700000000 42 1 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'",
			Runs:  asks + "PUBSUB GET LPOP ZSCORE " + grants + " PUBLISH LINDEX ZCARD ZRANGE RPUSH PTTL PEXPIRE ZREMRANGEBYSCORE"},
		row{Name: "the first in the queue comes first, who asks does not queue", Args: "3 90000 60000 mine 1 ''", Before: two + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "[first 1000 3 3]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'"},
		row{Name: "there is enough for both", Before: "ZADD lock @5000 permit:a PX 5000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "#513",
			After: "SET fence #513 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @60000 permit:mine PX 60000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'"},
		row{Name: "there is enough for both, and both queue", Args: again, Before: "ZADD lock @5000 permit:a PX 5000; RPUSH queue 'a 1000 1 first' 'line 1000 1 mine' 'c 1000 1 third'",
			Listening: "queue:a queue:line queue:c", Reply: "#513", After: "SET fence #513 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @60000 permit:mine PX 60000; RPUSH queue 'c 1000 1 third'",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:c 'next 1000'"},
		row{Name: "several in one step, and the next waits", Args: "5 90000 60000 mine 1 'line 1000 1 mine'", Before: two + "; RPUSH queue 'a 1000 1 first' 'b 2000 2 second' 'c 1000 1 third'",
			Listening: "queue:a queue:b queue:c", Reply: "[first 1000 5 5 1700000000 42 2 0]",
			After: "SET fence #513 PX 90000; ZADD lock @1000 permit:first @2000 permit:second @2000 permit:second:2 @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'c 1000 1 third' 'line 1000 1 mine' PX 182000",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'grant #513 1 2000 1700000000 42 second'; queue:c 'next 1000'"},
		row{Name: "who waits for many is not overtaken", Before: two + "; RPUSH queue 'a 1000 2 many'", Listening: "queue:a",
			Reply: "[a 5000 2 3 1700000000 42 2 0]", After: two + "; RPUSH queue 'a 1000 2 many' 'line 1000 1 mine' PX 186000",
			Runs: asks + "PUBSUB ZCARD RPUSH PTTL PEXPIRE ZREMRANGEBYSCORE"},
		row{Name: "who waits for many is not overtaken by who does not queue", Args: "3 90000 60000 mine 1 ''", Before: two + "; RPUSH queue 'a 1000 2 many'", Listening: "queue:a",
			Reply: "[a 5000 2 3]", After: same},

		// It is first in the queue itself.
		row{Name: "it is first in the queue", Args: again, Before: two + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 next'", Listening: "queue:line queue:b", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000; RPUSH queue 'b 1000 1 next'", Heard: "queue:b 'next 5000'",
			Runs: asks + grants + " LREM LINDEX ZCARD ZRANGE LINDEX PUBLISH"},
		row{Name: "it is first in the queue, and wants more than is free", Args: threeAgain, Before: two + "; RPUSH queue 'line 1000 3 mine' 'b 1000 1 next' PX 5000", Listening: "queue:line queue:b",
			Reply: "[a 5000 2 3 1700000000 42 1 1]", After: two + "; RPUSH queue 'line 1000 3 mine' 'b 1000 1 next' PX 126000"},
		row{Name: "all holds have lapsed: what it leaves goes to the next", Args: again, Before: lapsed + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 second' 'c 1000 1 third' 'd 1000 1 fourth'",
			Listening: "queue:line queue:b queue:c queue:d", Reply: "#512",
			After: "SET fence #514 PX 90000; ZADD lock @1000 permit:second @1000 permit:third @60000 permit:mine PX 60000; RPUSH queue 'd 1000 1 fourth'",
			Heard: "queue:b 'grant #513 1 1000 1700000000 42 second'; queue:c 'grant #514 1 1000 1700000000 42 third'; queue:d 'next 1000'"},
		row{Name: "all holds have lapsed, and nobody is left in the queue", Args: again, Before: lapsed + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 second'",
			Listening: "queue:line queue:b", Reply: "#512", After: "SET fence #513 PX 90000; ZADD lock @1000 permit:second @60000 permit:mine PX 60000",
			Heard: "queue:b 'grant #513 1 1000 1700000000 42 second'"},
		row{Name: "it takes all", Args: threeAgain, Before: lapsed + "; RPUSH queue 'line 1000 3 mine' 'b 1000 1 second'", Listening: "queue:line queue:b", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000; RPUSH queue 'b 1000 1 second'", Heard: "queue:b 'next 60000'"},

		// Who queues cannot be served.
		row{Name: "the first is dead", Before: two + "; RPUSH queue 'a 1000 1 dead'", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000", Heard: "queue:a 'next 1'"},
		row{Name: "two are dead, and the third is not", Before: two + "; RPUSH queue 'a 1000 1 dead' 'b 1000 1 too' 'c 1000 1 third'", Listening: "queue:c",
			Reply: "[third 1000 3 3 1700000000 42 1 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:third @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'next 1'; queue:b 'next 1'; queue:c 'grant #512 1 1000 1700000000 42 third'"},
		row{Name: "who waits for many is dead, and keeps nobody waiting", Before: two + "; RPUSH queue 'a 1000 3 dead' 'b 1000 1 second'", Listening: "queue:b",
			Reply: "[second 1000 3 3 1700000000 42 1 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:second @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'next 1'; queue:b 'grant #512 1 1000 1700000000 42 second'"},
		row{Name: "who waits for many is dead, and the next learns that it is first", Before: two + "; RPUSH queue 'a 1000 3 dead' 'b 1000 2 second' PX 5000", Listening: "queue:b",
			Reply: "[a 5000 2 3 1700000000 42 2 0]", After: two + "; RPUSH queue 'b 1000 2 second' 'line 1000 1 mine' PX 186000", Heard: "queue:a 'next 1'; queue:b 'next 5000'"},
		row{Name: "who waits for many is dead, and no permit is free: nobody looks", Before: full + "; RPUSH queue 'a 1000 3 dead' 'b 1000 1 second' PX 5000", Listening: "queue:b",
			Reply: "[a 5000 3 3 1700000000 42 3 0]", After: full + "; RPUSH queue 'a 1000 3 dead' 'b 1000 1 second' 'line 1000 1 mine' PX 246000",
			Runs: asks + "ZCARD RPUSH PTTL PEXPIRE ZREMRANGEBYSCORE"},
		row{Name: "it waits for more than there are: it asks, and learns that", Before: two + "; RPUSH queue 'a 1000 4 many' 'b 1000 1 second'", Listening: "queue:a queue:b",
			Reply: "[second 1000 3 3 1700000000 42 1 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:second @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'next 1'; queue:b 'grant #512 1 1000 1700000000 42 second'"},
		row{Name: "no entry", Before: two + "; RPUSH queue 'a 1000 x' 'b 1000 1 first'", Listening: "queue:a queue:b",
			Reply: "[first 1000 3 3 1700000000 42 1 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:b 'grant #512 1 1000 1700000000 42 first'"},
		row{Name: "NUMSUB is forbidden", Before: two + "; RPUSH queue 'a 1000 1 dead' 'b 1000 1 first'", Listening: "queue:b", Forbid: "PUBSUB",
			Reply: "[first 1000 3 3 1700000000 42 1 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'next 1'; queue:b 'next 1'; queue:b 'grant #512 1 1000 1700000000 42 first'"},
		row{Name: "LPOP is forbidden", Before: two + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "LPOP", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000; RPUSH queue 'a 1000 1 first'"},
		row{Name: "the counter is bad", Before: "SET fence seven; " + two + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "-FENCE the counter fence holds no fence: seven", After: same},
		row{Name: "the counter may not be written", Before: two + "; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Forbid: "SET",
			Reply: "-NOPERM forbidden", After: two + "; RPUSH queue 'b 1000 1 second'", Heard: "queue:b 'next 5000'"},
		row{Name: "ZREM is forbidden", Before: two + "; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Forbid: "ZREM",
			Reply: "[first 1000 3 3 1700000000 42 2 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'b 1000 1 second' 'line 1000 1 mine' PX 182000",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'next 1000'"},
		row{Name: "ZREM is forbidden, and the grant may not be published", Before: "ZADD lock @5000 permit:a PX 5000; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Forbid: "ZREM PUBLISH",
			Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a PX 5000; RPUSH queue 'b 1000 1 second'"},
		row{Name: "ZADD is forbidden", Before: two + "; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Forbid: "ZADD",
			Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000; " + two + "; RPUSH queue 'b 1000 1 second'", Heard: "queue:b 'next 5000'"},
		row{Name: "the grant may not be published", Before: two + "; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Forbid: "PUBLISH", Reply: "#513",
			After: "SET fence #513 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000; RPUSH queue 'b 1000 1 second'"},
		row{Name: "a holder is still in the queue: it keeps its permits", Before: "ZADD lock @5000 permit:a PX 5000; RPUSH queue 'a 1000 1 a'", Listening: "queue:a", Forbid: "PUBLISH", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @60000 permit:mine PX 60000"},
		row{Name: "the grant of several may not be published", Before: "ZADD lock @5000 permit:a PX 5000; RPUSH queue 'a 60000 2 first'", Listening: "queue:a", Forbid: "PUBLISH", Reply: "#513",
			After: "SET fence #513 PX 90000; ZADD lock @5000 permit:a @60000 permit:mine PX 60000"},
		row{Name: "out of memory: the first in the queue comes first", OOM: true, Before: two + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
			Reply: "[first 1000 3 3 1700000000 42 1 0]", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'line 1000 1 mine' PX 122000",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'"},
	))
}

// Every script refuses a value that is no lock, and leaves it alone.
func TestNoLockScripts(t *testing.T) {
	for _, c := range []struct {
		script *driver.Script
		args   string
	}{
		{acquire, "3 90000 60000 a 1 'line 1000 1 a'"},
		{release, "3 90000 a 'line 1000 1 a' free"},
		{pass, "3 90000 60000 mine 1 'line 1000 1 mine' '' a free"},
		{adopt, "3 90000 a 60000 mine"},
		{limit, "3 90000 5 free"},
	} {
		t.Run(c.script.Name(), func(t *testing.T) {
			scripttest.Run(t, c.script, on(c.args,
				row{Name: "a string", Before: "SET lock a PX 9000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "-WRONGTYPE", After: same},
				row{Name: "a hash", Before: "HSET lock a @9000 PX 9000", Reply: "-WRONGTYPE", After: same},
				row{Name: "without expiry", Before: "ZADD lock @-5 permit:old @9000 permit:a; RPUSH queue 'a 1000 1 first'", Listening: "queue:a",
					Reply: "-NOLOCK the key lock holds no lock: it has no expiry", After: same},
				row{Name: "forbidden", Before: full, Forbid: "ZRANGE | PTTL | TIME", Reply: "-NOPERM forbidden", After: same},
				row{Name: "ZREMRANGEBYSCORE is forbidden", Before: lapsed, Forbid: "ZREMRANGEBYSCORE", Reply: "-NOPERM forbidden", After: same},
			))
		})
	}
}

func TestReleaseScript(t *testing.T) {
	const args = "3 90000 mine '' free"
	const one = "ZADD lock @7000 permit:mine PX 7000"
	scripttest.Run(t, release, on(args,
		// Nobody queues.
		row{Name: "the only hold", Before: "SET fence 7; " + one, Reply: "1", After: "SET fence 7", Heard: "free mine",
			Runs: "ZRANGE EXISTS TIME ZREM PUBLISH"},
		row{Name: "the only hold, and its key does not expire", Before: "ZADD lock @7000 permit:mine", Reply: "1", Heard: "free mine"},
		row{Name: "the only hold, and it has lapsed", Before: "ZADD lock @-1 permit:mine PX 7000", Reply: "nil"},
		row{Name: "of several permits", Before: heavy, Reply: "1", Heard: "free mine"},
		row{Name: "of several permits, and others hold some", Args: "9 90000 mine '' free", Before: "ZADD lock @5000 permit:a @7000 permit:mine @7000 permit:mine:2 @9000 permit:b PX 9000",
			Reply: "1", After: two, Heard: "free mine"},
		row{Name: "the one that ends last: the key expires with the others", Before: "ZADD lock @5000 permit:a @7000 permit:b @9000 permit:mine PX 9000", Reply: "1",
			After: "ZADD lock @5000 permit:a @7000 permit:b PX 7000", Heard: "free mine"},
		row{Name: "a hold has lapsed, too", Before: "ZADD lock @-1 permit:old @5000 permit:a @9000 permit:mine PX 9000", Reply: "1", After: "ZADD lock @5000 permit:a PX 5000", Heard: "free mine"},
		row{Name: "gone", Before: "SET fence 7", Reply: "nil", After: same},
		row{Name: "gone, and others hold some", Before: full, Reply: "nil", After: same, Runs: begin + "ZREM LINDEX"},
		row{Name: "lapsed", Before: "ZADD lock @-1 permit:mine @5000 permit:a PX 5000", Reply: "nil", After: "ZADD lock @5000 permit:a PX 5000"},
		row{Name: "another with a token that is longer", Args: "3 90000 min '' free", Before: heavy, Reply: "nil", After: same},
		row{Name: "ZREM is forbidden", Before: one, Forbid: "ZREM", Reply: "-NOPERM forbidden", After: same},
		row{Name: "forbidden, and not needed", Before: one, Forbid: "ZSCORE | LINDEX", Reply: "1", Heard: "free mine"},
		row{Name: "ZREM and ZSCORE are forbidden", Before: one, Forbid: "ZREM ZSCORE", Reply: "-NOPERM forbidden", After: same},
		row{Name: "PEXPIREAT is forbidden: the key expires later", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000", Forbid: "PEXPIREAT", Reply: "1",
			After: "ZADD lock @5000 permit:a PX 7000", Heard: "free mine"},
		row{Name: "PEXPIREAT is forbidden, before Redis 7.0", Old: true, Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000", Forbid: "PEXPIREAT", Reply: "1",
			After: "ZADD lock @5000 permit:a PX 7000", Heard: "free mine"},
		row{Name: "PUBLISH is forbidden", Before: one, Forbid: "PUBLISH", Reply: "1"},
		row{Name: "the queue is no list", Before: one + "; SET queue x", Reply: "1", After: "SET queue x", Heard: "free mine"},
		row{Name: "out of memory", OOM: true, Before: one, Reply: "1", Heard: "free mine"},

		// An undo of several holds.
		row{Name: "several holds", Args: args + " 4", Before: "ZADD lock @5000 permit:a @7000 permit:2.mine @7000 permit:mine PX 7000", Reply: "1", After: "ZADD lock @5000 permit:a PX 5000", Heard: "free mine"},
		row{Name: "several holds, and nobody else has any", Args: args + " 3", Before: "ZADD lock @7000 permit:2.mine @7000 permit:3.mine @7000 permit:mine PX 7000", Reply: "1", Heard: "free mine"},
		row{Name: "several holds of several permits", Args: args + " 2", Before: "ZADD lock @5000 permit:a @7000 permit:2.mine @7000 permit:2.mine:2 @7000 permit:mine @7000 permit:mine:2 PX 7000", Reply: "1",
			After: "ZADD lock @5000 permit:a PX 5000", Heard: "free mine"},
		row{Name: "several holds, of which the first is gone", Args: args + " 2", Before: "ZADD lock @5000 permit:a @7000 permit:2.mine PX 7000", Reply: "1", After: "ZADD lock @5000 permit:a PX 5000", Heard: "free mine"},
		row{Name: "several holds, and none is there", Args: args + " 2", Before: full, Reply: "nil", After: same},
		row{Name: "several holds and an entry, and the queue is served once", Args: "3 90000 mine 'line 1000 1 mine' free 2",
			Before: "SET fence #-1; ZADD lock @5000 permit:a @7000 permit:2.mine @7000 permit:mine PX 7000; RPUSH queue 'line 1000 1 mine' 'b 1000 1 first' 'c 1000 1 second'", Listening: "queue:b queue:c",
			Reply: "1", After: "SET fence #31 PX 90000; ZADD lock @1000 permit:first @1000 permit:second @5000 permit:a PX 5000",
			Heard: "queue:b 'grant #0 16 1000 1700000000 42 first'; queue:c 'grant #16 16 1000 1700000000 42 second'; free mine"},

		// Somebody queues.
		row{Name: "the first in the queue gets them", Before: "SET fence #-700; ZADD lock @5000 permit:a @6000 permit:b @7000 permit:mine PX 7000; RPUSH queue 'a 1000 1 first' 'b 2000 1 next'", Listening: "queue:a queue:b",
			Reply: "1", After: "SET fence #15 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @6000 permit:b PX 6000; RPUSH queue 'b 2000 1 next'",
			Heard: "queue:a 'grant #0 16 1000 1700000000 42 first'; queue:b 'next 1000'",
			Runs:  ends + "LINDEX GET ZCARD PUBSUB GET LPOP ZSCORE " + grants + " PUBLISH LINDEX ZCARD ZRANGE LINDEX PUBLISH"},
		row{Name: "several in one step", Before: heavy + "; RPUSH queue 'a 1000 1 first' 'b 2000 2 second' 'c 1000 1 third'", Listening: "queue:a queue:b queue:c", Reply: "1",
			After: "SET fence #513 PX 90000; ZADD lock @1000 permit:first @2000 permit:second @2000 permit:second:2 PX 2000; RPUSH queue 'c 1000 1 third'",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'grant #513 1 2000 1700000000 42 second'; queue:c 'next 1000'"},
		row{Name: "several, and some are left", Before: heavy + "; RPUSH queue 'a 1000 1 first' 'b 2000 1 second'", Listening: "queue:a queue:b", Reply: "1",
			After: "SET fence #513 PX 90000; ZADD lock @1000 permit:first @2000 permit:second PX 2000",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'grant #513 1 2000 1700000000 42 second'; free mine"},
		row{Name: "too few for the first, who waits for many", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000; RPUSH queue 'a 1000 3 many' 'b 1000 1 light'", Listening: "queue:a queue:b", Reply: "1",
			After: "ZADD lock @5000 permit:a PX 5000; RPUSH queue 'a 1000 3 many' 'b 1000 1 light'",
			Runs:  ends + "LINDEX GET ZCARD PUBSUB"},
		row{Name: "the first, who waits for many, is dead", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000; RPUSH queue 'a 1000 3 dead' 'b 1000 1 light'", Listening: "queue:b", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:light @5000 permit:a PX 5000", Heard: "queue:a 'next 1'; queue:b 'grant #512 1 1000 1700000000 42 light'; free mine"},
		row{Name: "all are dead", Before: one + "; RPUSH queue 'a 1000 1 dead' 'b 1000 3 too'", Reply: "1", Heard: "queue:a 'next 1'; queue:b 'next 1'; free mine"},
		row{Name: "the first waits for more than there are", Before: one + "; RPUSH queue 'a 1000 4 many' 'b 1000 3 all'", Listening: "queue:a queue:b", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:all @1000 permit:all:2 @1000 permit:all:3 PX 1000", Heard: "queue:a 'next 1'; queue:b 'grant #512 1 1000 1700000000 42 all'; free mine"},
		row{Name: "fewer were set than are taken", Before: "ZADD lock @5000 permit:a @6000 permit:b @7000 permit:mine PX 7000; SET permits 2; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "ZADD lock @5000 permit:a @6000 permit:b PX 6000; SET permits 2; RPUSH queue 'a 1000 1 first'"},
		row{Name: "more were set", Args: "1 90000 mine '' free", Before: "ZADD lock @7000 permit:mine PX 7000; SET permits 2; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Reply: "1",
			After: "SET fence #513 PX 90000; ZADD lock @1000 permit:first @1000 permit:second PX 1000; SET permits 2",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'grant #513 1 1000 1700000000 42 second'; free mine"},
		row{Name: "lapsed, and somebody queues", Before: "ZADD lock @-1 permit:mine @5000 permit:a @7000 permit:b PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "nil",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @7000 permit:b PX 7000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'"},
		row{Name: "the counter is kept for ever", Args: "1 0 mine '' free", Before: one + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence #512; ZADD lock @1000 permit:first PX 1000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free mine"},

		// Who queues cannot be served: a mere release.
		row{Name: "the counter is bad", Before: "SET fence seven; " + one + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence seven; RPUSH queue 'a 1000 1 first'", Heard: "free mine"},
		row{Name: "the counter is a list", Before: "RPUSH fence x; " + one + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "RPUSH fence x; RPUSH queue 'a 1000 1 first'", Heard: "free mine"},
		row{Name: "the counter may not be written", Before: one + "; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Forbid: "SET", Reply: "1",
			After: "RPUSH queue 'b 1000 1 second'", Heard: "queue:b 'next 1'; free mine"},
		row{Name: "forbidden", Before: one + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "GET/fence | LPOP", Reply: "1",
			After: "RPUSH queue 'a 1000 1 first'", Heard: "free mine"},
		row{Name: "ZCARD is forbidden", Before: one + "; RPUSH queue 'a 1000 1 first' 'b 1000 9 second'", Listening: "queue:a", Forbid: "ZCARD", Reply: "1",
			After: "RPUSH queue 'a 1000 1 first' 'b 1000 9 second'", Heard: "free mine"},
		row{Name: "ZADD is forbidden", Before: one + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "ZADD", Reply: "1", After: "SET fence #512 PX 90000", Heard: "free mine"},
		row{Name: "ZADD is forbidden, before Redis 7.0", Old: true, Before: one + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "ZADD", Reply: "1",
			After: "SET fence #512 PX 90000", Heard: "free mine"},
		row{Name: "PEXPIREAT is forbidden, and somebody queues", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000; RPUSH queue 'a 1000 1 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Forbid: "PEXPIREAT", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a PX 7000; RPUSH queue 'b 1000 1 second'", Heard: "queue:b 'next 5000'; free mine"},
		row{Name: "the number of permits may not be read", Before: "ZADD lock @5000 permit:a @6000 permit:b @7000 permit:mine PX 7000; SET permits 2; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "GET/permits", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @6000 permit:b PX 6000; SET permits 2", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free mine"},
		row{Name: "PUBLISH is forbidden, and somebody queues", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000; RPUSH queue 'a 60000 2 first'", Listening: "queue:a", Forbid: "PUBLISH", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a PX 5000"},
		row{Name: "out of memory: granted", OOM: true, Before: one + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first PX 1000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free mine"},
	))
}

func TestPassScript(t *testing.T) {
	const entry, made = "'line 1000 1 mine'", "SET fence #0 PX 90000; ZADD lock @60000 permit:mine PX 60000"
	const args, again = "3 90000 60000 mine 1 " + entry + " '' old free", "3 90000 60000 mine 1 " + entry + " 1 old free"
	const counter, one = "SET fence #-5; ", "ZADD lock @7000 permit:old PX 7000"
	const oldOf3 = "ZADD lock @5000 permit:a @7000 permit:old @9000 permit:b PX 9000"
	const mineOf3 = "SET fence #0 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine PX 60000"
	const heavy = "ZADD lock @7000 permit:old @7000 permit:old:2 @7000 permit:old:3 PX 7000"
	const asksAgain = "[old 1 0 3 1700000000 42 0 0]"
	rows := on(args,
		// It gets what was released.
		row{Name: "nobody queues", Before: counter + one, Reply: "#0", After: made,
			Runs: begin + "GET ZREM LINDEX GET SET ZADD PEXPIREAT"},
		row{Name: "it is the first in the queue", Args: again, Before: counter + oldOf3 + "; RPUSH queue " + entry + " 'b 1000 1 next'", Listening: "queue:line queue:b", Reply: "#0",
			After: mineOf3 + "; RPUSH queue 'b 1000 1 next'", Heard: "queue:b 'next 5000'"},
		row{Name: "several to one: what is left goes to those who do not queue", Before: counter + heavy, Reply: "#0", After: made, Heard: "free old"},
		row{Name: "several to several", Args: "3 90000 60000 mine 2 'line 1000 2 mine' '' old free", Before: counter + heavy, Reply: "#0",
			After: "SET fence #0 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 PX 60000", Heard: "free old"},
		row{Name: "one to several", Args: "3 90000 60000 mine 3 'line 1000 3 mine' '' old free", Before: counter + one, Reply: "#0",
			After: "SET fence #0 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000"},
		row{Name: "several to one, who was the first: what is left goes to the next", Args: again, Before: counter + heavy + "; RPUSH queue " + entry + " 'b 1000 1 next'", Listening: "queue:line queue:b", Reply: "#0",
			After: "SET fence #16 PX 90000; ZADD lock @1000 permit:next @60000 permit:mine PX 60000", Heard: "queue:b 'grant #1 16 1000 1700000000 42 next'; free old"},
		row{Name: "it has been granted meanwhile: those who do not queue may have what was released", Args: again, Before: counter + "ZADD lock @900 permit:mine @7000 permit:old PX 7000", Reply: "#0", After: made, Heard: "free old"},
		row{Name: "it has been granted meanwhile: another gets what was released", Args: again, Before: counter + "ZADD lock @900 permit:mine @7000 permit:old PX 7000; RPUSH queue 'b 1000 3 heavy'", Listening: "queue:b", Reply: "#0",
			After: made + "; RPUSH queue 'b 1000 3 heavy'"},

		// Several fences.
		row{Name: "several fences", Args: args + " 16", Before: counter + one, Reply: "[#0 16 1]", After: "SET fence #15 PX 90000; ZADD lock @60000 permit:mine PX 60000"},
		row{Name: "several fences, and it has been granted meanwhile", Args: again + " 16", Before: counter + "ZADD lock @900 permit:mine @7000 permit:old PX 7000", Reply: "[#0 16 1]",
			After: "SET fence #15 PX 90000; ZADD lock @60000 permit:mine PX 60000", Heard: "free old"},
		row{Name: "several fences, several to one: what is left goes to those who do not queue", Args: args + " 16", Before: counter + heavy, Reply: "[#0 16 1]",
			After: "SET fence #15 PX 90000; ZADD lock @60000 permit:mine PX 60000", Heard: "free old"},

		// It waits.
		row{Name: "another comes first", Before: counter + oldOf3 + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "[first 1000 3 3 1700000000 42 1 0]",
			After: "SET fence #15 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue " + entry + " PX 122000", Heard: "queue:a 'grant #0 16 1000 1700000000 42 first'"},
		row{Name: "another comes first, and it is in the queue already", Args: again, Before: counter + oldOf3 + "; RPUSH queue 'a 1000 1 first' " + entry, Listening: "queue:a queue:line",
			Reply: "[first 1000 3 3 1700000000 42 1 1]",
			After: "SET fence #15 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue " + entry + " PX 122000", Heard: "queue:a 'grant #0 16 1000 1700000000 42 first'"},
		row{Name: "there is enough for both", Before: counter + heavy + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "#16",
			After: "SET fence #16 PX 90000; ZADD lock @1000 permit:first @60000 permit:mine PX 60000", Heard: "queue:a 'grant #0 16 1000 1700000000 42 first'; free old"},
		row{Name: "it wants more than is free", Args: "3 90000 60000 mine 2 'line 1000 2 mine' '' old free", Before: counter + oldOf3, Reply: "[a 5000 2 3 1700000000 42 1 0]",
			After: counter + two + "; RPUSH queue 'line 1000 2 mine' PX 126000"},
		row{Name: "it has no place: those who do not queue hear of the release", Args: "3 90000 60000 mine 2 'line 1000 2 mine' '' old free", Before: counter + oldOf3, Forbid: "RPUSH",
			Reply: "[a 5000 2 3 1700000000 42 0 0]", After: counter + two, Heard: "free old"},

		// Not its holder, or more than there are.
		row{Name: "gone", Before: counter, Reply: "nil", After: counter},
		row{Name: "others hold", Before: counter + full + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "nil", After: same},
		row{Name: "lapsed", Before: counter + "ZADD lock @-1 permit:old @5000 permit:a PX 5000", Reply: "nil", After: counter + "ZADD lock @5000 permit:a PX 5000"},
		row{Name: "the next holds permits, the holder none", Args: again, Before: counter + "ZADD lock @900 permit:mine PX 900", Reply: "nil", After: same},
		row{Name: "more than there are", Args: "3 90000 60000 mine 4 'line 1000 4 mine' '' old free", Before: counter + one, Reply: "-LIMIT 4 permits are asked for, and there are 3", After: same},

		// What is forbidden.
		row{Name: "ZREM is forbidden", Before: counter + one, Forbid: "ZREM", Reply: "-NOPERM forbidden", After: same},
		row{Name: "forbidden: released, and it asks again", Before: counter + one, Forbid: "ZADD | ZCARD", Reply: asksAgain, After: counter, Heard: "free old"},
		row{Name: "ZSCORE is forbidden: released, and it asks again", Args: again, Before: counter + oldOf3, Forbid: "ZSCORE", Reply: asksAgain, After: counter + two, Heard: "free old"},
		row{Name: "the counter is bad: released, and it asks again", Before: "SET fence seven; " + one, Reply: asksAgain, After: "SET fence seven", Heard: "free old"},
		row{Name: "the counter is bad, and it has been granted meanwhile", Args: again, Before: "SET fence seven; ZADD lock @900 permit:mine @7000 permit:old PX 7000", Reply: asksAgain,
			After: "SET fence seven; ZADD lock @900 permit:mine PX 900", Heard: "free old"},
		row{Name: "PUBLISH is forbidden", Before: counter + heavy, Forbid: "PUBLISH", Reply: "#0", After: made},
		row{Name: "ZREMRANGEBYSCORE is forbidden: it is not needed", Before: counter + oldOf3 + "; SET permits 2", Forbid: "ZREMRANGEBYSCORE", Reply: "[a 5000 2 2 1700000000 42 1 0]",
			After: counter + two + "; SET permits 2; RPUSH queue " + entry + " PX 126000"},
		row{Name: "out of memory", OOM: true, Before: counter + one, Reply: "#0", After: made},
		row{Name: "out of memory, and another comes first", OOM: true, Before: counter + oldOf3 + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "[first 1000 3 3 1700000000 42 1 0]",
			After: "SET fence #15 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000; RPUSH queue " + entry + " PX 122000", Heard: "queue:a 'grant #0 16 1000 1700000000 42 first'"},
	)
	scripttest.Run(t, pass, rows)
}

func TestUndoScript(t *testing.T) {
	const args = "3 90000 mine 'line 1000 1 mine' free"
	scripttest.Run(t, release, on(args,
		row{Name: "nothing has arrived", Reply: "nil", Runs: "ZRANGE TIME ZREM LINDEX LREM LINDEX"},
		row{Name: "nothing has arrived but its place, and ZREM is forbidden", Before: full + "; RPUSH queue 'line 1000 1 mine'", Forbid: "ZREM", Reply: "nil", After: full, Heard: "free mine"},
		row{Name: "it has a place behind others", Before: full + "; RPUSH queue 'a 1000 1 x' 'line 1000 1 mine' 'b 1000 1 y' 'line 1000 1 mine'", Listening: "queue:a queue:b",
			Reply: "nil", After: full + "; RPUSH queue 'a 1000 1 x' 'b 1000 1 y'"},
		row{Name: "it was first in the queue", Before: full + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 y'", Listening: "queue:b", Reply: "nil",
			After: full + "; RPUSH queue 'b 1000 1 y'", Heard: "queue:b 'next 5000'"},
		row{Name: "it was alone in the queue", Before: full + "; RPUSH queue 'line 1000 1 mine'", Reply: "nil", After: full, Heard: "free mine"},
		row{Name: "it was first, and kept others waiting: they are served", Args: "3 90000 mine 'line 1000 3 mine' free", Before: two + "; RPUSH queue 'line 1000 3 mine' 'b 1000 1 y' 'c 1000 1 z'",
			Listening: "queue:line queue:b queue:c", Reply: "nil", After: "SET fence #512 PX 90000; ZADD lock @1000 permit:y @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'c 1000 1 z'",
			Heard: "queue:b 'grant #512 1 1000 1700000000 42 y'; queue:c 'next 1000'"},
		row{Name: "it was first, and nobody can be served", Before: "SET fence seven; " + two + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 y'", Listening: "queue:b", Reply: "nil",
			After: "SET fence seven; " + two + "; RPUSH queue 'b 1000 1 y'", Heard: "queue:b 'next 5000'; free mine"},
		row{Name: "it was first, nobody holds any, and nobody can be served", Before: "SET fence seven; RPUSH queue 'line 1000 1 mine' 'b 1000 1 y'", Listening: "queue:b", Reply: "nil",
			After: "SET fence seven; RPUSH queue 'b 1000 1 y'", Heard: "queue:b 'next 1'; free mine"},
		row{Name: "it was alone in the queue, and kept those out that do not queue", Args: "3 90000 mine 'line 1000 3 mine' free", Before: two + "; RPUSH queue 'line 1000 3 mine'", Reply: "nil",
			After: two, Heard: "free mine"},
		row{Name: "only the dead came before it", Args: "3 90000 mine 'line 1000 3 mine' free", Before: two + "; RPUSH queue 'a 1000 3 x' 'line 1000 3 mine'", Reply: "nil",
			After: two, Heard: "queue:a 'next 1'; free mine"},
		row{Name: "it has been served at this moment", Before: "ZADD lock @1000 permit:mine @5000 permit:a @9000 permit:b PX 9000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @9000 permit:b PX 9000", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free mine"},
		row{Name: "it has been served with several", Args: "3 90000 mine 'line 1000 3 mine' free", Before: heavy, Reply: "1", Heard: "free mine"},
		row{Name: "its own entry is not served", Before: "ZADD lock @1000 permit:mine PX 1000; RPUSH queue 'line 1000 1 mine'", Listening: "queue:line", Reply: "1", Heard: "free mine"},
		row{Name: "another's entry is not its own", Before: full + "; RPUSH queue 'line 1000 2 mine' 'line 1000 1 mine too'", Listening: "queue:line", Reply: "nil", After: same},
		row{Name: "the queue is no list", Before: "ZADD lock @1000 permit:mine PX 1000; SET queue x", Reply: "1", After: "SET queue x", Heard: "free mine"},
		row{Name: "LREM is forbidden", Before: full + "; RPUSH queue 'a 1000 1 x' 'line 1000 1 mine'", Listening: "queue:a", Forbid: "LREM", Reply: "nil", After: same},
		row{Name: "ZREM is forbidden", Before: "ZADD lock @1000 permit:mine PX 1000; RPUSH queue 'line 1000 1 mine'", Listening: "queue:line", Forbid: "ZREM", Reply: "-NOPERM forbidden", After: same},
		row{Name: "out of memory", OOM: true, Before: full + "; RPUSH queue 'line 1000 1 mine' 'b 1000 1 y'", Listening: "queue:b", Reply: "nil",
			After: full + "; RPUSH queue 'b 1000 1 y'", Heard: "queue:b 'next 5000'"},
	))
}

func TestExtendScript(t *testing.T) {
	const one, wrongType = "ZADD lock @7000 permit:mine PX 7000", "['WRONGTYPE Operation against a key holding the wrong kind of value']"
	rows := on("mine 60000",
		row{Name: "longer", Before: one, Reply: "1", After: "ZADD lock @60000 permit:mine PX 60000", Runs: begin + "ZSCORE ZSCORE PEXPIREAT ZADD PEXPIREAT"},
		row{Name: "shorter: it stays as it is", Args: "mine 4000", Before: one, Reply: "1", After: same},
		row{Name: "of several permits", Before: heavy, Reply: "1", After: "ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000"},
		row{Name: "next to others", Args: "a 6000", Before: two, Reply: "1", After: "ZADD lock @6000 permit:a @9000 permit:b PX 9000"},
		row{Name: "the last to end", Args: "b 60000", Before: two, Reply: "1", After: "ZADD lock @5000 permit:a @60000 permit:b PX 60000"},
		row{Name: "drops what has lapsed, and serves nobody", Before: "ZADD lock @-1 permit:old @7000 permit:mine PX 7000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "ZADD lock @60000 permit:mine PX 60000; RPUSH queue 'a 1000 1 first'"},
		row{Name: "gone", Reply: "[nil]", Runs: "ZRANGE TIME ZREMRANGEBYSCORE"},
		row{Name: "lapsed", Before: "ZADD lock @-1 permit:mine @5000 permit:a PX 5000", Reply: "[nil]", After: "ZADD lock @5000 permit:a PX 5000"},
		row{Name: "it ends now", Before: "ZADD lock @0 permit:mine PX 5000", Reply: "1", After: "ZADD lock @60000 permit:mine PX 60000"},
		row{Name: "another's", Args: "other 60000", Before: full, Reply: "[nil]", After: same},
		row{Name: "a string", Before: "SET lock mine PX 9000", Reply: "[" + wrongType + "]", After: same},
		row{Name: "without expiry", Before: "ZADD lock @7000 permit:mine", Reply: "[['NOLOCK the key lock holds no lock: it has no expiry']]", After: same},
		row{Name: "ZRANGE is forbidden", Before: one, Forbid: "ZRANGE", Reply: "[['NOPERM forbidden']]", After: same},
		row{Name: "the time of its end has passed: no key stays", Before: one, Lapsed: "PEXPIREAT", Reply: "1"},
		row{Name: "forbidden", Before: one, Forbid: "PTTL | TIME | ZSCORE | PEXPIREAT", Reply: "-NOPERM forbidden", After: same},
		row{Name: "ZADD is forbidden: the key lasts longer than the hold", Before: one, Forbid: "ZADD", Reply: "-NOPERM forbidden", After: "ZADD lock @7000 permit:mine PX 60000"},
		row{Name: "out of memory", OOM: true, Before: heavy, Reply: "1", After: "ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000"},
	)
	for i := range rows {
		rows[i].Keys = "lock"
	}
	several := on("mine a 60000",
		row{Name: "two of one lock", Keys: "lock lock", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000", Reply: "2", After: "ZADD lock @60000 permit:a @60000 permit:mine PX 60000"},
		row{Name: "each with its TTL", Keys: "lock lock", Args: "mine a 60000 30000", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000", Reply: "2",
			After: "ZADD lock @30000 permit:a @60000 permit:mine PX 60000"},
		row{Name: "each with its TTL, the other way round", Keys: "lock lock", Args: "mine a 30000 60000", Before: "ZADD lock @5000 permit:a @7000 permit:mine PX 7000", Reply: "2",
			After: "ZADD lock @30000 permit:mine @60000 permit:a PX 60000"},
		row{Name: "one has lapsed", Keys: "lock lock", Before: "ZADD lock @-1 permit:a @7000 permit:mine PX 7000", Reply: "[1 nil]", After: "ZADD lock @60000 permit:mine PX 60000"},
		row{Name: "the other has lapsed", Keys: "lock other", Before: "ZADD lock @-1 permit:mine @5000 permit:b PX 5000; ZADD other @5000 permit:a PX 5000", Reply: "[nil 1]",
			After: "ZADD lock @5000 permit:b PX 5000; ZADD other @60000 permit:a PX 60000"},
		row{Name: "several, of which not all are there", Keys: "bad free lock odd", Args: "x y mine z 60000", Before: "SET bad x; ZADD lock @7000 permit:mine PX 7000; ZADD odd @5000 permit:z",
			Reply: "[" + wrongType + " nil 1 ['NOLOCK the key odd holds no lock: it has no expiry']]",
			After: "SET bad x; ZADD lock @60000 permit:mine PX 60000; ZADD odd @5000 permit:z"},
	)
	scripttest.Run(t, extend, append(rows, several...))
}

func TestAdoptScript(t *testing.T) {
	const args, held = "3 90000 old 60000 mine", "ZADD lock @7000 permit:old PX 7000"
	rows := on(args,
		row{Name: "held", Before: "SET fence #-5; " + held, Reply: "#0", After: "SET fence #0 PX 90000; ZADD lock @60000 permit:mine PX 60000",
			Runs: begin + "ZSCORE ZSCORE GET SET ZADD PEXPIREAT ZREM ZREM ZRANGE PEXPIREAT"},
		row{Name: "of several permits", Before: "ZADD lock @7000 permit:old @7000 permit:old:2 @7000 permit:old:3 PX 7000", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 @60000 permit:mine:3 PX 60000"},
		row{Name: "next to others", Before: "ZADD lock @5000 permit:a @7000 permit:old @7000 permit:old:2 @9000 permit:b PX 9000", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @5000 permit:a @9000 permit:b @60000 permit:mine @60000 permit:mine:2 PX 60000"},
		row{Name: "for less: the key ends with it", Args: "3 90000 old 4000 mine", Before: held, Reply: "#512", After: "SET fence #512 PX 90000; ZADD lock @4000 permit:mine PX 4000"},
		row{Name: "for less than another has: the key ends with that", Args: "3 90000 old 4000 mine", Before: "ZADD lock @5000 permit:a @7000 permit:old PX 7000", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @4000 permit:mine @5000 permit:a PX 5000"},
		row{Name: "held, before Redis 7.0", Old: true, Before: held, Reply: "#512", After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine PX 60000"},
		row{Name: "the counter is kept for ever", Args: "3 0 old 60000 mine", Before: held, Reply: "#512", After: "SET fence #512; ZADD lock @60000 permit:mine PX 60000"},
		row{Name: "more than there are now", Before: "ZADD lock @7000 permit:old @7000 permit:old:2 PX 7000; SET permits 1", Reply: "#512",
			After: "SET fence #512 PX 90000; ZADD lock @60000 permit:mine @60000 permit:mine:2 PX 60000; SET permits 1"},
		row{Name: "gone", Before: "SET fence 7", Reply: "nil", After: same},
		row{Name: "lapsed", Before: "ZADD lock @-1 permit:old @5000 permit:a PX 5000", Reply: "nil", After: "ZADD lock @5000 permit:a PX 5000"},
		row{Name: "another's", Before: full, Reply: "nil", After: same},
		row{Name: "adopted already", Before: "ZADD lock @7000 permit:mine PX 7000", Reply: "nil", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; " + held, Reply: "-WRONGTYPE", After: same},
		row{Name: "forbidden", Before: held, Forbid: "SET | GET | ZREM | ZADD", Reply: "-NOPERM forbidden", After: same},
		row{Name: "PEXPIREAT is forbidden", Before: held, Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000; " + held},
		row{Name: "out of memory", OOM: true, Before: held, Reply: "-OOM", After: same},
	)
	scripttest.Run(t, adopt, append(rows, on(args, scripttest.BadCounters(row{Before: held})...)...))
}

func TestLimitScript(t *testing.T) {
	const args = "3 90000 5 free"
	scripttest.Run(t, limit, on(args,
		row{Name: "set", Reply: "1", After: "SET permits 5", Heard: "free permits"},
		row{Name: "set again", Before: "SET permits 4", Reply: "1", After: "SET permits 5", Heard: "free permits"},
		row{Name: "set what has an expiry", Before: "SET permits 4 PX 9000", Reply: "1", After: "SET permits 5", Heard: "free permits"},
		row{Name: "set what was no text", Before: "RPUSH permits x", Reply: "1", After: "SET permits 5", Heard: "free permits"},
		row{Name: "set no longer", Args: "3 90000 0 free", Before: "SET permits 4", Reply: "1", After: "SET permits '' PX 1", Heard: "free permits"},
		row{Name: "set no longer, and it was not", Args: "3 90000 0 free", Reply: "1", After: "SET permits '' PX 1", Heard: "free permits"},
		row{Name: "raised: the first who queue have them at once", Before: full + "; RPUSH queue 'a 1000 1 first' 'b 2000 1 second' 'c 1000 1 third'", Listening: "queue:a queue:b queue:c", Reply: "1",
			After: "SET fence #513 PX 90000; ZADD lock @1000 permit:first @2000 permit:second @5000 permit:a @7000 permit:b @9000 permit:c PX 9000; SET permits 5; RPUSH queue 'c 1000 1 third'",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; queue:b 'grant #513 1 2000 1700000000 42 second'; queue:c 'next 1000'"},
		row{Name: "raised, and some are left", Before: full + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a @7000 permit:b @9000 permit:c PX 9000; SET permits 5",
			Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free permits"},
		row{Name: "raised, and the counter is kept for ever", Args: "3 0 5 free", Before: full + "; RPUSH queue 'a 1000 2 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence #512; ZADD lock @1000 permit:first @1000 permit:first:2 @5000 permit:a @7000 permit:b @9000 permit:c PX 9000; SET permits 5", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free permits"},
		row{Name: "raised, and not by enough", Before: full + "; RPUSH queue 'a 1000 3 many' 'b 1000 1 light'", Listening: "queue:a queue:b", Reply: "1",
			After: full + "; SET permits 5; RPUSH queue 'a 1000 3 many' 'b 1000 1 light'"},
		row{Name: "raised by taking back what was set", Args: "3 90000 0 free", Before: "ZADD lock @5000 permit:a PX 5000; SET permits 1; RPUSH queue 'a 1000 2 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @1000 permit:first:2 @5000 permit:a PX 5000; SET permits '' PX 1", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free permits"},
		row{Name: "lowered: holders keep theirs", Args: "3 90000 1 free", Before: full + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: full + "; SET permits 1; RPUSH queue 'a 1000 1 first'"},
		row{Name: "lowered below what the first waits for: it asks, and learns that", Args: "3 90000 1 free", Before: full + "; RPUSH queue 'a 1000 2 first' 'b 1000 1 second'", Listening: "queue:a queue:b", Reply: "1",
			After: full + "; SET permits 1; RPUSH queue 'b 1000 1 second'", Heard: "queue:a 'next 1'; queue:b 'next 5000'"},
		row{Name: "a hold has lapsed", Args: "3 90000 2 free", Before: "ZADD lock @-1 permit:old @5000 permit:a PX 5000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a PX 5000; SET permits 2", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free permits"},
		row{Name: "SET is forbidden", Before: full, Forbid: "SET", Reply: "-NOPERM forbidden", After: same},
		row{Name: "set no longer, SET is forbidden", Args: "3 90000 0 free", Before: full + "; SET permits 4", Forbid: "SET", Reply: "-NOPERM forbidden", After: same},
		row{Name: "PUBLISH is forbidden", Before: full, Forbid: "PUBLISH", Reply: "1", After: full + "; SET permits 5"},
		row{Name: "ZSCORE is forbidden: the first in the queue is served", Args: "3 90000 2 free", Before: "ZADD lock @5000 permit:a PX 5000; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "ZSCORE", Reply: "1",
			After: "SET fence #512 PX 90000; ZADD lock @1000 permit:first @5000 permit:a PX 5000; SET permits 2", Heard: "queue:a 'grant #512 1 1000 1700000000 42 first'; free permits"},
		row{Name: "ZCARD is forbidden: nobody can be served", Before: full + "; RPUSH queue 'a 1000 1 first'", Listening: "queue:a", Forbid: "ZCARD", Reply: "1",
			After: full + "; SET permits 5; RPUSH queue 'a 1000 1 first'", Heard: "free permits"},
		row{Name: "out of memory", OOM: true, Before: full, Reply: "-OOM", After: same},
		row{Name: "set no longer, out of memory", OOM: true, Args: "3 90000 0 free", Before: full + "; SET permits 4", Reply: "-OOM", After: same},
	))
}

func TestInspectScript(t *testing.T) {
	rows := on("",
		row{Name: "free", Reply: "[0 nil 0 nil []]", Runs: "ZRANGE TIME ZCOUNT ZRANGE GET LRANGE ZREMRANGEBYSCORE"},
		row{Name: "free, with a fence", Before: "SET fence 7", Reply: "[0 nil 0 7 []]", After: same},
		row{Name: "held by several", Before: "SET fence 7; " + full, Reply: "[3 a 5000 7 []]", After: same},
		row{Name: "held by one with several", Before: heavy, Reply: "[3 mine 7000 nil []]", After: same},
		row{Name: "a hold has lapsed", Before: "ZADD lock @-1 permit:old @5000 permit:a PX 5000", Reply: "[1 a 5000 nil []]", After: same},
		row{Name: "all holds have lapsed", Before: lapsed, Reply: "[0 nil 0 nil []]", After: same},
		row{Name: "a hold whose end is now counts", Before: "ZADD lock @0 permit:a PX 5000", Reply: "[1 a 0 nil []]", After: same},
		row{Name: "two end in the same millisecond: one of them, always the same", Before: "ZADD lock @5000 permit:a @5000 permit:b PX 5000", Reply: "[2 a 5000 nil []]", After: same},
		row{Name: "others queue", Before: full + "; RPUSH queue 'a 1000 1 first' junk 'b 1000 3 second one'", Reply: "[3 a 5000 nil [first 'second one']]", After: same},
		row{Name: "the queue is no list", Before: full + "; SET queue x", Reply: "[3 a 5000 nil []]", After: same},
		row{Name: "LRANGE is forbidden", Before: full + "; RPUSH queue 'a 1000 1 first'", Forbid: "LRANGE", Reply: "[3 a 5000 nil []]", After: same},
		row{Name: "a string", Before: "SET lock a PX 9000", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; " + full, Reply: "-WRONGTYPE", After: same},
		row{Name: "forbidden", Before: full, Forbid: "ZRANGE | GET | TIME | ZCOUNT", Reply: "-NOPERM forbidden", After: same},
		row{Name: "without expiry", Before: "ZADD lock @7000 permit:mine", Reply: "-NOLOCK the key lock holds no lock: it has no expiry", After: same},
	)
	for i := range rows {
		rows[i].Keys = inspected
	}
	scripttest.Run(t, inspect, rows)
}

// TestMostPermitsScript: as many permits as an acquisition may take go into one command.
func TestMostPermitsScript(t *testing.T) {
	var members []string
	for i := range MaxShare {
		member := "permit:mine"
		if i > 0 {
			member = fmt.Sprint("permit:mine:", i+1)
		}
		members = append(members, "@60000 "+member)
	}
	first, rest := members[:1], members[1:]
	sorted := append([]string(nil), rest...)
	slices.Sort(sorted) // those of one score stand in the order of their names
	all := "ZADD lock " + strings.Join(append(first, sorted...), " ") + " PX 60000"
	args := fmt.Sprintf("%d 90000 60000 mine %d ''", MaxPermits, MaxShare)
	scripttest.Run(t, acquire, on(args, row{Name: "acquire", Reply: "#512", After: "SET fence #512 PX 90000; " + all}))
	scripttest.Run(t, acquire, on(args+" '' '' 1 3", row{Name: "acquire, and two more", Reply: "#512", After: "SET fence #512 PX 90000; " + all}))
	scripttest.Run(t, release, on("1000 90000 mine '' free", row{Name: "release", Before: all, Reply: "1", Heard: "free mine"}))
}
