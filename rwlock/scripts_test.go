// Every branch of each script: what it replies and publishes, and all keys after it.
package rwlock

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
	same      = scripttest.Same
	inspected = "lock fence readers writers"
)

// on completes rows. All that wait listen, unless the row says who does.
func on(args string, rows ...row) []row {
	for i := range rows {
		if rows[i].Listening == "" {
			rows[i].Listening = "readers:r0 readers:r1 readers:r2 writers:w0 writers:w1 writers:w2"
		}
	}
	return scripttest.On("lock readers writers fence", args, rows...)
}

// What the rows have in common: the lock as it may be held, and with mine as another holder or the only one.
const (
	writes     = "ZADD lock @7000 write:w PX 7000"
	reads      = "ZADD lock @7000 read:r PX 7000"
	reading    = "ZADD lock @7000 read:r @60000 read:mine PX 60000"
	mineReads3 = "ZADD lock @60000 read:2.mine @60000 read:3.mine @60000 read:mine PX 60000"
	mineReads  = "ZADD lock @60000 read:mine PX 60000"
	mineWrites = "ZADD lock @60000 write:mine PX 60000"
	r1         = "ZADD lock @1000 read:R1 PX 1000"
	r12        = "ZADD lock @1000 read:R1 @1000 read:R2 PX 1000"
	w1         = "ZADD lock @1000 write:W1 PX 1000"
	w2         = "ZADD lock @1000 write:W2 PX 1000"
	wLapsed    = "ZADD lock @-1 write:w PX 7000"
	rLapsed    = "ZADD lock @-9 read:q @-1 read:r PX 7000"

	counter = "SET fence #-5 PX 7000"
	issued  = "SET fence #512 PX 90000" // the first number, where there is no counter
	next    = "SET fence #0 PX 90000"   // that after counter's
	bad     = "SET fence seven"
	isBad   = "-FENCE the counter fence holds no fence: seven"
	noEnd   = "-NOLOCK the key lock holds no lock: it has no expiry"
	free    = "free mine" // the message on the free channel
	nobody  = "nobody"    // listens
)

// entry is that of a line, of a reader (r1) or a writer (w1). Its token is R1 or W1; r0 and w0 are the caller's.
func entry(line string) string {
	token := strings.ToUpper(line)
	if line == "r0" || line == "w0" {
		token = "mine"
	}
	return fmt.Sprintf("'%s 1000 1 %s'", line, token)
}

// queueOf is the key of the queue that a line stands in.
func queueOf(line string) string { return map[byte]string{'r': "readers", 'w': "writers"}[line[0]] }

// queued is both queues, with these lines in them.
func queued(lines ...string) string {
	queues := map[string]string{}
	for _, l := range lines {
		queues[queueOf(l)] += " " + entry(l)
	}
	var commands []string
	for _, key := range []string{"readers", "writers"} {
		if queues[key] != "" {
			commands = append(commands, "RPUSH "+key+queues[key])
		}
	}
	return all(commands...)
}

// listening are the channels of lines.
func listening(lines ...string) string {
	text := ""
	for _, l := range lines {
		text += " " + queueOf(l) + ":" + l
	}
	return text
}

// granted is the message of a direct grant.
func granted(line, fence string) string {
	return fmt.Sprintf("%s:%s 'grant %s 1 1000 1700000000 42 %s'", queueOf(line), line, fence, strings.ToUpper(line))
}

// told is the message that a line is first in its queue.
func told(line, ms string) string { return fmt.Sprintf("%s:%s 'next %s'", queueOf(line), line, ms) }

// all joins lines, of which some may be empty.
func all(lines ...string) string {
	var there []string
	for _, l := range lines {
		if l != "" {
			there = append(there, l)
		}
	}
	return strings.Join(there, "; ")
}

// The arguments of acquire: without a place in the queue, and so that it proves rights; with a place, and with one that it asked
// for before.
const (
	toRead      = "90000 60000 mine read 1 ''"
	toWrite     = "90000 60000 mine write 1 ''"
	proves      = toWrite + " '' '' 1"
	queuesRead  = "90000 60000 mine read 1 'r0 1000 1 mine'"
	queuesWrite = "90000 60000 mine write 1 'w0 1000 1 mine'"
	asksRead    = queuesRead + " 1"
	asksWrite   = queuesWrite + " 1"
)

