package main

// Tests how measured values become sections, plots and lines for benchstat, and that the page has a place for each.

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"
)

// played is an outcome as play leaves it.
func played() *outcome {
	return &outcome{
		scenario: scenario{
			name: "some-thing", title: "Something", about: "It is done.",
			who: []string{"raw", "redsync", "bsm", "fairqueue"},
			columns: []column{
				{"acq/s ÷ fastest peer", "acq/s", bestPeer("acq/s", true)}, {"p99 ÷ raw", "p99", over("raw")}, {"raws", "p99", over("raw")}, {"acq/s", "acq/s", nil},
			},
			aims: []aim{{"fairqueue", "acq/s ÷ fastest peer", true, 2}, {"fairqueue", "p99 ÷ raw", false, 1.5}, {"setnxpx", "acq/s", true, 1}},
		},
		reps: 3,
		got: map[entry][]values{
			{"raw", 0}:       {{"p99": 2}, {"p99": 4}, {"p99": 8}},
			{"redsync", 0}:   {{"acq/s": 100}, {"acq/s": 100}, {"acq/s": 200}},
			{"bsm", 0}:       {{"acq/s": 900}, {stuck: 1}, {failed: 1}},
			{"fairqueue", 0}: {{"acq/s": 2700, "p99": 4}, {"acq/s": 900, "p99": 4}, {"acq/s": 900, "p99": 16}},
		},
	}
}

func TestSection(t *testing.T) {
	got := played().section(machine{date: "1 May 2030", redis: "Redis 9"}, false)
	want := `It is done.

| | acq/s ÷ fastest peer | p99 ÷ raw | raws | acq/s |
|---|--:|--:|--:|--:|
| raw | – | 1.00 [1.00, 1.00] | 1.00 [1.00, 1.00] | – |
| redsync | 0.11 | – | – | 100 |
| bsm (stuck in 1 of 3) (failed in 1 of 3) | 1.00 | – | – | 900 |
| fairqueue | 3.00 | 2.00 [1.00, 2.00] | 2.00 [1.00, 2.00] | 900 |

The fastest peer is bsm.

3 repetitions, 1 May 2030, on Redis 9; intervals cover the median with 75 %.
`
	if got != want {
		t.Errorf("section is\n%s\nwant\n%s", got, want)
	}
}

func TestBalance(t *testing.T) {
	o := played()
	want := `1 of 2 aims are met.

| missed | aim | measured |
|---|---|--:|
| Something | fairqueue: p99 ÷ raw ≤ 1.50 | 2.00 [1.00, 2.00] |
`
	if got := balance([]*outcome{o}); got != want {
		t.Errorf("balance is\n%s\nwant\n%s", got, want)
	}
	o.aims = o.aims[:1]
	if got, want := balance([]*outcome{o}), "1 of 1 aims are met.\n"; got != want {
		t.Errorf("balance is\n%s\nwant\n%s", got, want)
	}
}

// TestBestPeer: ours and floors are never the peer that others are divided by.
func TestBestPeer(t *testing.T) {
	o := played()
	if got, _ := bestPeer("acq/s", true)(o, "acq/s"); got != "bsm" {
		t.Errorf("the fastest is %q, want bsm", got)
	}
	if got, series := bestPeer("acq/s", false)(o, "acq/s"); got != "redsync" || !slices.Equal(series, []float64{100, 100, 200}) {
		t.Errorf("the slowest is %q with %v, want redsync with 100, 100, 200", got, series)
	}
	o.who = []string{"raw", "fairqueue"}
	if got, series := bestPeer("acq/s", true)(o, "acq/s"); got != "" || !math.IsNaN(summarize(series).center) {
		t.Errorf("among no peers the fastest is %q with %v, want none", got, series)
	}
}

func TestPing(t *testing.T) {
	o := &outcome{scenario: scenario{who: []string{"raw", "redsync", "fairqueue"}}, reps: 2, got: map[entry][]values{
		{"raw", 0}: {{"ping-µs": 50}, {"ping-µs": 60}}, {"redsync", 0}: {{"ping-µs": 51}, nil}, {"fairqueue", 0}: {{"ping-µs": 900}, {"ping-µs": 62}},
	}}
	if name, series := ping(o, "p50-µs"); name != "PING" || !slices.Equal(series, []float64{51, 61}) {
		t.Errorf("ping = %s, %v, want PING, 51 and 61", name, series)
	}
}

