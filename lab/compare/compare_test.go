package compare

// The comparison: what it counts and measures, and what its report says.

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
)

func TestMain(m *testing.M) {
	if !subjects.Child() {
		redistest.Main(m)
	}
}

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
}

// TestCost: what the strategies' documentation promises.
func TestCost(t *testing.T) {
	type want struct {
		trips    int // one after another
		commands []string
	}
	undo, trips := []string{"HELLO", "CLIENT", "WATCH", "GETEX", "MULTI", "DEL", "EXEC"}, 6 // the first two in one packet
	servers := exclusive(t, 5)
	if servers[0].Version() == redistest.Imitation { // it refuses CLIENT KILL, so it is not asked who the connection is
		undo = slices.Delete(undo, 1, 2)
	}
	for name, w := range map[string]struct {
		acquire, release, held want
		left                   int
	}{
		"fairqueue":         {want{1, []string{"EVALSHA"}}, want{1, []string{"EVALSHA"}}, want{1, []string{"EVALSHA"}}, 1},
		"setnxpx":           {want{1, []string{"SET"}}, want{2, []string{"GETEX", "DEL"}}, want{3, []string{"SET", "GETEX", "PTTL"}}, 0},
		"setnxgetset-watch": {want{1, []string{"SETNX"}}, want{trips, undo}, want{2, []string{"SETNX", "GETEX"}}, 0},
		"redlock":           {want{1, []string{"EVALSHA"}}, want{1, []string{"EVALSHA"}}, want{1, []string{"EVALSHA"}}, 0},
	} {
		v := variant(t, name)
		told, err := subjects.Bootstrap(t.Context(), []subjects.Variant{v}, servers)
		var c *Cost
		if err == nil {
			c, err = cost(t.Context(), Config{Servers: servers, Variants: []subjects.Variant{v}}.contestants()[0])
		}
		if err = errors.Join(err, subjects.UndoBootstrap(t.Context(), told)); err != nil {
			t.Fatalf("cost of %s: %v", name, err)
		}
		for what, r := range map[string]struct {
			got  Requests
			want want
		}{"acquire": {c.Acquire, w.acquire}, "release": {c.Release, w.release}, "held try": {c.HeldTry, w.held}} {
			var commands []string
			for _, k := range r.got.Commands {
				// Rounded: where a majority has sufficed, a slow machine sends the others a request in the time of the next call.
				if math.Round(k.Times) != float64(v.Servers) {
					t.Errorf("%s: %s sends %s %v times, want once to each server", name, what, k.Name, k.Times)
				}
				commands = append(commands, k.Name)
			}
			if math.Round(r.got.RoundTrips) != float64(r.want.trips*v.Servers) || r.got.InTurn != r.want.trips || !slices.Equal(commands, r.want.commands) {
				t.Errorf("%s: %s takes %v round trips, %d in turn, with %v, want %d in turn with %v", name, what, r.got.RoundTrips, r.got.InTurn, commands, r.want.trips, r.want.commands)
			}
		}
		if c.KeysLeft == nil || *c.KeysLeft != w.left {
			t.Errorf("%s: KeysLeft = %v, want %d", name, c.KeysLeft, w.left)
		}
	}
	wantNoKeys(t, servers...)
}

func exclusive(t *testing.T, n int) []*redistest.Server {
	t.Helper()
	var servers []*redistest.Server
	for range n {
		servers = append(servers, redistest.Own(t, redistest.Config{}))
	}
	return servers
}

