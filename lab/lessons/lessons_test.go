package lessons

// Tests what the lessons come to when nobody watches their steps, and what each has to show.

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// shown are the verdicts that the acts of each lesson come to, in order: what is computed
// from the servers and the history is held here, and nowhere else.
var shown = map[string][]string{
	"setnx": {
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT; a dead holder's lock comes free: VIOLATED",
		"one holder at a time: KEPT; a dead holder's lock comes free: KEPT",
	},
	"expire": {
		"a dead holder's lock comes free: VIOLATED",
		"one holder at a time: KEPT; a dead holder's lock comes free: KEPT",
	},
	"take-over": {
		"a dead holder's lock comes free: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
	},
	"getset": {
		"nobody but the holder moves its deadline: VIOLATED; one holder at a time: KEPT",
		"nobody but the holder moves its deadline: VIOLATED; one holder at a time: VIOLATED",
	},
	"clock": {
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	},
	"servicestack": {
		"nobody but the holder moves its deadline: KEPT; one holder at a time: KEPT",
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	},
	"fixed-value": {
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
	},
	"compare-delete": {
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: VIOLATED; one holder at a time: VIOLATED",
	},
	"lua": {
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
		"only its holder ends a hold: KEPT; one holder at a time: KEPT",
	},
	"watchdog": {
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
		"a dead holder's lock comes free: VIOLATED",
		"one holder at a time: KEPT; a dead holder's lock comes free: KEPT",
	},
	"fence": {
		"one holder at a time: VIOLATED; the store takes no write of a holder whose lock is lost: VIOLATED",
		"one holder at a time: VIOLATED; the store takes no write of a holder whose lock is lost: KEPT",
	},
	"reentrant": {
		"a holder may enter again: VIOLATED",
		"a holder may enter again: KEPT; one holder at a time: VIOLATED; an inner release ends no outer hold: VIOLATED",
		"a holder may enter again: KEPT; one holder at a time: VIOLATED; only its holder ends a hold: VIOLATED",
		"a holder may enter again: KEPT; one holder at a time: KEPT; only its holder ends a hold: KEPT",
	},
	"power-loss": {
		"one holder at a time: VIOLATED",
		"one holder at a time: VIOLATED",
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	},
	"fail-over": {
		"one holder at a time: VIOLATED; who asks is served within a TTL: KEPT",
		"one holder at a time: KEPT; who asks is served within a TTL: VIOLATED",
		"one holder at a time: KEPT; who asks is served within a TTL: KEPT",
		"one holder at a time: VIOLATED; who asks is served within a TTL: KEPT",
	},
	"quorum": {
		"one holder at a time: KEPT; the lock is available though servers are dead: KEPT",
		"the lock is available though servers are dead: VIOLATED; an outage is not called held: KEPT",
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT",
	},
	"split-votes": {
		"of those who ask for a free lock, one gets it: VIOLATED",
		"of those who ask for a free lock, one gets it: KEPT",
	},
	"fast-clock": {
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT; a holder stops before its majority ends: KEPT",
	},
	"restart": {
		"one holder at a time: VIOLATED",
		"one holder at a time: KEPT; the lock is available though servers are dead: KEPT",
	},
	"redlock-fence": {
		"one holder at a time: KEPT; fences rise: VIOLATED; the store takes no write of a holder whose lock is lost: VIOLATED",
		"one holder at a time: KEPT; fences rise: KEPT; the store takes no write of a holder whose lock is lost: KEPT",
		"one holder at a time: KEPT; fences rise: KEPT; the store takes no write of a holder whose lock is lost: KEPT",
	},
	"late-grant": {
		"a lock that nobody holds is free: VIOLATED",
		"a lock that nobody holds is free: KEPT",
		"a lock that nobody holds is free: KEPT",
		"a lock that nobody holds is free: KEPT",
	},
	"herd": {
		"one holder at a time: KEPT; who comes first is served first: VIOLATED; a hand-off costs the same however many wait: VIOLATED",
		"one holder at a time: KEPT; who comes first is served first: VIOLATED; a hand-off costs the same however many wait: VIOLATED",
		"one holder at a time: KEPT; who comes first is served first: KEPT; a hand-off costs the same however many wait: KEPT",
	},
	"flash-sale": {
		"no more is sold than there is: VIOLATED",
		"no more is sold than there is: KEPT",
		// no lock; both forms of the lock, the transaction, and the script
		"no more is sold than there is: VIOLATED; no more is sold than there is: KEPT; no more is sold than there is: KEPT; " +
			"no more is sold than there is: KEPT; no more is sold than there is: KEPT",
	},
	"clock-back": {
		"a dead holder's lock comes free: VIOLATED; one holder at a time: KEPT",
		"a dead holder's lock comes free: KEPT; one holder at a time: KEPT",
	},
	"wait-zero": {
		"one holder at a time: VIOLATED",
		"a lock that nobody holds is free: VIOLATED",
		"a lock that nobody holds is free: KEPT; one holder at a time: KEPT",
		"a lock that nobody holds is free: KEPT",
	},
	"permits": {
		"never more holders than permits: KEPT; a dead holder's lock comes free: VIOLATED",
		"never more holders than permits: VIOLATED",
		"never more holders than permits: KEPT; a dead holder's lock comes free: KEPT",
		"never more holders than permits: KEPT; who comes first is served first: KEPT; who waits is served in the step that makes room: KEPT",
	},
	"readers": {
		"nobody writes while another reads or writes: KEPT; a dead holder's lock comes free: VIOLATED",
		"nobody writes while another reads or writes: KEPT; a dead holder's lock comes free: VIOLATED",
		"nobody writes while another reads or writes: KEPT; a writer waits for no reader that came after it: VIOLATED",
		"nobody writes while another reads or writes: KEPT; a writer waits for no reader that came after it: KEPT; who waits is served in the step that makes room: KEPT",
		"nobody writes while another reads or writes: KEPT; a dead holder's lock comes free: KEPT",
		"nobody writes while another reads or writes: KEPT; nobody writes between a writer's work and its reading: KEPT",
	},
}

// holds compares the verdicts of a lesson with what it has to show.
func holds(t *testing.T, l Lesson, r Result) {
	t.Helper()
	var got []string
	for _, a := range r.Acts {
		var verdicts []string
		for _, v := range a.Verdicts {
			verdicts = append(verdicts, v.Promise+": "+v.String())
		}
		for _, e := range a.Events { // of a package with a queue nothing is shown as it is on the wire
			if c, ok := asCall(e.Args); ok && c.kind() != "" && e.Means == "" {
				t.Errorf("%s: nothing says in words what this means: %q", a.Title, e.Args)
			}
			if e.Kind == Reply && a.Events[e.Of].Means != "" && e.Means == "" && strings.ContainsAny(e.Answer, "[0123456789") {
				t.Errorf("%s: nothing says in words what this reply means: %s", a.Title, e.Answer)
			}
		}
		slices.Sort(verdicts)
		got = append(got, strings.Join(verdicts, "; "))
		for _, x := range a.Listings {
			for line := range strings.Lines(x.Source) {
				if n := len(strings.TrimSuffix(line, "\n")); n > 76 { // and four before it
					t.Errorf("%s: a line has %d columns: %s", x.Name, n, line)
				}
			}
		}
	}
	want := slices.Clone(shown[l.Name])
	for i := range want {
		parts := strings.Split(want[i], "; ")
		slices.Sort(parts)
		want[i] = strings.Join(parts, "; ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("the acts come to\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
