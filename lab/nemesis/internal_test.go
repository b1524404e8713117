// Tests what a plan breaks and when, and how a history is judged, without servers.
package nemesis

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/strategy"
)

// config is that of a run on a strategy of the module's list.
func config(name string, seed uint64) Config {
	all := subjects.All()
	v := all[slices.IndexFunc(all, func(v subjects.Variant) bool { return v.Name == name })]
	return Config{Variant: v, Seed: seed, For: 20 * time.Second, Calm: Calm, Faults: Survived(v)}
}

func plan(t *testing.T, c Config) []Track {
	t.Helper()
	p, err := Plan(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPlan: what is broken is a function of the seed, and of nothing else; of several servers a minority is broken at
// once, whatever the seed; each kind of fault comes, and each lasts as long as it should.
func TestPlan(t *testing.T) {
	for name, atServers := range map[string]int{"setnxpx": 1, "redlock-3": 1, "redlock": 2} {
		seen := map[string]bool{}
		for seed := range uint64(50) {
			c := config(name, seed)
			all := plan(t, c)
			if !reflect.DeepEqual(all, plan(t, c)) || reflect.DeepEqual(all, plan(t, config(name, seed+1))) {
				t.Errorf("%s: the same seed gives another plan, or another seed the same", name)
			}
			tracks := map[place]int{}
			for _, track := range all {
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
		for _, f := range config(name, 0).Faults {
			if !seen[f] {
				t.Errorf("%s: %s never happens", name, f)
			}
		}
	}
}

// TestSharing: a lock that several may hold is denied other commands, and its contenders wait in each way that it has.
func TestSharing(t *testing.T) {
	for name, shares := range map[string]bool{"semaphore": true, "rwlock": true, "reentrant": false} {
		denied, ways := map[string]bool{}, map[strategy.Wait]bool{}
		for seed := range uint64(100) {
			c := config(name, seed)
			for _, track := range plan(t, c) {
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
		if !denied["get getex"] || ways[strategy.WaitNotification] != shares || !ways[strategy.WaitPoll] {
			t.Errorf("%s: denied are %v, its contenders wait in these ways: %v", name, denied, ways)
		}
	}
}

// TestBadConfigs: the error says what is allowed.
func TestBadConfigs(t *testing.T) {
	for _, spoil := range []func(*Config){
		func(c *Config) { c.Faults = []string{"sabotage"} },
		func(c *Config) { c.Calm = c.For },
	} {
		c := config("luascript", 1)
		spoil(&c)
		if _, err := Run(t.Context(), nil, c); err == nil || !strings.Contains(err.Error(), "allowed") {
			t.Errorf("%+v: %v, want an error that says what is allowed", c, err)
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
		{"redlock", "freeze", "", []string{"1.1/1", "2.1/1"}},
		{"redlock", "cut both", "1", []string{"2.1/1"}},
		{"redlock", "kill", "2", []string{"1.1/1"}},
		{"redlock", Slow, "", nil},
		{"setnxgetset", "freeze", "", nil},
	} {
		fault := history.Op{Kind: history.KindFault, Value: test.fault, Client: test.client, Start: s, End: 9 * s}
		ops := []history.Op{fault, try("1.1/1"), try("2.1/1")}
		var got []string
		for _, v := range judge(config(test.variant, 1), ops, true).Found {
			got = append(got, v.Ops[0].Client)
		}
		slices.Sort(got)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s, %s: %v kept trying in vain, want %v", test.variant, test.fault, got, test.want)
		}
	}
}

// TestBadEnd: a process that ends otherwise than it should is reported, whatever else it says.
func TestBadEnd(t *testing.T) {
	if err := excused(&strategy.ServerError{Kind: strategy.ErrUnknown}); err != nil {
		t.Errorf("what could not be undone: %v, want nothing", err)
	}
	for _, err := range []error{contender.ErrEnded, errors.Join(strategy.ErrUnknown, contender.ErrEnded), strategy.ErrClosed} {
		if excused(err) == nil {
			t.Errorf("%v is excused", err)
		}
	}
}

// TestDeclared: a weakness that a strategy is known for is declared, where what was broken can cause it.
func TestDeclared(t *testing.T) {
	lost := history.Op{Kind: history.KindRelease, Result: history.Lost}
	for _, test := range []struct {
		variant, fault, property string
		last                     history.Op
		want                     string
	}{
		{"setnxpx", "pause", "Exclusion", history.Op{}, twoSteps},
		{"setnxpx", "flush", "Exclusion", history.Op{}, ""}, // which holds nothing up
		{"setnxgetset", "pause", "Exclusion", history.Op{}, twoSteps},
		{"setnxgetset-watch", "pause", "Exclusion", history.Op{}, ""},
		{"luascript", "pause", "Exclusion", history.Op{}, ""},
		{"setnxgetset", "kill", "Ownership", lost, overwrites},
		{"setnxpx", "kill", "Ownership", lost, ""},
		{"redlock", "kill", "NoLostUpdate", history.Op{}, unfenced},
		{"luascript", "kill", "NoLostUpdate", history.Op{}, ""},
	} {
		c := config(test.variant, 1)
		c.Faults = []string{test.fault}
		if got := weakness(c, history.Violation{Property: test.property, Ops: []history.Op{test.last}}); got != test.want {
			t.Errorf("%s, %s, %s: declared is %q, want %q", test.variant, test.fault, test.property, got, test.want)
		}
	}
}

// TestRare: what is declared is counted, as long as it is rare.
func TestRare(t *testing.T) {
	for overlaps, found := range map[int]int{1: 0, 3: 3} {
		var ops []history.Op
		for i := range 2 * rare {
			name, at := fmt.Sprint(i), time.Duration(i)*ttl
			op := history.Op{
				Client: name, Kind: history.KindAcquire, Key: "k", Hold: name, Start: at, End: at + 1, Result: history.OK,
				Deadline: at + ttl, TTL: 2 * ttl,
			}
			if i < overlaps {
				op.Deadline += ttl / 2
			}
			ops = append(ops, op)
		}
		r := judge(config("setnxpx", 1), ops, true)
		if n := r.Declared["Exclusion: "+twoSteps]; n != overlaps-found || len(r.Found) != found {
			t.Errorf("of %d overlaps %d are declared, and found are %v, want %d", overlaps, n, r.Found, found)
		}
	}
}

// TestShrink: only the steps without which a plan does not fail stay, at their times.
func TestShrink(t *testing.T) {
	c := config("redlock", 1)
	whole := plan(t, c)
	when := func(plan []Track, wanted Step) (at time.Duration, ok bool) {
		for _, track := range plan {
			var now time.Duration
			for _, s := range track {
				now += s.Pause
				if s.Fault == wanted.Fault && s.For == wanted.For {
					return now, true
				}
				now += s.For
			}
		}
		return 0, false
	}
	needed := []Step{whole[0][3], whole[2][7]}
	got := Shrink(whole, func(plan []Track) bool {
		return !slices.ContainsFunc(needed, func(s Step) bool { _, ok := when(plan, s); return !ok })
	})
	if steps(got) != len(needed) {
		t.Errorf("%d steps are left, want %d: %v", steps(got), len(needed), got)
	}
	for _, s := range needed {
		before, _ := when(whole, s)
		if after, _ := when(got, s); after != before {
			t.Errorf("%s comes at %v, want %v", s, after, before)
		}
	}
}
