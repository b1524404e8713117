package report_test

// The report as a page: it loads nothing, loses nothing that was measured, and every link in it has a target.

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/lab/report"
	"github.com/lockstrategies/locks/lab/report/sample"
)

func write(t *testing.T, r report.Report) string {
	t.Helper()
	var b strings.Builder
	if err := report.Write(&b, r); err != nil {
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

// TestSelfContained: the page asks for nothing, and runs nothing, whatever words come into it.
func TestSelfContained(t *testing.T) {
	page := write(t, sample.Report())
	text, elements := read(t, page)
	for _, e := range elements {
		switch e.Name.Local {
		case "script", "img", "iframe", "object", "embed", "form", "base", "video", "audio":
			t.Errorf("there is a <%s>", e.Name.Local)
		}
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "href":
				outside := e.Name.Local == "a" && strings.HasPrefix(a.Value, "http") // nothing is fetched before a reader goes there
				if !strings.HasPrefix(a.Value, "#") && a.Value != "data:," && !outside {
					t.Errorf("<%s> refers to %q", e.Name.Local, a.Value)
				}
			case "src", "srcset", "xlink":
				t.Errorf("<%s> has %s %q", e.Name.Local, a.Name.Local, a.Value)
			}
			if strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("<%s> has %s", e.Name.Local, a.Name.Local)
			}
		}
	}
	if found := regexp.MustCompile(`url\(|@import`).FindString(page); found != "" {
		t.Errorf("the style has %q", found)
	}
	hostile := strings.Join(strings.Fields(sample.Hostile), " ")
	if n := strings.Count(text, hostile); n < 10 {
		t.Errorf("the page shows the hostile words %d times as they are, want wherever they were given", n)
	}
	if strings.Contains(page, "ZgotmplZ") {
		t.Error("html/template has refused a value")
	}
}

// TestNothingIsLost: what happened, and what was said of it, is in the page, in words.
func TestNothingIsLost(t *testing.T) {
	r := sample.Report()
	text, _ := read(t, write(t, r))
	var want []string
	for _, l := range r.Lessons {
		want = append(want, l.Title, l.Idea, l.Fix, l.Why)
		for _, a := range l.Acts {
			want = append(want, a.Title)
			for _, r := range a.Rows() {
				want = append(want, r.Text, r.Answer)
				if r.Kind == lessons.Send || r.Kind == lessons.Look {
					want = append(want, r.Command())
				}
				for _, a := range r.Answers {
					if len(r.Servers) > 1 {
						want = append(want, strings.Join(a.From, ", ")+": ")
					}
					want = append(want, a.Text)
				}
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
	for _, s := range r.Comparison.Strategies {
		want = append(want, s.Name)
		for _, g := range s.Guarantees {
			want = append(want, g.Title, g.Verdict.Meaning())
		}
	}
	for _, a := range r.Comparison.Advice {
		want = append(want, a.For, a.Why)
	}
	want = append(want, "redlock, which takes 5 servers", "the release does not compare", "seen </style>", "Not expected. with-a-very-long-name", "measuring one caller failed")
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

// TestNames: each picture has a name, each link and each reference a target, and only one.
func TestNames(t *testing.T) {
	page := write(t, sample.Report())
	_, elements := read(t, page)
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
		for _, name := range []string{"href", "aria-labelledby", "aria-describedby"} {
			to := strings.TrimPrefix(attribute(e, name), "#")
			if to != "" && to != "data:," && !strings.HasPrefix(to, "http") && ids[to] == 0 {
				t.Errorf("<%s %s> refers to %q, which is not there", e.Name.Local, name, to)
			}
		}
	}
	for _, svg := range regexp.MustCompile(`<svg[^>]*>(<title>[^<]+</title>)?`).FindAllStringSubmatch(page, -1) {
		hidden, named := strings.Contains(svg[0], `aria-hidden="true"`), strings.Contains(svg[0], `role="img"`) && svg[1] != ""
		if !hidden && !named && !strings.Contains(svg[0], `y="100%"`) { // a part of another
			t.Errorf("%s has no name", svg[0])
		}
	}
	text := html.UnescapeString(page)
	for _, want := range []string{"A asks redis, and is answered", "redis answers B", "redis tells B", "B asks replica, and hears nothing", "a-long-name does not reach replica", "B hears nothing from redis", "A asks n1, n2, n3, and is answered"} {
		if !strings.Contains(text, "<title>"+want+"</title>") {
			t.Errorf("no strip is called %q", want)
		}
	}
}

// TestEmpty: of what is not there the page says nothing.
func TestEmpty(t *testing.T) {
	for name, r := range map[string]report.Report{
		"nothing":      {},
		"a lesson":     {Lessons: []report.Lesson{{Result: lessons.Result{Number: 1, Name: "one", Acts: []lessons.Trace{{Actors: []lessons.Actor{{Name: "A"}}}}}}}},
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
			ids := map[string]bool{}
			for _, e := range elements {
				ids[attribute(e, "id")] = true
			}
			for _, e := range elements {
				if to, ok := strings.CutPrefix(attribute(e, "href"), "#"); ok && !ids[to] {
					t.Errorf("there is a link to #%s, which is not there", to)
				}
			}
		})
	}
}

// TestImitation: that times mean nothing is said above, and where they are.
func TestImitation(t *testing.T) {
	r := sample.Report()
	const warning = "Times mean nothing here."
	if text, _ := read(t, write(t, r)); strings.Contains(text, warning) {
		t.Error("the page warns of times of a real server")
	}
	r.Imitation = true
	if text, _ := read(t, write(t, r)); strings.Count(text, warning) != 2 {
		t.Errorf("the page warns %d times, want at its top and next to the plots", strings.Count(text, warning))
	}
}
