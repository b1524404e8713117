package simulate_test

// Slips in the sources, as a good engineer makes them: go test -overlay puts each in, and simulations find it.

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A slip is a piece of a source file that stands there once, and another in its place.
type slip struct {
	what     string
	finds    string // what tells: a property, or the words of a failure
	strategy string // by which it is played
	file     string // of the module
	old, new string
}

// TestSlips: each slip is found by the first seeds of a strategy.
func TestSlips(t *testing.T) {
	if !*slipsFlag {
		t.Skip("it takes minutes: -slips plays it")
	}
	for _, s := range slips {
		t.Run(strings.ReplaceAll(s.what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			said := s.play(t)
			at := regexp.MustCompile(`--- FAIL: TestSimulate/` + s.strategy + `/(\d+)`).FindStringSubmatch(said)
			found := regexp.MustCompile(`VIOLATED (\w+)|(events)\b.*: event|(have not ended)|(left behind)|(panic|deadlock)`).FindStringSubmatch(said)
			if found == nil || at == nil {
				t.Fatalf("no seed has found it:\n%s", said)
			}
			by := strings.Join(found[1:], "")
			if seed, _ := strconv.Atoi(at[1]); by != s.finds {
				t.Errorf("seed %d: %s; want %s", seed, by, s.finds)
			} else {
				t.Logf("seed %d: %s", seed, by)
			}
		})
	}
}

// play plays a strategy with the slip, and returns what that says.
func (s slip) play(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	file, dir := filepath.Join(root, s.file), t.TempDir()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), s.old); n != 1 {
		t.Fatalf("the code has moved: %q stands in %s %d times, want once", s.old, s.file, n)
	}
	changed, overlay, binary := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "simulate.test")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{changed: strings.Replace(string(source), s.old, s.new, 1), overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if said, err := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	child := exec.Command(binary, "-test.run=^TestSimulate$", "-test.v", "-only="+s.strategy, "-seed=1", "-rounds=10", "-shrink=0s")
	child.Env = append(os.Environ(), "GOMAXPROCS=1") // one seed after the other
	said, _ := child.CombinedOutput()                // it is to fail
	return string(said)
}

