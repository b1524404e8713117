package compare

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func variant(t *testing.T, name string) subjects.Variant {
	t.Helper()
	all := subjects.All()
	i := slices.IndexFunc(all, func(v subjects.Variant) bool { return v.Name == name })
	if i < 0 {
		t.Fatalf("subjects.All() has no %q", name)
	}
	return all[i]
}

func TestEveryPropertyIsInOneGroup(t *testing.T) {
	in := map[string]string{}
	titles := map[string]bool{}
	for _, g := range groups {
		if titles[g.title] {
			t.Errorf("two groups are called %q", g.title)
		}
		titles[g.title] = true
		if n := utf8.RuneCountInString(g.title); n > titleWidth {
			t.Errorf("%q has %d characters, want %d at most", g.title, n, titleWidth)
		}
		for _, name := range g.properties {
			if other, twice := in[name]; twice {
				t.Errorf("%s is in %q and in %q, want one group", name, other, g.title)
			}
			in[name] = g.title
		}
	}
	for _, p := range conformance.Properties() {
		if in[p.Name] == "" {
			t.Errorf("property %s (%s) is in no group", p.Name, p.Clause)
		}
		delete(in, p.Name)
	}
	for name, title := range in {
		t.Errorf("%q has %s, which is no property", title, name)
	}
	if !titles[fenceTitle] {
		t.Errorf("no group is called %q, at which advice looks", fenceTitle)
	}
}

// TestCost: what the strategies' documentation promises, counted by the server
// where it can count.
func TestCost(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	_, err := s.RoundTrips(t.Context())
	server := err == nil
	type want struct {
		trips    float64
		commands []string
	}
	for name, w := range map[string]struct{ acquire, release, held want }{
		"luascript":     {want{1, []string{"EVALSHA"}}, want{1, []string{"EVALSHA"}}, want{1, []string{"EVALSHA"}}},
		"setnxpx":       {want{1, []string{"SET"}}, want{2, []string{"GET", "DEL"}}, want{2, []string{"SET", "GET"}}},
		"setnxpx-blind": {want{1, []string{"SET"}}, want{1, []string{"DEL"}}, want{2, []string{"SET", "GET"}}},
	} {
		for _, shared := range []bool{false, true} {
			c, err := cost(t.Context(), s, variant(t, name), shared)
			if err != nil {
				t.Errorf("cost of %s: %v", name, err)
				continue
			}
			for what, r := range map[string]struct {
				got  Requests
				want want
			}{"acquire": {c.Acquire, w.acquire}, "release": {c.Release, w.release}, "held try": {c.HeldTry, w.held}} {
				var commands []string
				for _, k := range r.got.Commands {
					if k.Times != 1 {
						t.Errorf("%s: %s sends %s %v times, want once", name, what, k.Name, k.Times)
					}
					commands = append(commands, k.Name)
				}
				if r.got.RoundTrips != r.want.trips || !slices.Equal(commands, r.want.commands) {
					t.Errorf("%s: %s takes %v round trips with %v, want %v with %v", name, what, r.got.RoundTrips, commands, r.want.trips, r.want.commands)
				}
				if counts := r.got.Executed > 0; counts != (server && !shared) {
					t.Errorf("%s: %s executes %v commands on the server (counted by the %s)", name, what, r.got.Executed, c.RoundTripsBy)
				} else if counts && r.got.Executed < r.got.Sum() {
					t.Errorf("%s: %s executes %v commands on the server, and %v were sent", name, what, r.got.Executed, r.got.Sum())
				}
			}
			if by := c.RoundTripsBy; (by == "server") != (server && !shared) {
				t.Errorf("%s: round trips are counted by the %s", name, by)
			}
			left := 0
			if name == "luascript" {
				left = 1
			}
			if c.KeysLeft == nil || *c.KeysLeft != left {
				t.Errorf("%s: KeysLeft = %v, want %d", name, c.KeysLeft, left)
			}
			if !c.TokenInKey {
				t.Errorf("%s: TokenInKey = false, want true", name)
			}
		}
	}
	wantNoKeys(t, s)
}

// wantNoKeys: measuring cleans up behind itself, fence counters included.
func wantNoKeys(t *testing.T, s *redistest.Server) {
	t.Helper()
	conn := s.Pool().Get()
	defer conn.Close()
	keys, err := keysOf(t.Context(), conn, namePrefix)
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		t.Errorf("left on the server: %q", keys)
	}
}

// TestChild is where the processes come in that the suite starts; see childArgs.
func TestChild(t *testing.T) {
	var all []conformance.Subject
	for _, v := range subjects.All() {
		all = append(all, v.Subject(redistest.Nodes(t, v.Servers)))
	}
	conformance.Child(all...)
}

// childArgs start this test binary as a child of a trial.
var childArgs = []string{"-test.run=^TestChild$", "-test.count=1"}

