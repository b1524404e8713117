package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Advice is which strategy to take for a purpose, as far as what was seen tells.
type Advice struct {
	For        string   `json:"for"`
	Strategies []string `json:"strategies"`
	Why        string   `json:"why"`
}

// advise derives advice from what was measured, and gives none on what was not.
func advise(columns []Column, comparable bool) []Advice {
	if len(columns) == 0 {
		return nil
	}
	for _, c := range columns {
		if c.Cost == nil || slices.ContainsFunc(c.Guarantees, func(g Guarantee) bool { return g.Verdict == Unknown }) {
			return nil
		}
	}
	alone := func(c Column) bool { return c.Servers == 1 }
	reentrant := func(c Column) bool { return c.verdict(reentrantTitle) == Kept }
	queues := func(c Column) bool { return c.verdict(queueTitle) == Kept }
	several := func(c Column) bool { return c.verdict(permitsTitle) == Kept || c.verdict(readersTitle) == Kept }
	proven := func(c Column) bool { return c.proven() && !several(c) }

	best := func(of []string) []string { // those with the fewest weaknesses; what is unclear may be one
		least := -1
		var found []string
		for _, c := range columns {
			switch n := c.lacks() + c.unclear(); {
			case !slices.Contains(of, c.Name):
			case least < 0 || n < least:
				least, found = n, []string{c.Name}
			case n == least:
				found = append(found, c.Name)
			}
		}
		return found
	}

	var advice []Advice
	add := func(purpose string, who []string, why string) {
		advice = append(advice, Advice{For: purpose, Strategies: who, Why: why})
	}
	who := names(columns, func(c Column) bool { return proven(c) && alone(c) && !reentrant(c) })
	if len(who) == 0 {
		who = names(columns, func(c Column) bool { return proven(c) && alone(c) })
	}
	doubtful := names(columns, func(c Column) bool { return c.unclear() > 0 })
	orUnclear := ""
	if len(doubtful) > 0 {
		orUnclear = ", or could not be judged in full"
	}
	if len(who) > 0 {
		why := "no weakness was seen here. One Redis stays one point of failure: what it forgets, it grants again."
		fair := names(columns, func(c Column) bool { return slices.Contains(who, c.Name) && queues(c) })
		if plain := without(who, fair); len(fair) > 0 && len(plain) > 0 {
			who = fair
			why += " Its queue serves waiters in the order of arrival, in all processes. Without a queue: " + strings.Join(plain, ", ") + "."
		}
		add("production, on one Redis", who, why)
	} else {
		add("production, on one Redis", nil, "none of these: each showed a weakness, or takes several"+orUnclear+".")
	}
	if who := names(columns, func(c Column) bool { return !alone(c) && proven(c) }); len(who) > 0 {
		add("a lock that outlives one of its servers", who, quorum(columns, who, comparable))
	}
	if who := best(names(columns, reentrant)); len(who) > 0 {
		add("code that holds the lock takes it again", who, "the owner that the context names gets in again, and its last release frees the lock"+besides(columns, who)+". Where the code can be changed, hand the lease on instead.")
	}
	for _, shared := range []struct{ purpose, title, why string }{
		{"at most n at the same time", permitsTitle, "each permit is a lease, which ends with its TTL if its holder dies. Here it was compared with one permit."},
		{"many that read, and some that write", readersTitle, "readers and writers take turns, so neither side starves. Here its writers were compared."},
	} {
		if who := names(columns, func(c Column) bool { return c.verdict(shared.title) == Kept && c.proven() }); len(who) > 0 {
			add(shared.purpose, who, shared.why)
		}
	}
	fenced := names(columns, func(c Column) bool { return c.verdict(fenceTitle) == Kept && !several(c) })
	if len(fenced) > 0 {
		add("writes that a paused holder must never overwrite", fenced, "with a store that refuses a fence smaller than the greatest it has seen. No lock alone suffices: a holder that was paused wakes up late, and writes.")
	} else {
		add("writes that a paused holder must never overwrite", nil, "none of these showed fences"+orUnclear+": it takes fences, and a store that compares them.")
	}
	if who, why := quickest(columns); comparable && len(who) > 0 {
		add("many contend for one lock", who, why)
	}
	// A race is rare, a wrong clock is wrong all day: it is not one weakness among others.
	scriptless := func(c Column) bool { return !c.Cost.sends("EVAL") && !c.mayLack(clocksTitle) }
	if who := best(names(columns, scriptless)); len(who) > 0 {
		add("scripts are forbidden", who, "it sends none"+besides(columns, who)+".")
	}
	// A waiter that queues in Redis takes precedence over one that only polls.
	if bare := names(columns, func(c Column) bool { return c.Cost.TokenInKey && alone(c) && !queues(c) }); len(bare) > 0 {
		who := best(bare)
		why := "the key holds the bare token, as theirs does, so all exclude each other" + besides(columns, who) + ". Options.Key names their key. They publish no releases: a waiter sees that by the token, and asks again after pauses."
		if q := names(columns, func(c Column) bool { return c.Cost.TokenInKey && alone(c) && queues(c) }); len(q) > 0 {
			why += " Not " + strings.Join(q, ", ") + ": its waiters would take precedence over the others."
		}
		add("keys shared with redsync, redis-py, StackExchange.Redis …", who, why+lesser(columns, bare, who, "can share them, too"))
	}
	stamped := func(c Column) bool { return c.Cost.sends("SETNX") }
	if who := best(names(columns, stamped)); len(who) > 0 {
		add("keys shared with clients that store a time (SETNX, GETSET)", who, "and for nothing else: the key has no TTL, so the contenders' clocks decide who may take it. They must be able to read ours, too: milliseconds, a colon, a token.")
	}
	traceless := func(c Column) bool {
		return alone(c) && c.Cost.KeysLeft != nil && *c.Cost.KeysLeft == 0 && !c.mayLack(cleanTitle)
	}
	who = best(names(columns, traceless))
	fenceless := names(columns, func(c Column) bool {
		return (c.Name == "luascript" || c.Name == "fairqueue") && proven(c) && !traceless(c)
	})
	switch {
	case len(fenceless) > 0:
		add("very many names, each used once", fenceless, "with its option WithoutFences, which was not tried here: without it the fence counter of each name stays until Options.FenceTTL is over."+lesser(columns, who, nil, "leave no key as they are"))
	case len(who) > 0:
		add("very many names, each used once", who, "it leaves no key"+besides(columns, who)+leavers(columns)+".")
	}
	weak := slices.DeleteFunc(slices.Clone(columns), func(c Column) bool { return c.lacks() == 0 })
	slices.SortStableFunc(weak, func(a, b Column) int { return b.lacks() - a.lacks() })
	if len(weak) > 0 {
		add("teaching: to see a lock fail", names(weak, func(Column) bool { return true }), "the suite plays each weakness by script, so it shows every time; --json has it call by call."+suffixes(columns))
	}
	if len(doubtful) > 0 {
		add("another run", doubtful, "what has a ? may be a weakness, as the machine was too slow to say; so these are not taken for proven here. Compare again when the machine has less to do.")
	}
	return advice
}

