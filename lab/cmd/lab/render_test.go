package main

// The program lab: how reports look on a terminal.

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/lockstrategies/locks/lab/compare"
)

var update = flag.Bool("update", false, "write the golden files again")

func row(title string, v compare.Rating, p ...compare.Property) compare.Guarantee {
	return compare.Guarantee{Title: title, Verdict: v, Properties: p}
}

// fixed is a report with one of everything. Its figures are made up.
func fixed() *compare.Report {
	kept := func(name string) compare.Property {
		return compare.Property{Name: name, Clause: "A clause.", Verdict: compare.Kept, Took: 1.5}
	}
	weak := func(reason string) compare.Property {
		return compare.Property{
			Name: "ReleaseOnlyOwn", Clause: "A release that comes late changes nothing.", Verdict: compare.Weak,
			Reason: reason, Evidence: "C.TryAcquire() = <nil>, want ErrHeld: B holds the lock: A must not release it",
			History: []string{"10µs A.TryAcquire() = <nil>", "20µs A.Release() = <nil>"},
		}
	}
	absent := compare.Property{Name: "FenceRises", Clause: "Fences rise.", Verdict: compare.Absent, Reason: "no fences"}
	failed := compare.Property{Name: "Processes", Clause: "One at a time.", Verdict: compare.Failed, Evidence: "child 2 ended\nwith much to say"}
	one, zero := 1, 0
	request := func(trips float64, names ...string) compare.Requests {
		r := compare.Requests{RoundTrips: trips, InTurn: int(trips)}
		for _, n := range names {
			r.Commands = append(r.Commands, compare.Commands{Name: n, Times: 1})
		}
		return r
	}
	five := compare.Requests{RoundTrips: 5, InTurn: 1, Commands: []compare.Commands{{Name: "EVALSHA", Times: 5}}}
	uneven := five
	uneven.RoundTrips = 6.5
	latency := func(us float64) compare.Latency {
		return compare.Latency{Count: 1000, P50: us, P90: 1.5 * us, P99: 3 * us, Max: 10 * us}
	}
	contention := func(x float64) []compare.Contention {
		return []compare.Contention{
			{Contenders: 1, PerSecond: x, Lowest: 0.9 * x, Highest: 1.1 * x, Jain: 1},
			{Contenders: 64, PerSecond: x / 10, Lowest: x / 11, Highest: x / 9, Jain: 0.5},
		}
	}
	return &compare.Report{
		Version: "v0.1.0", Began: time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC), Took: 50_000,
		Redis:   compare.Redis{Choice: "redis: a server", Kind: "docker", Version: "Redis 7.0.15", Addr: "127.0.0.1:6379", Comparable: true},
		Machine: compare.Machine{OS: "linux", Arch: "amd64", CPUs: 2, Go: "go1.25.0"},
		Method:  compare.Method{Each: 2000, WarmUp: 130, Rounds: 3, Hold: 1, Contenders: []int{1, 64}},
		Ping:    &compare.Ping{Latency: latency(50), Control: 1.02},
		Strategies: []compare.Column{
			{
				Name: "setnxpx-blind", Servers: 1, Summary: "blind",
				Guarantees: []compare.Guarantee{
					row("one holder at a time", compare.Kept, kept("Exclusive"), kept("Contention")),
					row("… among processes too", compare.Kept, kept("Processes")),
					row("a late release is harmless", compare.Weak, weak("DEL does not compare")),
					row("every hold has a greater fence", compare.Absent, absent),
				},
				Cost:       &compare.Cost{Acquire: request(1, "SET"), Release: request(1, "DEL"), HeldTry: request(2, "SET", "GET"), KeysLeft: &zero},
				Solo:       &compare.Solo{Latency: latency(104.4), PerPing: 2.09},
				HandOff:    &compare.HandOff{Latency: latency(1234), PerPing: 24.7, Commands: 4.56},
				Contention: contention(9876),
			},
			{
				Name: "setnxpx", Servers: 1, Summary: "two steps",
				Guarantees: []compare.Guarantee{
					row("one holder at a time", compare.Kept, kept("Exclusive"), kept("Contention")),
					row("… among processes too", compare.Failed, failed),
					row("a late release is harmless", compare.Weak, weak("GET and DEL are two steps")),
					row("every hold has a greater fence", compare.Absent, absent),
				},
				Cost:     &compare.Cost{Acquire: request(1, "SET"), Release: request(2, "GET", "DEL"), HeldTry: request(2, "SET", "GET"), KeysLeft: &zero},
				Failures: []compare.Failure{{Measurement: compare.MeasuringSolo, Error: "127.0.0.1:6379: refused by the server: OOM"}},
			},
			{
				Name: "redlock", Servers: 5, Summary: "a majority",
				Guarantees: []compare.Guarantee{
					row("one holder at a time", compare.Kept, kept("Exclusive"), kept("Contention")),
					row("… among processes too", compare.Kept, kept("Processes")),
					row("a late release is harmless", compare.Kept, kept("ReleaseOnlyOwn")),
					row("every hold has a greater fence", compare.Kept, kept("FenceRises")),
				},
				Cost:       &compare.Cost{Acquire: five, Release: five, HeldTry: uneven, KeysLeft: &one},
				Solo:       &compare.Solo{Latency: latency(120), PerPing: 2.4},
				HandOff:    &compare.HandOff{Latency: latency(203), PerPing: 4.06, Commands: 6},
				Contention: contention(123_456),
			},
			{
				Name: "a-strategy-to-come", Servers: 1, Summary: "not measured",
				Guarantees: []compare.Guarantee{
					row("one holder at a time", compare.Unknown, compare.Property{Name: "Exclusive", Clause: "A clause."}),
					row("… among processes too", compare.Unknown, compare.Property{Name: "Processes", Clause: "A clause."}),
					row("a late release is harmless", compare.Unknown, compare.Property{Name: "ReleaseOnlyOwn", Clause: "A clause."}),
					row("every hold has a greater fence", compare.Unknown, compare.Property{Name: "FenceRises", Clause: "A clause."}),
				},
			},
		},
		LeftOut: []compare.LeftOut{{Name: "more", Servers: 7}},
		Advice: []compare.Advice{
			{For: "production", Strategies: []string{"redlock"}, Why: "No weakness was seen here, on this Redis, with these servers, and by these trials."},
			{For: "something else", Why: "none of these."},
		},
	}
}

