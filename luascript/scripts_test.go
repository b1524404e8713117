// Every branch of each script: what it replies and publishes, and all keys after it.
package luascript

import (
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/scripttest"
)

type row = scripttest.Row

const (
	same = scripttest.Same

	last = "9007199254740990" // one more is 2^53-1, which is no fence
	over = "9007199254740991"

	early = "1700000000 42" // in a second, and in a millisecond
)

func TestAcquireScript(t *testing.T) {
	scripttest.Run(t, acquire, append(scripttest.BadCounters(row{Keys: "lock fence", Args: "mine 60000 90000 1"}), []row{
		{Name: "free", Time: early, Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "#512", After: "SET fence #512 PX 90000; SET lock mine PX 60000", Runs: "GET TIME GET SET SET"},
		{Name: "free, without fences", Keys: "lock", Args: "mine 60000 90000 1",
			Reply: "0", After: "SET lock mine PX 60000", Runs: "GET SET"},
		{Name: "the counter is behind the clock", Before: "SET fence #-9", Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000"},
		{Name: "the counter is one behind the clock", Before: "SET fence #-1", Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000"},
		{Name: "the counter is at the clock", Before: "SET fence #0", Time: early, Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "#1", After: "SET fence #1 PX 90000; SET lock mine PX 60000"},
		{Name: "the counter is ahead of the clock", Before: "SET fence #700", Time: early, Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "#701", After: "SET fence #701 PX 90000; SET lock mine PX 60000"},
		{Name: "the counter is far ahead of the clock: it expires after its own time", Before: "SET fence #5000000 PX 100", Time: early, Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "#5000001", After: "SET fence #5000001 PX 95000; SET lock mine PX 60000"},
		{Name: "the counter is kept for ever", Before: "SET fence #-9 PX 7000", Keys: "lock fence", Args: "mine 60000 0 1",
			Reply: "#0", After: "SET fence #0; SET lock mine PX 60000"},
		{Name: "the last fence", Before: "SET fence " + last, Keys: "lock fence", Args: "mine 60000 0 1",
			Reply: over, After: "SET fence " + over + "; SET lock mine PX 60000"},
		{Name: "several fences", Before: "SET fence #-9", Time: early, Keys: "lock fence", Args: "mine 60000 90000 16",
			Reply: "[#0 16]", After: "SET fence #15 PX 90000; SET lock mine PX 60000"},
		{Name: "several fences, without fences", Keys: "lock", Args: "mine 60000 90000 16",
			Reply: "0", After: "SET lock mine PX 60000"},
		{Name: "as many as may be ahead of the clock", Before: "SET fence #495", Time: early, Keys: "lock fence", Args: "mine 60000 90000 16",
			Reply: "[#496 16]", After: "SET fence #511 PX 90000; SET lock mine PX 60000"},
		{Name: "one more", Before: "SET fence #496", Time: early, Keys: "lock fence", Args: "mine 60000 90000 16",
			Reply: "#497", After: "SET fence #497 PX 90000; SET lock mine PX 60000"},
		{Name: "held", Before: "SET lock other PX 7000; SET fence 7", Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "[other 7000]", After: "SET fence 7; SET lock other PX 7000", Runs: "GET GETEX PTTL"},
		{Name: "held by the same token", Before: "SET lock mine PX 7000", Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "[mine 7000]", After: same},
		{Name: "held without expiry", Before: "SET lock ''", Keys: "lock fence", Args: "mine 60000 90000 1",
			Reply: "['' -1]", After: same},
		{Name: "no lock", Before: "RPUSH lock x", Keys: "lock fence", Args: "mine 60000 90000 1", Reply: "-WRONGTYPE", After: same},
		{Name: "the counter is a list", Before: "RPUSH fence x", Keys: "lock fence", Args: "mine 60000 90000 1", Reply: "-WRONGTYPE", After: same},
		{Name: "the counter may not be written", Forbid: "SET/fence", Keys: "lock fence", Args: "mine 60000 90000 1", Reply: "-NOPERM forbidden"},
		{Name: "the lock may not be written", Time: early, Forbid: "SET/lock", Keys: "lock fence", Args: "mine 60000 90000 1", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000"},
		{Name: "out of memory", OOM: true, Keys: "lock fence", Args: "mine 60000 90000 1", Reply: "-OOM"},
	}...))
}

func TestAdoptScript(t *testing.T) {
	scripttest.Run(t, adopt, append(scripttest.BadCounters(row{Before: "SET lock old PX 7000", Keys: "lock fence", Args: "old mine 60000 90000 free"}), []row{
		{Name: "held", Before: "SET fence #-5; SET lock old PX 7000", Keys: "lock fence", Args: "old mine 60000 90000 free",
			Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000", Heard: "free old"},
		{Name: "for less", Before: "SET fence #5; SET lock old PX 70000", Time: early, Keys: "lock fence", Args: "old mine 60000 90000 free",
			Reply: "#6", After: "SET fence #6 PX 90000; SET lock mine PX 60000", Heard: "free old"},
		{Name: "the counter is kept for ever", Before: "SET fence #-5; SET lock old PX 7000", Keys: "lock fence", Args: "old mine 60000 0 free",
			Reply: "#0", After: "SET fence #0; SET lock mine PX 60000", Heard: "free old"},
		{Name: "without fences", Before: "SET lock old PX 7000", Keys: "lock", Args: "old mine 60000 90000 free",
			Reply: "0", After: "SET lock mine PX 60000", Heard: "free old", Runs: "GET SET PUBLISH"},
		{Name: "gone", Before: "SET fence 7", Keys: "lock fence", Args: "old mine 60000 90000 free", Reply: "nil", After: same},
		{Name: "another's", Before: "SET fence 7; SET lock other PX 7000", Keys: "lock fence", Args: "old mine 60000 90000 free",
			Reply: "other", After: same},
		{Name: "adopted already", Before: "SET fence 7; SET lock mine PX 7000", Keys: "lock fence", Args: "old mine 60000 90000 free",
			Reply: "mine", After: same},
		{Name: "no lock", Before: "RPUSH lock x", Keys: "lock fence", Args: "old mine 60000 90000 free", Reply: "-WRONGTYPE", After: same},
		{Name: "the counter is a list", Before: "RPUSH fence x; SET lock old PX 7000", Keys: "lock fence", Args: "old mine 60000 90000 free",
			Reply: "-WRONGTYPE", After: same},
		{Name: "the counter may not be written", Before: "SET lock old PX 7000", Forbid: "SET/fence", Keys: "lock fence",
			Args: "old mine 60000 90000 free", Reply: "-NOPERM forbidden", After: same},
		{Name: "the lock may not be written", Time: early, Before: "SET lock old PX 7000", Forbid: "SET/lock", Keys: "lock fence",
			Args: "old mine 60000 90000 free", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000; SET lock old PX 7000"},
		{Name: "out of memory", Before: "SET lock old PX 7000", OOM: true, Keys: "lock fence", Args: "old mine 60000 90000 free",
			Reply: "-OOM", After: same},
	}...))
}

func TestExtendScript(t *testing.T) {
	scripttest.Run(t, extend, []row{
		{Name: "longer", Before: "SET lock mine PX 7000", Keys: "lock", Args: "mine 60000",
			Reply: "[1]", After: "SET lock mine PX 60000"},
		{Name: "shorter: written as it is", Before: "SET lock mine PX 70000", Keys: "lock", Args: "mine 60000",
			Reply: "[1]", After: same, Runs: "GET PTTL PEXPIRE"},
		{Name: "without expiry", Before: "SET lock mine", Keys: "lock", Args: "mine 60000",
			Reply: "[1]", After: "SET lock mine PX 60000"},
		{Name: "gone", Keys: "lock", Args: "mine 60000", Reply: "[nil]", Runs: "GET GETEX"},
		{Name: "gone meanwhile", Before: "SET lock mine PX 7000", Lapsed: "PEXPIRE", Keys: "lock", Args: "mine 60000", Reply: "[nil]"},
		{Name: "another's", Before: "SET lock other PX 7000", Keys: "lock", Args: "mine 60000", Reply: "[other]", After: same},
		{Name: "no lock", Before: "RPUSH lock x", Keys: "lock", Args: "mine 60000",
			Reply: "[['WRONGTYPE Operation against a key holding the wrong kind of value']]", After: same},
		{Name: "forbidden before Redis 7.0", Before: "SET lock mine PX 7000", Forbid: "PEXPIRE", Old: true, Keys: "lock", Args: "mine 60000",
			Reply: "-NOPERM forbidden", After: same},
		{Name: "not to be read", Before: "SET a mine PX 7000; SET b mine PX 7000", Forbid: "GET/a", Keys: "a b", Args: "mine mine 60000",
			Reply: "[['NOPERM forbidden'] 1]", After: "SET a mine PX 7000; SET b mine PX 60000"},
		{Name: "several, with one TTL", Before: "SET a mine PX 7000; RPUSH b x; SET c other PX 7000; SET e yours PX 7000",
			Keys: "a b c d e", Args: "mine mine mine mine yours 60000",
			Reply: "[1 ['WRONGTYPE Operation against a key holding the wrong kind of value'] other nil 1]",
			After: "SET a mine PX 60000; RPUSH b x; SET c other PX 7000; SET e yours PX 60000"},
		{Name: "several, each with its TTL", Before: "SET a mine PX 7000; SET b yours PX 7000", Keys: "a b", Args: "mine yours 60000 30000",
			Reply: "[1 1]", After: "SET a mine PX 60000; SET b yours PX 30000"},
		{Name: "out of memory", Before: "SET lock mine PX 7000", OOM: true, Keys: "lock", Args: "mine 60000",
			Reply: "[1]", After: "SET lock mine PX 60000"},
	})
}

func TestReleaseScript(t *testing.T) {
	scripttest.Run(t, release, []row{
		{Name: "held", Before: "SET lock mine PX 7000; SET fence 7", Keys: "lock", Args: "mine free",
			Reply: "1", After: "SET fence 7", Heard: "free mine", Runs: "GETEX DEL PUBLISH"},
		{Name: "may not publish", Before: "SET lock mine PX 7000", Forbid: "PUBLISH", Keys: "lock", Args: "mine free", Reply: "1"},
		{Name: "may not delete", Before: "SET lock mine PX 7000", Forbid: "DEL", Keys: "lock", Args: "mine free",
			Reply: "-NOPERM forbidden", After: same},
		{Name: "gone", Keys: "lock", Args: "mine free", Reply: "nil"},
		{Name: "another's", Before: "SET lock other PX 7000", Keys: "lock", Args: "mine free", Reply: "other", After: same},
		{Name: "no lock", Before: "RPUSH lock x", Keys: "lock", Args: "mine free", Reply: "-WRONGTYPE", After: same},
		{Name: "out of memory", Before: "SET lock mine PX 7000", OOM: true, Keys: "lock", Args: "mine free", Reply: "1", Heard: "free mine"},
	})
}

func TestInspectScript(t *testing.T) {
	scripttest.Run(t, inspect, []row{
		{Name: "held", Before: "SET fence 7; SET lock mine PX 7000", Keys: "lock fence", Reply: "[mine 7000 7]", After: same},
		{Name: "held, without fences", Before: "SET fence 7; SET lock mine PX 7000", Keys: "lock", Reply: "[mine 7000 nil]", After: same},
		{Name: "without expiry", Before: "SET lock mine", Keys: "lock fence", Reply: "[mine -1 nil]", After: same},
		{Name: "free", Before: "SET fence 7", Keys: "lock fence", Reply: "[nil -2 7]", After: same},
		{Name: "no lock", Before: "RPUSH lock x", Keys: "lock fence", Reply: "-WRONGTYPE", After: same},
		{Name: "the counter is a list", Before: "RPUSH fence x; SET lock mine PX 7000", Keys: "lock fence", Reply: "-WRONGTYPE", After: same},
	})
}
