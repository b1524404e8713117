package history

// The picture and the summary that show a violation in a history.

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestPicture: a page shows the violation, and what happened near it; it needs nothing but itself.
func TestPicture(t *testing.T) {
	t.Parallel()
	all := ops(t, `
		A acquire 0-5 ok hold=first until=97
		A acquire 60000-60005 ok hold=a until=60097
		freeze fault 60020-60050
		B acquire 60060-60065 ok hold=b until=60150
		C acquire 60061- unknown
		C acquire 80000-80001 held`)
	var out bytes.Buffer
	if err := Picture(&out, all, Exclusion(all, Rules{}), "seed <7>"); err != nil {
		t.Fatal(err)
	}
	for want, there := range map[string]bool{
		"seed &lt;7&gt;": true, "A and B both believed": true, "freeze": true, "hold odd": true, ">C<": true,
		"hold first": false, "80.0": false, "src=": false, "href=": false, "url(": false, "<script": false, "ZgotmplZ": false,
	} {
		if strings.Contains(out.String(), want) != there {
			t.Errorf("the page has %q: %v, want %v", want, !there, there)
		}
	}
	for _, little := range [][]Op{nil, {{Kind: KindFault, Start: 5, End: Forever}}, all[:1]} {
		out.Reset()
		if err := Picture(&out, little, nil, ""); err != nil || !strings.Contains(out.String(), "No violation") {
			t.Errorf("of %v: %v, want a page that says that there is no violation", little, err)
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
acquire: 3 ok, 1 held, 1 unknown
release: 1 ok
faults: 2 freeze, 1 cut`
	if s.String() != want || s.Length != 100*time.Millisecond {
		t.Errorf("got\n%v\nwant\n%v", s, want)
	}
	if got := Summarize(nil).String(); !strings.Contains(got, "0 acquisitions") {
		t.Errorf("of nothing: %s", got)
	}
}