func TestRender(t *testing.T) {
	embedded := func() *compare.Report {
		r := fixed()
		r.Redis = compare.Redis{Kind: "embedded", Version: "?", Addr: "127.0.0.1:1"}
		r.Strategies = r.Strategies[:3]
		return r
	}
	interrupted := func() *compare.Report {
		r := fixed()
		r.Interrupted, r.Ping, r.Advice = true, nil, nil
		for i := range r.Strategies {
			s := &r.Strategies[i]
			s.Solo, s.HandOff, s.Contention, s.Failures = nil, nil, nil, nil
			s.Guarantees[3] = row("every hold has a greater fence", compare.Unknown) // of any: the row is left out
		}
		return r
	}
	for name, c := range map[string]struct {
		r *compare.Report
		l look
	}{
		"width80":     {fixed(), look{width: 80}},
		"colour":      {fixed(), look{width: 120, colour: true}},
		"embedded":    {embedded(), look{width: 80}},
		"interrupted": {interrupted(), look{width: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			wantRendered(t, name, render(c.r, c.l), c.l)
		})
	}
	r := fixed()
	r.Interrupted, r.Strategies, r.Ping, r.Advice = true, nil, nil, nil
	if got := render(r, look{width: 80}); got != "" {
		t.Errorf("render() of what was interrupted at once = %q, want nothing", got)
	}
}

// wantRendered: the text is that of a golden file, as wide as the look allows, and in its colours.
func wantRendered(t *testing.T, name, got string, l look) {
	t.Helper()
	wantShape(t, got, l.width)
	if strings.Contains(got, "\x1b") != l.colour {
		t.Errorf("there are colours: %v, want %v", !l.colour, l.colour)
	}
	wantGolden(t, name+".txt", got, func(s string) string { return s })
}

// TestProgress: a terminal has one line that changes, a log a line now and then.
func TestProgress(t *testing.T) {
	now := compare.Progress{Doing: "something", Done: 10 * time.Second, Until: 20 * time.Second, Total: 40 * time.Second}
	const line = " 25 %, about 30s left: something"
	for _, c := range []struct {
		p    progress
		want string
	}{
		{progress{due: time.Now().Add(time.Hour)}, ""},
		{progress{}, line + "\n"}, // and no second one at once
		{progress{width: 80}, strings.Repeat("\r\x1b[K"+line, 2) + "\r\x1b[K"},
	} {
		var b strings.Builder
		c.p.w = &b
		c.p.set(now)
		c.p.set(now)
		c.p.end()
		if b.String() != c.want {
			t.Errorf("progress says %q, want %q", b.String(), c.want)
		}
	}
}