func TestGrowthSection(t *testing.T) {
	o := &outcome{
		scenario: scenario{
			name: "growth-x", title: "More", who: []string{"fairqueue"}, xs: []int{1, 1000},
			panels: []panel{{"µs", "time, µs", "locks"}},
		},
		reps: 1, got: map[entry][]values{{"fairqueue", 1}: {{"µs": 5}}, {"fairqueue", 1000}: {nil}},
	}
	got := o.section(machine{}, true)
	for _, want := range []string{"![More](growth-x.svg)\n", "| time, µs; locks: | 1 | 1\u202f000 |\n|---|--:|--:|\n| fairqueue | 5.00 | – |\n", "1 shortened repetition,"} {
		if !strings.Contains(got, want) {
			t.Errorf("section is\n%s\nwant in it %q", got, want)
		}
	}
}

func TestRewrite(t *testing.T) {
	const page = "head\n<!-- a -->\nold\n<!-- /a -->\nmiddle\n<!-- b -->\n<!-- /b -->\ntail\n"
	got, err := rewrite(page, "a", "new\n\n")
	if want := "head\n<!-- a -->\n\nnew\n\n<!-- /a -->\nmiddle\n<!-- b -->\n<!-- /b -->\ntail\n"; err != nil || got != want {
		t.Errorf("rewrite = %q, %v, want %q", got, err, want)
	}
	again, err := rewrite(got, "a", "new")
	if err != nil || again != got {
		t.Errorf("rewritten again it is %q, %v, want %q", again, err, got)
	}
	for _, bad := range []string{"c", "", "b -->\n<!-- /b"} {
		if got, err := rewrite(page, bad, "x"); err == nil {
			t.Errorf("rewrite of %q = %q, want an error", bad, got)
		}
	}
}

