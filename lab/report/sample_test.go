package report

// A report made by hand: nothing in it has run. It has words that a page could take for its own.

import (
	"time"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
)

// hostile is text that is no longer text where somebody forgot to escape it.
const hostile = `</style></title></pre><script>alert("1")</script><img src=http://127.0.0.1:1/x onerror=alert(1)>{{.}}&amp;'"`

// sample is the report.
func sample() Report {
	return Report{
		Version: "v0.0.0 " + hostile, Choice: "redis: by hand, " + hostile, Command: "lab report --quick " + hostile,
		Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61500 * time.Millisecond,
		Lessons: []Lesson{
			{Result: lessons.Result{Number: 1, Name: "every", Title: "Everything that can happen", Idea: "An idea has two sentences. " + hostile, Fix: "Nothing fixes that. " + hostile, Redis: "Redis 0.0.0", Acts: []lessons.Trace{everything(), {Title: "nothing happens"}}}},
			{Result: lessons.Result{Number: 3, Name: "left", Title: "A lesson that was not given", Idea: "It breaks its servers."}, Why: "its servers are not its own " + hostile},
		},
		Comparison: comparison(),
		Faults:     faults.Groups(),
	}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// everything has each part that an act may have; how events are drawn is the lessons' part.
func everything() lessons.Trace {
	return lessons.Trace{
		Title:  "one of everything " + hostile,
		Actors: []lessons.Actor{{Name: "A"}, {Name: "redis", Server: true}},
		Events: []lessons.Event{
			{At: ms(1), Kind: lessons.Send, From: "A", To: "redis", Args: []string{"SET", "lock:{</pre><script>}", "token", "NX"}},
			{At: ms(2), Kind: lessons.Reply, From: "redis", To: "A", Of: 0, Answer: "OK"},
			{At: ms(2), Kind: lessons.State, From: "A", Condition: lessons.Holds, Text: "A believes it holds the lock"},
		},
		Tables: []lessons.Table{{Title: "measured " + hostile, Head: []string{"how", "sold", "orders"}, Rows: [][]string{{"no lock", "30", "30"}, {"a lock", hostile, ""}}}},
		Verdicts: []lessons.Ruling{
			{Promise: "one holder at a time", Because: "A and B both believe they hold the lock " + hostile},
			{Promise: "a dead holder's lock comes free", Held: true, Because: "B has got it"},
		},
		Listings: []lessons.Listing{{Name: "compare_delete.lua", Source: "if redis.call('GET', KEYS[1]) == ARGV[1] then\n\treturn redis.call('DEL', KEYS[1])\nend\nreturn 0 -- " + hostile + "\n"}},
	}
}

func comparison() *compare.Report {
	kept, failed := compare.Property{Name: "Exclusive", Verdict: compare.Kept}, compare.Property{Name: "Processes", Verdict: compare.Failed, Evidence: hostile}
	weak := compare.Property{Name: "ReleaseOnlyOwn", Verdict: compare.Weak, Reason: "the release does not compare " + hostile, Evidence: "seen " + hostile}
	row := func(title string, p compare.Property) compare.Guarantee {
		return compare.Guarantee{Title: title, Verdict: p.Verdict, Properties: []compare.Property{p}}
	}
	latency := func(us float64) compare.Latency {
		return compare.Latency{Count: 1000, P50: us, P90: 2 * us, P99: 3 * us}
	}
	requests := func(names ...string) compare.Requests {
		r := compare.Requests{RoundTrips: float64(len(names)), InTurn: len(names)}
		for _, n := range names {
			r.Commands = append(r.Commands, compare.Commands{Name: n, Times: 1})
		}
		return r
	}
	none := 0
	one := func(name string, x float64, p compare.Property) compare.Column {
		return compare.Column{
			Name: name, Servers: 1,
			Guarantees: []compare.Guarantee{row("one holder, if nothing goes wrong", kept), row("a late release is harmless", p), row("every hold has a greater fence", compare.Property{Verdict: compare.Absent}), row("not looked at", compare.Property{})},
			Cost:       &compare.Cost{Acquire: requests("SET"), Release: requests("GET", "DEL"), HeldTry: requests("SET"), KeysLeft: &none},
			Solo:       &compare.Solo{Latency: latency(x), PerPing: 2},
			HandOff:    &compare.HandOff{Latency: latency(10 * x), PerPing: 20},
			Contention: []compare.Contention{{Contenders: 1, PerSecond: 1e6 / x, Lowest: 9e5 / x, Highest: 1.1e6 / x, Jain: 1}, {Contenders: 64, PerSecond: 5e7 / x, Lowest: 4e7 / x, Highest: 6e7 / x, Jain: 0.5}},
		}
	}
	bare := one("with-a-very-long-name", 400, failed)
	bare.Cost, bare.Solo, bare.HandOff, bare.Contention = nil, nil, nil, nil
	bare.Failures = []compare.Failure{{Measurement: compare.MeasuringSolo, Error: hostile}}
	return &compare.Report{
		Version: "v0.0.0", Redis: compare.Redis{Version: "Redis 0.0.0 " + hostile, Addr: "127.0.0.1:6379", Comparable: true},
		Machine: compare.Machine{OS: "linux", Arch: "amd64", CPUs: 2, Go: "go1.25.0"},
		Method:  compare.Method{Each: 300, Rounds: 3, Hold: 1, Contenders: []int{1, 8, 64}},
		Ping:    &compare.Ping{Latency: latency(50), Control: 1},
		Strategies: []compare.Column{
			one("setnxpx", 150, weak), one("luascript", 200, kept), bare,
		},
		LeftOut: []compare.LeftOut{{Name: "redlock", Servers: 5}},
		Advice:  []compare.Advice{{For: "production " + hostile, Strategies: []string{"luascript"}, Why: "no weakness was seen"}, {For: "nothing", Why: "none of these"}},
	}
}
