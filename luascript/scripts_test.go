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
)

func TestAcquireScript(t *testing.T) {
	rows := append(scripttest.BadCounters(row{}),
		row{Name: "free",
			Reply: "#512", After: "SET fence #512 PX 90000; SET lock mine PX 60000", Runs: "GET TIME GET SET SET"},
		row{Name: "free, without fences", Keys: "lock", Reply: "0", After: "SET lock mine PX 60000", Runs: "GET SET"},
		row{Name: "the counter is behind the clock", Before: "SET fence #-9",
			Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000"},
		row{Name: "the counter is one behind the clock", Before: "SET fence #-1",
			Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000"},
		row{Name: "the counter is at the clock", Before: "SET fence #0",
			Reply: "#1", After: "SET fence #1 PX 90000; SET lock mine PX 60000"},
		row{Name: "the counter is ahead of the clock", Before: "SET fence #700",
			Reply: "#701", After: "SET fence #701 PX 90000; SET lock mine PX 60000"},
		row{Name: "the counter is far ahead of the clock: it expires after its own time", Before: "SET fence #5000000 PX 100",
			Reply: "#5000001", After: "SET fence #5000001 PX 95000; SET lock mine PX 60000"},
		row{Name: "the counter is kept for ever", Before: "SET fence #-9 PX 7000", Args: "mine 60000 0 1",
			Reply: "#0", After: "SET fence #0; SET lock mine PX 60000"},
		row{Name: "the last fence", Before: "SET fence " + last, Args: "mine 60000 0 1",
			Reply: over, After: "SET fence " + over + "; SET lock mine PX 60000"},
		row{Name: "several fences", Before: "SET fence #-9", Args: "mine 60000 90000 16",
			Reply: "[#0 16]", After: "SET fence #15 PX 90000; SET lock mine PX 60000"},
		row{Name: "several fences, without fences", Keys: "lock", Args: "mine 60000 90000 16",
			Reply: "0", After: "SET lock mine PX 60000"},
		row{Name: "as many as may be ahead of the clock", Before: "SET fence #495", Args: "mine 60000 90000 16",
			Reply: "[#496 16]", After: "SET fence #511 PX 90000; SET lock mine PX 60000"},
		row{Name: "one more", Before: "SET fence #496", Args: "mine 60000 90000 16",
			Reply: "#497", After: "SET fence #497 PX 90000; SET lock mine PX 60000"},
		row{Name: "held", Before: "SET lock other PX 7000; SET fence 7",
			Reply: "[other 7000]", After: "SET fence 7; SET lock other PX 7000", Runs: "GET GETEX PTTL"},
		row{Name: "held by the same token", Before: "SET lock mine PX 7000", Reply: "[mine 7000]", After: same},
		row{Name: "held without expiry", Before: "SET lock ''", Reply: "['' -1]", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter may not be written", Forbid: "SET/fence", Reply: "-NOPERM forbidden"},
		row{Name: "the lock may not be written", Forbid: "SET/lock", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000"},
		row{Name: "out of memory", OOM: true, Reply: "-OOM"},
	)
	scripttest.Run(t, acquire, scripttest.On("lock fence", "mine 60000 90000 1", rows...))
}

func TestAdoptScript(t *testing.T) {
	rows := append(scripttest.BadCounters(row{Before: "SET lock old PX 7000"}),
		row{Name: "held", Before: "SET fence #-5; SET lock old PX 7000",
			Reply: "#0", After: "SET fence #0 PX 90000; SET lock mine PX 60000", Heard: "free old", Runs: "GET TIME GET SET SET PUBLISH"},
		row{Name: "for less", Before: "SET fence #5; SET lock old PX 70000",
			Reply: "#6", After: "SET fence #6 PX 90000; SET lock mine PX 60000", Heard: "free old"},
		row{Name: "the counter is kept for ever", Before: "SET fence #-5; SET lock old PX 7000", Args: "old mine 60000 0 free",
			Reply: "#0", After: "SET fence #0; SET lock mine PX 60000", Heard: "free old"},
		row{Name: "without fences", Before: "SET lock old PX 7000", Keys: "lock",
			Reply: "0", After: "SET lock mine PX 60000", Heard: "free old", Runs: "GET SET PUBLISH"},
		row{Name: "gone", Before: "SET fence 7", Reply: "nil", After: same},
		row{Name: "another's", Before: "SET fence 7; SET lock other PX 7000", Reply: "other", After: same},
		row{Name: "adopted already", Before: "SET fence 7; SET lock mine PX 7000", Reply: "mine", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; SET lock old PX 7000", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter may not be written", Before: "SET lock old PX 7000", Forbid: "SET/fence", Reply: "-NOPERM forbidden", After: same},
		row{Name: "the lock may not be written", Before: "SET lock old PX 7000", Forbid: "SET/lock", Reply: "-NOPERM forbidden", After: "SET fence #512 PX 90000; SET lock old PX 7000"},
		row{Name: "out of memory", Before: "SET lock old PX 7000", OOM: true, Reply: "-OOM", After: same},
	)
	scripttest.Run(t, adopt, scripttest.On("lock fence", "old mine 60000 90000 free", rows...))
}

func TestExtendScript(t *testing.T) {
	scripttest.Run(t, extend, scripttest.On("lock", "mine 60000",
		row{Name: "longer", Before: "SET lock mine PX 7000", Reply: "[1]", After: "SET lock mine PX 60000", Runs: "GET PTTL PEXPIRE"},
		row{Name: "shorter: written as it is", Before: "SET lock mine PX 70000",
			Reply: "[1]", After: same, Runs: "GET PTTL PEXPIRE"},
		row{Name: "without expiry", Before: "SET lock mine", Reply: "[1]", After: "SET lock mine PX 60000"},
		row{Name: "gone", Reply: "[nil]", Runs: "GET GETEX"},
		row{Name: "gone meanwhile", Before: "SET lock mine PX 7000", Lapsed: "PEXPIRE", Reply: "[nil]"},
		row{Name: "another's", Before: "SET lock other PX 7000", Reply: "[other]", After: same},
		row{Name: "no lock", Before: "RPUSH lock x",
			Reply: "[['WRONGTYPE Operation against a key holding the wrong kind of value']]", After: same},
		row{Name: "forbidden before Redis 7.0", Before: "SET lock mine PX 7000", Forbid: "PEXPIRE", Old: true,
			Reply: "-NOPERM forbidden", After: same},
		row{Name: "not to be read", Before: "SET a mine PX 7000; SET b mine PX 7000", Forbid: "GET/a", Keys: "a b", Args: "mine mine 60000",
			Reply: "[['NOPERM forbidden'] 1]", After: "SET a mine PX 7000; SET b mine PX 60000"},
		row{Name: "several, with one TTL", Before: "SET a mine PX 7000; RPUSH b x; SET c other PX 7000; SET e yours PX 7000",
			Keys: "a b c d e", Args: "mine mine mine mine yours 60000",
			Reply: "[1 ['WRONGTYPE Operation against a key holding the wrong kind of value'] other nil 1]",
			After: "SET a mine PX 60000; RPUSH b x; SET c other PX 7000; SET e yours PX 60000"},
		row{Name: "several, each with its TTL", Before: "SET a mine PX 7000; SET b yours PX 7000", Keys: "a b", Args: "mine yours 60000 30000",
			Reply: "[1 1]", After: "SET a mine PX 60000; SET b yours PX 30000"},
		row{Name: "out of memory", Before: "SET lock mine PX 7000", OOM: true,
			Reply: "[1]", After: "SET lock mine PX 60000"},
	))
}

func TestReleaseScript(t *testing.T) {
	scripttest.Run(t, release, scripttest.On("lock", "mine free",
		row{Name: "held", Before: "SET lock mine PX 7000; SET fence 7",
			Reply: "1", After: "SET fence 7", Heard: "free mine", Runs: "GETEX DEL PUBLISH"},
		row{Name: "may not publish", Before: "SET lock mine PX 7000", Forbid: "PUBLISH", Reply: "1"},
		row{Name: "may not delete", Before: "SET lock mine PX 7000", Forbid: "DEL",
			Reply: "-NOPERM forbidden", After: same},
		row{Name: "gone", Reply: "nil", Runs: "GETEX"},
		row{Name: "another's", Before: "SET lock other PX 7000", Reply: "other", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "out of memory", Before: "SET lock mine PX 7000", OOM: true, Reply: "1", Heard: "free mine"},
	))
}

func TestInspectScript(t *testing.T) {
	scripttest.Run(t, inspect, scripttest.On("lock fence", "",
		row{Name: "held", Before: "SET fence 7; SET lock mine PX 7000", Reply: "[mine 7000 7]", After: same, Runs: "GET GETEX PTTL"},
		row{Name: "held, without fences", Before: "SET fence 7; SET lock mine PX 7000", Keys: "lock", Reply: "[mine 7000 nil]", After: same},
		row{Name: "without expiry", Before: "SET lock mine", Reply: "[mine -1 nil]", After: same},
		row{Name: "free", Before: "SET fence 7", Reply: "[nil -2 7]", After: same},
		row{Name: "no lock", Before: "RPUSH lock x", Reply: "-WRONGTYPE", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; SET lock mine PX 7000", Reply: "-WRONGTYPE", After: same},
	))
}