// TestPage holds the page to what there is to measure: -update must find a place for all.
func TestPage(t *testing.T) {
	const name = "../../docs/data/performance.md"
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for _, s := range scenarios() {
		if _, err := rewrite(page, s.name, "x"); err != nil {
			t.Errorf("%s, %s: %v", name, s.name, err)
		}
		if !strings.Contains(page, s.title+"\n\n<!-- "+s.name+" -->\n\n"+s.about+"\n") {
			t.Errorf("%s has no heading %q, mark of %s and text %q", name, s.title, s.name, s.about)
		}
		if (&outcome{scenario: s}).drawn() && strings.Contains(page, "("+s.name+".svg)") {
			if _, err := os.Stat("../../docs/data/" + s.name + ".svg"); err != nil {
				t.Errorf("the page shows a plot that is not there: %v", err)
			}
		}
	}
	for _, other := range []string{"machine", "balance"} {
		if _, err := rewrite(page, other, "x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestScenarios: every name that a scenario uses is somebody's.
func TestScenarios(t *testing.T) {
	seen := map[string]bool{}
	for i, s := range append(scenarios(), compared()...) {
		if i == len(scenarios()) {
			clear(seen)
		}
		if seen[s.name] {
			t.Errorf("two scenarios are called %q", s.name)
		}
		seen[s.name] = true
		for _, w := range s.who {
			if !known(w) {
				t.Errorf("%s: no contestant is called %q", s.name, w)
			}
		}
		for _, a := range s.aims {
			if !slices.ContainsFunc(s.columns, func(c column) bool { return c.title == a.column }) {
				t.Errorf("%s: no column is called %q", s.name, a.column)
			}
			if !slices.Contains(s.who, a.who) {
				t.Errorf("%s: %s has an aim and is not measured", s.name, a.who)
			}
		}
		if (s.measure == nil) == (s.job == nil) || (s.job == nil) != (s.turns == 0) {
			t.Errorf("%s: it is measured in one of two ways", s.name)
		}
		if (s.xs == nil) != (len(s.panels) == 0) {
			t.Errorf("%s: what grows is drawn, and nothing else", s.name)
		}
	}
}

// TestLines: what is printed is what benchstat reads.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	l := newBenchWriter(&out, machine{cpu: "Some CPU", redis: "Redis 9 (docker)"}, 7)
	if err := l.write("growth-waiters", entry{"fairqueue", 8}, values{"µs/acq": 1.5, "requests/acq": 2}); err != nil {
		t.Fatal(err)
	}
	r := benchfmt.NewReader(io.MultiReader(strings.NewReader("redistest: a line of something else\n"), &out), "test")
	found := 0
	for r.Scan() {
		res, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		found++
		if base, _ := res.Name.Parts(); string(base) != "GrowthWaiters" || !strings.HasPrefix(res.Name.String(), "GrowthWaiters/fairqueue/x=8-") {
			t.Errorf("its name is %s, want GrowthWaiters/fairqueue/x=8-…", res.Name)
		}
		if v, ok := res.Value("µs/acq"); !ok || v != 1.5 {
			t.Errorf("µs/acq = %v, %v, want 1.5", v, ok)
		}
		if got := res.GetConfig("cpu"); got != "Some CPU" {
			t.Errorf("cpu: %s, want Some CPU", got)
		}
	}
	if err := r.Err(); err != nil || found != 1 {
		t.Errorf("%d results, %v, want 1", found, err)
	}
}

func TestRepetitions(t *testing.T) {
	for _, c := range []struct{ every, turns, reps, want int }{{0, 0, 5, 5}, {2, 0, 5, 3}, {2, 0, 1, 1}, {0, 4, 5, 20}, {2, 3, 0, 0}} {
		if got := (scenario{every: c.every, turns: c.turns}).repetitions(c.reps); got != c.want {
			t.Errorf("every %d, %d turns: %d of %d repetitions, want %d", c.every, c.turns, got, c.reps, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	names := func(args ...string) (names []string) {
		f, err := parse(args)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range f.scenarios {
			names = append(names, s.name)
		}
		return names
	}
	if got := names(); len(got) != len(scenarios()) {
		t.Errorf("by default there are %v, want all", got)
	}
	if got, want := names("-only", "loop-64, solo"), []string{"solo", "loop-64"}; !slices.Equal(got, want) {
		t.Errorf("-only loop-64, solo: %v, want %v", got, want)
	}
	if got, want := names("-only", "distinct"), []string{"distinct-8", "distinct-64", "distinct-256"}; !slices.Equal(got, want) {
		t.Errorf("-only distinct: %v, want %v", got, want)
	}
	if got, want := names("-only", "redlock"), []string{"redlock"}; !slices.Equal(got, want) {
		t.Errorf("-only redlock: %v, want %v: it is a name", got, want)
	}
	for _, bad := range [][]string{
		{"-reps", "0"}, {"-reps", "-1", "-with", "x"}, {"-only", "nothing"}, {"-who", "nobody"}, {"solo"},
		{"-update", "x", "-quick"}, {"-update", "x", "-who", "redsync"},
	} {
		if _, err := parse(bad); err == nil {
			t.Errorf("parse(%q) = nil, want an error", bad)
		}
	}
}

func TestModel(t *testing.T) {
	if got := model("processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\n"); got != "Some CPU @ 2.50GHz" {
		t.Errorf("model = %q, want Some CPU @ 2.50GHz", got)
	}
	if got := model("processor\t: 0\n"); got != "unknown" {
		t.Errorf("model = %q, want unknown", got)
	}
}

// TestDraw: a plot has its lines, its legend and both axes.
func TestDraw(t *testing.T) {
	o := &outcome{
		scenario: scenario{
			name: "growth-x", who: []string{"fairqueue", "setnxpx"}, xs: []int{1, 10, 100},
			panels: []panel{{"a", "first unit", "things"}, {"b", "second unit", "things"}},
		},
		reps: 1, got: map[entry][]values{},
	}
	for _, w := range o.who {
		for _, x := range o.xs {
			o.got[entry{w, x}] = []values{{"a": float64(x), "b": 3}}
		}
	}
	dir := t.TempDir()
	if err := o.draw(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(dir + "/growth-x.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">fairqueue<", ">setnxpx<", ">first unit<", ">second unit<", ">things<"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the plot has no %q", want)
		}
	}
	for _, c := range [][4]float64{{3, 4, 1, 10}, {1, 1, 1, 10}, {0.2, 150, 0.1, 1000}, {10, 100, 10, 100}} {
		if from, to := decadesAround(c[0], c[1]); from != c[2] || to != c[3] {
			t.Errorf("decades around %v … %v: %v … %v, want %v … %v", c[0], c[1], from, to, c[2], c[3])
		}
	}
	for e := range o.got {
		o.got[e] = []values{{"a": 0}}
	}
	if err := o.draw(t.TempDir()); err == nil {
		t.Error("drawn of nothing: nil, want an error")
	}
}

// TestDrawBars: a bar for each contestant.
func TestDrawBars(t *testing.T) {
	o := &outcome{
		scenario: scenario{name: "loop-x", who: []string{"redsync", "fairqueue", "setnxpx"}, bars: panel{unit: "a", x: "things per second"}},
		reps:     1, got: map[entry][]values{{"redsync", 0}: {{"a": 2}}, {"fairqueue", 0}: {{"a": 40_000}}, {"setnxpx", 0}: {{stuck: 1}}},
	}
	dir := t.TempDir()
	if err := o.draw(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(dir + "/loop-x.svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">redsync<", ">fairqueue<", ">things per second<", ">" + grouped(40_000) + "<"} {

		if !strings.Contains(string(b), want) {
			t.Errorf("the plot has no %q", want)
		}
	}
}

// TestEarlier: what runs have printed is put together by repetition, though one of them was
// interrupted.
func TestEarlier(t *testing.T) {
	var out bytes.Buffer
	first := newBenchWriter(&out, machine{cpu: "CPU", redis: "Redis 9"}, 7)
	second := newBenchWriter(&out, machine{cpu: "CPU", redis: "Redis 9"}, 8)
	write := func(l *benchWriter, scenario string, e entry, v float64) {
		if err := l.write(scenario, e, values{"p50-µs": v}); err != nil {
			t.Fatal(err)
		}
	}
	raw, fairqueue := entry{"raw", 0}, entry{"fairqueue", 0}
	write(first, "solo", raw, 1)
	write(first, "solo", fairqueue, 2)
	write(first, "growth-names", entry{"fairqueue", 10}, 9)
	write(first, "solo", fairqueue, 3) // the next repetition, interrupted
	out.WriteString("| raw | 5 |\nBenchmarkElse-2 1 5 ns/op\nBenchmarkSolo/nobody-2 1 5 p50-µs\n")
	write(second, "solo", raw, 4)
	write(second, "solo", fairqueue, 5)

	e, err := parseLines(&out, "test")
	if err != nil || e.redis != "Redis 9" || e.cpu != "CPU" {
		t.Fatalf("parseLines = %q, %q, %v, want Redis 9, CPU", e.redis, e.cpu, err)
	}
	o := &outcome{scenario: scenario{name: "solo", who: []string{"raw", "fairqueue"}}, reps: 1, got: map[entry][]values{
		raw: {{"p50-µs": 6}}, fairqueue: {{"p50-µs": 7}},
	}}
	e.add(o)
	if got := fmt.Sprint(o.series("raw", 0, "p50-µs"), o.series("fairqueue", 0, "p50-µs")); got != "[1 NaN 4 6] [2 3 5 7]" {
		t.Errorf("the repetitions are %s, want [1 NaN 4 6] [2 3 5 7]", got)
	}
	if got := e.repetitions["growth-names"]; len(got) != 1 || got[0][entry{"fairqueue", 10}]["p50-µs"] != 9 {
		t.Errorf("growth-names: %v, want 9 for fairqueue with 10", got)
	}
	if _, err := parseLines(strings.NewReader("nothing\n"), "test"); err == nil {
		t.Error("nothing was measured: nil, want an error")
	}
}
