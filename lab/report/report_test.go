package report

// The report as a page: it loads nothing, loses nothing that was measured, and every link in it has a target.

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/lab/play"
)

func write(t *testing.T, r Report) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// read is the page as a parser sees it: it is XML, too. It returns its texts, and all
// elements with their attributes.
func read(t *testing.T, page string) (text string, elements []xml.StartElement) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	var b strings.Builder
	for {
		switch token, err := d.Token(); token := token.(type) {
		case nil:
			if !errors.Is(err, io.EOF) {
				t.Fatalf("the page is not well-formed: %v", err)
			}
			return strings.Join(strings.Fields(b.String()), " "), elements
		case xml.StartElement:
			elements = append(elements, token.Copy())
		case xml.CharData:
			b.Write(token)
		case xml.EndElement:
			switch token.Name.Local {
			case "a", "span", "strong", "code", "sup": // inside of a line
			default:
				b.WriteByte(' ')
			}
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// TestSelfContained: the page allows itself to load and run nothing, whatever words come into it.
func TestSelfContained(t *testing.T) {
	page := write(t, sample())
	text, elements := read(t, page)
	if !strings.Contains(page, `content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"`) {
		t.Error("the page does not forbid itself to load things")
	}
	for _, e := range elements {
		if slices.Contains([]string{"script", "img", "iframe", "form"}, e.Name.Local) {
			t.Errorf("there is a <%s>", e.Name.Local)
		}
		for _, a := range e.Attr {
			if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "src" {
				t.Errorf("<%s> has %s", e.Name.Local, a.Name.Local)
			}
		}
	}
	words := strings.Join(strings.Fields(hostile), " ")
	if n := strings.Count(text, words); n < 10 {
		t.Errorf("the page shows the hostile words %d times as they are, want wherever they were given", n)
	}
	if strings.Contains(page, "ZgotmplZ") {
		t.Error("html/template has refused a value")
	}
}

// TestNothingIsLost: what happened, and what was said of it, is in the page, in words.
func TestNothingIsLost(t *testing.T) {
	r := sample()
	text, _ := read(t, write(t, r))
	var want []string
	for _, l := range r.Lessons {
		want = append(want, l.Title, l.Idea, l.Fix, l.Why)
		for _, a := range l.Acts {
			want = append(want, a.Title)
			for _, e := range a.Events {
				want = append(append(want, e.Text, e.Answer), e.Args...)
			}
			for _, v := range a.Verdicts {
				want = append(want, v.Promise, v.Because)
			}
			for _, l := range a.Listings {
				want = append(want, l.Name, l.Source)
			}
			for _, table := range a.Tables {
				want = append(append(want, table.Title), table.Head...)
				for _, cells := range table.Rows {
					want = append(want, cells...)
				}
			}
		}
	}
	for _, l := range lessons.All() {
		want = append(want, l.Title, l.Fix)
	}
	for _, v := range faults.Verdicts() {
		want = append(want, v.String()+": "+v.Meaning())
	}
	for _, s := range r.Comparison.Strategies {
		want = append(want, s.Name)
		for _, g := range s.Guarantees {
			want = append(want, g.Title, g.Verdict.Meaning())
		}
	}
	for _, a := range r.Comparison.Advice {
		want = append(want, a.For, a.Why)
	}
	want = append(want, "more, which takes 7 servers", "DEL does not compare", "seen </style>", "Not expected. setnxpx", "measuring one caller failed")
	for _, g := range r.Faults {
		want = append(want, g.Title, g.About)
		for _, f := range g.Faults {
			want = append(want, f.Name, f.Story)
			for _, x := range f.Findings() {
				want = append(want, strings.Join(x.Columns, ", ")+" ("+x.Verdict.String()+"): "+x.Reason)
			}
		}
	}
	for _, w := range want {
		if w = strings.Join(strings.Fields(w), " "); !strings.Contains(text, w) {
			t.Errorf("the page does not say %q", w)
		}
	}
}

// TestParts: of what is not there the page says nothing; each link has a target, and only one.
func TestParts(t *testing.T) {
	for name, r := range map[string]Report{
		"everything":   sample(),
		"nothing":      {},
		"a lesson":     {Lessons: []Lesson{{Result: lessons.Result{Number: 1, Name: "one", Acts: []lessons.Trace{{Actors: []lessons.Actor{{Name: "A"}}}}}}}},
		"a comparison": {Comparison: &compare.Report{}},
		"a strategy":   {Comparison: &compare.Report{Strategies: []compare.Column{{Name: "one"}}, Ping: &compare.Ping{}}},
		"faults":       {Faults: faults.Groups()},
	} {
		t.Run(name, func(t *testing.T) {
			text, elements := read(t, write(t, r))
			for heading, there := range map[string]bool{"What each lock guarantees": r.Comparison != nil, "What becomes of each when things break": r.Faults != nil, "Time goes downwards": r.Lessons != nil} {
				if strings.Contains(text, heading) != there {
					t.Errorf("the page has %q: %v, want %v", heading, !there, there)
				}
			}
			ids := map[string]int{}
			for _, e := range elements {
				if id := attribute(e, "id"); id != "" {
					ids[id]++
				}
			}
			for id, n := range ids {
				if n > 1 {
					t.Errorf("%d elements are called %q", n, id)
				}
			}
			for _, e := range elements {
				for _, name := range []string{"href", "aria-labelledby"} {
					to := strings.TrimPrefix(attribute(e, name), "#")
					if to != "" && to != "data:," && !strings.HasPrefix(to, "http") && ids[to] == 0 {
						t.Errorf("<%s %s> refers to %q, which is not there", e.Name.Local, name, to)
					}
				}
			}
		})
	}
}

// TestLessonsNamed: the lessons to which the tables lead are given, and what they show is in the tables.
func TestLessonsNamed(t *testing.T) {
	var properties, rows []string
	for _, p := range conformance.Properties() {
		properties = append(properties, p.Name)
	}
	for _, f := range faults.All() {
		rows = append(rows, f.Name)
	}
	for what, table := range map[string]struct {
		leads map[string]string
		names []string
	}{"a property": {taughtBy, properties}, "a fault": {shownBy, rows}} {
		for name, lesson := range table.leads {
			if !slices.Contains(table.names, name) {
				t.Errorf("%q is not %s", name, what)
			}
			if _, err := lessons.Find(lesson); err != nil {
				t.Errorf("%s leads to no lesson: %v", name, err)
			}
		}
	}
}

// TestPlay: where the page of the play is there, the lesson of each scene leads to it.
func TestPlay(t *testing.T) {
	r := Report{Play: "play.html"}
	for _, l := range lessons.All() {
		r.Lessons = append(r.Lessons, Lesson{Result: lessons.Result{Number: l.Number, Name: l.Name}})
	}
	led := func() (to []string) {
		_, elements := read(t, write(t, r))
		for _, e := range elements {
			if href := attribute(e, "href"); strings.HasPrefix(href, "play.html#") {
				to = append(to, strings.TrimPrefix(href, "play.html#"))
			}
		}
		return to
	}
	to := led()
	for _, s := range play.Scenes() {
		if !slices.Contains(to, s.Hash()) {
			t.Errorf("no lesson leads to the scene %s (%s): they lead to %q", s.ID, s.Lesson, to)
		}
	}
	if r.Play = ""; led() != nil {
		t.Errorf("without the page they lead to %q", led())
	}
}
