// Package sample is a report made by hand for tests: nothing in it has run. It has one of
// everything that can happen in a lesson, and words that a page could take for its own.
package sample

import (
	"time"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/lab/report"
)

// Hostile is text that is no longer text where somebody forgot to escape it.
const Hostile = `</style></title></pre><script>alert("1")</script><img src=http://127.0.0.1:1/x onerror=alert(1)>{{.}}&amp;'"`

// Report is the report.
func Report() report.Report {
	return report.Report{
		Version: "v0.0.0 " + Hostile, Choice: "redis: by hand, " + Hostile, Command: "lab report --quick " + Hostile,
		Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61500 * time.Millisecond,
		Lessons: []report.Lesson{
			{Result: lessons.Result{Number: 1, Name: "every", Title: "Everything that can happen", Idea: "An idea has two sentences. " + Hostile, Fix: "Nothing fixes that. " + Hostile, Redis: "Redis 0.0.0", Acts: []lessons.Trace{everything(), {Title: "nothing happens"}}}},
			{Result: lessons.Result{Number: 2, Name: "quorum", Title: "Three contenders, and five servers", Idea: "Many lines have to fit next to the words. They do.", Acts: []lessons.Trace{quorum()}}},
			{Result: lessons.Result{Number: 3, Name: "left", Title: "A lesson that was not given", Idea: "It breaks its servers."}, Why: "its servers are not its own " + Hostile},
		},
		Comparison: comparison(),
		Faults:     faults.Groups(),
	}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// everything has an event of each kind, and each condition of an actor.
func everything() lessons.Trace {
	state := func(at int, who string, c lessons.Condition, text string) lessons.Event {
		return lessons.Event{At: ms(at), Kind: lessons.State, From: who, Condition: c, Text: text}
	}
	return lessons.Trace{
		Title:  "one of everything " + Hostile,
		Actors: []lessons.Actor{{Name: "A"}, {Name: "B"}, {Name: "a-long-name"}, {Name: "redis", Server: true}, {Name: "replica", Server: true}},
		Events: []lessons.Event{
			{At: ms(1), Kind: lessons.Send, From: "A", To: "redis", Args: []string{"SET", "lock:{" + Hostile + "}", "token", "NX"}},
			{At: ms(2), Kind: lessons.Reply, From: "redis", To: "A", Of: 0, Answer: "OK"},
			state(2, "A", lessons.Holds, "A believes it holds the lock"),
			{At: ms(3), Kind: lessons.Send, From: "B", To: "redis", Args: []string{"SUBSCRIBE", "lock:{tea}:freed"}},
			state(4, "A", lessons.Paused, "A is paused"),
			{At: ms(5), Kind: lessons.Reply, From: "redis", To: "B", Of: 3, Answer: "OK"},
			{At: ms(6), Kind: lessons.Message, From: "redis", To: "B", Args: []string{"lock:{tea}:freed"}, Answer: Hostile},
			{At: ms(6), Kind: lessons.Note, Text: "a TTL goes by " + Hostile},
			{At: ms(7), Kind: lessons.Send, From: "B", To: "replica", Args: []string{"EVALSHA", "acquire.lua", "3", "lock:{tea}", "lock:{tea}:queue", "lock:{tea}:fence", "400", "0", "01a20323-ddaa-78fc-b998-085549e34ab8:B"}},
			{At: ms(7), Kind: lessons.Reply, From: "replica", To: "B", Of: 8, Answer: "(no answer)"},
			state(8, "B", lessons.Holds, "B believes it holds the lock"),
			{At: ms(8), Kind: lessons.Violation, From: "B", Promise: "one holder at a time", Text: "A and B both believe they hold the lock " + Hostile},
			{At: ms(9), Kind: lessons.Look, To: "redis", Args: []string{"GET", "lock:{tea}"}, Answer: `"token" ` + Hostile},
			state(9, "replica", lessons.Dead, "replica is killed"),
			{At: ms(9), Kind: lessons.Send, From: "a-long-name", To: "replica", Args: []string{"PING"}},
			{At: ms(9), Kind: lessons.Reply, From: "replica", To: "a-long-name", Of: 14, Answer: "(not sent)"},
			state(10, "replica", lessons.Alive, "replica is back"),
			state(10, "A", lessons.Awake, "A goes on"),
			state(11, "B", lessons.Ended, "B is done"),
			{At: ms(11), Kind: lessons.Send, From: "B", To: "redis", Args: []string{"DEL", ""}},
			state(12, "A", lessons.Dead, "A dies"),
			{At: ms(13), Kind: lessons.Reply, From: "redis", To: "B", Of: 19, Answer: "(no answer)"},
			state(14, "a-long-name", lessons.Paused, "a-long-name is paused"),
			{Kind: lessons.Note, Text: ""},
		},
		Tables: []lessons.Table{{Title: "measured " + Hostile, Head: []string{"how", "sold", "orders"}, Rows: [][]string{{"no lock", "30", "30"}, {"a lock", Hostile, ""}}}},
		Verdicts: []lessons.Ruling{
			{Promise: "one holder at a time", Because: "A and B both believe they hold the lock " + Hostile},
			{Promise: "a dead holder's lock comes free", Held: true, Because: "B has got it"},
		},
		Listings: []lessons.Listing{{Name: "compare_delete.lua", Source: "if redis.call('GET', KEYS[1]) == ARGV[1] then\n\treturn redis.call('DEL', KEYS[1])\nend\nreturn 0 -- " + Hostile + "\n"}},
	}
}

// quorum is as wide as lessons get.
func quorum() lessons.Trace {
	t := lessons.Trace{Title: "two ask five servers, a third looks on", Actors: []lessons.Actor{{Name: "A"}, {Name: "B"}, {Name: "C"}}}
	for _, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
		t.Actors = append(t.Actors, lessons.Actor{Name: n, Server: true})
	}
	at := 0
	for i, n := range []string{"n1", "n2", "n3", "n4", "n5"} {
		who := []string{"A", "A", "A", "B", "B"}[i]
		at++
		t.Events = append(t.Events, lessons.Event{At: ms(at), Kind: lessons.Send, From: who, To: n, Args: []string{"SET", "lock:{tea}", "token-of-" + who, "NX", "PX", "400"}},
			lessons.Event{At: ms(at), Kind: lessons.Reply, From: n, To: who, Of: 2 * i, Answer: "OK"})
	}
	t.Events = append(t.Events,
		lessons.Event{Kind: lessons.State, From: "A", Condition: lessons.Holds, Text: "A believes it holds the lock: it has 3 of 5 votes"},
		lessons.Event{Kind: lessons.State, From: "n3", Condition: lessons.Dead, Text: "n3 is killed"})
	t.Verdicts = []lessons.Ruling{{Promise: "one holder at a time", Held: true, Because: "1 hold"}}
	return t
}

