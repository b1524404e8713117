package nemesis

import (
	"slices"
	"strings"

	"github.com/lockstrategies/locks/lab/history"
)

// A Report is what came of a run.
type Report struct {
	Config
	Ops      []history.Op
	Found    []history.Violation
	Declared map[string]int // how often what the strategy is known for: by property and reason
}

const (
	twoSteps   = "its release and its renewal are two steps: one that was stuck on its way hit another's lock"
	overwrites = "a loser's GETSET overwrites the winner's value, with an earlier stamp and a token of its own"
	unfenced   = "it has no fence: a holder that was paused between looking and writing writes late"

	// rare is how many acquisitions there are at least for each violation of a lock in two steps. Losers overwrite
	// more often: whenever a lock has lapsed for which several wait.
	rare = 50
)

// judge holds a history to what its strategy claims. Where nothing is slow but by a fault, it is held to small times, too.
func judge(c Config, ops []history.Op, timely bool) *Report {
	c = c.filled()
	r := &Report{Config: c, Ops: ops, Declared: map[string]int{}}
	rules := history.Rules{
		Reentrant: c.Variant.Reentrant, Fenced: c.Variant.Fenced, Permits: c.Permits, ReadWrite: c.ReadWrite,
		Forgets: func(f history.Op) bool { return kinds[f.Value].forgets },
		Bound:   c.Bound,
		Ends: func(f history.Op, client string) bool {
			return kinds[f.Value].ends && strings.HasPrefix(client, f.Client+".")
		},
	}
	switch c.Variant.Package {
	case "redlock": // votes may be split, so that nobody has it
	case "etcd": // a new leader counts each lease from its beginning
	case "setnxgetset": // losers leave their stamps, so "held" is all that is ever known
	case "ifeq", "luascript", "fairqueue", "reentrant", "semaphore", "rwlock", "setnxpx", "postgres":
		rules.Linger = linger
		if timely {
			rules.Prompt = prompt
		}
		if timely && c.Seed%2 == 0 { // all wait in the same way, but for those with other options
			rules.Overtakers, rules.Equal = overtakers*max(c.Permits, 1), func(op history.Op) bool { return op.TTL == c.TTL }
		}
	}
	if c.Variant.Package == "redlock" && c.Variant.Servers > 1 {
		rules.Hinders = hinders
	}
	found := history.Judge(ops, rules)
	stuck := 0
	for _, v := range found {
		if weakness(c, v) == twoSteps {
			stuck++
		}
	}
	often := stuck > max(1, r.Acquired()/rare)
	for _, v := range found {
		if why := weakness(c, v); why != "" && !(often && why == twoSteps) {
			r.Declared[v.Property+": "+why]++
		} else {
			r.Found = append(r.Found, v)
		}
	}
	return r
}

// weakness is why a strategy is known to do this now and then; empty: it is not.
func weakness(c Config, v history.Violation) string {
	switch v.Property {
	case "NoLostUpdate":
		if !c.Variant.Fenced {
			return unfenced
		}
	case "Exclusion", "Ownership":
		stamped := c.Variant.Package == "setnxgetset" && c.Variant.Name != "setnxgetset-watch"
		delayed := slices.ContainsFunc(c.Faults, func(f string) bool { return kinds[f].delays })
		switch last := v.Ops[len(v.Ops)-1]; {
		case stamped && v.Property == "Ownership" && (last.Kind == history.KindLost || last.Result == history.Lost):
			return overwrites
		case delayed && (stamped || c.Variant.Package == "setnxpx"):
			return twoSteps
		}
	}
	return ""
}

// hinders reports whether a client of several servers may be kept from the lock by a fault: by what is done to itself or
// to one of its ways, or by a slow machine. Servers are broken by minorities, which hinder nobody.
func hinders(f history.Op, client string) bool {
	seat, _, _ := strings.Cut(client, ".")
	return f.Value == Slow || kinds[f.Value].place != atServer && f.Client == seat
}
