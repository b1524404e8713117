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
	child := exec.Command(binary, "-test.run=^TestSimulate$", "-test.v", "-only="+s.strategy, "-seed=1", "-rounds=8", "-shrink=0s")
	child.Env = append(os.Environ(), "GOMAXPROCS=1") // one seed after the other
	said, _ := child.CombinedOutput()                // it is to fail
	return string(said)
}

var slips = []slip{
	{
		"a successor keeps its short TTL", "HonestLoss", "fairqueue", "engine/lease.go",
		"	case l.unconfirmed:\n		return time.Now().Add(shortHold)\n", "",
	},
	{
		"the offset of a pass is taken from its answer", "Deadline", "fairqueue", "engine/handover.go",
		"e.placed(start, g.ServerTime)", "e.placed(time.Now(), g.ServerTime)",
	},
	{
		"a grant of its own hands on fences that nobody reserved", "FenceOrder", "fairqueue", "fairqueue/acquire.lua",
		"if redis.call('PEXPIRE', lock, ttl) == 1 then return fence end", "if redis.call('PEXPIRE', lock, ttl) == 1 then return {fence, reserve} end",
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
		"a stamp that has passed is not looked at again", "Exclusion", "setnxgetset-watch", "setnxgetset/setnxgetset.go",
		"		if !seen.absent && !seen.lapsed() {\n			return command{}, seen.held(c)\n		}\n		mine", "		mine",
	},
}