// TestRun takes everything, briefly.
func TestRun(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	var last Progress
	c := Config{
		Server: s, Kind: redistest.Docker, Variants: subjects.All(), Each: 150 * time.Millisecond, ChildArgs: childArgs,
		Progress: func(p Progress) {
			if p.Done < last.Done || p.Done > p.Until || p.Until > p.Total {
				t.Errorf("progress %+v after %+v, want it to rise to the total", p, last)
			}
			last = p
		},
	}
	if _, err := s.RoundTrips(t.Context()); err != nil {
		c.Kind = redistest.Embedded
	}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if last.Until != last.Total {
		t.Errorf("the last progress is %+v, want it to end at the total", last)
	}
	if r.Ping == nil || r.Ping.P50 <= 0 || r.Ping.Control <= 0 {
		t.Errorf("Ping = %+v", r.Ping)
	}
	for i, col := range r.Strategies {
		if len(col.Failures) > 0 {
			t.Errorf("%s: %v", col.Name, col.Failures)
			continue
		}
		if len(col.Guarantees) != len(groups) {
			t.Errorf("%s has %d guarantees, want %d", col.Name, len(col.Guarantees), len(groups))
		}
		for _, g := range col.Guarantees {
			if g.Verdict == Unknown {
				t.Errorf("%s: %q was not judged", col.Name, g.Title)
			}
			for _, p := range g.Properties {
				if p.Verdict == Failed {
					t.Errorf("%s: %s failed: %s\n%s", col.Name, p.Name, p.Evidence, strings.Join(p.History, "\n"))
				}
			}
		}
		if col.Solo.P50 <= 0 || col.Solo.P99 < col.Solo.P50 || col.Solo.PerPing <= 0 {
			t.Errorf("%s: Solo = %+v", col.Name, col.Solo)
		}
		if h := col.HandOff; h.Count < 3 || h.P50 <= 0 || h.Commands < 2 || h.PerPing <= 0 {
			t.Errorf("%s: HandOff = %+v", col.Name, h)
		}
		if len(col.Contention) != len(Contenders) {
			t.Fatalf("%s: Contention = %+v", col.Name, col.Contention)
		}
		if c.Kind == redistest.Embedded {
			continue // its timings mean nothing: no grant at all in so short a time is one of them
		}
		for k, x := range col.Contention {
			n := float64(Contenders[k])
			if x.Contenders != Contenders[k] || x.PerSecond <= 0 || x.Lowest > x.PerSecond || x.Highest < x.PerSecond || x.Jain < 1/n || x.Jain > 1+1e-9 {
				t.Errorf("%s: %+v", col.Name, x)
			}
		}
		if col.Name != subjects.All()[i].Name {
			t.Errorf("column %d is %s", i, col.Name)
		}
	}
	holdReadme(t, r)
	if len(r.Advice) < 5 {
		t.Errorf("Advice = %+v", r.Advice)
	}
	wantNoKeys(t, s)

	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*r, back) {
		t.Errorf("a report changes on its way through JSON:\n%+v\n%+v", *r, back)
	}
}

