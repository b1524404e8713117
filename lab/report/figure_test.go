package report

// The figures of the report: the diagram of a trace row by row, charts, and the contention of strategies.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/lessons"
)

// drawn is a row in short: its lines by actor, then its arrows and marks.
func drawn(f figure, r row) string {
	who := map[string]string{}
	for _, h := range f.Heads {
		who[h.X] = h.Name
	}
	var parts []string
	for _, l := range r.Lines {
		parts = append(parts, fmt.Sprintf("%s:%s[%s,%s]", who[l.X], strings.ReplaceAll(l.Class, " ", "+"), l.Y1, l.Y2))
	}
	for _, a := range slices.Concat(r.Arrows, r.Back) {
		parts = append(parts, who[a.X1]+"-"+a.Head+"-"+who[a.X2])
	}
	for _, m := range r.Marks {
		parts = append(parts, m.Symbol+"@"+who[m.X])
	}
	return strings.Join(parts, " ")
}

func TestFigure(t *testing.T) {
	state := func(who string, c lessons.Condition) lessons.Event {
		return lessons.Event{Kind: lessons.State, From: who, Condition: c}
	}
	f := newFigure("x", 0, lessons.Trace{
		Actors: []lessons.Actor{{Name: "A"}, {Name: "B"}, {Name: "r", Server: true}},
		Events: []lessons.Event{
			{Kind: lessons.Send, From: "A", To: "r"}, {Kind: lessons.Reply, From: "r", To: "A", Of: 0, Answer: "OK"},
			state("A", lessons.Holds),
			state("A", lessons.Paused),
			{Kind: lessons.Look, To: "r"},
			state("B", lessons.Holds),
			{Kind: lessons.Violation},
			state("A", lessons.Dead),
			{Kind: lessons.Note},
			state("r", lessons.Dead),
			{Kind: lessons.Send, From: "B", To: "r"}, {Kind: lessons.Reply, From: "r", To: "B", Of: 10, Answer: "(no answer)"},
			state("r", lessons.Alive),
			{Kind: lessons.Message, From: "r", To: "B"},
			state("B", lessons.Ended),
		},
	})
	want := []string{
		"A:line[-1,100%] B:line[-1,100%] r:line[-1,100%] A-sent-right-r r-reply-left-A",
		"A:line[-1,13] B:line[-1,100%] r:line[-1,100%] A:hold[13,100%]",
		"A:hold[-1,13] B:line[-1,100%] r:line[-1,100%] A:hold+paused[13,100%]",
		"A:hold+paused[-1,100%] B:line[-1,100%] r:line[-1,100%] look@r",
		"A:hold+paused[-1,100%] B:line[-1,13] r:line[-1,100%] B:hold[13,100%]",
		"A:hold+paused+both[-1,100%] B:hold+both[-1,100%] r:line[-1,100%]",
		"A:hold+paused+both[-1,13] B:hold+both[-1,100%] r:line[-1,100%] dead@A",
		"B:hold[-1,100%] r:line[-1,100%]",
		"B:hold[-1,100%] r:line[-1,13] dead@r",
		"B:hold[-1,100%] B-sent-right-r unheard@B",
		"B:hold[-1,100%] r:line[13,100%]",
		"B:hold[-1,100%] r:line[-1,100%] r-reply-left-B",
		"B:hold[-1,13] r:line[-1,100%] B:line[13,100%]",
	}
	if len(f.Rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(f.Rows), len(want))
	}
	for i, r := range f.Rows {
		if got := drawn(f, r); got != want[i] {
			t.Errorf("row %d is\n%s\nwant\n%s", i, got, want[i])
		}
	}
	if f.Width != "3.4" || f.UprightPhone || f.UprightWide {
		t.Errorf("%s columns wide, upright %v, %v: want 3.4, and short names as they are read", f.Width, f.UprightPhone, f.UprightWide)
	}
	wide := lessons.Trace{}
	for i := range 8 {
		wide.Actors = append(wide.Actors, lessons.Actor{Name: fmt.Sprintf("name-%d", i)})
	}
	if f := newFigure("x", 0, wide); !f.UprightPhone || !f.UprightWide {
		t.Error("eight long names lie across each other")
	}
}

func TestChartsFit(t *testing.T) {
	latency := func(p50, p99 float64) *compare.Solo {
		return &compare.Solo{Latency: compare.Latency{P50: p50, P99: p99}}
	}
	for name, c := range map[string]struct {
		of   []*compare.Solo
		want string
	}{
		"the longest tail fills the room":  {[]*compare.Solo{latency(100, 200), latency(50, 60)}, "50.00%/100.00% 25.00%/30.00%"},
		"a tail beyond all bounds is cut":  {[]*compare.Solo{latency(100, 1e6), latency(50, 150)}, "33.33%/100.00% 16.67%/50.00%"},
		"nothing took any time":            {[]*compare.Solo{latency(0, 0)}, "0.00%/0.00%"},
		"what was not measured has no bar": {[]*compare.Solo{latency(1, 1), nil}, "100.00%/100.00%"},
	} {
		r := &compare.Report{}
		for _, s := range c.of {
			r.Strategies = append(r.Strategies, compare.Column{Solo: s})
		}
		var got []string
		for _, b := range charts(r)[0].Bars {
			got = append(got, b.Length+"/"+b.Tail)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", name, s, c.want)
		}
	}
}

func TestRace(t *testing.T) {
	r := &compare.Report{Method: compare.Method{Contenders: []int{1, 8, 64}}, Strategies: []compare.Column{
		{Name: "a", Contention: []compare.Contention{{Contenders: 1, PerSecond: 100, Lowest: 50, Highest: 1000}, {Contenders: 64, PerSecond: 100_000}}},
		{Name: "not measured"},
	}}
	got := newRace(r)
	if len(got.Runners) != 1 || len(got.Marks) != 4 || got.Marks[0] != (tick{"0.00%", "100"}) || got.Marks[3] != (tick{"100.00%", "100 k"}) {
		t.Fatalf("%+v, want one runner, from 100 to 100 k", got)
	}
	lanes := got.Runners[0].Lanes
	if l := lanes[0]; l.X != "0.00%" || l.Low != "0.00%" || l.High != "33.33%" || l.Left {
		t.Errorf("the first lane is %+v", l)
	}
	if l := lanes[1]; l.X != "100.00%" || !l.Left {
		t.Errorf("the second lane is %+v, want its words within the page", l)
	}
	if cells := got.Cells(got.Runners[0]); cells[0] == nil || cells[1] != nil || cells[2] == nil {
		t.Errorf("cells %v, want none for 8", cells)
	}
}
