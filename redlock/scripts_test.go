// Every branch of every script, on a real server: what it replies, and all that is on the server afterwards,
// TTLs included.
package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// In the rows of TestScripts L, G and C are the keys: lock, guard and counter. RUN and ID are the server's
// run_id and its master_replid, NOW is its time in ms, to which a number of minutes may be added: NOW-9m; US is
// the same in µs. ” is an empty argument. Times that have passed since NOW are rounded to minutes, so none is a matter of speed.
const (
	// The server votes: its generation was bootstrapped, or has lasted for longer than the longest TTL.
	open10m  = "HSET G seen ID run RUN past '' gen old born 0 max 600000 new 1 why empty"
	lasted   = "HSET G seen ID run RUN past '' gen old born NOW-11m max 600000 new 0 why empty"
	waits1m  = "HSET G seen ID run RUN past '' gen old born NOW-9m max 600000 new 0 why restarted"
	another  = "HSET G seen other run other past '' gen old born 0 max 600000 new 1 why empty"
	isOpen   = "G{born=0 gen=old max=600000 new=1 past= run=RUN seen=ID why=empty}"
	isLasted = "G{born=NOW-11m gen=old max=600000 new=0 past= run=RUN seen=ID why=empty}"
	waits    = "G{born=NOW-9m gen=old max=600000 new=0 past= run=RUN seen=ID why=restarted}"
	begun    = "G{born=NOW gen=RUN:NOW max=600000 new=0 past= run=RUN seen=ID why=empty}"

	held5m = "SET L theirs PX 300000"
	mine5m = "SET L mine PX 300000"
	is5m   = "L=theirs/5m"
	is10m  = "L=mine/10m"
)