// wantNoKeys: a comparison cleans up behind itself, fence counters included.
func wantNoKeys(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	err := each(t.Context(), servers, func(conn redis.Conn) error {
		keys, err := keysOf(t.Context(), conn, "")
		if len(keys) > 0 {
			t.Errorf("left on the server: %q", keys)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRun takes a strategy with weaknesses, one without and one on several servers, briefly.
func TestRun(t *testing.T) {
	few := []subjects.Variant{variant(t, "setnxgetset-blind"), variant(t, "luascript"), variant(t, "redlock")}
	servers := exclusive(t, subjects.Most(few))
	last := 0.0
	c := Config{
		Servers: servers, Kind: redistest.Docker, Variants: few, Each: 50 * time.Millisecond,
		Progress: func(part float64, _ string) {
			if part < last || part >= 1 {
				t.Errorf("progress is %v after %v, want it to rise up to 1", part, last)
			}
			last = part
		},
	}
	if _, err := servers[0].RoundTrips(t.Context()); err != nil {
		c.Kind = redistest.Embedded
	}
	// Of somebody else, and of trials that are held elsewhere.
	foreign := []any{"a conformance report", "lock:{conformance " + rand.Text() + "}:fence"}
	for _, key := range foreign {
		redistest.Do(t, servers[0], "SET", key, 1)
	}
	r, err := Run(t.Context(), c)
	for err == nil && c.Each < time.Second && slices.ContainsFunc(r.Strategies, func(s Column) bool { return s.failed(MeasuringHandOff) }) {
		c.Each *= 4 // too short for this machine
		last = 0
		r, err = Run(t.Context(), c)
	}
	if err != nil {
		t.Fatal(err)
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
		if h := col.HandOff; h.Count < 1 || h.P50 <= 0 || h.Commands < 2 || h.PerPing <= 0 {
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
		if v := c.Variants[i]; col.Name != v.Name || col.Servers != v.Servers {
			t.Errorf("column %d is %s on %d servers", i, col.Name, col.Servers)
		}
	}
	if len(r.Advice) < 4 {
		t.Errorf("Advice = %+v", r.Advice)
	}
	if n := redistest.Do(t, servers[0], "DEL", foreign...); n != int64(len(foreign)) {
		t.Errorf("of %q %v are left, want that the keys of others stay", foreign, n)
	}
	wantNoKeys(t, servers...)

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
		Servers: []*redistest.Server{s}, Variants: subjects.All()[:1], Each: time.Minute, titles: []string{groups[0].title},
		Progress: func(_ float64, next string) {
			if strings.HasPrefix(next, "one caller") {
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

func TestServerDown(t *testing.T) {
	s := redistest.Own(t, redistest.Config{})
	ctx := context.Background()
	c := Config{Servers: []*redistest.Server{s}, Variants: subjects.All()[:1], titles: []string{groups[0].title}, Each: 300 * time.Millisecond, Progress: func(_ float64, next string) {
		if strings.Contains(next, "hand-off") {
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

// TestTooFewServers: what there are too few for is left out, and said so.
func TestTooFewServers(t *testing.T) {
	s := redistest.Shared(t)
	c := Config{Servers: []*redistest.Server{s}, Variants: []subjects.Variant{variant(t, "redlock")}, Each: 50 * time.Millisecond}
	r, err := Run(t.Context(), c)
	if want := []LeftOut{{Name: "redlock", Servers: 5}}; err != nil || len(r.Strategies) != 0 || !slices.Equal(r.LeftOut, want) {
		t.Errorf("Run() = %+v, %v, want no column, and left out %v", r, err, want)
	}
	if len(c.Variants) != 1 {
		t.Error("Run has changed its Config")
	}
}

func TestJain(t *testing.T) {
	for want, xs := range map[float64][]int64{1: {5, 5, 5, 5}, 1. / 3: {9, 0, 0}, 0.9: {1, 2}, 0: {0, 0}} {
		if got := jain(xs); math.Abs(got-want) > 1e-9 {
			t.Errorf("jain(%v) = %v, want %v", xs, got, want)
		}
	}
}

func TestVerdictOf(t *testing.T) {
	for _, c := range []struct {
		of   []Rating
		want Rating
	}{
		{[]Rating{Kept, Absent}, Kept}, {[]Rating{Absent, Absent}, Absent}, {[]Rating{Kept, Weak, Absent}, Weak},
		{[]Rating{Weak, Failed, Kept}, Failed}, {[]Rating{Kept, Unknown}, Unknown},
		{[]Rating{Weak, Unknown}, Weak}, // whatever the other would be
		{[]Rating{Kept, Unclear, Absent}, Unclear}, {[]Rating{Weak, Unclear}, Weak}, {[]Rating{Unclear, Unknown}, Unknown},
	} {
		var ps []Property
		for _, v := range c.of {
			ps = append(ps, Property{Verdict: v})
		}
		if got := verdictOf(ps); got != c.want {
			t.Errorf("the verdict of %q is %q, want %q", c.of, got, c.want)
		}
	}
}

// TestAdvice: it names what was compared, and is not given where something failed, or was not judged.
func TestAdvice(t *testing.T) {
	column := func(name string, v Rating) Column {
		return Column{Name: name, Guarantees: []Guarantee{{Title: "late", Verdict: v}, {Title: "other", Verdict: Kept}}}
	}
	lua := column("luascript", Absent)
	var got [][]string
	for _, a := range advise([]Column{lua, column("setnxpx", Weak)}) {
		got = append(got, a.Strategies)
	}
	if want := [][]string{{"luascript"}, {"setnxpx"}, {"luascript"}, {"luascript"}, {"setnxpx"}}; !reflect.DeepEqual(got, want) { // the last one is weak
		t.Errorf("it is %q, want %q", got, want)
	}
	for _, v := range []Rating{Failed, Unknown} {
		if a := advise([]Column{lua, column("fairqueue", v)}); a != nil {
			t.Errorf("where something is %q it is %v, want none", v, a)
		}
	}
	for _, p := range purposes {
		for _, name := range p.take {
			if name != "etcd" && name != "postgres" { // package stores has them
				variant(t, name)
			}
		}
	}
}

// TestTooSlowToSay: a trial for which the machine was too slow is held again, alone. If it was too slow again,
// the guarantee has a mark of its own.
func TestTooSlowToSay(t *testing.T) {
	const title = "a late release is harmless" // three properties
	late := conformance.Result{Status: conformance.Skipped, Reason: "INCONCLUSIVE: the machine was up to 9s late: no"}
	weak := conformance.Result{Status: conformance.Excused, Reason: "DEL does not compare", Err: errors.New("seen")}
	kept := conformance.Result{Status: conformance.Kept}
	lacks := conformance.Result{Status: conformance.Skipped, Reason: "it takes one server"}
	for _, c := range []struct {
		what  string
		plays []conformance.Result // of ReleaseOnlyOwn
		want  Rating
	}{
		{"late, then weak", []conformance.Result{late, weak}, Weak},
		{"late, then kept", []conformance.Result{late, kept}, Kept},
		{"late twice", []conformance.Result{late, late}, Unclear},
		{"not for this subject", []conformance.Result{lacks}, Kept}, // as its other properties
	} {
		var mu sync.Mutex
		held, others := 0, 0
		check := func(_ context.Context, _ conformance.Subject, p conformance.Property) conformance.Result {
			mu.Lock()
			defer mu.Unlock()
			r := kept
			if p.Name == "ReleaseOnlyOwn" {
				if held == 1 && others != 2 {
					t.Errorf("%s: the second trial begins after %d of 2 others, want it alone", c.what, others)
				}
				r = c.plays[min(held, len(c.plays)-1)]
				held++
			} else {
				others++
			}
			r.Property = p
			return r
		}
		var done, all int
		rows, err := judge(t.Context(), Config{Variants: []subjects.Variant{variant(t, "setnxpx-blind")}, Servers: []*redistest.Server{redistest.Shared(t)},
			titles: []string{title}, check: check}, func(d, a int) { done, all = d, a })
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(rows[0], func(g Guarantee) bool { return g.Title == title })
		if got := rows[0][i].Verdict; got != c.want {
			t.Errorf("%s: the verdict is %q (%s), want %q (%s)", c.what, got, got.Mark(), c.want, c.want.Mark())
		}
		if held != len(c.plays) || done != all || all != 3 {
			t.Errorf("%s: held %d times, and %d of %d trials are done, want %d times, and 3 of 3", c.what, held, done, all, len(c.plays))
		}
	}
}

// TestStore: a lock that is not on Redis has a column, without what only its own tests can look at.
func TestStore(t *testing.T) {
	v := variant(t, "luascript")
	servers := []*redistest.Server{redistest.Shared(t)}
	s := Store{Subject: v.Subject(servers), Summary: "stands for one"}
	s.Name, s.OpenGated, s.Forge = "store", nil, nil
	const partly, wholly, whole = "a try answers at once", "… even if the lock expires midway", "a release frees the lock"
	r, err := Run(t.Context(), Config{Servers: servers, Stores: []Store{s}, Each: 50 * time.Millisecond, titles: []string{partly, wholly, whole}})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Strategies[0]
	if c.Name != "store" || c.Servers != 0 || c.Cost != nil || c.Solo == nil || len(c.Contention) != len(Contenders) || len(c.Failures) > 0 {
		t.Errorf("its column is %+v, want timings without a cost", c)
	}
	got := map[string]int{}
	for _, g := range c.Guarantees {
		for _, p := range g.Properties {
			if p.Verdict == Kept {
				got[g.Title]++
			}
		}
		if want := map[string]Rating{partly: Kept, whole: Kept}[g.Title]; g.Verdict != want {
			t.Errorf("%s is %q, want %q", g.Title, g.Verdict, want)
		}
	}
	if want := map[string]int{partly: 3, whole: 4}; !maps.Equal(got, want) {
		t.Errorf("trials held: %v, want %v", got, want)
	}
	if how := r.How(); !strings.Contains(how, "Trials on store that need a hook") {
		t.Errorf("How() = %q, want where the other trials are held", how)
	}
}
