// Tests what a plan breaks and when, and how a history is judged, without servers.
package nemesis

import (
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
		{"three of two", Config{Permits: 2}, three, "Exclusion LinearLock"},
		{"readers", Config{ReadWrite: true}, readers, ""},
		{"a writer next to readers", Config{ReadWrite: true}, append(readers, hold("C", 0)), "Exclusion LinearLock"},
		{"an exclusive lock", Config{}, readers, "Exclusion LinearLock"},
	} {
		test.c.Variant = variant(t, "semaphore")
		var found []string
		for _, v := range judge(test.c, 0, test.ops).Found {
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

// TestHinders: of several servers a minority, or ways to it, hinders nobody; a client that
// has no ways to a majority is hindered, and no other.
func TestHinders(t *testing.T) {
	const s = time.Second
	try := func(client string) history.Op {
		return history.Op{Client: client, Kind: history.KindAcquire, Key: "k", Start: 0, End: 10 * s, Result: history.Held}
	}
	fault := func(note, client string) history.Op {
		return history.Op{Kind: history.KindFault, Note: note, Client: client, Start: s, End: 9 * s}
	}
	one, two := fault("freeze, server 1", ""), fault("restart empty, server 2", "")
	way := fault("cut both, client 1 and server 3", "1")
	again := fault("deny get, server 2", "")
	for name, test := range map[string]struct {
		faults []history.Op
		want   []string // who ought to have got the lock
	}{
		"a minority":               {[]history.Op{one, two}, []string{"1.1/1", "2.1/1"}},
		"twice the same":           {[]history.Op{one, two, again}, []string{"1.1/1", "2.1/1"}},
		"a way in addition":        {[]history.Op{one, two, way}, []string{"2.1/1"}},
		"the ways of two":          {[]history.Op{one, way, fault("hold requests, client 2 and server 4", "2")}, []string{"1.1/1", "2.1/1"}},
		"a client that is no more": {[]history.Op{one, fault("kill, client 2", "2")}, []string{"1.1/1"}},
		"a slow machine":           {[]history.Op{fault(Slow, "")}, nil},
		"one after the other": {[]history.Op{one, two, {Kind: history.KindFault, Note: "freeze, server 3", Start: 9*s + 3*opTimeout, End: 10 * s}},
			[]string{"1.1/1", "2.1/1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, "redlock", 1)
			var got []string
			for _, v := range judge(c, 0, append(test.faults, try("1.1/1"), try("2.1/1"))).Found {
				got = append(got, v.Ops[0].Client)
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("%v kept trying in vain, want %v", got, test.want)
			}
		})
	}
	if r := judge(config(t, "setnxgetset", 1), 0, []history.Op{one, try("1.1/1")}); len(r.Found) > 0 {
		t.Errorf("a server that is alone: %v, want nothing", r.Found)
	}
}

// TestDeclared: a weakness that a strategy is known for excuses what it causes, there and
// then, and nothing else.
func TestDeclared(t *testing.T) {
	const ms = time.Millisecond
	acquire := func(client, hold string, start, end time.Duration) history.Op {
		return history.Op{Client: client, Kind: history.KindAcquire, Key: "k", Hold: hold, Start: start, End: end, Result: history.OK, Deadline: start + ttl, TTL: ttl}
	}
	move := func(kind history.Kind) func(string, string, time.Duration, time.Duration, history.Result) history.Op {
		return func(client, hold string, start, end time.Duration, r history.Result) history.Op {
			op := history.Op{Client: client, Kind: kind, Key: "k", Hold: hold, Start: start, End: end, Result: r}
			if kind == history.KindRenew && r == history.OK {
				op.Deadline = start + ttl
			}
			return op
		}
	}
	release, renew := move(history.KindRelease), move(history.KindRenew)
	fault := func(what, client string, start, end time.Duration) history.Op {
		return history.Op{Kind: history.KindFault, Note: what, Client: client, Start: start, End: end}
	}
	// A held until 0.6 s. B and C hold at once, from 1.3 s on; so do B and E.
	a, b, c := acquire("1.1/1", "a", 0, 100*ms), acquire("2.1/1", "b", 750*ms, 800*ms), acquire("3.1/1", "c", 1250*ms, 1300*ms)
	e := acquire("5.1/1", "e", 700*ms, 1300*ms) // B may be the second of the two
	e.Deadline = 790*ms + ttl
	both := history.Violation{Property: "Exclusion", Ops: []history.Op{b, c}}
	others := history.Violation{Property: "Exclusion", Ops: []history.Op{b, e}}
	doubtful := history.Op{Client: "1.1/1", Kind: history.KindAcquire, Key: "k", Start: 0, End: 100 * ms, Result: history.Held, Unconfirmed: 2}
	loser := history.Op{Client: "4.1/1", Kind: history.KindAcquire, Key: "k", Start: 650 * ms, End: 800 * ms, Result: history.Held}
	slowLoser, lateLoser := loser, loser
	slowLoser.Start, lateLoser.Start = 100*ms, 760*ms
	lost := history.Violation{Property: "Ownership", Ops: []history.Op{b, release("2.1/1", "b", 810*ms, 820*ms, history.Lost)}}
	late := release("1.1/1", "a", 500*ms, 900*ms, history.OK)
	elsewhere := late
	elsewhere.Key = "other"
	short := acquire("1.1/1", "a", 400*ms, 410*ms)
	ok := release("2.1/1", "b", 1310*ms, 1320*ms, history.OK)
	for name, test := range map[string]struct {
		variant string
		found   history.Violation
		ops     []history.Op
		want    string
	}{
		"a release in time":                {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", 500*ms, 590*ms, history.OK)}, ""},
		"a release past its time":          {"setnxpx", both, []history.Op{a, b, c, late}, twoSteps},
		"the victim's key was there":       {"setnxpx", both, []history.Op{a, b, c, late, ok}, ""},
		"it was before":                    {"setnxpx", both, []history.Op{a, b, c, late, renew("2.1/1", "b", 1240*ms, 1320*ms, history.OK)}, twoSteps},
		"the rival may have been robbed":   {"setnxpx", others, []history.Op{a, b, e, late, ok}, twoSteps},
		"a release that is repeated":       {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", 500*ms, 590*ms, history.Unknown)}, twoSteps},
		"repeated for a TTL":               {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", -200*ms, -100*ms, history.Unknown)}, ""},
		"and held up then":                 {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", -200*ms, -100*ms, history.Unknown), fault("freeze, server 1", "", 600*ms, 790*ms)}, twoSteps},
		"held up by no way of its":         {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", -200*ms, -100*ms, history.Unknown), fault("hold both, client 2 and server 1", "2", 600*ms, 790*ms)}, ""},
		"held up by nothing that delays":   {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", -200*ms, -100*ms, history.Unknown), fault("no memory, server 1", "", 600*ms, 790*ms)}, ""},
		"a release that found another's":   {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", 500*ms, 900*ms, history.Lost)}, ""},
		"a release of a killed client":     {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", 500*ms, history.Forever, history.Unknown), fault("kill, client 1", "1", 520*ms, 700*ms)}, twoSteps},
		"of one that was killed long ago":  {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", 300*ms, history.Forever, history.Unknown), fault("kill, client 1", "1", 320*ms, 330*ms)}, ""},
		"of the second that was killed":    {"setnxpx", both, []history.Op{a, b, c, release("1.2/1", "a", 500*ms, history.Forever, history.Unknown), fault("kill, client 1", "1", 300*ms, 505*ms), fault("kill, client 1", "1", 520*ms, 700*ms)}, twoSteps},
		"given back":                       {"setnxpx", both, []history.Op{{Client: "1.1/1", Kind: history.KindAcquire, Key: "k", Start: -600 * ms, End: 300 * ms, Result: history.Held, GaveUp: true}, b, c}, twoSteps},
		"given back long ago":              {"setnxpx", both, []history.Op{{Client: "1.1/1", Kind: history.KindAcquire, Key: "k", Start: -900 * ms, End: -100 * ms, Result: history.Held, GaveUp: true}, b, c}, ""},
		"of another lock":                  {"setnxpx", both, []history.Op{a, b, c, elsewhere}, ""},
		"begun after the victim's grant":   {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", 810*ms, 900*ms, history.OK)}, ""},
		"the victim's own":                 {"setnxpx", both, []history.Op{b, c, release("2.1/1", "b", 800*ms, 4000*ms, history.OK)}, ""},
		"an attempt of unknown outcome":    {"setnxpx", both, []history.Op{doubtful, b, c}, twoSteps},
		"which could not be ended":         {"setnxpx", both, []history.Op{a, b, c, release("1.1/1", "a", 100*ms, 110*ms, history.Unknown), fault("deny client, server 1", "", 0, 10*ms)}, twoSteps},
		"to prolong another's":             {"setnxpx", both, []history.Op{a, b, c, renew("1.1/1", "a", 500*ms, 900*ms, history.OK)}, ""},
		"to write over another's":          {"setnxgetset", both, []history.Op{a, b, c, renew("1.1/1", "a", 500*ms, 800*ms, history.Unknown)}, twoSteps},
		"and hear of it late":              {"setnxgetset", both, []history.Op{a, b, c, renew("1.1/1", "a", 500*ms, 800*ms, history.Lost)}, twoSteps},
		"or find it gone":                  {"setnxgetset", both, []history.Op{a, b, c, renew("1.1/1", "a", 300*ms, 500*ms, history.Lost)}, ""},
		"in one step":                      {"luascript", both, []history.Op{a, b, c, late}, ""},
		"in a transaction":                 {"setnxgetset-watch", both, []history.Op{a, b, c, late}, ""},
		"a race for the take-over":         {"setnxgetset", both, []history.Op{b, c, loser}, overwrites},
		"whose stamp has not passed":       {"setnxgetset", both, []history.Op{b, c, lateLoser}, ""},
		"a race that the winner's outlast": {"setnxgetset", both, []history.Op{b, c, loser, ok}, overwrites}, // too long for a hold that nobody renewed
		"nothing to take over":             {"setnxgetset", both, []history.Op{short, release("1.1/1", "a", 420*ms, 430*ms, history.OK), b, c, slowLoser}, ""},
		"nobody else asked":                {"setnxgetset", both, []history.Op{a, b, c}, ""},
		"a race elsewhere":                 {"setnxpx", both, []history.Op{b, c, loser}, ""},
		"lost to a loser":                  {"setnxgetset", lost, []history.Op{b, loser}, overwrites},
		"lost to nobody":                   {"setnxgetset", lost, []history.Op{b}, ""},
		"lost though none was raced for":   {"setnxgetset", lost, []history.Op{short, release("1.1/1", "a", 420*ms, 430*ms, history.OK), b, loser}, ""},
		"a lock that is stuck":             {"setnxpx", history.Violation{Property: "DeadlockFree", Ops: both.Ops}, []history.Op{a, late}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(config(t, test.variant, 1), test.ops)
			if got := e.declared(test.found); got != test.want {
				t.Errorf("declared as %q, want %q", got, test.want)
			}
		})
	}
}

// TestDeclaredUpdates: a lost update is excused by a late write, or by a broken exclusion, that
// it comes from, and by no other.
func TestDeclaredUpdates(t *testing.T) {
	const ms = time.Millisecond
	acquire := func(hold string, at time.Duration) history.Op {
		at += 5 * time.Second
		return history.Op{Client: "1.1/" + hold, Kind: history.KindAcquire, Key: "k", Hold: hold, Start: at, End: at, Result: history.OK, Deadline: at + ttl, TTL: ttl}
	}
	read := func(hold, value string, at time.Duration) history.Op {
		at += 5 * time.Second
		return history.Op{Client: "1.1/" + hold, Kind: history.KindRead, Key: "k", Hold: hold, Value: value, Start: at, End: at, Result: history.OK}
	}
	write := func(hold, value string, start, end time.Duration, r history.Result) history.Op {
		return history.Op{Client: "1.1/" + hold, Kind: history.KindWrite, Key: "k", Hold: hold, Value: value, Start: start + 5*time.Second, End: end + 5*time.Second, Result: r}
	}
	// B writes while A, whose time has passed, is about to. Both have read nothing.
	a := []history.Op{acquire("a", 0), read("a", "", 10*ms)}
	b := []history.Op{acquire("b", 700*ms), read("b", "", 710*ms), write("b", "vb", 720*ms, 730*ms, history.OK)}
	late := func(r history.Result) history.Op { return write("a", "va", 20*ms, 800*ms, r) }
	inTime := write("a", "va", 20*ms, 30*ms, history.OK)
	// C builds upon B, and D upon what A has written over that.
	c := []history.Op{acquire("c", 740*ms), read("c", "vb", 745*ms), write("c", "vc", 750*ms, 760*ms, history.OK)}
	d := []history.Op{acquire("d", 900*ms), read("d", "va", 910*ms)}
	// Long before, E wrote late, and did no harm.
	e := []history.Op{acquire("e", -3000*ms), read("e", "", -2990*ms), write("e", "ve", -2980*ms, -2000*ms, history.OK)}
	afterE := func(ops ...history.Op) []history.Op {
		for i := range ops {
			if ops[i].Kind == history.KindRead && ops[i].Value == "" {
				ops[i].Value = "ve"
			}
		}
		return append(slices.Clone(e), ops...)
	}
	reread := read("f", "ve", 1000*ms)
	for name, test := range map[string]struct {
		variant string
		ops     []history.Op
		broken  []history.Op // an exclusion that was declared
		want    string
	}{
		"a late write":                {"setnxpx", slices.Concat(a, b, []history.Op{late(history.OK)}), nil, unfenced},
		"a late write of a quorum":    {"redlock", slices.Concat(a, b, []history.Op{late(history.OK)}), nil, unfenced},
		"a late write with a fence":   {"luascript", slices.Concat(a, b, []history.Op{late(history.OK)}), nil, ""},
		"a write in time":             {"setnxpx", slices.Concat(a, b, []history.Op{inTime}), nil, ""},
		"what came of a late write":   {"setnxpx", slices.Concat(a, b, c, d, []history.Op{late(history.Unknown)}), nil, unfenced},
		"a late write was not sent":   {"setnxpx", append(afterE(slices.Concat(a, b, []history.Op{inTime})...), late(history.Unsent)), nil, ""},
		"a late write long ago":       {"setnxpx", afterE(slices.Concat(a, b, []history.Op{inTime})...), nil, ""},
		"what was there long ago":     {"setnxpx", append(afterE(slices.Concat(a, []history.Op{inTime})...), acquire("f", 990*ms), reread), nil, ""},
		"after a broken exclusion":    {"setnxpx", slices.Concat(a, b, []history.Op{inTime}), []history.Op{a[0], b[0]}, followed},
		"of others":                   {"setnxpx", slices.Concat(a, b, []history.Op{inTime}), []history.Op{acquire("x", 0), acquire("y", 1*ms)}, ""},
		"before the broken exclusion": {"setnxpx", slices.Concat(a, b, []history.Op{inTime}), []history.Op{a[0], acquire("y", 2000*ms)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvidence(config(t, test.variant, 1), test.ops)
			if test.broken != nil {
				e.explained(history.Violation{Property: "Exclusion", Ops: test.broken})
			}
			var got []string
			for _, v := range history.NoLostUpdate(test.ops) {
				got = append(got, e.declared(v))
			}
			if len(got) == 0 || slices.ContainsFunc(got, func(why string) bool { return why != test.want }) {
				t.Errorf("declared as %q, want %q for each, and one or more", got, test.want)
			}
		})
	}
}