func comparison() *compare.Report {
	kept, failed := compare.Property{Name: "Exclusive", Verdict: compare.Kept}, compare.Property{Name: "Processes", Verdict: compare.Failed, Evidence: Hostile}
	weak := compare.Property{Name: "ReleaseOnlyOwn", Verdict: compare.Weak, Reason: "the release does not compare " + Hostile, Evidence: "seen " + Hostile}
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
	bare.Failures = []compare.Failure{{Measurement: compare.MeasuringSolo, Error: Hostile}}
	return &compare.Report{
		Version: "v0.0.0", Redis: compare.Redis{Version: "Redis 0.0.0 " + Hostile, Addr: "127.0.0.1:6379", Comparable: true},
		Machine: compare.Machine{OS: "linux", Arch: "amd64", CPUs: 2, Go: "go1.25.0"},
		Method:  compare.Method{Each: 300, Rounds: 3, Hold: 1, Contenders: []int{1, 8, 64}},
		Ping:    &compare.Ping{Latency: latency(50), Control: 1},
		Strategies: []compare.Column{
			one("setnxpx", 150, weak), one("luascript", 200, kept), bare,
		},
		LeftOut: []compare.LeftOut{{Name: "redlock", Servers: 5}},
		Advice:  []compare.Advice{{For: "production " + Hostile, Strategies: []string{"luascript"}, Why: "no weakness was seen"}, {For: "nothing", Why: "none of these"}},
	}
}