// quorum says what a lock on several servers costs, and what it does not give.
func quorum(columns []Column, who []string, comparable bool) string {
	why := "it goes on while a minority of its servers is down."
	var one, all *Column
	for i, c := range columns {
		switch {
		case c.Solo == nil:
		case c.Name == who[0]:
			all = &columns[i]
		case c.Servers == 1 && c.proven() && (one == nil || c.Solo.PerPing < one.Solo.PerPing):
			one = &columns[i]
		}
	}
	if comparable && one != nil && all != nil {
		why += fmt.Sprintf(" Every call asks %d servers; alone it takes %.1f times as long as %s.", all.Servers, all.Solo.P50/one.Solo.P50, one.Name)
	}
	why += " The servers' clocks must run alike, and one that restarts empty must stay out for a TTL."
	for _, c := range columns {
		if slices.Contains(who, c.Name) && c.verdict(fenceTitle) != Kept {
			return why + " Without its option WithFences it issues no fences: where a paused holder must never overwrite, it does not suffice then."
		}
	}
	return why
}

// alike is the factor within which rates are taken for the same: the noise of a busy
// machine is less.
const alike = 1.5

// quickest are those of the proven strategies that grant a lock most often where most contend for it. It
// returns none if the rates are alike, or if a round of the others was as good as one of these.
func quickest(columns []Column) (who []string, why string) {
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column) bool { return !c.proven() })
	most := func(c Column) Contention { return c.Contention[len(c.Contention)-1] }
	best := 0.0
	for _, c := range columns {
		if len(c.Contention) == 0 || most(c).PerSecond == 0 {
			return nil, "" // not all were measured
		}
		best = max(best, most(c).PerSecond)
	}
	others, highest, lowest := 0.0, 0.0, math.Inf(1)
	for _, c := range columns {
		if m := most(c); m.PerSecond*alike >= best {
			who, lowest = append(who, c.Name), min(lowest, m.Lowest)
		} else {
			others, highest = max(others, m.PerSecond), max(highest, m.Highest)
		}
	}
	if others == 0 || lowest <= highest {
		return nil, ""
	}
	why = fmt.Sprintf("%.0f times as many grants a second as the next without a weakness, with %d contending in one process", best/others, most(columns[0]).Contenders)
	if slices.Contains(who, "fairqueue") {
		why += " (where fairqueue hands the lock on without asking Redis)"
	}
	why += ". Where the servers announce no release, the lock lies free until somebody asks again"
	if slices.ContainsFunc(columns, func(c Column) bool { return c.Servers > 1 && !slices.Contains(who, c.Name) }) {
		why += "; where several servers vote, until they have all been asked again, after a random pause"
	}
	return who, why + "."
}

