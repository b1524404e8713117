package play

// Tests that the ready-made scenes end as they say, that a play has no chance in it, and what moves do.

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/lab/diagram"
)

func plain(_ diagram.Style, s string) string { return s }

// played is how a play stands after those moves.
func played(t *testing.T, algorithm, moves string) (st State, picture string, broken []string) {
	t.Helper()
	a, err := Find(algorithm)
	if err != nil {
		t.Fatal(err)
	}
	Play(t, a, movesOf(moves), func(s *Stage) { st, picture = s.State(), s.Diagram(110, plain) })
	for _, v := range st.Violations {
		broken = append(broken, v.Promise)
	}
	for _, m := range st.Moves {
		if m.Error != "" {
			t.Errorf("%s: the move %s: %s", algorithm, m.Text, m.Error)
		}
	}
	return st, picture, broken
}

// TestScenes: each scene breaks the promise that it says, and no other, with its last move.
func TestScenes(t *testing.T) {
	for _, s := range Scenes() {
		t.Run(s.ID, func(t *testing.T) {
			_, picture, broken := played(t, s.Algorithm, s.Moves)
			t.Log("\n" + picture)
			var want []string
			if s.Promise != "" {
				want = []string{s.Promise}
			}
			if !reflect.DeepEqual(broken, want) {
				t.Errorf("it has broken %q, want %q", broken, want)
			}
			if s.ID == "fence" && !strings.Contains(picture, "The fence stops A's late write") {
				t.Error("no fence has stopped the write")
			}
			i := strings.LastIndex(s.Moves, ",")
			if _, _, broken := played(t, s.Algorithm, s.Moves[:i]); broken != nil {
				t.Errorf("before the last move it has broken %q", broken)
			}
		})
	}
}

// TestRemedies: what a scene recommends keeps the promise.
func TestRemedies(t *testing.T) {
	for _, s := range Scenes() {
		if s.Remedy.With == "" {
			continue
		}
		if _, picture, broken := played(t, s.Remedy.Algorithm, s.Remedy.Moves); broken != nil {
			t.Errorf("%s with %s: it has broken %q\n%s", s.ID, s.Remedy.With, broken, picture)
		}
	}
}

func movesOf(moves string) func() (string, bool) {
	rest := strings.Split(moves, ",")
	return func() (move string, ok bool) {
		if len(rest) == 0 {
			return "", false
		}
		move, rest = rest[0], rest[1:]
		return move, true
	}
}

// TestSame: the same moves give the same history.
func TestSame(t *testing.T) {
	for _, s := range Scenes() {
		if s.ID == "watchdog" { // the engine draws when it renews; the page lends it numbers that are always the same
			continue
		}
		st, picture, _ := played(t, s.Algorithm, s.Moves)
		again, other, _ := played(t, s.Algorithm, s.Moves)
		if picture != other || !reflect.DeepEqual(st, again) {
			t.Errorf("%s: the history is\n%s%v, and then\n%s%v", s.ID, picture, st, other, again)
		}
	}
}

// TestLadder: with every algorithm one of three gets the lock, releases it, and another gets it, also after the holder
// has died.
func TestLadder(t *testing.T) {
	for _, a := range Algorithms() {
		st, picture, broken := played(t, a.ID, "a.try,b.try,c.try,a.write,a.release,b.try,b.renew,b.kill,+ttl,c.try,c.write")
		if broken != nil || len(st.Clients[0].Holds) != 0 || !st.Clients[1].Dead || len(st.Clients[2].Holds) != 1 || st.Database.Value != "C:2" {
			t.Errorf("%s: it has broken %q, and stands at %+v\n%s", a.ID, broken, st, picture)
		} else if fenced := st.Clients[2].Holds[0].Fence != ""; fenced != a.Fenced {
			t.Errorf("%s: its hold has a fence: %v, want %v", a.ID, fenced, a.Fenced)
		}
		st, picture, broken = played(t, a.ID, "a.try,b.acquire,+2s,a.release,+5s")
		if broken != nil || len(st.Clients[1].Holds) != 1 {
			t.Errorf("%s: B has waited, and stands at %+v\n%s", a.ID, st.Clients[1], picture)
		}
	}
}

// TestMoves: what moves say that cannot be made, and that they leave the play as it was.
func TestMoves(t *testing.T) {
	a, err := Find("fairqueue")
	if err != nil {
		t.Fatal(err)
	}
	var last *Stage
	Play(t, a, movesOf("x.try,a.fly,a.release,a.resume,a.pass,m7.pass,r1.fly,r1.up,r1.clock5s,+5,+11m,a.clock+2h,,a.keepalive"), func(s *Stage) { last = s })
	if len(last.events) != 0 {
		t.Errorf("something has happened: %v", last.events)
	}
	for _, m := range last.moves {
		if m.Error == "" {
			t.Errorf("the move %q was made", m.Text)
		}
	}
}

