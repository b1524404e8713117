package history

// The picture and the summary that show a violation in a history.

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// spoiled is a history of five clients with one violation of exclusion.
func spoiled(t *testing.T) ([]Op, []Violation) {
	r := worlds()["rough"]
	r.clients, r.length = 5, 30*time.Second
	ops := simulate(r, 7)
	const base = 1000 * time.Hour // as Now may show
	fence := uint64(1763728393000000)
	for i, op := range ops {
		ops[i].Start, ops[i].End = op.Start+base, op.End+base
		if op.Deadline != 0 {
			ops[i].Deadline += base
		}
		if op.Fence != 0 {
			ops[i].Fence += fence
		}
	}
	b := bookOf(ops)
	for i, op := range ops {
		if op.Start > base+20*time.Second && op.Result == Held && b.within(op, 10*ms) {
			ops[i].Result, ops[i].Hold, ops[i].Owner, ops[i].Fence, ops[i].Deadline = OK, "stolen", "stolen", fence+99999, op.End+60*ms
			break
		}
	}
	v := Judge(ops, Rules{})
	if len(v) == 0 {
		t.Fatal("no violation")
	}
	return ops, v
}

func TestPicture(t *testing.T) {
	t.Parallel()
	ops, v := spoiled(t)
	var out bytes.Buffer
	if err := Picture(&out, ops, v, "luascript <seed 7>"); err != nil {
		t.Fatal(err)
	}
	if file := os.Getenv("PICTURE"); file != "" {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	html := out.String()
	for _, want := range []string{"luascript &lt;seed 7&gt;", v[0].Sentence[:20], "freeze the server", ">A<", ">E<", "hold odd", "acquisitions in"} {
		if !strings.Contains(html, want) {
			t.Errorf("the picture does not have %q", want)
		}
	}
	for _, foreign := range []string{"src=", "href=", "url(", "@import", "<script", "ZgotmplZ", "3600020"} {
		if strings.Contains(html, foreign) {
			t.Errorf("the picture has %q: it is to need nothing but itself, and to count from its beginning", foreign)
		}
	}
	if n := strings.Count(html, "\n"); n < len(ops) {
		t.Errorf("%d lines for %d operations", n, len(ops))
	}
	svgs := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(html, -1)
	if len(svgs) != 2 {
		t.Fatalf("%d drawings, want 2", len(svgs))
	}
	for _, svg := range svgs {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("the drawing is no XML: %v", err)
			}
		}
	}
}

// A long history is cut to where the violation was seen.
func TestPictureOfMuch(t *testing.T) {
	t.Parallel()
	var ops []Op
	for i := range 3 * mostOps {
		at := time.Duration(i) * ms
		ops = append(ops, Op{Client: "A", Kind: KindAcquire, Key: "k", Start: at, End: at + 1, Result: Held, Note: fmt.Sprint("number ", i)})
	}
	var out bytes.Buffer
	if err := Picture(&out, ops, []Violation{{Property: "P", Sentence: "S", Ops: []Op{ops[2*mostOps]}}}, "much"); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"number 40000": true, "number 31000": true, "number 50001": false, "number 29999": false, "60000 operations": true} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("the picture has %q: %v, want %v", text, !want, want)
		}
	}
}

// A history without anything in it, or without a violation, has a picture, too.
func TestPictureOfLittle(t *testing.T) {
	t.Parallel()
	for _, ops := range [][]Op{nil, {{Kind: KindFault, Start: 5, End: Forever}}, simulate(worlds()["calm"], 1)} {
		var out bytes.Buffer
		if err := Picture(&out, ops, nil, "nothing"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "No violation") {
			t.Error("the picture does not say that there is no violation")
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	s := Summarize(ops(t, `
		A acquire 10-15 ok hold=a until=97
		B acquire 11-14 held
		B acquire 14-30 ok hold=b until=120
		A release 20-25 ok hold=a
		C acquire 12- unknown
		freeze fault 40-60
		freeze fault 50-70
		cut fault 100-
		A acquire 100-110 ok hold=c until=190`))
	want := `3 acquisitions in 100ms, by 2 clients (2 A, 1 B), 2 of them not released
wait: median 10ms, 99 % 19ms, longest 19ms
contention: 2.3 on average were trying when somebody got the lock, 3 at most
acquire: 3 ok, 1 held, 1 unknown
release: 1 ok
faults: 3, lasting for 40ms (2 freeze, 1 cut)`
	if s.String() != want {
		t.Errorf("got\n%v\nwant\n%v", s, want)
	}
	if got := Summarize(nil).String(); !strings.Contains(got, "0 acquisitions") {
		t.Errorf("of nothing: %s", got)
	}
}
