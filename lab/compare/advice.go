package compare

import "slices"

// Advice is which strategy to take for a purpose.
type Advice struct {
	For        string   `json:"for"`
	Strategies []string `json:"strategies"`
	Why        string   `json:"why"`
}

// A purpose is what somebody wants a lock for, and which strategies docs/use/choosing.md names for it, the best first.
type purpose struct {
	what string
	take []string
	weak bool // there is none without a weakness
	why  string
}

var purposes = []purpose{
	{"production, on one Redis", []string{"fairqueue"}, false,
		"Its queue serves waiters in the order of arrival, in all processes. One Redis stays one point of failure: what it forgets, it grants again."},
	{"a lock that outlives one of its servers", []string{"redlock"}, false,
		"It goes on while a minority of its servers is down. The servers' clocks must run alike, and one that restarts empty must stay out for a TTL. " +
			"Without its option WithFences it issues no fences."},
	{"code that holds the lock takes it again", []string{"reentrant"}, false,
		"The owner that the context names gets in again, and its last release frees the lock. Where the code can be changed, hand the lease on instead."},
	{"at most n at the same time", []string{"semaphore"}, false,
		"Each permit is a lease, which ends with its TTL if its holder dies. Here it was compared with one permit."},
	{"many that read, and some that write", []string{"rwlock"}, false,
		"Readers and writers take turns, so neither side starves. Here its writers were compared."},
	{"writes that a paused holder must never overwrite", []string{"fairqueue", "luascript", "reentrant"}, false,
		"With a store that refuses a fence smaller than the greatest it has seen. No lock alone suffices: a holder that was paused wakes up late, and writes."},
	{"many contend for one lock", []string{"fairqueue"}, false,
		"A process hands the lock on to its own waiters without asking Redis, in turns of 2 ms: see the rates of contention above."},
	{"scripts are forbidden", []string{"ifeq", "setnxpx"}, true,
		"They send none. ifeq takes Redis 8.4 or Valkey 9.0. The release and the extension of setnxpx are two steps each: keep the TTL far above the work, and renew."},
	{"keys shared with redsync, redis-py, StackExchange.Redis …", []string{"luascript"}, false,
		"The key holds the bare token, as theirs does, so all exclude each other. Options.Key names their key. They publish no releases: " +
			"a waiter sees that by the token, and asks again after pauses. The waiters of fairqueue would take precedence over the others."},
	{"keys shared with clients that store a time (SETNX, GETSET)", []string{"setnxgetset-watch", "setnxgetset"}, true,
		"And for nothing else: the key has no TTL, so the contenders' clocks decide who may take it. -watch is its option WithWatchTakeOver."},
	{"very many names, each used once", []string{"luascript", "fairqueue"}, false,
		"With their option WithoutFences, which was not tried here: without it the fence counter of each name stays until Options.FenceTTL is over."},
}

// advise names, of the strategies that were compared, those to take for each purpose. One that showed a weakness in this run is
// named only where there is none without. It gives no advice if not all was judged.
func advise(columns []Column) (advice []Advice) {
	for _, c := range columns {
		if c.count(Unknown) > 0 {
			return nil
		}
	}
	for _, p := range purposes {
		a, compared := Advice{For: p.what, Why: p.why}, false
		for _, name := range p.take {
			if i := slices.IndexFunc(columns, func(c Column) bool { return c.Name == name }); i >= 0 {
				compared = true
				if p.weak || columns[i].Proven() {
					a.Strategies = append(a.Strategies, name)
				}
			}
		}
		if !compared {
			continue
		}
		if a.Strategies == nil {
			a.Why = "None of those compared: see what was seen of them in this run."
		}
		advice = append(advice, a)
	}
	add := func(purpose, why string, verdicts ...Rating) {
		var who []string
		for _, c := range columns {
			if c.count(verdicts...) > 0 {
				who = append(who, c.Name)
			}
		}
		if who != nil {
			advice = append(advice, Advice{purpose, who, why})
		}
	}
	add("teaching: to see a lock fail", "The suite plays each weakness by script, so it shows every time; --json has it call by call. "+
		"-blind is the option WithBlindRelease of the same lock.", Weak, Failed)
	add("another run", "What has a ? may be a weakness: the machine was too slow to say. Compare again when it has less to do.", Unclear)
	return advice
}

// count is how many guarantees have one of these verdicts.
func (s *Column) count(verdicts ...Rating) (n int) {
	for _, g := range s.Guarantees {
		if slices.Contains(verdicts, g.Verdict) {
			n++
		}
	}
	return n
}

// Proven reports whether all was judged, and no weakness was seen.
func (s *Column) Proven() bool { return s.count(Weak, Failed, Unclear, Unknown) == 0 }
