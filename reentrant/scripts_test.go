// Every branch of each script: what it replies and publishes, and all keys after it.
package reentrant

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/scripttest"
)

type row = scripttest.Row

const (
	same      = scripttest.Same
	wrongType = "WRONGTYPE Operation against a key holding the wrong kind of value"
)

var on = scripttest.On

const (
	one      = "HSET lock fence 7 hold:a @9000 owner me PX 9000"
	two      = "HSET lock fence 7 hold:a @9000 hold:b @5000 owner me PX 9000"
	over     = "HSET lock fence 7 hold:a @-1 owner me PX 9000" // its only hold has lapsed
	bothOver = "HSET lock fence 7 hold:a @-1 hold:b @-2 owner me PX 9000"
	stale    = "HSET lock fence 7 hold:a @9000 hold:old @-1 owner me PX 9000"
)

func TestAcquireScript(t *testing.T) {
	const mine = "me t 60000 0 90000"
	const made = "SET fence #0 PX 90000; HSET lock fence #0 hold:t @60000 owner me PX 60000"
	rows := on("lock fence", mine,
		// Nobody holds it.
		row{Name: "free", Reply: "#0", After: made, Runs: "HGETALL TIME GET SET HSET PEXPIREAT"},
		row{Name: "free, before Redis 7.0", Old: true, Reply: "#0", After: made, Runs: "HGETALL PTTL TIME GET SET DEL HDEL PEXPIREAT HSET PEXPIREAT"},
		row{Name: "the counter is behind the clock", Before: "SET fence #-1", Reply: "#0", After: made},
		row{Name: "the counter is at the clock", Before: "SET fence #0", Reply: "#1", After: "SET fence #1 PX 90000; HSET lock fence #1 hold:t @60000 owner me PX 60000"},
		row{Name: "the counter is ahead of the clock", Before: "SET fence #700", Reply: "#701", After: "SET fence #701 PX 90000; HSET lock fence #701 hold:t @60000 owner me PX 60000"},
		row{Name: "the counter is far ahead of the clock: it expires after its own time", Before: "SET fence #5000000 PX 100", Reply: "#5000001",
			After: "SET fence #5000001 PX 95000; HSET lock fence #5000001 hold:t @60000 owner me PX 60000"},
		row{Name: "the counter is kept for ever", Args: "me t 60000 0 0", Before: "SET fence #-1 PX 7000", Reply: "#0", After: "SET fence #0; HSET lock fence #0 hold:t @60000 owner me PX 60000"},
		row{Name: "the last fence", Args: "me t 60000 0 0", Before: "SET fence 9007199254740990", Reply: "9007199254740991",
			After: "SET fence 9007199254740991; HSET lock fence 9007199254740991 hold:t @60000 owner me PX 60000"},
		row{Name: "all holds have lapsed", Before: over, Reply: "#0", After: made},
		row{Name: "all holds have lapsed, another's", Args: "you t 60000 0 90000", Before: over, Reply: "#0", After: "SET fence #0 PX 90000; HSET lock fence #0 hold:t @60000 owner you PX 60000"},
		row{Name: "free, and only to re-enter", Args: "me t 60000 1 90000", Before: "SET fence 7", Reply: "nil", After: same},
		row{Name: "lapsed, and only to re-enter", Args: "me t 60000 1 90000", Before: over, Reply: "nil", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x", Reply: "-WRONGTYPE", After: same},
		row{Name: "forbidden", Forbid: "SET | PTTL", Reply: "-NOPERM forbidden"},
		row{Name: "PTTL is forbidden, before Redis 7.0", Old: true, Forbid: "PTTL", Reply: "-NOPERM forbidden"},
		row{Name: "forbidden after the fence", Forbid: "DEL | HDEL | PEXPIREAT | HSET", Reply: "-NOPERM forbidden", After: "SET fence #0 PX 90000"},
		row{Name: "DEL is forbidden, before Redis 7.0", Old: true, Forbid: "DEL", Reply: "-NOPERM forbidden", After: "SET fence #0 PX 90000"},
		row{Name: "out of memory", OOM: true, Reply: "-OOM"},

		// Its owner asks again.
		row{Name: "re-entry", Before: one, Reply: "7", After: "HSET lock fence 7 hold:a @9000 hold:t @60000 owner me PX 60000",
			Runs: "HGETALL PTTL TIME HDEL HSET PEXPIREAT"},
		row{Name: "re-entry for less", Args: "me t 4000 0 90000", Before: one, Reply: "7", After: "HSET lock fence 7 hold:a @9000 hold:t @4000 owner me PX 9000"},
		row{Name: "re-entry, and only that", Args: "me t 60000 1 90000", Before: one, Reply: "7", After: "HSET lock fence 7 hold:a @9000 hold:t @60000 owner me PX 60000"},
		row{Name: "the same hold again", Args: "me a 60000 0 90000", Before: one, Reply: "7", After: "HSET lock fence 7 hold:a @60000 owner me PX 60000"},
		row{Name: "the same hold again, for less", Args: "me a 4000 0 90000", Before: one, Reply: "7", After: one},
		row{Name: "re-entry drops what has lapsed", Before: stale, Reply: "7", After: "HSET lock fence 7 hold:a @9000 hold:t @60000 owner me PX 60000"},
		row{Name: "a hold whose end is now counts", Before: "HSET lock fence 7 hold:a @0 owner me PX 9000", Reply: "7",
			After: "HSET lock fence 7 hold:a @0 hold:t @60000 owner me PX 60000"},
		row{Name: "the key has lapsed meanwhile", Before: one, Lapsed: "PEXPIREAT", Reply: "7"},
		row{Name: "re-entry without a counter that is one", Before: "SET fence seven; " + one, Reply: "7",
			After: "SET fence seven; HSET lock fence 7 hold:a @9000 hold:t @60000 owner me PX 60000"},
		row{Name: "re-entry, PEXPIREAT is forbidden", Before: one, Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: same},
		row{Name: "re-entry, forbidden", Before: stale, Forbid: "HSET | HDEL", Reply: "-NOPERM forbidden", After: same},
		row{Name: "re-entry, HSET is forbidden, before Redis 7.0", Old: true, Before: stale, Forbid: "HSET", Reply: "-NOPERM forbidden", After: same},
		row{Name: "re-entry, out of memory", OOM: true, Before: one, Reply: "7", After: "HSET lock fence 7 hold:a @9000 hold:t @60000 owner me PX 60000"},

		// Another owner holds it.
		row{Name: "held", Args: "you t 60000 0 90000", Before: "SET fence 7; " + one, Reply: "[me 9000]", After: "SET fence 7; " + one, Runs: "HGETALL PTTL TIME HDEL"},
		row{Name: "held, until the last hold ends", Args: "you t 60000 0 90000", Before: two, Reply: "[me 9000]", After: same},
		row{Name: "held, by one that is not last", Args: "you t 60000 0 90000", Before: "HSET lock fence 7 hold:a @5000 hold:b @8000 owner me PX 9000", Reply: "[me 8000]", After: same},
		row{Name: "held, and no longer than the key", Args: "you t 60000 0 90000", Before: "HSET lock fence 7 hold:a 9999999999999999 owner me PX 9000",
			Reply: "[me 9000]", After: same},
		row{Name: "held, and only to re-enter", Args: "you t 60000 1 90000", Before: one, Reply: "[me 9000]", After: same},
	)
	scripttest.Run(t, acquire, append(rows, on("lock fence", mine, scripttest.BadCounters(row{})...)...))
}

// Every script refuses a value that is no lock, and leaves it alone.
func TestNoLockScripts(t *testing.T) {
	const odd = "a field is unknown or has a bad value: "
	const long = "a-field-whose-name-has-fifty-characters-and-no-more" // and one
	var rows []row
	for _, c := range [][3]string{
		{"a user's hash", "HSET lock age 42 PX 9000", odd + "age"},
		{"no owner", "HSET lock fence 7 hold:a @9000 PX 9000", "it has no owner or no fence"},
		{"no fence", "HSET lock hold:a @9000 owner me PX 9000", "it has no owner or no fence"},
		{"an owner without a name", "HSET lock fence 7 hold:a @9000 owner '' PX 9000", odd + "owner"},
		{"a fence that is no number", "HSET lock fence x hold:a @9000 owner me PX 9000", odd + "fence"},
		{"a fence never issued", "HSET lock fence 0 hold:a @9000 owner me PX 9000", odd + "fence"},
		{"a time that is no number", "HSET lock fence 7 hold:a soon owner me PX 9000", odd + "hold:a"},
		{"a time out of range", "HSET lock fence 7 hold:a 99999999999999999 owner me PX 9000", odd + "hold:a"},
		{"a time with more behind it", "HSET lock fence 7 hold:a 99999x owner me PX 9000", odd + "hold:a"},
		{"a time with more before it", "HSET lock fence 7 hold:a x99999 owner me PX 9000", odd + "hold:a"},
		{"a field too many", "HSET lock fence 7 hold:a @9000 holdings 9 owner me PX 9000", odd + "holdings"},
		{"a long field too many", "HSET lock " + long + " 1 fence 7 hold:a @9000 owner me PX 9000", odd + long[:50]},
		{"without expiry", "HSET lock fence 7 hold:a @9000 owner me", "it has no expiry"},
		{"without expiry, two holds", "HSET lock fence 7 hold:a @9000 hold:b @9000 owner me", "it has no expiry"},
	} {
		rows = append(rows, row{Name: c[0], Before: c[1], Reply: "-NOLOCK the key lock holds no re-entrant lock: " + c[2], After: same})
	}
	rows = append(rows,
		row{Name: "a string", Before: "SET lock token PX 9000", Reply: "-WRONGTYPE", After: same},
		row{Name: "HGETALL is forbidden", Before: one, Forbid: "HGETALL", Reply: "-NOPERM forbidden", After: same},
	)
	for _, c := range []struct {
		script     *driver.Script
		keys, args string
	}{
		{acquire, "lock fence", "me a 60000 0 90000"},
		{release, "lock", "a free"},
		{force, "lock", "me 7 free"},
		{adopt, "lock fence", "a 60000 t you 90000"},
		{inspect, "lock fence", ""},
		{extend, "lock", "a 60000"},
	} {
		t.Run(c.script.Name(), func(t *testing.T) {
			own := slices.Clone(rows)
			switch c.script {
			case release: // it ends the only hold without a look at the expiry
				own = slices.DeleteFunc(own, func(r row) bool { return r.Name == "without expiry" })
			case extend: // its errors are texts
				for i, r := range own {
					own[i].Reply = "[['" + strings.Replace(r.Reply[1:], "WRONGTYPE", wrongType, 1) + "']]"
				}
			}
			scripttest.Run(t, c.script, on(c.keys, c.args, own...))
		})
	}
}

func TestExtendScript(t *testing.T) {
	scripttest.Run(t, extend, on("lock", "a 60000",
		row{Name: "longer", Before: one, Reply: "1", After: "HSET lock fence 7 hold:a @60000 owner me PX 60000"},
		row{Name: "shorter: written as it is", Args: "a 4000", Before: one, Reply: "1", After: one, Runs: "HGETALL PTTL TIME HDEL HSET PEXPIREAT"},
		row{Name: "one of two", Args: "b 6000", Before: two, Reply: "1", After: "HSET lock fence 7 hold:a @9000 hold:b @6000 owner me PX 9000"},
		row{Name: "drops what has lapsed", Before: stale, Reply: "1", After: "HSET lock fence 7 hold:a @60000 owner me PX 60000"},
		row{Name: "its field says more than its key", Args: "b 4000", Before: "HSET lock fence 7 hold:a 9999999999999999 hold:b @3000 owner me PX 9000", Reply: "1",
			After: "HSET lock fence 7 hold:a 9999999999999999 hold:b @4000 owner me PX 9000"},
		row{Name: "free", Reply: "[nil]"},
		row{Name: "lapsed", Before: over, Reply: "[nil]", After: same},
		row{Name: "lapsed, and another hold counts", Args: "old 60000", Before: stale, Reply: "[me]", After: same},
		row{Name: "another's", Args: "t 60000", Before: one, Reply: "[me]", After: same},
		row{Name: "the key has lapsed meanwhile", Before: one, Lapsed: "PEXPIREAT", Reply: "1"},
		row{Name: "PEXPIREAT is forbidden", Before: one, Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: same},
		row{Name: "PEXPIREAT is forbidden, before Redis 7.0", Old: true, Before: one, Forbid: "PEXPIREAT", Reply: "-NOPERM forbidden", After: same},
		row{Name: "forbidden", Before: stale, Forbid: "HSET | HDEL", Reply: "-NOPERM forbidden", After: same},
		row{Name: "HSET is forbidden, before Redis 7.0", Old: true, Before: stale, Forbid: "HSET", Reply: "-NOPERM forbidden", After: same},
		row{Name: "two of one lock", Keys: "lock lock", Args: "a b 60000", Before: two, Reply: "2", After: "HSET lock fence 7 hold:a @60000 hold:b @60000 owner me PX 60000"},
		row{Name: "each with its TTL", Keys: "lock lock", Args: "a b 60000 30000", Before: two, Reply: "2",
			After: "HSET lock fence 7 hold:a @60000 hold:b @30000 owner me PX 60000"},
		row{Name: "several, of which not all are there", Keys: "bad free lock lock", Args: "x y z a 60000", Before: "SET bad x; " + one,
			Reply: "[['" + wrongType + "'] nil me 1]",
			After: "SET bad x; HSET lock fence 7 hold:a @60000 owner me PX 60000"},
		row{Name: "out of memory, before Redis 7.0", OOM: true, Old: true, Before: one, Reply: "1", After: "HSET lock fence 7 hold:a @60000 owner me PX 60000"},
		row{Name: "out of memory", OOM: true, Before: one, Reply: "1", After: "HSET lock fence 7 hold:a @60000 owner me PX 60000"},
	))
}

func TestReleaseScript(t *testing.T) {
	scripttest.Run(t, release, on("lock", "a free",
		row{Name: "the only hold", Before: "SET fence 7; " + one, Reply: "1", After: "SET fence 7", Heard: "free me", Runs: "HGETALL DEL PUBLISH"},
		row{Name: "the longer of two", Before: two, Reply: "1", After: "HSET lock fence 7 hold:b @5000 owner me PX 5000"},
		row{Name: "the shorter of two", Args: "b free", Before: two, Reply: "1", After: "HSET lock fence 7 hold:a @9000 owner me PX 9000"},
		row{Name: "one of three", Before: "HSET lock fence 7 hold:a @9000 hold:b @5000 hold:c @6000 owner me PX 9000", Reply: "1",
			After: "HSET lock fence 7 hold:b @5000 hold:c @6000 owner me PX 6000"},
		row{Name: "the only one that counts", Before: stale, Reply: "1", Heard: "free me"},
		row{Name: "its field says more than its key", Args: "b free", Before: "HSET lock fence 7 hold:a 9999999999999999 hold:b @3000 owner me PX 9000", Reply: "1",
			After: "HSET lock fence 7 hold:a 9999999999999999 owner me PX 9000"},
		row{Name: "free", Reply: "nil"},
		row{Name: "its time has passed, but nobody has taken the lock", Before: over, Reply: "1", Heard: "free me"},
		row{Name: "two, which have lapsed", Before: bothOver, Reply: "nil", After: same},
		row{Name: "without expiry", Before: "HSET lock fence 7 hold:a @9000 owner me", Reply: "1", Heard: "free me"},
		row{Name: "lapsed, and another hold counts", Args: "old free", Before: stale, Reply: "me", After: same},
		row{Name: "another's", Args: "t free", Before: one, Reply: "me", After: same},
		row{Name: "PUBLISH is forbidden", Before: one, Forbid: "PUBLISH", Reply: "1"},
		row{Name: "DEL is forbidden", Before: one, Forbid: "DEL", Reply: "-NOPERM forbidden", After: same},
		row{Name: "one of two, HDEL is forbidden", Before: two, Forbid: "HDEL", Reply: "-NOPERM forbidden", After: same},
		row{Name: "one of two, PEXPIREAT is forbidden", Before: two, Forbid: "PEXPIREAT", Reply: "1", After: "HSET lock fence 7 hold:b @5000 owner me PX 9000"},
		row{Name: "out of memory", OOM: true, Before: one, Reply: "1", Heard: "free me"},
		row{Name: "one of two, out of memory", OOM: true, Before: two, Reply: "1", After: "HSET lock fence 7 hold:b @5000 owner me PX 5000"},
	))
}

func TestForceScript(t *testing.T) {
	scripttest.Run(t, force, on("lock", "me 7 free",
		row{Name: "all holds", Before: "SET fence 7; " + two, Reply: "1", After: "SET fence 7", Heard: "free me"},
		row{Name: "free", Reply: "nil"},
		row{Name: "lapsed", Before: over, Reply: "nil", After: same},
		row{Name: "another's", Args: "you 7 free", Before: two, Reply: "me", After: same},
		row{Name: "the same owner's, by a later fence", Args: "me 6 free", Before: two, Reply: "me", After: same},
		row{Name: "PUBLISH is forbidden", Before: two, Forbid: "PUBLISH", Reply: "1"},
		row{Name: "DEL is forbidden", Before: two, Forbid: "DEL", Reply: "-NOPERM forbidden", After: same},
		row{Name: "out of memory", OOM: true, Before: two, Reply: "1", Heard: "free me"},
	))
}

func TestAdoptScript(t *testing.T) {
	const args = "a 60000 t you 90000"
	rows := on("lock fence", args,
		row{Name: "the only hold", Before: one, Reply: "[#0 you]", After: "SET fence #0 PX 90000; HSET lock fence #0 hold:t @60000 owner you PX 60000",
			Runs: "HGETALL PTTL TIME GET SET HSET PEXPIREAT HDEL"},
		row{Name: "the only hold, for less", Args: "a 4000 t you 90000", Before: "SET fence #5; " + one, Reply: "[#6 you]",
			After: "SET fence #6 PX 90000; HSET lock fence #6 hold:t @4000 owner you PX 4000"},
		row{Name: "the only hold, and its fence is kept for ever", Args: "a 60000 t you 0", Before: one, Reply: "[#0 you]", After: "SET fence #0; HSET lock fence #0 hold:t @60000 owner you PX 60000"},
		row{Name: "the only hold that counts", Before: stale, Reply: "[#0 you]", After: "SET fence #0 PX 90000; HSET lock fence #0 hold:t @60000 owner you PX 60000"},
		row{Name: "one of two", Args: "b 60000 t you 90000", Before: "SET fence 9; " + two, Reply: "[7 me]", After: "SET fence 9; HSET lock fence 7 hold:a @9000 hold:t @60000 owner me PX 60000"},
		row{Name: "the longer of two, for less", Args: "a 4000 t you 90000", Before: two, Reply: "[7 me]", After: "HSET lock fence 7 hold:b @5000 hold:t @4000 owner me PX 5000"},
		row{Name: "free", Reply: "nil"},
		row{Name: "lapsed", Before: over, Reply: "nil", After: same},
		row{Name: "another hold", Args: "x 60000 t you 90000", Before: one, Reply: "me", After: same},
		row{Name: "lapsed, and another hold counts", Args: "old 60000 t you 90000", Before: stale, Reply: "me", After: same},
		row{Name: "the counter is a list", Before: "RPUSH fence x; " + one, Reply: "-WRONGTYPE", After: same},
		row{Name: "forbidden", Before: one, Forbid: "SET | PTTL", Reply: "-NOPERM forbidden", After: same},
		row{Name: "forbidden after the fence", Before: one, Forbid: "HDEL | PEXPIREAT", Reply: "-NOPERM forbidden", After: "SET fence #0 PX 90000; " + one},
		row{Name: "HSET is forbidden", Before: stale, Forbid: "HSET", Reply: "-NOPERM forbidden", After: "SET fence #0 PX 90000; " + stale},
		row{Name: "HSET is forbidden, before Redis 7.0", Old: true, Before: stale, Forbid: "HSET", Reply: "-NOPERM forbidden", After: "SET fence #0 PX 90000; " + stale},
		row{Name: "one of two, forbidden", Before: two, Forbid: "HSET | HDEL | PEXPIREAT", Reply: "-NOPERM forbidden", After: same},
		row{Name: "one of two, HSET is forbidden, before Redis 7.0", Old: true, Before: two, Forbid: "HSET", Reply: "-NOPERM forbidden", After: same},
		row{Name: "the key has lapsed meanwhile", Before: one, Lapsed: "PEXPIREAT", Reply: "[#0 you]", After: "SET fence #0 PX 90000"},
		row{Name: "one of two, the key has lapsed meanwhile", Before: two, Lapsed: "PEXPIREAT", Reply: "[7 me]"},
		row{Name: "out of memory", OOM: true, Before: one, Reply: "-OOM", After: same},
		row{Name: "one of two, out of memory", OOM: true, Before: two, Reply: "[7 me]", After: "HSET lock fence 7 hold:b @5000 hold:t @60000 owner me PX 60000"},
	)
	scripttest.Run(t, adopt, append(rows, on("lock fence", args, scripttest.BadCounters(row{Before: one})...)...))
}

func TestInspectScript(t *testing.T) {
	rows := on("lock fence", "",
		row{Name: "held", Before: "SET fence 9; " + one, Reply: "[7 me a 1 9000]", After: same},
		row{Name: "held twice", Before: two, Reply: "[7 me a 2 9000]", After: same},
		row{Name: "the first token", Before: "HSET lock fence 7 hold:b @9000 hold:c @8000 hold:a @7000 hold:d @1000 owner me PX 9000", Reply: "[7 me a 4 9000]",
			After: "HSET lock fence 7 hold:a @7000 hold:b @9000 hold:c @8000 hold:d @1000 owner me PX 9000"},
		row{Name: "the first of other tokens", Before: "HSET lock fence 7 hold:k @9000 hold:q @8000 hold:m @7000 hold:z @6000 owner me PX 9000", Reply: "[7 me k 4 9000]",
			After: "HSET lock fence 7 hold:k @9000 hold:m @7000 hold:q @8000 hold:z @6000 owner me PX 9000"},
		row{Name: "some have lapsed", Before: stale, Reply: "[7 me a 1 9000]", After: same},
		row{Name: "all have lapsed", Before: "SET fence 9; " + over, Reply: "[9]", After: same},
		row{Name: "free", Before: "SET fence 9", Reply: "[9]", After: same},
		row{Name: "never held", Reply: "[0]"},
		row{Name: "the counter is a list", Before: "RPUSH fence x", Reply: "-WRONGTYPE", After: same},
	)
	scripttest.Run(t, inspect, append(rows, on("lock fence", "", scripttest.BadCounters(row{})...)...))
}