// lacks is how many demands the strategy does not meet.
func (s *Column) lacks() int {
	n := 0
	for _, g := range s.Guarantees {
		if g.Verdict == Weak || g.Verdict == Failed {
			n++
		}
	}
	return n
}

// unclear is how many demands the machine was too slow to judge.
func (s *Column) unclear() int {
	n := 0
	for _, g := range s.Guarantees {
		if g.Verdict == Unclear {
			n++
		}
	}
	return n
}

// proven reports whether all was judged, and no weakness was seen.
func (s *Column) proven() bool { return s.lacks()+s.unclear() == 0 }

// mayLack reports whether a demand is not met, or may not be.
func (s *Column) mayLack(title string) bool {
	v := s.verdict(title)
	return v == Weak || v == Failed || v == Unclear
}

func (s *Column) verdict(title string) Rating {
	for _, g := range s.Guarantees {
		if g.Title == title {
			return g.Verdict
		}
	}
	return Unknown
}

// sends reports whether any call sends a command of this name, or one that begins so.
func (c *Cost) sends(prefix string) bool {
	for _, r := range []Requests{c.Acquire, c.Release, c.HeldTry} {
		for _, k := range r.Commands {
			if strings.HasPrefix(k.Name, prefix) {
				return true
			}
		}
	}
	return false
}

func names(columns []Column, is func(Column) bool) []string {
	var found []string
	for _, c := range columns {
		if is(c) {
			found = append(found, c.Name)
		}
	}
	return found
}

// besides warns of what the recommended lack.
func besides(columns []Column, who []string) string {
	switch {
	case slices.ContainsFunc(columns, func(c Column) bool { return slices.Contains(who, c.Name) && c.lacks() > 0 }):
		return ", but it is weak, as its guarantees show: keep the TTL far above the work, and renew"
	case slices.ContainsFunc(columns, func(c Column) bool { return slices.Contains(who, c.Name) && c.unclear() > 0 }):
		return ", but it may be weak where its guarantees have a ?"
	}
	return ""
}

// lesser names those of some who are not the ones to take.
func lesser(columns []Column, some, take []string, what string) string {
	others := without(some, take)
	if len(others) == 0 {
		return ""
	}
	weaker := " Weaker, as their guarantees show, but "
	if slices.ContainsFunc(columns, func(c Column) bool { return slices.Contains(others, c.Name) && c.lacks() == 0 }) {
		weaker = " Weaker, or not judged in full, but "
	}
	return weaker + what + ": " + strings.Join(others, ", ") + "."
}

// without returns those of some that are not among the others.
func without(some, others []string) []string {
	return slices.DeleteFunc(slices.Clone(some), func(s string) bool { return slices.Contains(others, s) })
}

// suffixes says what the ends of names stand for.
func suffixes(columns []Column) string {
	var said []string
	for _, s := range []struct{ suffix, option string }{{"-blind", "WithBlindRelease"}, {"-watch", "WithWatchTakeOver"}} {
		if slices.ContainsFunc(columns, func(c Column) bool { return strings.HasSuffix(c.Name, s.suffix) }) {
			said = append(said, s.suffix+" is "+s.option)
		}
	}
	if len(said) == 0 {
		return ""
	}
	return " A suffix names an option of the same lock: " + strings.Join(said, ", ") + "."
}

// leavers tells who leaves how many keys.
func leavers(columns []Column) string {
	var who []string
	for _, c := range columns {
		if n := c.Cost.KeysLeft; n != nil && *n > 0 {
			keys := "keys"
			if *n == 1 {
				keys = "key"
			}
			who = append(who, fmt.Sprintf("%s leaves %d %s a name", c.Name, *n, keys))
			if c.verdict(fenceTitle) == Kept {
				who[len(who)-1] += ", its fence counter"
			}
		}
	}
	if len(who) == 0 {
		return ""
	}
	return "; " + strings.Join(who, ", ")
}