var slips = []slip{
	// Those of an earlier hunt that no test noticed then.
	{
		"a successor keeps its short TTL", "HonestLoss", "fairqueue", "engine/lease.go",
		"	case l.unconfirmed:\n		return time.Now().Add(shortHold)\n", "",
	},
	{
		"a lease given to a waiter that leaves is kept", "Prompt", "fairqueue", "engine/waiter.go",
		"		w.ln.later(l.giveBack) // a second time it does nothing\n", "",
	},
	{
		"a direct grant counts from a clock that was set forward", "Deadline", "fairqueue", "engine/entry.go",
		" && !g.Start.After(d.at)", "",
	},
	{
		"the offset of a pass is taken from its answer", "Deadline", "fairqueue", "engine/handover.go",
		"e.placed(start, g.ServerTime)", "e.placed(time.Now(), g.ServerTime)",
	},
	{
		"a head asks with the entry of other options", "HonestLoss", "fairqueue", "engine/entry.go",
		"return e.c == w.c && e.owner", "return e.owner",
	},
	{
		"servers keep a lock past its maximum hold", "Prompt", "luascript", "engine/lease.go",
		"(l.partial || l.outlasted())", "l.partial",
	},
	{
		"a grant of its own hands on fences that nobody reserved", "FenceOrder", "fairqueue", "fairqueue/acquire.lua",
		"if redis.call('PEXPIRE', lock, ttl) == 1 then return fence end", "if redis.call('PEXPIRE', lock, ttl) == 1 then return {fence, reserve} end",
	},
	{
		"an attempt whose ctx has ended leaves its votes", "Prompt", "redlock", "redlock/redlock.go",
		"p.deleteAll(context.WithoutCancel(ctx), c,", "p.deleteAll(ctx, c,",
	},
	{
		"a vote whose reply was lost outlives its lease", "Prompt", "redlock", "engine/lease.go",
		"(l.partial || l.outlasted())", "l.outlasted()",
	},

	// Others of their kinds: one of two twins, nobody undoes, a time from the wrong moment, an answer misread.
	{
		"an acquire that got no answer is not undone", "Prompt", "luascript", "engine/lease.go",
		"	claim.Grant.State = g.State\n	c.undo(claim)\n", "	claim.Grant.State = g.State\n",
	},
	{
		"a release that got no answer is not repeated", "Prompt", "luascript", "engine/lease.go",
		"if out.Partial || err != nil && !errors.Is(err, strategy.ErrLost) {", "if out.Partial {",
	},
	{
		"a renewal that comes too late is not undone", "Prompt", "luascript", "engine/renewal.go",
		"if l.isLost() && (got == done || got == unknown) {", "if l.isLost() && got == unknown {",
	},
	{
		"a renewal counts from its answer", "Deadline", "luascript", "engine/renewal.go",
		"l.deadline = deadlineOf(l.take(g, start))", "l.deadline = deadlineOf(l.take(g, time.Now()))",
	},
	{
		"an acquire counts from its answer", "Deadline", "ifeq", "engine/attempt.go",
		"l := newLease(t.c, c, g, start)", "l := newLease(t.c, c, g, end)",
	},
	{
		"a hand-over begins the TTL again", "Deadline", "luascript", "engine/handover.go",
		"next := newLease(l.c, c, c.Grant, c.Grant.Start)", "next := newLease(l.c, c, c.Grant, time.Now())\n	next.deadline = time.Now().Add(l.c.o.TTL)",
	},
	{
		"a hand-over keeps the fence", "FenceOrder", "luascript", "engine/handover.go",
		"		c.Grant.Fence++\n", "",
	},
	{
		"a lease that is lost does not unblock the line", "Fair", "luascript", "engine/lease.go",
		"		if lost {\n			l.unblock()\n		}\n", "",
	},
	{
		"a lease that is detached does not unblock the line", "Fair", "luascript", "engine/lease.go",
		"	l.unblock()\n	l.ended(context.Background(), strategy.EventReleased, nil)\n", "	l.ended(context.Background(), strategy.EventReleased, nil)\n",
	},
	{
		"the line does not subscribe again where it was passed over", "Prompt", "fairqueue", "engine/entry.go",
		"				ln.unsubscribe()\n			}\n			e.claim.Line", "			}\n			e.claim.Line",
	},
	{
		"a pass that got no answer does not undo the successor", "Prompt", "fairqueue", "engine/handover.go",
		"	if ln.on(ends); got == unknown {\n		ln.later(func() { e.c.undo(e.claim) })\n	}\n", "	ln.on(ends)\n",
	},
	{
		"a pass that got no answer does not undo the holder", "Prompt", "fairqueue", "engine/handover.go",
		"		if outcomeOf(g, err) == unknown {\n			l.c.undo(c)\n		}\n", "",
	},
	{
		"the drift is forgotten", "Deadline", "luascript", "engine/lease.go",
		"g.Start.Add(g.TTL - driver.Drift(g.TTL)) }", "g.Start.Add(g.TTL + 5*driver.Drift(g.TTL)) }",
	},
	{
		"a loss found by a release is not told apart", "events", "luascript", "engine/renewal.go",
		"	if l.end == nil && !now.Before(l.deadline) {\n		after = l.lapse()\n	}\n	var kind", "	var kind",
	},
	{
		"a queue is served from its end", "Fair", "fairqueue", "internal/algorithm/queue/enqueue.lua",
		"redis.pcall('RPUSH', queue, entry)", "redis.pcall('LPUSH', queue, entry)",
	},
	{
		"a release passes over the queue", "Fair", "fairqueue", "fairqueue/release.lua",
		"  if not grant_next(lock, queue, counter, tonumber(ARGV[2])) then\n", "  do\n",
	},
	{
		"a renewal shortens", "Ownership", "luascript", "luascript/extend.lua",
		"math.max(redis.call('PTTL', lock), ttl)", "ttl",
	},
	{
		"a release is not announced", "Prompt", "luascript", "luascript/release.lua",
		"redis.pcall('PUBLISH', ARGV[2], ARGV[1]) -- a hint", "-- a hint",
	},
	{
		"an adoption keeps the old token", "Ownership", "luascript", "luascript/adopt.lua",
		"redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])", "redis.call('PEXPIRE', KEYS[1], ARGV[3])",
	},
	{
		"a fence is taken from the clock alone", "FenceOrder", "luascript", "internal/algorithm/fences/numbers.lua",
		"local first = math.max(n + 1, now)", "local first = now",
	},
	{
		"a permit that lapsed is not dropped", "DeadlockFree", "semaphore-3", "internal/algorithm/holderset/holders.lua",
		"  redis.call('ZREMRANGEBYSCORE', lock, '-inf', '(' .. s.now)\n", "",
	},
	{
		"what a release leaves is not offered to the next in the queue", "Prompt", "semaphore-3", "semaphore/permits.lua",
		"      able = not listens or serve_entry(s, channel, ms, permits, token)\n", "      able = (not listens or serve_entry(s, channel, ms, permits, token)) and false\n",
	},
	{
		"readers come in although a writer waits", "Fair", "rwlock-readers", "rwlock/admit.lua",
		"    or mode == 'read' and holds == 'read' and not first_waiting(s, 'write')\n", "    or mode == 'read' and holds == 'read'\n",
	},
	{
		"a hold of one owner lasts as long as its last", "Deadline", "reentrant", "reentrant/holds.lua",
		"  ends = math.max(ends, lock.holds[token] or 0)\n", "",
	},
	{
		"a release of one hold frees the lock of its owner", "Exclusion", "reentrant", "reentrant/release.lua",
		"if lock.count > 1 then", "if lock.count > 9 then",
	},
	{
		"a vote counts for as long as it took, too", "Exclusion", "redlock-3", "redlock/redlock.go",
		"validity := c.TTL - elapsed - driver.Drift(c.TTL)", "validity := c.TTL - driver.Drift(c.TTL)",
	},
	{
		"an extension counts nodes that do not answer", "Exclusion", "redlock-3", "redlock/redlock.go",
		"	if count.yes < p.quorum {\n		// A minority may have extended it.", "	if count.yes < 1 {\n		// A minority may have extended it.",
	},
	{
		"a server that was restarted votes at once", "Exclusion", "redlock-3", "redlock/vote.lua",
		"  if g.wait > 0 then\n", "  if false then\n",
	},
	{
		"a fence counts before a quorum has noted it", "FenceOrder", "redlock-fenced", "redlock/fence.go",
		"	if noted.yes < p.quorum {\n", "	if noted.yes < 1 {\n",
	},
	{
		"a stamp that has passed is not looked at again", "Exclusion", "setnxgetset-watch", "setnxgetset/setnxgetset.go",
		"		if !seen.absent && !seen.lapsed() {\n			return command{}, seen.held(c)\n		}\n		mine", "		mine",
	},
}
