package report

// A report made by hand: nothing in it has run. It has words that a page could take for its own.

import (
	"encoding/json"
	"os"
	"time"

	"github.com/lockstrategies/locks/lab/compare"
	"github.com/lockstrategies/locks/lab/faults"
	"github.com/lockstrategies/locks/lab/lessons"
)

// hostile is text that is no longer text where somebody forgot to escape it.
const hostile = `</style></title></pre><script>alert("1")</script><img src=http://127.0.0.1:1/x onerror=alert(1)>{{.}}&amp;'"`

func sample() Report {
	r := Report{
		Version: "v0.0.0 " + hostile, Choice: "redis: by hand, " + hostile, Command: "lab report --quick " + hostile,
		Made: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61500 * time.Millisecond,
		Lessons: []Lesson{
			{Result: lessons.Result{Number: 1, Name: "every", Title: "Everything that can happen", Idea: "An idea has two sentences. " + hostile, Fix: "Nothing fixes that. " + hostile, Redis: "Redis 0.0.0", Acts: []lessons.Trace{everything(), {Title: "nothing happens"}}}},
			{Result: lessons.Result{Number: 3, Name: "left", Title: "A lesson that was not given", Idea: "It breaks its servers."}, Why: "its servers are not its own " + hostile},
		},
		Comparison: comparison(),
		Faults:     faults.Groups(),
	}
	for _, l := range lessons.All() {
		r.Lessons = append(r.Lessons, Lesson{Result: lessons.Result{Number: l.Number, Name: l.Name, Title: l.Title, Idea: l.Idea, Fix: l.Fix}})
	}
	return r
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

// comparison is the one that lab compare's tests print, with other words.
func comparison() *compare.Report {
	text, err := os.ReadFile("../compare/testdata/comparison.json")
	r := &compare.Report{}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		panic(err)
	}
	r.Redis.Version += hostile
	r.Advice[0].For += hostile
	for i := range r.Strategies {
		s := &r.Strategies[i]
		for _, g := range s.Guarantees {
			for k := range g.Properties {
				p := &g.Properties[k]
				if p.Reason += hostile; p.Evidence != "" {
					p.Evidence = "seen " + hostile
				}
			}
		}
		for k := range s.Failures {
			s.Failures[k].Error = hostile
		}
	}
	return r
}