func TestInterrupted(t *testing.T) {
	s := redistest.Shared(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	c := Config{
		Server: s, Variants: subjects.All()[:1], Each: time.Minute,
		Progress: func(p Progress) {
			if strings.HasPrefix(p.Doing, "one caller") {
				time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
			}
		},
	}
	r, err := Run(ctx, c)
	if !errors.Is(err, why) || !r.Interrupted {
		t.Fatalf("Run = %v, interrupted %v, want the cause", err, r.Interrupted)
	}
	for _, col := range r.Strategies {
		if col.Cost == nil || col.Solo != nil || len(col.Failures) > 0 || col.Guarantees[0].Verdict != Kept {
			t.Errorf("%s: %+v, want what was known by then, and no failures", col.Name, col)
		}
	}
	if r.Advice != nil {
		t.Errorf("Advice = %v, want none", r.Advice)
	}
}

func TestServerGone(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	ctx := context.Background()
	c := Config{Server: s, Variants: subjects.All()[:1], Each: 300 * time.Millisecond, Progress: func(p Progress) {
		if strings.Contains(p.Doing, "hand-off") {
			s.Kill(ctx)
		}
	}}
	r, err := Run(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if col := r.Strategies[0]; !col.failed(MeasuringHandOff) || !col.failed(MeasuringContention) || col.HandOff != nil || col.Solo == nil {
		t.Errorf("%+v, want the hand-off and contention to have failed", col)
	}
	if _, err := Run(ctx, c); err == nil {
		t.Error("Run on a dead server = <nil>, want its error")
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		xs   []int64
		want float64
	}{
		{[]int64{5, 5, 5, 5}, 1},
		{[]int64{9, 0, 0}, 1. / 3},
		{[]int64{1, 2}, 0.9},
		{[]int64{0, 0}, 0},
	} {
		if got := jain(c.xs); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("jain(%v) = %v, want %v", c.xs, got, c.want)
		}
	}
}

func TestMarkdown(t *testing.T) {
	columns := []Strategy{{Name: "a", Guarantees: make([]Guarantee, len(groups))}, {Name: "b"}}
	for i := range groups {
		columns[0].Guarantees[i].Verdict = []Verdict{Kept, Weak, Absent, Failed}[i%4]
	}
	lines := strings.Split(Markdown(columns), "\n")
	want := []string{
		"| | a | b |",
		"|---|:-:|:-:|",
		"| one holder at a time | ✓ | · |",
		"| … among processes too | ✗ | · |",
		"| any name, each its own lock | – | · |",
		"| a try answers at once | ! | · |",
	}
	if !slices.Equal(lines[:len(want)], want) || len(lines) != len(groups)+3 {
		t.Errorf("Markdown() =\n%s\nwant %d rows that begin\n%s", strings.Join(lines, "\n"), len(groups), strings.Join(want, "\n"))
	}
}

func TestVerdictOf(t *testing.T) {
	of := func(vs ...Verdict) Verdict {
		var ps []Property
		for _, v := range vs {
			ps = append(ps, Property{Verdict: v})
		}
		return verdictOf(ps)
	}
	for _, c := range []struct{ got, want Verdict }{
		{of(Kept, Kept), Kept},
		{of(Kept, Absent), Kept},
		{of(Absent, Absent), Absent},
		{of(Kept, Weak, Absent), Weak},
		{of(Weak, Failed, Kept), Failed},
		{of(Kept, Unknown), Unknown},
		{of(Weak, Unknown), Weak}, // whatever the other would be
	} {
		if c.got != c.want {
			t.Errorf("the verdict is %q, want %q", c.got, c.want)
		}
	}
}

// TestAdvice: it follows from what was seen, and is not given on half of it.
func TestAdvice(t *testing.T) {
	column := func(name string, late, fence Verdict, left int, commands ...string) Strategy {
		var r Requests
		for _, c := range commands {
			r.Commands = append(r.Commands, Commands{Name: c, Times: 1})
		}
		return Strategy{
			Name: name, Cost: &Cost{Release: r, KeysLeft: &left, TokenInKey: true},
			Guarantees: []Guarantee{{Title: "late", Verdict: late}, {Title: fenceTitle, Verdict: fence}},
		}
	}
	two := column("two", Weak, Absent, 0, "GET", "DEL")
	two.Contention = []Contention{{Contenders: 1, PerSecond: 900}, {Contenders: 64, PerSecond: 100}}
	one := column("one", Kept, Kept, 1, "EVALSHA")
	one.Contention = []Contention{{Contenders: 1, PerSecond: 800}, {Contenders: 64, PerSecond: 500}}
	who := func(columns ...Strategy) map[string]string {
		got := map[string]string{}
		for _, a := range advise(columns, true) {
			got[a.For] = strings.Join(a.Strategies, " ")
		}
		return got
	}
	for purpose, want := range map[string]string{
		"production, on one Redis":                                  "one",
		"work that must never run twice":                            "one",
		"scripts are forbidden":                                     "two",
		"keys shared with redsync, redis-py, StackExchange.Redis …": "two one",
		"many contend for one lock":                                 "one",
		"very many names, each used once":                           "two",
		"teaching: to see a lock fail":                              "two",
	} {
		if got, ok := who(two, one)[purpose]; got != want || !ok {
			t.Errorf("for %q: %q, want %q", purpose, got, want)
		}
	}
	same := one
	same.Contention = []Contention{{Contenders: 64, PerSecond: 100}}
	for what, got := range map[string][]Advice{
		"that are alike":            advise([]Strategy{two, same}, true),
		"on an embedded Redis":      advise([]Strategy{two, one}, false),
		"that were not all timed":   advise([]Strategy{one, column("three", Kept, Kept, 0)}, true),
		"of which there is but one": advise([]Strategy{one}, true),
	} {
		if slices.ContainsFunc(got, func(a Advice) bool { return strings.HasPrefix(a.For, "many contend") }) {
			t.Errorf("the rates of those %s decide: %v", what, got)
		}
	}
	if got, ok := who(two)["production, on one Redis"]; got != "" || !ok {
		t.Errorf("for production with a weak one alone: %q, want none", got)
	}
	// Neither the fewest weaknesses nor a clean release make up for a wrong clock, and for
	// keys that no expiry takes away.
	stamped := column("stamped", Kept, Absent, 0, "GET", "DEL")
	stamped.Guarantees = append(stamped.Guarantees, Guarantee{Title: clocksTitle, Verdict: Weak}, Guarantee{Title: cleanTitle, Verdict: Weak})
	two.Guarantees = append(two.Guarantees, Guarantee{Title: "later", Verdict: Weak}, Guarantee{Title: "latest", Verdict: Weak})
	for _, purpose := range []string{"scripts are forbidden", "very many names, each used once"} {
		if got := who(stamped, two, one)[purpose]; got != "two" {
			t.Errorf("for %q, with one that minds clocks: %q, want two", purpose, got)
		}
	}
	unknown := one
	unknown.Guarantees = []Guarantee{{Title: "late"}}
	if got := advise([]Strategy{two, unknown}, true); got != nil {
		t.Errorf("advice without all verdicts = %v, want none", got)
	}
	unknown = one
	unknown.Cost = nil
	if got := advise([]Strategy{two, unknown}, true); got != nil {
		t.Errorf("advice without all costs = %v, want none", got)
	}
}
