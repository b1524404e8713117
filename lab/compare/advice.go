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
	why  string
}

var purposes = []purpose{
	{"production, on one Redis", []string{"fairqueue"},
		"Its queue serves waiters in the order of arrival, in all processes. One Redis stays one point of failure: what it forgets, it grants again."},
	{"two holders at once would do real damage", []string{"etcd", "postgres"},
		"Their servers forget no lock in a fail-over: etcd answers when a majority of its members has it on disk, PostgreSQL with a synchronous standby. See docs/use/stores.md."},
	{"a lock that outlives one of its servers", []string{"redlock"},
		"It goes on while a minority of its servers is down. The servers' clocks must run alike, and one that restarts empty must stay out for a TTL. " +
			"Without its option WithFences it issues no fences."},
	{"code that holds the lock takes it again", []string{"reentrant"},
		"The owner that the context names gets in again, and its last release frees the lock. Where the code can be changed, hand the lease on instead."},
	{"at most n at the same time", []string{"semaphore"},
		"Each permit is a lease, which ends with its TTL if its holder dies. Here it was compared with one permit."},
	{"many that read, and some that write", []string{"rwlock"},
		"Readers and writers take turns, so neither side starves. Here its writers were compared."},
	{"writes that a paused holder must never overwrite", []string{"fairqueue", "luascript", "reentrant"},
		"With a store that refuses a fence smaller than the greatest it has seen. No lock alone suffices: a holder that was paused wakes up late, and writes."},
	{"many contend for one lock", []string{"fairqueue"},
		"A process hands the lock on to its own waiters without asking Redis, in turns of 2 ms: see the rates of contention above."},
	{"scripts are forbidden", []string{"ifeq", "setnxpx"},
		"They send none. ifeq takes Redis 8.4 or Valkey 9.0. The release and the extension of setnxpx are two steps each: keep the TTL far above the work, and renew."},
	{"keys shared with redsync, redis-py, StackExchange.Redis …", []string{"luascript"},
		"The key holds the bare token, as theirs does, so all exclude each other. Options.Key names their key. They publish no releases: " +
			"a waiter sees that by the token, and asks again after pauses. The waiters of fairqueue would take precedence over the others."},
	{"keys shared with clients that store a time (SETNX, GETSET)", []string{"setnxgetset-watch", "setnxgetset"},
		"And for nothing else: the key has no TTL, so the contenders' clocks decide who may take it. -watch is its option WithWatchTakeOver."},
	{"very many names, each used once", []string{"luascript", "fairqueue"},
		"With their option WithoutFences, which was not tried here: without it the fence counter of each name stays until Options.FenceTTL is over."},
}

// advise names, of the strategies that were compared, those to take for each purpose. It gives no advice if not all was judged,
// or something failed that should not have.
func advise(columns []Column) (advice []Advice) {
	has := func(c Column, v Rating) bool {
		return slices.ContainsFunc(c.Guarantees, func(g Guarantee) bool { return g.Verdict == v })
	}
	if slices.ContainsFunc(columns, func(c Column) bool { return has(c, Unknown) || has(c, Failed) }) {
		return nil
	}
	var weak []string
	for _, c := range columns {
		if has(c, Weak) {
			weak = append(weak, c.Name)
		}
	}
	teaching := purpose{"teaching: to see a lock fail", weak, "The suite plays each weakness by script, so it shows every time; --json has it call by call. " +
		"-blind is the option WithBlindRelease of the same lock."}
	for _, p := range append(slices.Clone(purposes), teaching) {
		compared := slices.DeleteFunc(slices.Clone(p.take), func(name string) bool {
			return !slices.ContainsFunc(columns, func(c Column) bool { return c.Name == name })
		})
		if len(compared) > 0 {
			advice = append(advice, Advice{p.what, compared, p.why})
		}
	}
	return advice
}
