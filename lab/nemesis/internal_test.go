// Tests what a plan breaks and when, and how a history is judged, without servers.
package nemesis

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/strategy"
)

func variant(t *testing.T, name string) subjects.Variant {
	t.Helper()
	for _, v := range subjects.All() {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("there is no variant %s", name)
	return subjects.Variant{}
}

func config(t *testing.T, name string, seed uint64) Config {
	v := variant(t, name)
	return Config{Variant: v, Seed: seed, For: 20 * time.Second, Calm: Calm, Faults: Survived(v)}
}

// TestPlan: what is broken is a function of the seed, and of nothing else.
func TestPlan(t *testing.T) {
	for _, name := range []string{"luascript", "redlock"} {
		plan := func(seed uint64) []Track {
			p, err := Plan(config(t, name, seed))
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		one := plan(1)
		if again := plan(1); !reflect.DeepEqual(one, again) {
			t.Errorf("%s: the same seed gives another plan", name)
		}
		if other := plan(2); reflect.DeepEqual(one, other) {
			t.Errorf("%s: another seed gives the same plan", name)
		}
	}
}

// TestPlanStaysWithin: of several servers a minority is broken at once, whatever the seed;
// each kind of fault comes, and each lasts as long as it should.
func TestPlanStaysWithin(t *testing.T) {
	for name, atServers := range map[string]int{"setnxpx": 1, "redlock-3": 1, "redlock": 2} {
		seen := map[string]bool{}
		for seed := range uint64(50) {
			c := config(t, name, seed)
			plan, err := Plan(c)
			if err != nil {
				t.Fatal(err)
			}
			tracks := map[place]int{}
			for _, track := range plan {
				tracks[kinds[track[0].Fault].place]++
				var length time.Duration
				for _, s := range track {
					seen[s.Fault] = true
					length += s.Pause + s.For
					if kinds[s.Fault].place != kinds[track[0].Fault].place {
						t.Errorf("%s: %s is on the track of %s", name, s, track[0])
					}
					if s.Server < 0 || s.Server >= c.Variant.Servers || s.Client < 0 || s.Client >= Processes || s.For < 0 || s.For > 2*ttl || s.Pause < 0 {
						t.Errorf("%s: %+v is out of bounds", name, s)
					}
				}
				if length < c.For {
					t.Errorf("%s: a track ends after %v of %v", name, length, c.For)
				}
			}
			if want := map[place]int{atServer: atServers, atWay: 2, atClient: 1}; !maps.Equal(tracks, want) {
				t.Errorf("%s: tracks %v, want %v", name, tracks, want)
			}
		}
		for _, f := range config(t, name, 0).Faults {
			if !seen[f] {
				t.Errorf("%s: %s never happens", name, f)
			}
		}
	}
}

// TestFaultsAreKnownAgain: the history's words for a fault lead back to its kind.
func TestFaultsAreKnownAgain(t *testing.T) {
	for name, k := range kinds {
		for _, detail := range slices.Concat(k.details, k.shared, []string{""}) {
			s := Step{Fault: name, Detail: detail}
			got := kindOf(history.Op{Note: s.String()})
			if got.begin == nil || got.place != k.place || got.forgets != k.forgets || len(got.details) != len(k.details) {
				t.Errorf("%q is taken for something else than %s", s, name)
			}
		}
	}
	if k := kindOf(history.Op{Note: "sabotage, server 1"}); k.begin != nil {
		t.Error("sabotage is taken for something known")
	}
}

// TestSharing: a lock that several may hold is denied other commands, its contenders wait in each way that it has, and
// it is judged by how many may hold it.
func TestSharing(t *testing.T) {
	for name, shares := range map[string]bool{"semaphore": true, "rwlock": true, "reentrant": false} {
		denied, ways := map[string]bool{}, map[strategy.Wait]bool{}
		for seed := range uint64(100) {
			c := config(t, name, seed)
			plan, err := Plan(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, track := range plan {
				for _, s := range track {
					denied[s.Detail] = true
				}
			}
			way, _ := wayOf(c, 1)
			ways[way] = true
		}
		for _, d := range kinds["deny"].shared {
			if denied[d] != shares {
				t.Errorf("%s is denied %q: %v, want %v", name, d, denied[d], shares)
			}
		}
		if !denied["get"] || ways[strategy.WaitNotification] != shares || !ways[strategy.WaitPoll] {
			t.Errorf("%s: denied are %v, its contenders wait in these ways: %v", name, denied, ways)
		}
	}
	hold := func(client string, share int) history.Op {
		return history.Op{Client: client, Kind: history.KindAcquire, Key: "k", Hold: client, Share: share, Start: 1, End: 2, Result: history.OK, Deadline: 9, TTL: ttl, Fence: uint64(client[0])}
	}
	three := []history.Op{hold("A", 0), hold("B", 0), hold("C", 1)}
	readers := []history.Op{hold("A", 1), hold("B", 1)}
	for _, test := range []struct {
		what  string
		c     Config
		ops   []history.Op
		found string
	}{
		{"three of three permits", Config{Permits: 3}, three, ""},
		{"three of two", Config{Permits: 2}, three, "Exclusion"},
		{"readers", Config{ReadWrite: true}, readers, ""},
		{"a writer next to readers", Config{ReadWrite: true}, append(readers, hold("C", 0)), "Exclusion"},
		{"an exclusive lock", Config{}, readers, "Exclusion"},
	} {
		test.c.Variant = variant(t, "semaphore")
		var found []string
		for _, v := range judge(test.c, test.ops).Found {
			found = append(found, v.Property)
		}
		slices.Sort(found)
		if got := strings.Join(slices.Compact(found), " "); got != test.found {
			t.Errorf("%s: found are %q, want %q", test.what, got, test.found)
		}
	}
}

// TestBadConfigs: the error says what is allowed.
func TestBadConfigs(t *testing.T) {
	c := config(t, "luascript", 1)
	c.Faults = []string{"sabotage"}
	if _, err := Plan(c); err == nil || !strings.Contains(err.Error(), "allowed") {
		t.Errorf("an unknown fault: %v, want an error that says what is allowed", err)
	}
	for what, spoil := range map[string]func(*Config, *rig.Rig){
		"too few servers": func(_ *Config, r *rig.Rig) { r.Nodes = nil },
		"only calm":       func(c *Config, _ *rig.Rig) { c.Calm = c.For },
		"negative calm":   func(c *Config, _ *rig.Rig) { c.Calm = -1 },
		"too short":       func(c *Config, _ *rig.Rig) { c.For, c.Calm = Calm, 0 },
	} {
		c, r := config(t, "luascript", 1), &rig.Rig{Nodes: make([]*rig.Node, 1)}
		spoil(&c, r)
		if _, err := Run(t.Context(), r, c); err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%s: %v, want an error that says what is allowed", what, err)
		}
	}
}

// TestHinders: of several servers a minority hinders nobody; a client is hindered by what is done to it, or to a way of
// its own, and no other is.
func TestHinders(t *testing.T) {
	const s = time.Second
	try := func(client string) history.Op {
		return history.Op{Client: client, Kind: history.KindAcquire, Key: "k", Start: 0, End: 10 * s, Result: history.Held}
	}
	for _, test := range []struct {
		variant, fault, client string
		want                   []string // who ought to have got the lock
	}{
		{"redlock", "freeze, server 1", "", []string{"1.1/1", "2.1/1"}},
		{"redlock", "cut both, client 1 and server 3", "1", []string{"2.1/1"}},
		{"redlock", "kill, client 2", "2", []string{"1.1/1"}},
		{"redlock", Slow, "", nil},
		{"setnxgetset", "freeze, server 1", "", nil},
	} {
		ops := []history.Op{{Kind: history.KindFault, Note: test.fault, Client: test.client, Start: s, End: 9 * s}, try("1.1/1"), try("2.1/1")}
		var got []string
		for _, v := range judge(config(t, test.variant, 1), ops).Found {
			got = append(got, v.Ops[0].Client)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s, %s: %v kept trying in vain, want %v", test.variant, test.fault, got, test.want)
		}
	}
}

// TestDeclared: a weakness that a strategy is known for is counted, as long as it is rare and what was broken can cause it.
func TestDeclared(t *testing.T) {
	hold := func(i int, at, lasts time.Duration) history.Op {
		name := fmt.Sprint(i)
		return history.Op{
			Client: name, Kind: history.KindAcquire, Key: "k", Hold: name, Start: at, End: at + 1, Result: history.OK, Deadline: at + lasts, TTL: 2 * ttl,
		}
	}
	var rarely []history.Op // one of these overlaps with the next
	for i := range 2 * rare {
		rarely = append(rarely, hold(i, time.Duration(i)*ttl, ttl))
	}
	rarely[7].Deadline += ttl / 2
	often := slices.Clone(rarely)
	for i := range 3 {
		often[i].Deadline += ttl / 2
	}
	robbed := []history.Op{hold(0, 0, ttl), {Client: "0", Kind: history.KindRelease, Key: "k", Hold: "0", Start: 10, End: 20, Result: history.Lost}}
	use := func(kind history.Kind, hold, value string, start, end time.Duration) history.Op {
		return history.Op{Client: hold, Kind: kind, Key: "k", Hold: hold, Value: value, Start: start, End: end, Result: history.OK}
	}
	lateWrite := []history.Op{
		hold(0, 0, ttl), use(history.KindRead, "0", "", 10, 20), use(history.KindWrite, "0", "late", 30, 2*ttl),
		hold(1, ttl, ttl), use(history.KindRead, "1", "", ttl+10, ttl+20), use(history.KindWrite, "1", "next", ttl+30, ttl+40),
	}
	for name, test := range map[string]struct {
		variant string
		faults  []string // nil: all that it survives
		ops     []history.Op

		found    string
		declared []string
	}{
		"two steps":                        {"setnxpx", nil, rarely, "", []string{"1 Exclusion: " + twoSteps}},
		"two steps, and a stamp":           {"setnxgetset", nil, rarely, "", []string{"1 Exclusion: " + twoSteps}},
		"one step":                         {"luascript", nil, rarely, "Exclusion", nil},
		"a transaction":                    {"setnxgetset-watch", nil, rarely, "Exclusion", nil},
		"too often":                        {"setnxpx", nil, often, "Exclusion", nil},
		"nothing is broken that holds up":  {"setnxpx", []string{"flush"}, rarely, "Exclusion", nil},
		"lost to a loser":                  {"setnxgetset", []string{"kill"}, robbed, "", []string{"1 Ownership: " + overwrites}},
		"lost to nobody":                   {"setnxpx", []string{"kill"}, robbed, "Ownership", nil},
		"a late write":                     {"redlock", nil, lateWrite, "", []string{"1 NoLostUpdate: " + unfenced}},
		"a late write in spite of a fence": {"luascript", nil, lateWrite, "NoLostUpdate", nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, test.variant, 1)
			if test.faults != nil {
				c.Faults = test.faults
			}
			r := judge(c, test.ops)
			var found, declared []string
			for _, v := range r.Found {
				if v.Property != "FenceOrder" { // none of these has a fence
					found = append(found, v.Property)
				}
			}
			for why, n := range r.Declared {
				declared = append(declared, fmt.Sprint(n, " ", why))
			}
			if got := strings.Join(slices.Compact(found), " "); got != test.found || !slices.Equal(declared, test.declared) {
				t.Errorf("found are %q, declared %q, want %q, %q", got, declared, test.found, test.declared)
			}
		})
	}
}