func TestScripts(t *testing.T) {
	s, n := realServer(t, "what the scripts do on a server that says who it is")
	checksACL := !strings.HasPrefix(version(t, s), "6.")

	fastpath := driver.NewScript("fastpath", fastpathLua+"return 'slow'") // what comes after it in acquire takes longer
	for _, c := range []struct {
		what   string
		script *driver.Script
		before []string // commands
		call   string   // keys | arguments
		reply  string
		after  string // "": as before
	}{
		// Without guard and fences.
		{"free", acquire, nil, "L | mine 600000 600000", "1", is10m},
		{"held", acquire, []string{held5m}, "L | mine 600000 600000", "[theirs 5m 0]", ""},
		{"held without expiry", acquire, []string{"SET L theirs"}, "L | mine 600000 600000", "[theirs -1 0]", ""},
		{"one's own", acquire, []string{mine5m}, "L | mine 600000 600000", "0", ""},
		{"no lock", acquire, []string{"LPUSH L x"}, "L | mine 600000 600000", "WRONGTYPE", ""},
		{"may not DEL", acquire, []string{"ACL SETUSER default -del"}, "L | mine 600000 600000", "NOPERM", ""},
		{"may not INFO, which it does not need", acquire, []string{"ACL SETUSER default -info"}, "L | mine 600000 600000", "1", is10m},
		{"out of memory", acquire, []string{"CONFIG SET maxmemory 1"}, "L | mine 600000 600000", "OOM", ""},

		// With the guard: what fastpath.lua grants, and what it leaves to guard.lua.
		{"bootstrapped", acquire, []string{open10m}, "L G | mine 600000 600000", "1", is10m + " " + isOpen},
		{"bootstrapped, held", acquire, []string{open10m, held5m}, "L G | mine 600000 600000", "[theirs 5m 10m]", ""},
		{"bootstrapped, may not DEL", acquire, []string{open10m, "ACL SETUSER default -del"}, "L G | mine 600000 600000", "NOPERM", ""},
		{"lasted", acquire, []string{lasted}, "L G | mine 600000 600000", "1", is10m + " " + isLasted},
		{"waits", acquire, []string{waits1m}, "L G | mine 600000 600000", "[guard restarted 1m 10m]", ""},
		{"waits, held", acquire, []string{waits1m, held5m}, "L G | mine 600000 600000", "[theirs 5m 10m]", ""},
		{"a shorter longest TTL", acquire, []string{open10m}, "L G | mine 300000 300000", "10m", "L=mine/5m " + isOpen},
		{"a longer longest TTL", acquire, []string{open10m}, "L G | mine 600000 1200000", "1", is10m + " " + strings.Replace(isOpen, "600000", "1200000", 1)},
		{"a longer one that was not waited for", acquire, []string{lasted}, "L G | mine 600000 1200000", "[guard empty 9m 20m]", strings.Replace(isLasted, "600000", "1200000", 1)},
		{"a longer one, held", acquire, []string{open10m, held5m}, "L G | mine 600000 1200000", "[theirs 5m 20m]", is5m + " " + strings.Replace(isOpen, "600000", "1200000", 1)},
		{"a TTL that no lock can have", acquire, []string{open10m, "HSET G max 1000000000000000"}, "L G | mine 600000 600000", "1440m", is10m + " " + strings.Replace(isOpen, "600000", "1000000000000000", 1)},
		{"a longest TTL that is no number", acquire, []string{open10m, "HSET G max long"}, "L G | mine 600000 600000", "1", is10m + " " + isOpen},
		{"no guard", acquire, nil, "L G | mine 600000 600000", "[guard empty 10m 10m]", begun},
		{"no guard, held", acquire, []string{held5m}, "L G | mine 600000 600000", "[theirs 5m 10m]", is5m + " " + begun},
		{"no guard, held, out of memory", acquire, []string{held5m, "CONFIG SET maxmemory 1"}, "L G | mine 600000 600000", "[theirs 5m 10m]", ""},
		{"no guard, no lock", acquire, []string{"LPUSH L x"}, "L G | mine 600000 600000", "WRONGTYPE", ""},
		{"no run", acquire, []string{open10m, "HDEL G run", "HSET G seen other"}, "L G | mine 600000 600000", "[guard empty 10m 10m]", begun},
		{"another run", acquire, []string{open10m, "HSET G seen other run other"}, "L G | mine 600000 600000", "[guard restarted 10m 10m]", strings.Replace(begun, "empty", "restarted", 1)},
		{"another run, held", acquire, []string{another, held5m}, "L G | mine 600000 600000", "[theirs 5m 10m]", is5m + " " + strings.Replace(begun, "empty", "restarted", 1)},
		{"another id of the same run", acquire, []string{open10m, "HSET G seen other"}, "L G | mine 600000 600000", "1", is10m + " " + isOpen},
		{"no id", acquire, []string{open10m, "HDEL G seen"}, "L G | mine 600000 600000", "1", is10m + " " + isOpen},
		{"promoted once, and forgotten", acquire, []string{open10m, "HSET G seen other past once"}, "L G | mine 600000 600000", "1", is10m + " " + isOpen},
		{"no generation", acquire, []string{waits1m, "HDEL G gen", "HSET G seen other"}, "L G | mine 600000 600000", "[guard empty 10m 10m]", begun},
		{"no beginning", acquire, []string{open10m, "HDEL G born"}, "L G | mine 600000 600000", "[guard empty 10m 10m]", begun},
		{"a beginning that is no number", acquire, []string{open10m, "HSET G born soon"}, "L G | mine 600000 600000", "[guard empty 10m 10m]", begun},
		{"no reason", acquire, []string{waits1m, "HDEL G why"}, "L G | mine 600000 600000", "[guard empty 1m 10m]", ""},
		{"clock set back", acquire, []string{waits1m, "HSET G born NOW+60m"}, "L G | mine 600000 600000", "[guard restarted 10m 10m]", strings.Replace(waits, "NOW-9m", "NOW", 1)},
		{"guard is no hash", acquire, []string{"SET G x"}, "L G | mine 600000 600000", "WRONGTYPE", ""},
		{"may not INFO", acquire, []string{open10m, "ACL SETUSER default -info"}, "L G | mine 600000 600000", "GUARD", ""},
		{"may not INFO, held", acquire, []string{open10m, held5m, "ACL SETUSER default -info"}, "L G | mine 600000 600000", "[theirs 5m 0]", ""},

		{"no guard, free", fastpath, nil, "L | mine 600000 600000", "1", is10m},
		{"bootstrapped", fastpath, []string{open10m}, "L G | mine 600000 600000", "1", is10m + " " + isOpen},
		{"lasted", fastpath, []string{lasted}, "L G | mine 600000 600000", "1", is10m + " " + isLasted},
		{"held", fastpath, []string{open10m, held5m}, "L G | mine 600000 600000", "slow", ""},
		{"fenced", fastpath, []string{open10m}, "L G C | mine 600000 600000", "slow", ""},
		{"waits", fastpath, []string{waits1m}, "L G | mine 600000 600000", "slow", ""},
		{"a longer TTL", fastpath, []string{open10m}, "L G | mine 600000 1200000", "slow", ""},
		{"an empty guard", fastpath, nil, "L G | mine 600000 600000", "slow", ""},
		{"no id", fastpath, []string{open10m, "HDEL G seen"}, "L G | mine 600000 600000", "slow", ""},
		{"no beginning", fastpath, []string{open10m, "HDEL G born"}, "L G | mine 600000 600000", "slow", ""},
		{"guard is no hash", fastpath, []string{"SET G x"}, "L G | mine 600000 600000", "slow", ""},
		{"may not INFO", fastpath, []string{open10m, "ACL SETUSER default -info"}, "L G | mine 600000 600000", "slow", ""},

		// With fences.
		{"fenced, new", acquire, []string{open10m}, "L G C | mine 600000 600000", "[1 0 1 NOW old]", is10m + " " + isOpen},
		{"fenced, remembers", acquire, []string{open10m, "HSET C n 7 gen old"}, "L G C | mine 600000 300000", "[10m 7 1 NOW old]", is10m + " " + isOpen + " C{gen=old n=7}"},
		{"fenced, another generation", acquire, []string{open10m, "HSET C n 7 gen older"}, "L G C | mine 600000 600000", "[1 7 0 NOW old]", is10m + " " + isOpen + " C{gen=older n=7}"},
		{"fenced, not bootstrapped", acquire, []string{lasted}, "L G C | mine 600000 600000", "[1 0 0 NOW old]", is10m + " " + isLasted},
		{"fenced, waits", acquire, []string{waits1m, "HSET C n 7 gen old"}, "L G C | mine 600000 600000", "[guard restarted 1m 10m]", ""},
		{"fenced, held", acquire, []string{open10m, held5m}, "L G C | mine 600000 600000", "[theirs 5m 10m]", ""},
		{"greatest counter", acquire, []string{open10m, "HSET C n 9007199254740990 gen old"}, "L G C | mine 600000 600000", "[1 9007199254740990 1 NOW old]", is10m + " " + isOpen + " C{gen=old n=9007199254740990}"},
		{"counter too great", acquire, []string{open10m, "HSET C n 9007199254740991 gen old"}, "L G C | mine 600000 600000", "FENCE", ""},
		{"counter is no number", acquire, []string{open10m, "HSET C n 7x gen old"}, "L G C | mine 600000 600000", "FENCE", ""},
		{"counter below zero", acquire, []string{open10m, "HSET C n -7 gen old"}, "L G C | mine 600000 600000", "FENCE", ""},
		{"counter is no hash", acquire, []string{open10m, "SET C 7"}, "L G C | mine 600000 600000", "WRONGTYPE", ""},
		{"bad counter, no guard", acquire, []string{"SET C 7"}, "L G C | mine 600000 600000", "WRONGTYPE", ""},

		{"adopt", adopt, []string{"SET L theirs PX 300000"}, "L | theirs 600000 mine 600000 ch", "1", is10m + " ch:theirs"},
		{"adopt, may not PUBLISH", adopt, []string{held5m, "ACL SETUSER default -publish"}, "L | theirs 600000 mine 600000 ch", "1", is10m},
		{"adopt twice", adopt, []string{mine5m}, "L | theirs 600000 mine 600000 ch", "0", ""},
		{"adopt what is gone", adopt, nil, "L | theirs 600000 mine 600000 ch", "nil", ""},
		{"adopt what another has", adopt, []string{"SET L others PX 300000"}, "L | theirs 600000 mine 600000 ch", "others", ""},
		{"adopt no lock", adopt, []string{"LPUSH L x"}, "L | theirs 600000 mine 600000 ch", "WRONGTYPE", ""},
		{"adopt, may not DEL", adopt, []string{held5m, "ACL SETUSER default -del"}, "L | theirs 600000 mine 600000 ch", "NOPERM", ""},
		{"adopt, open", adopt, []string{held5m, open10m}, "L G | theirs 600000 mine 300000 ch", "10m", is10m + " " + isOpen + " ch:theirs"},
		{"adopt, waits", adopt, []string{held5m, waits1m}, "L G | theirs 600000 mine 300000 ch", "[guard restarted 1m 10m]", ""},
		{"adopt, fenced", adopt, []string{held5m, open10m, "HSET C n 7 gen old"}, "L G C | theirs 600000 mine 600000 ch", "[1 7 1 NOW old]", is10m + " " + isOpen + " C{gen=old n=7} ch:theirs"},

		{"extend", extend, []string{mine5m}, "L | mine 600000", "1", is10m},
		{"extend for less", extend, []string{"SET L mine PX 600000"}, "L | mine 300000", "1", ""},
		{"extend what is gone", extend, nil, "L | mine 600000", "nil", ""},
		{"extend another's", extend, []string{held5m}, "L | mine 600000", "theirs", ""},
		{"extend no lock", extend, []string{"LPUSH L x"}, "L | mine 600000", "WRONGTYPE", ""},
		{"extend, out of memory", extend, []string{mine5m, "CONFIG SET maxmemory 1"}, "L | mine 600000", "1", is10m},

		{"release", release, []string{mine5m}, "L | mine ch", "1", "ch:mine"},
		{"release silently", release, []string{mine5m}, "L | mine ''", "1", "nothing"},
		{"release, may not PUBLISH", release, []string{mine5m, "ACL SETUSER default -publish"}, "L | mine ch", "1", "nothing"},
		{"release, out of memory", release, []string{mine5m, "CONFIG SET maxmemory 1"}, "L | mine ch", "1", "ch:mine"},
		{"release what is gone", release, nil, "L | mine ch", "nil", ""},
		{"release another's", release, []string{held5m}, "L | mine ch", "theirs", ""},
		{"release no lock", release, []string{"LPUSH L x"}, "L | mine ch", "WRONGTYPE", ""},

		{"join", join, nil, "L | mine 600000 600000", "1", is10m},
		{"join another's", join, []string{held5m, open10m}, "L G | mine 600000 1200000", "theirs", ""},
		{"join one's own", join, []string{mine5m, open10m}, "L G | mine 600000 1200000", "mine", ""},
		{"join no lock", join, []string{"LPUSH L x"}, "L G | mine 600000 600000", "WRONGTYPE", ""},
		{"join, open", join, []string{open10m}, "L G | mine 600000 600000", "1", is10m + " " + isOpen},
		{"join, waits", join, []string{waits1m}, "L G | mine 600000 1200000", "1", is10m + " " + strings.Replace(waits, "600000", "1200000", 1)},
		{"join, no guard", join, nil, "L G | mine 600000 600000", "1", is10m + " " + begun},
		{"join, may not INFO", join, []string{open10m, "ACL SETUSER default -info"}, "L G | mine 600000 600000", "GUARD", ""},

		{"note", writeback, []string{mine5m, open10m}, "L G C | mine 8 old 600000 0", "1", "L=mine/5m " + isOpen + " C{gen=old n=8}"},
		{"note a greater one", writeback, []string{mine5m, open10m, "HSET C n 7 gen older"}, "L G C | mine 8 old 600000 0", "1", "L=mine/5m " + isOpen + " C{gen=old n=8}"},
		{"note a lesser one", writeback, []string{mine5m, open10m, "HSET C n 9 gen older"}, "L G C | mine 8 old 600000 0", "1", "L=mine/5m " + isOpen + " C{gen=old n=9}"},
		{"note a great one", writeback, []string{mine5m, open10m}, "L G C | mine 4503599627370497 old 600000 0", "1", "L=mine/5m " + isOpen + " C{gen=old n=4503599627370497}"},
		{"note while it waits", writeback, []string{mine5m, waits1m}, "L G C | mine 8 old 600000 0", "1", "L=mine/5m " + waits + " C{gen=old n=8}"},
		{"note what is gone", writeback, []string{open10m}, "L G C | mine 8 old 600000 0", "nil", ""},
		{"note what another has", writeback, []string{held5m, open10m}, "L G C | mine 8 old 600000 0", "theirs", ""},
		{"note no lock", writeback, []string{"LPUSH L x", open10m}, "L G C | mine 8 old 600000 0", "WRONGTYPE", ""},
		{"note in another generation", writeback, []string{mine5m, lasted}, "L G C | mine 8 older 600000 0", "[guard empty -1m 10m]", ""},
		{"note after a restart", writeback, []string{mine5m, another}, "L G C | mine 8 old 600000 0", "[guard restarted 10m 10m]", ""},
		{"note, may not INFO", writeback, []string{mine5m, open10m, "ACL SETUSER default -info"}, "L G C | mine 8 old 600000 0", "GUARD", ""},
		{"note until its expiry", writeback, []string{mine5m, open10m}, "L G C | mine US old 600000 1200000", "1", "L=mine/5m " + isOpen + " C{gen=old n=NOW}/20m"},
		{"note for longer than before", writeback, []string{mine5m, open10m, "HSET C n US-1m gen old", "PEXPIREAT C NOW+5m"}, "L G C | mine US old 600000 1200000", "1", "L=mine/5m " + isOpen + " C{gen=old n=NOW}/20m"},
		{"note what is ahead of the clock", writeback, []string{mine5m, open10m}, "L G C | mine US+60m old 600000 1200000", "1", "L=mine/5m " + isOpen + " C{gen=old n=NOW+60m}/80m"},
		{"note next to what is ahead of the clock", writeback, []string{mine5m, open10m, "HSET C n US+60m gen old"}, "L G C | mine US old 600000 1200000", "1", "L=mine/5m " + isOpen + " C{gen=old n=NOW+60m}/80m"},
		{"note for ever", writeback, []string{mine5m, open10m, "HSET C n 7 gen old", "PEXPIREAT C NOW+5m"}, "L G C | mine 8 old 600000 0", "1", "L=mine/5m " + isOpen + " C{gen=old n=8}"},
		{"note, may not PEXPIREAT", writeback, []string{mine5m, open10m, "HSET C n 7 gen old", "ACL SETUSER default -pexpireat"}, "L G C | mine 8 old 600000 1200000", "NOPERM", ""},
		{"note, may not PERSIST", writeback, []string{mine5m, open10m, "HSET C n 7 gen old", "ACL SETUSER default -persist"}, "L G C | mine 8 old 600000 0", "NOPERM", ""},
		{"noted by a quorum", writeback, []string{held5m, open10m}, "L G C | '' 8 old 600000 0", "1", is5m + " " + isOpen + " C{gen=old n=8}"},
		{"noted by a quorum, in another generation", writeback, []string{waits1m}, "L G C | '' 8 older 600000 0", "[guard restarted 1m 10m]", ""},

		{"check, open", check, []string{open10m}, "G | 600000", "1", ""},
		{"check, lasted", check, []string{lasted}, "G | 1200000", "[guard empty 9m 20m]", ""},
		{"check, waits", check, []string{waits1m}, "G | 300000", "[guard restarted 1m 10m]", ""},
		{"check, no guard", check, nil, "G | 600000", "[unasked empty 10m 10m]", ""},
		{"check, another run", check, []string{another}, "G | 600000", "[unasked restarted 10m 10m]", ""},
		{"check, may not INFO", check, []string{open10m, "ACL SETUSER default -info"}, "G | 600000", "GUARD", ""},
		{"check, no hash", check, []string{"SET G x"}, "G | 600000", "WRONGTYPE", ""},

		{"bootstrap", bootstrap, nil, "G |", "1", "G{born=0 gen=RUN:NOW max=0 new=1 past= run=RUN seen=ID why=empty}"},
		{"bootstrap what votes", bootstrap, []string{lasted}, "G |", "0", ""},
		{"bootstrap twice", bootstrap, []string{open10m}, "G |", "0", ""},
		{"bootstrap what waits", bootstrap, []string{waits1m}, "G |", "1", "G{born=0 gen=RUN:NOW max=600000 new=1 past= run=RUN seen=ID why=restarted}"},
		{"bootstrap another run", bootstrap, []string{another}, "G |", "1", "G{born=0 gen=RUN:NOW max=600000 new=1 past= run=RUN seen=ID why=restarted}"},
		{"bootstrap, may not INFO", bootstrap, []string{"ACL SETUSER default -info"}, "G |", "GUARD", ""},

		{"inspect", inspect, []string{held5m}, "L |", "[theirs 5m 0]", ""},
		{"inspect what is free", inspect, nil, "L |", "[nil -2 0]", ""},
		{"inspect without expiry", inspect, []string{"SET L theirs", "HSET C n 7"}, "L C |", "[theirs -1 7]", ""},
		{"inspect without counter", inspect, nil, "L C |", "[nil -2 0]", ""},
		{"inspect no lock", inspect, []string{"LPUSH L x"}, "L |", "WRONGTYPE", ""},

		// From here on the server has been promoted.
		{"promoted", acquire, []string{open10m, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"}, "L G | mine 600000 600000", "[guard restarted 10m 10m]", "G{born=NOW gen=RUN:NOW max=600000 new=0 past=ID2 run=RUN seen=ID why=restarted}"},
		{"promoted long ago", acquire, []string{open10m, "HSET G past ID2"}, "L G | mine 600000 600000", "1", is10m + " " + strings.Replace(isOpen, "past=", "past=ID2", 1)},
		{"promoted long ago, another id", acquire, []string{open10m, "HSET G past ID2 seen other"}, "L G | mine 600000 600000", "1", is10m + " " + strings.Replace(isOpen, "past=", "past=ID2", 1)},
		{"promoted long ago, a longer TTL", acquire, []string{open10m, "HSET G past ID2"}, "L G | mine 600000 1200000", "1", is10m + " G{born=0 gen=old max=1200000 new=1 past=ID2 run=RUN seen=ID why=empty}"},
		{"promoted long ago", check, []string{open10m, "HSET G past ID2"}, "G | 600000", "1", ""},
		{"promoted long ago", bootstrap, []string{open10m, "HSET G past ID2"}, "G |", "0", ""},
		{"no past, a longer TTL", acquire, []string{open10m, "HDEL G past"}, "L G | mine 600000 1200000", "1", is10m + " " + strings.Replace(isOpen, "600000", "1200000", 1)},
		{"promoted, held", acquire, []string{open10m, held5m, "HSET G seen other"}, "L G | mine 600000 600000", "[theirs 5m 10m]", is5m + " G{born=NOW gen=RUN:NOW max=600000 new=0 past=ID2 run=RUN seen=ID why=restarted}"},
		{"a replica that can be written", acquire, []string{open10m, "HSET G past ID2", "CONFIG SET replica-read-only no", "REPLICAOF 127.0.0.1 1"}, "L G | mine 600000 600000", "READONLY", ""},
	} {
		t.Run(c.script.Name()+"/"+c.what, func(t *testing.T) {
			if c.reply == "NOPERM" && !checksACL {
				t.Skip("NOT PROVEN: redis.acl_check_cmd is of Redis 7.0")
			}
			sv := newScripted(t, s)
			heard := sv.listen("ch")
			defer heard.Close()
			var last []string // because they are about the script alone
			for _, line := range c.before {
				if strings.HasPrefix(line, "ACL") || strings.HasPrefix(line, "CONFIG") {
					last = append(last, line)
				} else {
					sv.do(line)
				}
			}
			before := sv.dump()
			for _, line := range last {
				sv.do(line)
			}
			got := sv.eval(n, c.script, c.call)
			sv.allow()
			if got != c.reply {
				t.Errorf("the reply is %s, want %s", got, c.reply)
			}
			want := cmp.Or(c.after, before)
			if got := strings.TrimSpace(sv.dump() + heard.message()); got != strings.TrimPrefix(want, "nothing") {
				t.Errorf("afterwards there is\n%s, want\n%s", got, want)
			}
		})
	}
}

// changed is what makes a script see another server: with another TIME, or without INFO.
func changed(call, command, reply string) string {
	return fmt.Sprintf(`local server = redis
local redis = setmetatable({%s = function(command, ...)
  if command == '%s' then return %s end
  return server.%[1]s(command, ...)
end}, {__index = server})
`, call, command, reply)
}

// TestOpens: a server votes from the very millisecond in which the longest TTL has passed. Its clock shows
// the same time always.
func TestOpens(t *testing.T) {
	s, n := realServer(t, "the millisecond in which the guard opens")
	for source, c := range map[string]struct{ call, votes, waits string }{
		guardLua + voteLua + acquireLua:               {"L G | mine 600000 600000", "1", "[guard empty 1 10m]"},
		fastpathLua + guardLua + voteLua + acquireLua: {"L G | mine 600000 600000", "1", "[guard empty 1 10m]"},
		fastpathLua + "return 'slow'":                 {"L G | mine 600000 600000", "1", "slow"},
		guardLua + checkLua:                           {"G | 600000", "1", "[guard empty 1 10m]"},
		guardLua + bootstrapLua:                       {"G |", "0", "1"},
	} {
		for ms, want := range map[int]string{0: c.votes, 1: c.waits} {
			sv := newScripted(t, s)
			sv.do(lasted)
			sv.do(fmt.Sprint("HSET G born ", 2_000_000_001-600_000+ms))
			if got := sv.eval(n, driver.NewScript("opens", changed("call", "TIME", "{'2000000', '1999'}")+source), c.call); got != want {
				t.Errorf("%d ms before the server votes the reply is %s, want %s, of\n%s", ms, got, want, source)
			}
		}
	}
}

// TestNoInfo: the guard of a server that does not support INFO knows that it is new, and nothing more.
func TestNoInfo(t *testing.T) {
	s, n := realServer(t, "what the guard does without INFO")
	script := driver.NewScript("noinfo", changed("pcall", "INFO", "{err = 'ERR INFO is not supported'}")+guardLua+checkLua)
	for before, want := range map[string]string{
		"DEL G": "[unasked empty 10m 10m]",
		"HSET G seen none run '' past '' gen old born 0 max 600000 new 1 why empty": "1",
	} {
		sv := newScripted(t, s)
		sv.do(before)
		if got := sv.eval(n, script, "G | 600000"); got != want {
			t.Errorf("check.lua without INFO, after %q, replies %s, want %s", before, got, want)
		}
	}
}

// realServer is not an embedded one, which does not say who it is.
func realServer(t *testing.T, notProven string) (*redistest.Server, driver.Node) {
	t.Helper()
	s := redistest.Own(t, redistest.Config{})
	if strings.Contains(s.Version(), "not known") {
		t.Skip("NOT PROVEN: " + notProven)
	}
	return s, locktest.NodeOn(t, s.Pool())
}

func version(t *testing.T, s *redistest.Server) string {
	_, after, _ := strings.Cut(string(redistest.Do(t, s, "INFO", "server").([]byte)), "redis_version:")
	return after
}

// scripted is the server of a row.
type scripted struct {
	t               *testing.T
	s               *redistest.Server
	run, id, before string // its run_id, master_replid and master_replid2
	now             int64  // its time when the row began, in ms
}

var keyNames = map[string]string{"L": "lock:{scripts}", "G": GuardKey, "C": "lock:{scripts}:fence", "''": ""}

// allow takes back what a row forbids.
func (s *scripted) allow() {
	s.do("ACL SETUSER default +@all")
	s.do("CONFIG SET maxmemory 0")
}

func newScripted(t *testing.T, server *redistest.Server) *scripted {
	s := &scripted{t: t, s: server}
	s.allow()
	s.do("REPLICAOF NO ONE")
	s.do("CONFIG SET replica-read-only yes")
	s.do("FLUSHALL")
	s.look()
	return s
}

// eval calls a script: keys | arguments.
func (s *scripted) eval(n driver.Node, script *driver.Script, call string) string {
	keys, args, _ := strings.Cut(call, "|")
	return s.show(n.Eval(s.t.Context(), time.Now().Add(time.Minute), script, s.words(keys), anys(s.words(args))...))
}

// look notes who the server is.
func (s *scripted) look() {
	info := string(redistest.Do(s.t, s.s, "INFO").([]byte))
	field := func(name string) string { return regexp.MustCompile(name + `:(\w+)`).FindStringSubmatch(info)[1] }
	s.run, s.id, s.before = field("run_id"), field("master_replid"), strings.TrimLeft(field("master_replid2"), "0")
	now, err := redis.Int64s(redistest.Do(s.t, s.s, "TIME"), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.now = now[0]*1000 + now[1]/1000
}

var minutes = regexp.MustCompile(`^(NOW|US)(?:([+-]\d+)m)?$`)

func (s *scripted) words(text string) []string {
	words := strings.Fields(text)
	for i, w := range words {
		if key, ok := keyNames[w]; ok {
			words[i] = key
		} else if m := minutes.FindStringSubmatch(w); m != nil {
			n, _ := strconv.ParseInt(m[2], 10, 64) // or 0
			if words[i] = fmt.Sprint(s.now + n*60_000); m[1] == "US" {
				words[i] += "000"
			}
		}
	}
	for i, w := range words {
		words[i] = cmp.Or(map[string]string{"RUN": s.run, "ID": s.id, "ID2": s.before}[w], w)
	}
	return words
}

func anys(words []string) (as []any) {
	for _, w := range words {
		as = append(as, w)
	}
	return as
}

func (s *scripted) do(line string) any {
	words := s.words(line)
	reply := redistest.Do(s.t, s.s, words[0], anys(words[1:])...)
	if words[0] == "REPLICAOF" {
		now := s.now
		s.look()
		s.now = now
	}
	return reply
}

// ms shows a number of milliseconds: 5m for all that rounds up to it.
func ms(n int64) string {
	switch {
	case n > 1000:
		return fmt.Sprintf("%dm", (n+59_999)/60_000)
	case n < -1000:
		return fmt.Sprintf("%dm", n/60_000)
	}
	return fmt.Sprint(n)
}

// at shows a moment, in ms, as the rows have it.
func (s *scripted) at(n int64) string {
	switch d := n - s.now; {
	case d >= 0 && d < 60_000:
		return "NOW"
	case d < 0 && d > -3_600_000:
		return fmt.Sprintf("NOW%dm", d/60_000)
	case d > 0 && d <= 3_600_000:
		return fmt.Sprintf("NOW+%dm", d/60_000)
	}
	return fmt.Sprint(n)
}

func (s *scripted) show(reply any, err error) string {
	if err != nil {
		var e *strategy.ServerError
		if !errors.As(err, &e) || e.Err == nil {
			return err.Error()
		}
		word, _, _ := strings.Cut(strings.TrimPrefix(e.Err.Error(), "ERR "), " ")
		if word != "GUARD" && rediskit.Forbidden(e.Err.Error()) { // the guard says so itself, with the server's words in its own
			return "NOPERM"
		}
		return word
	}
	switch r := reply.(type) {
	case []any:
		var all []string
		for i, x := range r {
			if n, ok := x.(int64); ok && len(r) == 5 && i > 0 { // numbers, and a time in µs
				if all = append(all, fmt.Sprint(n)); i == 3 {
					all[i] = s.at(n / 1000)
				}
				continue
			}
			all = append(all, s.show(x, nil))
		}
		return "[" + strings.Join(all, " ") + "]"
	case []byte:
		return string(r)
	case int64:
		return ms(r)
	}
	return "nil"
}

// dump is all that is on the server.
func (s *scripted) dump() string {
	var all []string
	for _, name := range []string{"L", "G", "C"} {
		key := keyNames[name]
		switch kind := fmt.Sprint(redistest.Do(s.t, s.s, "TYPE", key)); kind {
		case "none":
		case "string":
			ttl := redistest.Do(s.t, s.s, "PTTL", key).(int64)
			all = append(all, fmt.Sprintf("%s=%s/%s", name, redistest.Do(s.t, s.s, "GET", key), ms(ttl)))
		case "hash":
			fields, err := redis.StringMap(redistest.Do(s.t, s.s, "HGETALL", key), nil)
			if err != nil {
				s.t.Fatal(err)
			}
			var texts []string
			for f, v := range fields {
				for text, is := range map[string]string{"RUN": s.run, "ID": s.id, "ID2": s.before} {
					if v == is && is != "" {
						v = text
					}
				}
				if run, us, ok := strings.Cut(v, ":"); ok && f == "gen" && run == s.run {
					n, _ := strconv.ParseInt(us, 10, 64)
					v = "RUN:" + s.at(n/1000)
				}
				if n, err := strconv.ParseInt(v, 10, 64); err == nil && f == "born" {
					v = s.at(n)
				} else if err == nil && f == "n" && n/1_000_000 >= s.now/1000-3600 && n/1_000_000 <= s.now/1000+3600 {
					v = s.at(n / 1000)
				}
				texts = append(texts, f+"="+v)
			}
			slices.Sort(texts)
			text := name + "{" + strings.Join(texts, " ") + "}"
			if ttl := redistest.Do(s.t, s.s, "PTTL", key).(int64); ttl != -1 {
				text += "/" + ms(ttl)
			}
			all = append(all, text)
		default:
			all = append(all, name+" is a "+kind)
		}
	}
	if n := redistest.Do(s.t, s.s, "DBSIZE"); n != int64(len(all)) {
		all = append(all, fmt.Sprint(n, " keys"))
	}
	return strings.Join(all, " ")
}

// An ear hears the messages of a channel.
type ear struct {
	redis.PubSubConn
	s *scripted
}

func (s *scripted) listen(channel string) ear {
	e := ear{redis.PubSubConn{Conn: s.s.Pool().Get()}, s}
	if err := e.Subscribe(channel); err != nil {
		s.t.Fatal(err)
	}
	e.Receive()
	return e
}

// message is what was published; a message of one's own says where they end.
func (e ear) message() (all string) {
	redistest.Do(e.s.t, e.s.s, "PUBLISH", "ch", "end")
	for {
		switch m := e.ReceiveWithTimeout(time.Minute).(type) {
		case redis.Message:
			if string(m.Data) == "end" {
				return all
			}
			all += " " + m.Channel + ":" + string(m.Data)
		case error:
			e.s.t.Fatal(m)
		}
	}
}