// TestMessages: by hand, a request and its reply arrive one by one; lost, the caller does not know; a request
// that was given up may arrive late.
func TestMessages(t *testing.T) {
	st, _, _ := played(t, "luascript", "a.step,a.try")
	if w := st.Clients[0].Wire; len(w) != 1 || !w[0].First || len(st.Servers[0].Keys) != 0 {
		t.Fatalf("after a.try: %+v", st)
	}
	st, _, _ = played(t, "luascript", "a.step,a.try,a.pass")
	if c := st.Clients[0]; len(c.Wire) != 1 || len(c.Holds) != 0 || len(st.Servers[0].Keys) == 0 {
		t.Fatalf("after the request has arrived: %+v", st)
	}
	st, _, _ = played(t, "luascript", "a.step,a.try,a.pass,a.pass")
	if c := st.Clients[0]; len(c.Wire) != 0 || len(c.Holds) != 1 {
		t.Fatalf("after the reply has arrived: %+v", st)
	}
	for _, moves := range []string{"a.step,a.try,a.lose,+1s", "a.step,a.try,a.pass,a.lose,+1s", "a.step,a.try,+1s"} {
		st, picture, _ := played(t, "luascript", moves)
		if c := st.Clients[0]; len(c.Holds) != 0 || !strings.Contains(c.Last, "outcome unknown") {
			t.Errorf("after %s: %+v\n%s", moves, c, picture)
		}
	}
	st, picture, _ := played(t, "redlock", "a.step,a.try,a.all,a.all")
	if c := st.Clients[0]; len(c.Holds) != 1 || strings.Count(picture, "on the wire") != 1 {
		t.Errorf("after all has arrived: %+v\n%s", c, picture)
	}
	st, picture, _ = played(t, "luascript", "a.step,a.try,+1s,a.pass")
	if !strings.Contains(picture, "nobody waits for it") {
		t.Errorf("a request that was given up arrives: %+v\n%s", st, picture)
	}
}

// TestServers: a server that is down, is up again, or has a clock of its own.
func TestServers(t *testing.T) {
	st, picture, _ := played(t, "luascript", "a.try,r1.down,b.try,r1.up,b.try")
	if c := st.Clients[1]; !strings.Contains(c.Last, "held") || !strings.Contains(picture, "connection refused") {
		t.Errorf("B stands at %+v\n%s", c, picture)
	}
	st, _, _ = played(t, "luascript", "a.try,r1.clock-5s,+6s")
	if ttl := st.Servers[0].Keys[0].TTL; ttl != (9 * time.Second).Milliseconds() {
		t.Errorf("the clock was set back by 5 s, and 6 s have gone by: %d ms are left", ttl)
	}
	_, picture, broken := played(t, "reentrant", "a.try,a.try,a.release,b.try,a.release,b.try")
	if broken != nil || !strings.Contains(picture, "A has entered again") {
		t.Errorf("it breaks %q\n%s", broken, picture)
	}
}

// TestRandom: whatever is done to clients and messages in the middle of a scene, an algorithm with fences breaks no promise
// on a server that keeps its data and its time; and no play comes to a stop. The same plays convict the others.
func TestRandom(t *testing.T) {
	does := strings.Fields("try acquire acquire release write write renew pause resume step auto pass pass pass lose clock+11s")
	others := strings.Fields("+500ms +3s +ttl r1.down r1.up")
	convicted := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 0))
		sound := seed%3 > 0
		ids := []string{"setnxgetset", "setnxpx-blind", "setnxpx", "luascript-unfenced"}
		if sound {
			ids = []string{"luascript", "fairqueue", "reentrant", "redlock-fences"}
		}
		a, err := Find(ids[r.IntN(4)])
		if err != nil {
			t.Fatal(err)
		}
		id := []string{"blind", "look", "clock", "late"}[r.IntN(4)]
		scene := Scenes()[slices.IndexFunc(Scenes(), func(s Scene) bool { return s.ID == id })]
		moves := strings.Split(scene.Moves, ",")
		for range r.IntN(12) {
			move := fmt.Sprintf("%c.%s", 'a'+r.IntN(3), does[r.IntN(len(does))])
			if r.IntN(4) == 0 {
				move = others[r.IntN(len(others))]
			}
			moves = slices.Insert(moves, r.IntN(len(moves)+1), move)
		}
		var st State
		var picture string
		Play(t, a, movesOf(strings.Join(moves, ",")), func(s *Stage) { st, picture = s.State(), s.Diagram(110, plain) })
		switch {
		case len(st.Moves) != len(moves) || sound && st.Violations != nil:
			t.Errorf("seed %d, %s, %s:\n%s", seed, a.ID, strings.Join(moves, ","), picture)
		case st.Violations != nil:
			convicted++
		}
	}
	if convicted < 5 {
		t.Errorf("only %d plays have convicted an algorithm: the test has lost its sight", convicted)
	}
}