// TestAcquireScript: nobody else waits, or a writer holds.
func TestAcquireScript(t *testing.T) {
	scripttest.Run(t, acquire, on(toWrite,
		// Free.
		row{Name: "a writer, and nobody holds", Before: counter, Reply: "#0", After: all(next, mineWrites), Runs: "EXISTS TIME GET SET ZADD PEXPIREAT"},
		row{Name: "a reader, and nobody holds", Args: toRead, Before: counter, Reply: "#0", After: all(next, mineReads), Runs: "EXISTS TIME GET SET ZADD PEXPIREAT"},
		row{Name: "there is no counter", Reply: "#512", After: all(issued, mineWrites), Runs: "EXISTS TIME GET SET ZADD PEXPIREAT"},
		row{Name: "rights are to be proven", Args: proves, Reply: "#512", After: all(issued, mineWrites),
			Runs: "ZRANGE TIME LINDEX LINDEX GET SET ZADD PEXPIREAT"},
		row{Name: "rights are to be proven, before Redis 7.0", Args: proves, Old: true, Reply: "#512", After: all(issued, mineWrites),
			Runs: "ZRANGE PTTL TIME ZSCORE LINDEX LINDEX ZADD ZREM GET SET PEXPIREAT ZADD PEXPIREAT"},
		row{Name: "for ever", Args: "0 60000 mine write 1 ''", Reply: "#512", After: all("SET fence #512", mineWrites)},

		// Held.
		row{Name: "a reader, and another reads: the stored fence", Args: toRead, Before: all(counter, "ZADD lock @70000 read:r PX 70000"), Reply: "#-5",
			After: all(counter, "ZADD lock @60000 read:mine @70000 read:r PX 70000")},
		row{Name: "a reader, and another reads, and the counter has expired", Args: toRead, Before: reads, Reply: "#512", After: all(issued, reading)},
		row{Name: "a reader, and another reads, and the counter is 0", Args: toRead, Before: all("SET fence 0", reads), Reply: "#0", After: all(next, reading)},
		row{Name: "a reader, and another writes: the queues are not read", Args: toRead, Before: all(writes, queued("r1", "w1")), Reply: "[w 7000]", After: same,
			Runs: "EXISTS ZRANGE PTTL TIME ZSCORE ZREMRANGEBYSCORE"},
		row{Name: "a writer, and another writes, in its last millisecond", Before: "ZADD lock @0 write:w PX 7000", Reply: "[w 0]", After: same},
		row{Name: "a writer, and others read: the one that ends first", Before: "ZADD lock @5000 read:a:b:c @7000 read:r PX 7000", Reply: "[a:b:c 5000]", After: same},

		// Held: a place in the queue.
		row{Name: "a writer queues", Args: queuesWrite, Before: all(reads, queued("w1")), Reply: "[r 7000 1700000000 42 2 0]",
			After: all(reads, queued("w1", "w0")+" PX 188000")},
		row{Name: "a reader queues", Args: queuesRead, Before: all(reads, queued("w1")), Reply: "[r 7000 1700000000 42 1 0]",
			After: all(reads, queued("r0")+" PX 128000", queued("w1"))},
		row{Name: "it is in the queue already", Args: asksWrite, Before: all(reads, queued("w1", "w0")), Reply: "[r 7000 1700000000 42 2 1]",
			After: all(reads, queued("w1", "w0")+" PX 188000")},
		row{Name: "it queues, and ZREMRANGEBYSCORE is forbidden", Args: queuesWrite, Before: reads, Forbid: "ZREMRANGEBYSCORE",
			Reply: "-NOPERM forbidden", After: all(reads, queued("w0")+" PX 128000")},
		row{Name: "the queue may not be written", Args: queuesWrite, Before: reads, Forbid: "RPUSH", Reply: "[r 7000 1700000000 42 0 0]", After: same},

		// Granted while it queued, or the reply was lost.
		row{Name: "writes already", Before: all(counter, "ZADD lock @900 write:mine PX 900", queued("r1")), Reply: "#0", After: all(next, mineWrites, queued("r1"))},
		row{Name: "reads already", Args: toRead, Before: all(counter, "ZADD lock @900 read:mine PX 900", queued("w1")), Reply: "#-5", After: all(counter, mineReads, queued("w1"))},
		row{Name: "reads already, for longer", Args: toRead, Before: all(counter, "ZADD lock @70000 read:mine PX 70000"), Reply: "#-5", After: same},
		row{Name: "writes already, and the counter is bad", Before: all(bad, "ZADD lock @900 write:mine PX 900"), Reply: isBad, After: same},

		// Refused by the server.
		row{Name: "a string", Before: "SET lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "no expiry", Before: "ZADD lock @7000 write:w", Reply: noEnd, After: same},
		row{Name: "the counter is bad", Before: bad, Reply: isBad, After: same},
		row{Name: "the counter is bad, and expires", Before: "SET fence seven PX 7000", Reply: isBad, After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x", Reply: "-WRONGTYPE", After: same},
		row{Name: "a reader, and another reads, and the counter is bad", Args: toRead, Before: all(bad, reads), Reply: isBad, After: same},
		row{Name: "out of memory", OOM: true, Reply: "-OOM"},
		row{Name: "a reader, and another reads, out of memory", Args: toRead, Before: all(counter, reads), OOM: true, Reply: "-OOM", After: same},
		row{Name: "proven, and forbidden", Forbid: "ZADD | PEXPIREAT", Reply: "-NOPERM forbidden", After: issued},
		row{Name: "proven: the counter may not be written", Forbid: "SET", Reply: "-NOPERM forbidden"},
		row{Name: "proven: EXISTS is forbidden", Forbid: "EXISTS", Reply: "#512", After: all(issued, mineWrites)},
		row{Name: "forbidden", Args: proves, Forbid: "ZREM | ZADD | ZSCORE | PTTL | SET", Reply: "-NOPERM forbidden"},
		row{Name: "the key may not expire", Args: proves, Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: issued},
	))
}

// TestServeScript: acquire, among others that wait. Most rows are what happens when holders have lapsed.
func TestServeScript(t *testing.T) {
	scripttest.Run(t, acquire, on(toWrite,
		// Readers hold.
		row{Name: "a writer waits: a reader is refused", Args: toRead, Before: all(reads, queued("w1", "r1")), Reply: "[r 7000]", After: same,
			Runs: "EXISTS ZRANGE PTTL TIME ZSCORE LINDEX PUBSUB LINDEX PUBSUB ZREMRANGEBYSCORE"},
		row{Name: "the writer that waits has died: the readers that wait come in, too", Args: toRead, Before: all(counter, reads, queued("w1", "r1", "r2")), Listening: listening("r1", "r2"),
			Reply: "#-5", After: all(counter, "ZADD lock @1000 read:R1 @1000 read:R2 @7000 read:r @60000 read:mine PX 60000"),
			Heard: all(told("w1", "1"), granted("r1", "#-5"), granted("r2", "#-5"))},
		row{Name: "the first writer that waits has died: the second hears when to ask, and so does the first reader", Args: toRead, Before: all(reads, queued("w1", "w2", "r1")), Listening: listening("w2", "r1"),
			Reply: "[r 7000]", After: all(reads, queued("w2", "r1")), Heard: all(told("w1", "1"), told("r1", "7000"), told("w2", "7000"))},
		row{Name: "the second writer that waits has died: nobody looks", Args: toRead, Before: all(reads, queued("w1", "w2")), Listening: listening("w1"), Reply: "[r 7000]", After: same},
		row{Name: "the caller is the reader that waits", Args: asksRead, Before: all(counter, reads, queued("r0")), Listening: nobody, Reply: "#-5", After: all(counter, reading)},
		row{Name: "the caller is the second reader that waits", Args: asksRead, Before: all(counter, reads, queued("r1", "r0", "r2")),
			Reply: "#-5", After: all(counter, "ZADD lock @1000 read:R1 @1000 read:R2 @7000 read:r @60000 read:mine PX 60000"), Heard: all(granted("r1", "#-5"), granted("r2", "#-5"))},
		row{Name: "the caller is the writer that waits: it keeps readers out", Args: asksWrite, Before: all(reads, queued("r1", "w0")+" PX 200000"), Listening: listening("r1"),
			Reply: "[r 7000 1700000000 42 1 1]", After: same},

		// Nobody holds, and nobody knows who went.
		row{Name: "the first writer comes in", Before: all(counter, queued("r1", "w1", "w2")), Reply: "[W1 1000]", After: all(next, w1, queued("r1", "w2")),
			Heard: all(granted("w1", "#0"), told("r1", "1000"), told("w2", "1000")),
			Runs:  "EXISTS ZRANGE TIME LINDEX PUBSUB LINDEX PUBSUB GET LPOP ZSCORE GET SET ZADD PEXPIREAT PUBLISH ZRANGE LINDEX PUBLISH LINDEX PUBLISH ZREMRANGEBYSCORE"},
		row{Name: "no writer waits: all readers come in", Before: all(counter, queued("r1", "r2")), Reply: "[R1 1000]", After: all(next, r12),
			Heard: all(granted("r1", "#0"), granted("r2", "#0")),
			Runs: "EXISTS ZRANGE TIME LINDEX LINDEX PUBSUB GET LPOP ZSCORE GET SET ZADD PEXPIREAT PUBLISH " +
				"LINDEX PUBSUB GET LPOP ZSCORE GET ZRANGE GET ZADD PEXPIREAT PUBLISH LINDEX ZRANGE LINDEX LINDEX ZREMRANGEBYSCORE"},
		row{Name: "readers come in, and so does the newcomer", Args: toRead, Before: all(counter, queued("r1")), Reply: "#0",
			After: all(next, "ZADD lock @1000 read:R1 @60000 read:mine PX 60000"), Heard: granted("r1", "#0")},
		row{Name: "readers with other TTLs, and no counter", Before: "RPUSH readers 'r1 1000 1 R1' 'r2 400 1 R2'", Reply: "[R2 400]",
			After: all(issued, "ZADD lock @400 read:R2 @1000 read:R1 PX 1000"), Heard: all(granted("r1", "#512"), "readers:r2 'grant #512 1 400 1700000000 42 R2'")},
		row{Name: "all have died", Before: all(counter, queued("r1", "w1")), Listening: nobody, Reply: "#0", After: all(next, mineWrites), Heard: all(told("w1", "1"), told("r1", "1"))},
		row{Name: "the first of each queue has died", Before: all(counter, queued("r1", "r2", "w1", "w2")), Listening: listening("r2", "w2"), Reply: "[W2 1000]", After: all(next, w2, queued("r1", "r2")),
			Heard: all(told("w1", "1"), granted("w2", "#0"), told("r1", "1000"))},
		row{Name: "no entries", Before: all(counter, "RPUSH readers 'a 1000 x' 'r1 1000 1 R1' b; RPUSH writers c"), Reply: "[R1 1000]", After: all(next, r1), Heard: granted("r1", "#0")},
		row{Name: "the caller is the first writer", Args: asksWrite, Before: all(counter, queued("r1", "w0", "w1")), Listening: listening("r1", "w1"), Reply: "#0",
			After: all(next, mineWrites, queued("r1", "w1")), Heard: all(told("r1", "60000"), told("w1", "60000"))},
		row{Name: "the caller is the second writer", Args: asksWrite, Before: all(counter, queued("w1", "w0")+" PX 200000"), Reply: "[W1 1000 1700000000 42 1 1]",
			After: all(next, w1, queued("w0")+" PX 200000"), Heard: all(granted("w1", "#0"), told("w0", "1000"))},
		row{Name: "the caller is the first reader", Args: asksRead, Before: all(counter, queued("r0", "r1")), Listening: listening("r1"), Reply: "#0",
			After: all(next, "ZADD lock @1000 read:R1 @60000 read:mine PX 60000"), Heard: granted("r1", "#0")},
		row{Name: "the caller is the first reader, and a writer waits", Args: asksRead, Before: all(counter, queued("r0")+" PX 200000", queued("w1")), Reply: "[W1 1000 1700000000 42 1 1]",
			After: all(next, w1, queued("r0")+" PX 200000"), Heard: all(granted("w1", "#0"), told("r0", "1000"))},

		// Holders have lapsed whose key is still there.
		row{Name: "a writer has lapsed: all readers come in", Before: all(counter, wLapsed, queued("r1", "r2", "w1")), Reply: "[R1 1000]",
			After: all(next, r12, queued("w1")), Heard: all(granted("r1", "#0"), granted("r2", "#0"), told("w1", "1000"))},
		row{Name: "a writer has lapsed: all readers come in, but no newcomer while a writer waits", Args: toRead, Before: all(counter, wLapsed, queued("r1", "w1")), Reply: "[R1 1000]",
			After: all(next, r1, queued("w1")), Heard: all(granted("r1", "#0"), told("w1", "1000"))},
		row{Name: "a writer has lapsed: the caller is the first reader", Args: asksRead, Before: all(counter, wLapsed, queued("r0", "w1")), Reply: "#0", After: all(next, mineReads, queued("w1")), Heard: told("w1", "60000")},
		row{Name: "a writer has lapsed: the readers that wait have died", Before: all(counter, wLapsed, queued("r1", "w1")), Listening: listening("w1"), Reply: "[W1 1000]",
			After: all(next, w1), Heard: all(told("r1", "1"), granted("w1", "#0"))},
		row{Name: "readers have lapsed: the first writer comes in", Before: all(counter, rLapsed, queued("r1", "w1")), Reply: "[W1 1000]",
			After: all(next, w1, queued("r1")), Heard: all(granted("w1", "#0"), told("r1", "1000"))},
		row{Name: "readers have lapsed: no writer waits", Before: all(counter, rLapsed, queued("r1", "r2")), Reply: "[R1 1000]", After: all(next, r12), Heard: all(granted("r1", "#0"), granted("r2", "#0"))},
		row{Name: "a reader has lapsed, and another reads", Args: toRead, Before: all(counter, "ZADD lock @-1 read:q @7000 read:r PX 7000"), Reply: "#-5", After: all(counter, reading)},

		// The queues cannot be served.
		row{Name: "the queues are no lists", Before: all(counter, "SET readers x; SET writers x"), Reply: "#0", After: all(next, mineWrites, "SET readers x; SET writers x")},
		row{Name: "the queue of writers may not be read", Before: all(counter, queued("r1", "w1")), Forbid: "LINDEX/writers", Reply: "[R1 1000]", After: all(next, r1, queued("w1")), Heard: granted("r1", "#0")},
		row{Name: "the queue of readers may not be read", Before: all(counter, wLapsed, queued("r1", "w1")), Forbid: "LINDEX/readers", Reply: "[W1 1000]", After: all(next, w1, queued("r1")), Heard: granted("w1", "#0")},
		row{Name: "no queue may be read", Before: all(counter, queued("r1", "w1")), Forbid: "LINDEX | LPOP", Reply: "#0", After: all(next, mineWrites, queued("r1", "w1"))},
		row{Name: "the dead may not be taken out of the queues", Before: all(counter, queued("r1", "w1")), Listening: nobody, Forbid: "LPOP", Reply: "#0", After: all(next, mineWrites, queued("r1", "w1")),
			Heard: all(told("w1", "1"), told("r1", "1"))},
		row{Name: "the caller may not be taken out of the queue", Args: asksWrite, Before: all(counter, queued("w0")), Forbid: "LPOP LREM", Reply: "#0", After: all(next, mineWrites, queued("w0"))},
		row{Name: "nobody may be taken out of the queue in turn: the caller leaves it", Args: asksWrite, Before: all(counter, queued("w0", "w1")), Forbid: "LPOP", Reply: "#0", After: all(next, mineWrites, queued("w1")), Heard: told("w1", "60000")},
		row{Name: "the grant to a writer may not be published", Before: all(counter, queued("w1", "r1")), Forbid: "PUBLISH", Reply: "#1", After: all("SET fence #1 PX 90000", mineWrites, queued("r1"))},
		row{Name: "the grant to a reader may not be published", Before: all(counter, queued("r1", "r2")), Forbid: "PUBLISH", Reply: "#1", After: all("SET fence #1 PX 90000", mineWrites, queued("r2"))},
		row{Name: "the grant to a reader may not be published: the caller gets in, and leaves the queue", Args: asksRead, Before: all(counter, queued("r1", "r0", "r2")), Forbid: "PUBLISH", Reply: "#1", After: all("SET fence #1 PX 90000", mineReads, queued("r2"))},
		row{Name: "the grant to a writer may not be published: the caller gets in, and leaves the queue", Args: asksWrite, Before: all(counter, queued("w1", "w0")), Forbid: "PUBLISH", Reply: "#1", After: all("SET fence #1 PX 90000", mineWrites)},
		row{Name: "the caller gets in, and may not leave the queue", Args: asksRead, Before: all(counter, queued("r1", "r0")), Forbid: "PUBLISH LREM", Reply: "#1", After: all("SET fence #1 PX 90000", mineReads, queued("r0"))},
		row{Name: "a reader that holds the lock is still in the queue: it keeps the lock", Args: toRead, Before: all(counter, "ZADD lock @1000 read:R1 PX 1000", queued("r1")), Forbid: "PUBLISH", Reply: "#-5", After: all(counter, "ZADD lock @1000 read:R1 @60000 read:mine PX 60000")},
		row{Name: "the lock may not be written", Before: all(counter, queued("w1", "w2")), Forbid: "ZADD", Reply: "-NOPERM forbidden", After: all(next, queued("w2")), Heard: told("w2", "1")},
		row{Name: "NUMSUB is forbidden", Before: all(counter, queued("w1")), Forbid: "PUBSUB", Reply: "[W1 1000]", After: all(next, w1), Heard: all(told("w1", "1"), told("w1", "1"), granted("w1", "#0"))},
		row{Name: "the counter is bad", Before: all(bad, queued("r1", "w1")), Reply: isBad, After: same},
		row{Name: "the counter is bad, and the caller is the first writer: it keeps its place", Args: asksWrite, Before: all(bad, queued("w0", "w1")), Reply: isBad, After: same},
		row{Name: "a reader comes, a writer waits, and the counter is bad", Args: toRead, Before: all(bad, queued("w1")), Reply: isBad, After: same},
		row{Name: "a reader comes, and the writer that waits may not be taken out of the queue", Args: toRead, Before: all(counter, queued("w1")), Forbid: "LPOP", Reply: "#0", After: all(next, mineReads, queued("w1"))},
		row{Name: "a reader comes, and the grant to a writer may not be published", Args: toRead, Before: all(counter, queued("w1", "w2")), Forbid: "PUBLISH", Reply: "#1", After: all("SET fence #1 PX 90000", mineReads, queued("w2"))},
	))
}

func TestReleaseScript(t *testing.T) {
	const undoes, undoesRead = "90000 mine 'w0 1000 1 mine' free", "90000 mine 'r0 1000 1 mine' free"
	const wrote, read, other = "ZADD lock @6000 write:mine PX 6000", "ZADD lock @6000 read:mine PX 6000", "ZADD lock @6000 read:mine @7000 read:r PX 7000"
	scripttest.Run(t, release, on("90000 mine '' free",
		// Nobody waits.
		row{Name: "a writer", Before: all(counter, wrote), Reply: "1", After: counter, Heard: free, Runs: "ZRANGE EXISTS TIME ZREM PUBLISH"},
		row{Name: "the last reader", Before: all(counter, read), Reply: "1", After: counter, Heard: free, Runs: "ZRANGE EXISTS TIME ZREM PUBLISH"},
		row{Name: "a writer whose key does not expire", Before: all(counter, "ZADD lock @6000 write:mine"), Reply: "1", After: counter, Heard: free},
		row{Name: "a writer that has lapsed", Before: all(counter, "ZADD lock @-1 write:mine PX 6000"), Reply: "nil", After: counter},
		row{Name: "a reader, and another reads: nobody can come in who could not before", Before: all(counter, other), Reply: "1", After: all(counter, reads)},
		row{Name: "a reader that would have been the last to end", Before: "ZADD lock @7000 read:r @60000 read:mine PX 60000", Reply: "1", After: reads},
		row{Name: "it may not be published", Before: wrote, Forbid: "PUBLISH", Reply: "1"},

		// A writer goes.
		row{Name: "a writer: all readers come in", Before: all(counter, wrote, queued("w1", "r1", "r2")), Reply: "1", After: all(next, r12, queued("w1")), Heard: all(granted("r1", "#0"), granted("r2", "#0"), told("w1", "1000"))},
		row{Name: "a writer: no reader waits", Before: all(counter, wrote, queued("w1", "w2")), Reply: "1", After: all(next, w1, queued("w2")), Heard: all(granted("w1", "#0"), told("w2", "1000"))},
		row{Name: "a writer: all that wait have died", Before: all(counter, wrote, queued("w1", "r1")), Listening: nobody, Reply: "1", After: counter, Heard: all(told("w1", "1"), told("r1", "1"), free)},

		// A reader goes.
		row{Name: "the last reader: the first writer comes in", Before: all(counter, read, queued("r1", "w1")), Reply: "1", After: all(next, w1, queued("r1")), Heard: all(granted("w1", "#0"), told("r1", "1000"))},
		row{Name: "the last reader: the first writer has died", Before: all(counter, read, queued("r1", "w1", "w2")), Listening: listening("r1", "w2"), Reply: "1", After: all(next, w2, queued("r1")),
			Heard: all(told("w1", "1"), granted("w2", "#0"), told("r1", "1000"))},
		row{Name: "the last reader: no writer waits", Before: all(counter, read, queued("r1")), Reply: "1", After: all(next, r1), Heard: all(granted("r1", "#0"), free)},
		row{Name: "a reader, and another reads: the writer waits", Before: all(counter, other, queued("w1", "r1")), Reply: "1", After: all(counter, reads, queued("w1", "r1"))},
		row{Name: "the others have lapsed", Before: all(counter, "ZADD lock @-1 read:r @6000 read:mine PX 6000", queued("w1")), Reply: "1", After: all(next, w1), Heard: granted("w1", "#0")},

		// An undo.
		row{Name: "an undo of the only writer that waits: the readers that wait come in", Args: undoes, Before: all(counter, reads, queued("w0", "r1")), Reply: "nil",
			After: all(counter, "ZADD lock @1000 read:R1 @7000 read:r PX 7000"), Heard: all(granted("r1", "#-5"), free)},
		row{Name: "an undo of the first writer that waits", Args: undoes, Before: all(reads, queued("w0", "w1", "r1")), Reply: "nil", After: all(reads, queued("w1", "r1")),
			Heard: all(told("r1", "7000"), told("w1", "7000"))},
		row{Name: "an undo of a reader that waits", Args: undoesRead, Before: all(writes, queued("r0", "r1", "w1")), Reply: "nil", After: all(writes, queued("r1", "w1")),
			Heard: all(told("r1", "7000"), told("w1", "7000"))},
		row{Name: "an undo, and nobody holds", Args: undoesRead, Before: all(counter, queued("r0", "r1", "w1")), Reply: "nil", After: all(next, w1, queued("r1")), Heard: all(granted("w1", "#0"), told("r1", "1000"))},
		row{Name: "an undo of a writer that was granted the lock", Args: undoes, Before: all(counter, wrote, queued("w1", "r1")), Reply: "1", After: all(next, r1, queued("w1")),
			Heard: all(granted("r1", "#0"), told("w1", "1000"))},
		row{Name: "an undo, and there is nothing", Args: undoes, Before: counter, Reply: "nil", After: same},
		row{Name: "an undo where the queue may not be written", Args: undoes, Before: all(reads, queued("w0")), Forbid: "LREM", Reply: "nil", After: same},

		// Not its holder.
		row{Name: "others hold", Before: all(counter, reads), Reply: "nil", After: same},
		row{Name: "a writer has lapsed", Before: all(counter, "ZADD lock @-1 write:mine PX 7000", queued("r1", "w1")), Reply: "nil", After: all(next, r1, queued("w1")),
			Heard: all(granted("r1", "#0"), told("w1", "1000"))},
		row{Name: "a reader has lapsed", Before: all(counter, "ZADD lock @-1 read:mine PX 7000", queued("r1", "w1")), Reply: "nil", After: all(next, w1, queued("r1")),
			Heard: all(granted("w1", "#0"), told("r1", "1000"))},
		row{Name: "a string", Before: "SET lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "it may not be released", Before: wrote, Forbid: "ZREM", Reply: "-NOPERM forbidden", After: same},
		row{Name: "the expiry may not be set", Before: other, Forbid: "PEXPIREAT", Reply: "1", After: reads},

		// Out of memory, and where the queues cannot be served: a mere release.
		row{Name: "out of memory: a writer", Before: all(counter, wrote, queued("w1", "r1")), OOM: true, Reply: "1", After: all(next, r1, queued("w1")),
			Heard: all(granted("r1", "#0"), told("w1", "1000"))},
		row{Name: "out of memory: a reader", Before: all(counter, read, queued("w1")), OOM: true, Reply: "1", After: all(next, w1), Heard: granted("w1", "#0")},
		row{Name: "out of memory: an undo of what waits", Args: undoes, Before: all(counter, queued("w0", "w1")), OOM: true, Reply: "nil", After: all(next, w1), Heard: granted("w1", "#0")},
		row{Name: "the counter is bad", Before: all(bad, wrote, queued("w1", "r1")), Reply: "1", After: all(bad, queued("w1", "r1")), Heard: free},
		row{Name: "the lock may not be written", Before: all(counter, wrote, queued("r1", "r2")), Forbid: "ZADD", Reply: "1", After: all(next, queued("r2")), Heard: all(told("r2", "1"), free)},
		row{Name: "the grant to a reader may not be published", Before: all(counter, wrote, queued("r1")), Forbid: "PUBLISH", Reply: "1", After: next},
		row{Name: "the grant to a reader may neither be published nor taken back: it ends by itself", Args: undoesRead, Before: all(counter, queued("r0", "r1")), Forbid: "PUBLISH ZREM", Reply: "nil", After: all(next, r1)},
	))
}

func TestPassScript(t *testing.T) {
	const toWrite, toRead = queuesWrite + " '' old free", queuesRead + " '' old free"
	const asksToWrite, asksToRead = asksWrite + " old free", asksRead + " old free"
	const wrote, read = "ZADD lock @6000 write:old PX 6000", "ZADD lock @6000 read:old PX 6000"
	const also = "ZADD lock @6000 read:old @7000 read:r PX 7000" // another reads, too
	const freed = "free old"
	scripttest.Run(t, pass, on(toWrite,
		// A writer to a writer.
		row{Name: "nobody waits", Before: all(counter, wrote), Reply: "#0", After: all(next, mineWrites),
			Runs: "ZRANGE PTTL TIME ZREM LINDEX LINDEX GET SET ZADD PEXPIREAT"},
		row{Name: "with several fences", Args: "90000 60000 mine write 16 'w0 1000 16 mine' '' old free", Before: all(counter, wrote), Reply: "[#0 16]", After: all("SET fence #15 PX 90000", mineWrites)},
		row{Name: "readers wait: they come in", Before: all(counter, wrote, queued("r1", "r2")), Reply: "[R1 1000 1700000000 42 1 0]",
			After: all(next, r12, queued("w0")+" PX 122000"), Heard: all(granted("r1", "#0"), granted("r2", "#0"))},
		row{Name: "a writer waits: it comes in", Before: all(counter, wrote, queued("w1", "w2")), Reply: "[W1 1000 1700000000 42 2 0]",
			After: all(next, w1, queued("w2", "w0")+" PX 182000"), Heard: all(granted("w1", "#0"), told("w2", "1000"))},
		row{Name: "it is the first writer that waits", Args: asksToWrite, Before: all(counter, wrote, queued("w0", "w1")), Reply: "#0", After: all(next, mineWrites, queued("w1")), Heard: told("w1", "60000")},
		row{Name: "it is the first writer that waits, and readers wait", Args: asksToWrite, Before: all(counter, wrote, queued("w0", "r1")), Reply: "[R1 1000 1700000000 42 1 1]",
			After: all(next, r1, queued("w0")+" PX 122000"), Heard: all(granted("r1", "#0"), told("w0", "1000"))},
		row{Name: "it is the second writer that waits", Args: asksToWrite, Before: all(counter, wrote, queued("w1", "w0")), Reply: "[W1 1000 1700000000 42 1 1]",
			After: all(next, w1, queued("w0")+" PX 122000"), Heard: all(granted("w1", "#0"), told("w0", "1000"))},

		// A writer to readers.
		row{Name: "to a reader: others that do not queue may come in, too", Args: toRead, Before: all(counter, wrote), Reply: "#0", After: all(next, mineReads), Heard: freed},
		row{Name: "to a reader, and others wait: they come in", Args: toRead, Before: all(counter, wrote, queued("r1")), Reply: "#0", After: all(next, "ZADD lock @1000 read:R1 @60000 read:mine PX 60000"),
			Heard: all(granted("r1", "#0"), freed)},
		row{Name: "to a reader, and writers wait", Args: toRead, Before: all(counter, wrote, queued("w1")), Reply: "[W1 1000 1700000000 42 1 0]", After: all(next, w1, queued("r0")+" PX 122000"), Heard: granted("w1", "#0")},
		row{Name: "to a reader that waits, and a writer waits", Args: asksToRead, Before: all(counter, wrote, queued("r0", "w1")), Reply: "#0", After: all(next, mineReads, queued("w1")), Heard: told("w1", "60000")},
		row{Name: "to three readers", Args: "90000 60000 mine read 3 'r0 1000 3 mine' '' old free", Before: all(counter, wrote), Reply: "[#0 3]", After: all(next, mineReads3), Heard: freed},

		// A reader.
		row{Name: "the last reader to a writer", Before: all(counter, read), Reply: "#0", After: all(next, mineWrites)},
		row{Name: "the last reader to a reader, and a writer waits", Args: toRead, Before: all(counter, read, queued("w1")), Reply: "[W1 1000 1700000000 42 1 0]", After: all(next, w1, queued("r0")+" PX 122000"), Heard: granted("w1", "#0")},
		row{Name: "the last reader to a reader: a new fence", Args: toRead, Before: all(counter, read), Reply: "#0", After: all(next, mineReads)},
		row{Name: "a reader to a reader, and another reads: the fence is theirs", Args: toRead, Before: all(counter, also), Reply: "#-5", After: all(counter, reading)},
		row{Name: "a reader to a reader, another reads, and a writer waits", Args: toRead, Before: all(counter, also, queued("w1")), Reply: "[r 7000 1700000000 42 1 0]", After: all(counter, reads, queued("r0")+" PX 128000", queued("w1"))},
		row{Name: "a reader to a writer, and another reads", Before: all(counter, also), Reply: "[r 7000 1700000000 42 1 0]", After: all(counter, reads, queued("w0")+" PX 128000")},
		row{Name: "a reader to a writer that waits already, and another reads", Args: asksToWrite, Before: all(counter, also, queued("w1", "w0")), Reply: "[r 7000 1700000000 42 2 1]", After: all(counter, reads, queued("w1", "w0")+" PX 188000")},
		row{Name: "a reader to one that has been granted meanwhile", Args: asksToRead, Before: all(counter, "ZADD lock @900 read:mine @6000 read:old PX 6000", queued("w1")), Reply: "#-5", After: all(counter, mineReads, queued("w1"))},

		// Not its holder.
		row{Name: "another holds", Before: all(counter, writes, queued("r1")), Reply: "nil", After: same},
		row{Name: "nobody holds", Before: counter, Reply: "nil", After: same},
		row{Name: "it has lapsed", Before: all(counter, "ZADD lock @-1 write:old PX 6000", queued("r1")), Reply: "nil", After: all(counter, queued("r1"))},
		row{Name: "the next holds the lock instead", Before: all(counter, mineWrites), Reply: "nil", After: same},

		// What is forbidden.
		row{Name: "a string", Before: "SET lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "no expiry", Before: "ZADD lock @7000 write:old", Reply: noEnd, After: same},
		row{Name: "it may not be released", Before: all(counter, wrote), Forbid: "ZREM", Reply: "-NOPERM forbidden", After: same},
		row{Name: "forbidden: released, and the next asks again", Before: all(counter, wrote), Forbid: "ZADD | SET", Reply: "[old 1 1700000000 42 0 0]", After: counter, Heard: freed},
		row{Name: "the counter is bad: released, and the next asks again", Before: all(bad, wrote), Reply: "[old 1 1700000000 42 0 0]", After: bad, Heard: freed},
		row{Name: "one that has been granted meanwhile may not be extended: it asks again", Args: asksToRead, Before: all(counter, "ZADD lock @900 read:mine @6000 read:old PX 6000"), Forbid: "ZADD",
			Reply: "[old 1 1700000000 42 0 0]", After: all(counter, "ZADD lock @900 read:mine PX 900")},
		row{Name: "the queue may not be written", Before: all(counter, also), Forbid: "RPUSH", Reply: "[r 7000 1700000000 42 0 0]", After: all(counter, reads)},
		row{Name: "ZREMRANGEBYSCORE is forbidden: it is not needed", Before: all(counter, also), Forbid: "ZREMRANGEBYSCORE", Reply: "[r 7000 1700000000 42 1 0]", After: all(counter, reads, queued("w0")+" PX 128000")},
		row{Name: "it may not be published", Args: toRead, Before: all(counter, wrote), Forbid: "PUBLISH", Reply: "#0", After: all(next, mineReads)},
		row{Name: "out of memory", Before: all(counter, wrote), OOM: true, Reply: "#0", After: all(next, mineWrites)},
		row{Name: "out of memory, and another waits", Before: all(counter, wrote, queued("w1")), OOM: true, Reply: "[W1 1000 1700000000 42 1 0]", After: all(next, w1, queued("w0")+" PX 122000"), Heard: granted("w1", "#0")},
	))
}

// TestGroupScripts: readers of one process that come in together.
func TestGroupScripts(t *testing.T) {
	const three, asksThree = "90000 60000 mine read 3 'r0 1000 3 mine'", "90000 60000 mine read 3 'r0 1000 3 mine' 1 '' ''"
	const group, waiting = "'r0 1000 3 mine'", "RPUSH readers 'r0 1000 3 mine'"
	const joinR = "90000 60000 mine read 3 'r0 1000 3 mine' '' r ''"
	const threeMore = "ZADD lock @7000 read:r @60000 read:2.mine @60000 read:3.mine @60000 read:mine PX 60000"
	scripttest.Run(t, acquire, on(three,
		row{Name: "nobody holds", Before: counter, Reply: "[#0 3]", After: all(next, mineReads3), Runs: "ZRANGE TIME LINDEX LINDEX GET SET ZADD PEXPIREAT"},
		row{Name: "another reads: the fence is its", Before: all(counter, reads), Reply: "[#-5 3]", After: all(counter, threeMore)},
		row{Name: "a writer holds", Before: writes, Reply: "[w 7000 1700000000 42 1 0]", After: all(writes, waiting+" PX 128000")},
		row{Name: "they are the first readers that wait", Args: asksThree, Before: all(counter, "RPUSH readers "+group), Reply: "[#0 3]", After: all(next, mineReads3)},
		row{Name: "they have come in meanwhile", Args: asksThree, Before: all(counter, "ZADD lock @900 read:2.mine @900 read:3.mine @900 read:mine PX 900"), Reply: "[#-5 3]", After: all(counter, mineReads3)},
		row{Name: "others of a group come in before", Args: "90000 60000 mine write 1 ''", Before: all(counter, "RPUSH readers 'r1 1000 3 R1'"), Reply: "[2.R1 1000]",
			After: all(next, "ZADD lock @1000 read:2.R1 @1000 read:3.R1 @1000 read:R1 PX 1000"), Heard: "readers:r1 'grant #0 3 1000 1700000000 42 R1'"},
		row{Name: "the grant may not be published: none of them holds", Args: "90000 60000 mine write 1 ''", Before: all(counter, "RPUSH readers 'r1 1000 3 R1'"), Forbid: "PUBLISH", Reply: "#1",
			After: all("SET fence #1 PX 90000", mineWrites)},
		row{Name: "several fences for a writer", Args: "90000 60000 mine write 16 ''", Before: counter, Reply: "[#0 16]", After: all("SET fence #15 PX 90000", mineWrites)},
		row{Name: "several fences for a writer, and there is no counter: one", Args: "90000 60000 mine write 16 ''", Reply: "#512", After: all(issued, mineWrites)},
		row{Name: "several fences for a writer that waits", Args: toRead, Before: all(counter, "RPUSH writers 'w1 1000 16 W1'"), Reply: "[W1 1000]", After: all("SET fence #15 PX 90000", w1),
			Heard: "writers:w1 'grant #0 16 1000 1700000000 42 W1'"},
		row{Name: "out of memory", Before: counter, OOM: true, Reply: "-OOM", After: same},
		row{Name: "the counter is bad", Before: bad, Reply: isBad, After: same},

		// They join a reader of the same process.
		row{Name: "they join a reader, although a writer waits", Args: joinR, Before: all(counter, reads, queued("w1", "r1")), Reply: "[#-5 3]", After: all(counter, threeMore, queued("r1", "w1"))},
		row{Name: "one joins a reader", Args: "90000 60000 mine read 1 '' '' r ''", Before: all(counter, reads, queued("w1")), Reply: "#-5", After: all(counter, reading, queued("w1"))},
		row{Name: "they join a reader: they leave the queue", Args: "90000 60000 mine read 3 'r0 1000 3 mine' 1 r ''", Before: all(counter, reads, queued("w1", "r1"), "RPUSH readers "+group), Reply: "[#-5 3]",
			After: all(counter, threeMore, queued("r1", "w1")), Heard: all(told("r1", "7000"), told("w1", "7000"))},
		row{Name: "they join a reader that does not hold any more", Args: "90000 60000 mine read 3 'r0 1000 3 mine' '' gone ''", Before: all(counter, reads, queued("w1")), Reply: "[r 7000 1700000000 42 1 0]",
			After: all(counter, reads, waiting+" PX 128000", queued("w1"))},
		row{Name: "they join a reader that has lapsed", Args: joinR, Before: all(counter, "ZADD lock @-1 read:r @7000 read:q PX 7000", queued("w1")), Reply: "[q 7000 1700000000 42 1 0]",
			After: all(counter, "ZADD lock @7000 read:q PX 7000", waiting+" PX 128000", queued("w1"))},
		row{Name: "a writer joins a reader: as any other", Args: "90000 60000 mine write 1 '' '' r ''", Before: all(counter, reads), Reply: "[r 7000]", After: same},
		row{Name: "a writer joins a writer: as any other", Args: "90000 60000 mine write 1 '' '' w ''", Before: all(counter, writes), Reply: "[w 7000]", After: same},
		row{Name: "they join a token that writes now", Args: "90000 60000 mine read 3 'r0 1000 3 mine' '' w ''", Before: all(counter, writes), Reply: "[w 7000 1700000000 42 1 0]", After: all(counter, writes, waiting+" PX 128000")},
		row{Name: "they join a reader, and nobody holds: as any other", Args: joinR, Before: all(counter, queued("w1")), Reply: "[W1 1000 1700000000 42 1 0]", After: all(next, w1, waiting+" PX 122000"), Heard: granted("w1", "#0")},
	))
	const undoes, some = "90000 mine 'r0 1000 3 mine' free 3", "ZADD lock @6000 read:2.mine @6000 read:3.mine @7000 read:r PX 7000"
	scripttest.Run(t, release, on(undoes,
		row{Name: "an undo of all", Before: all(counter, mineReads3), Reply: "1", After: counter, Heard: free},
		row{Name: "an undo of those that are left", Before: all(counter, some), Reply: "1", After: all(counter, reads)},
		row{Name: "an undo of the place", Before: all(reads, "RPUSH readers "+group, queued("w1")), Reply: "nil", After: all(reads, queued("w1")), Heard: told("w1", "7000")},
		row{Name: "an undo, and there is nothing", Before: counter, Reply: "nil", After: same},
		row{Name: "an undo of all, which is forbidden", Before: all(counter, some), Forbid: "ZREM", Reply: "-NOPERM forbidden", After: same},
		row{Name: "an undo that is forbidden where there is nothing", Before: all(counter, reads), Forbid: "ZREM", Reply: "nil", After: same},
		row{Name: "one of them is released", Args: "90000 2.mine '' free", Before: all(counter, some), Reply: "1", After: all(counter, "ZADD lock @6000 read:3.mine @7000 read:r PX 7000")},
	))
	scripttest.Run(t, extend, scripttest.On("lock lock", "2.mine 3.mine 60000",
		row{Name: "some of them are renewed", Before: some, Reply: "2", After: "ZADD lock @7000 read:r @60000 read:2.mine @60000 read:3.mine PX 60000"}))
	scripttest.Run(t, adopt, on("90000 2.mine 60000 new 0 free",
		row{Name: "one of them is adopted", Before: all(counter, some), Reply: "#-5", After: all(counter, "ZADD lock @6000 read:3.mine @7000 read:r @60000 read:new PX 60000")}))
}

// TestMostReadersScript: as many as a claim may be for come in and go in one command.
func TestMostReadersScript(t *testing.T) {
	members := []string{"@60000 read:mine"}
	for i := range driver.MaxFences - 1 {
		members = append(members, fmt.Sprintf("@60000 read:%d.mine", i+2))
	}
	slices.Sort(members) // those of one score stand in the order of their names
	held := "ZADD lock " + strings.Join(members, " ") + " PX 60000"
	scripttest.Run(t, acquire, on("90000 60000 mine read 256 ''", row{Name: "acquire", Before: counter, Reply: "[#0 256]", After: all(next, held)}))
	scripttest.Run(t, release, on("90000 mine '' free 256", row{Name: "undo", Before: all(counter, held), Reply: "1", After: counter, Heard: free}))
}

func TestExtendScript(t *testing.T) {
	scripttest.Run(t, extend, scripttest.On("lock", "mine 60000",
		row{Name: "a reader", Before: "ZADD lock @6000 read:mine @7000 read:r PX 7000", Reply: "1", After: reading, Runs: "ZRANGE PTTL TIME ZSCORE ZRANGE PEXPIREAT ZADD PEXPIREAT"},
		row{Name: "a writer, out of memory", Before: "ZADD lock @6000 write:mine PX 6000", OOM: true, Reply: "1", After: mineWrites},
		row{Name: "it is not shortened", Before: "ZADD lock @70000 write:mine PX 70000", Reply: "1", After: same},
		row{Name: "another holds", Before: writes, Reply: "[nil]", After: same},
		row{Name: "it has lapsed, and others have, too", Before: "ZADD lock @-2000 read:mine @-1000 read:q @7000 read:r PX 7000", Reply: "[nil]", After: reads},
		row{Name: "no expiry", Before: "ZADD lock @7000 read:mine", Reply: "[['NOLOCK the key lock holds no lock: it has no expiry']]", After: same},
		row{Name: "two holds of one lock", Keys: "lock lock", Args: "mine r 60000", Before: "ZADD lock @6000 read:mine @7000 read:r PX 7000", Reply: "2", After: "ZADD lock @60000 read:mine @60000 read:r PX 60000"},
		row{Name: "two locks, two TTLs", Keys: "lock b", Args: "mine w 60000 50000", Before: "ZADD b @6000 write:w PX 6000; ZADD lock @6000 read:mine PX 6000", Reply: "2",
			After: "ZADD b @50000 write:w PX 50000; ZADD lock @60000 read:mine PX 60000"},
		row{Name: "one of two, and a string", Keys: "lock b c", Args: "mine w w 60000", Before: "SET b x; ZADD lock @6000 read:mine PX 6000", Reply: "[1 ['WRONGTYPE Operation against a key holding the wrong kind of value'] nil]",
			After: "SET b x; " + mineReads},
		row{Name: "forbidden", Before: "ZADD lock @6000 read:mine PX 6000", Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: same},
	))
}

func TestAdoptScript(t *testing.T) {
	const adopts, downgrades = "90000 old 60000 mine 0 free", "90000 old 60000 mine 1 free"
	const wrote, read = "ZADD lock @6000 write:old PX 6000", "ZADD lock @6000 read:old PX 6000"
	scripttest.Run(t, adopt, on(adopts,
		row{Name: "a writer gets a new fence", Before: all(counter, "ZADD lock @70000 write:old PX 70000", queued("r1")), Reply: "#0", After: all(next, mineWrites, queued("r1"))},
		row{Name: "a reader keeps the fence", Before: all(counter, "ZADD lock @6000 read:old @7000 read:r PX 7000", queued("r1")), Reply: "#-5", After: all(counter, reading, queued("r1"))},
		row{Name: "a reader, and the counter has expired", Before: read, Reply: "#512", After: all(issued, mineReads)},

		row{Name: "a downgrade: all readers come in", Args: downgrades, Before: all(counter, wrote, queued("w1", "r1", "r2")), Reply: "#-5",
			After: all(counter, "ZADD lock @1000 read:R1 @1000 read:R2 @60000 read:mine PX 60000", queued("w1")), Heard: all(granted("r1", "#-5"), granted("r2", "#-5"), told("w1", "1000"), "free old")},
		row{Name: "a downgrade: no writer comes in", Args: downgrades, Before: all(counter, wrote, queued("w1")), Reply: "#-5", After: all(counter, mineReads, queued("w1")), Heard: "free old"},
		row{Name: "a downgrade: it may not be published", Args: downgrades, Before: all(counter, wrote, queued("r1")), Forbid: "PUBLISH", Reply: "#-5", After: all(counter, mineReads)},
		row{Name: "a downgrade, and the counter has expired", Args: downgrades, Before: wrote, Reply: "#512", After: all(issued, mineReads), Heard: "free old"},
		row{Name: "a downgrade of a reader changes its token", Args: downgrades, Before: all(counter, read, queued("r1")), Reply: "#-5", After: all(counter, mineReads, queued("r1"))},

		row{Name: "others hold", Before: all(counter, reads), Reply: "nil", After: same},
		row{Name: "it has lapsed", Before: all(counter, "ZADD lock @-1 write:old PX 6000"), Reply: "nil", After: counter},
		row{Name: "a string", Before: "SET lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is bad", Before: all(bad, wrote), Reply: isBad, After: same},
		row{Name: "out of memory", Before: all(counter, wrote), OOM: true, Reply: "-OOM", After: same},
		row{Name: "forbidden", Before: all(counter, wrote), Forbid: "ZREM | ZADD", Reply: "-NOPERM forbidden", After: same},
	))
}

func TestInspectScript(t *testing.T) {
	rows := on("",
		row{Name: "a writer, and others wait", Before: "SET fence 7; " + all(writes, "RPUSH readers 'a 1000 1 first' junk 'b 1000 1 second one'", queued("w1")), Reply: "[1 w 7000 7 [first 'second one' W1]]", After: same},
		row{Name: "readers, of which some have lapsed", Before: "ZADD lock @-1 read:q @0 read:s:t @7000 read:r PX 7000", Reply: "[2 s:t 0 nil []]", After: same},
		row{Name: "all have lapsed", Before: "SET fence 7; " + wLapsed, Reply: "[0 nil 0 7 []]", After: same},
		row{Name: "two end in the same millisecond: one of them, always the same", Before: "ZADD lock @7000 read:a @7000 read:b PX 7000", Reply: "[2 a 7000 nil []]", After: same},
		row{Name: "the queue of readers is no list", Before: all(writes, "SET readers x", queued("w1")), Reply: "[1 w 7000 nil [W1]]", After: same},
		row{Name: "the queue of writers is no list", Before: all(writes, queued("r1"), "SET writers x"), Reply: "[1 w 7000 nil [R1]]", After: same},
		row{Name: "no expiry", Before: "ZADD lock @7000 read:r", Reply: noEnd, After: same},
		row{Name: "ZCOUNT is forbidden", Before: reads, Forbid: "ZCOUNT", Reply: "-NOPERM forbidden", After: same},
		row{Name: "a list", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: all("RPUSH fence x", writes), Reply: "-WRONGTYPE", After: same},
	)
	for i := range rows {
		rows[i].Keys = inspected
	}
	scripttest.Run(t, inspect, rows)
}
