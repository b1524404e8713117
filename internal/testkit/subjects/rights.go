package subjects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstrategies/locks/strategy"
)

// Rights are the least that a server's ACL has to allow a user of a variant: docs/data/rights.md
// has them to copy, and tests hold both to what real servers refuse.
type Rights struct {
	Variant string // its Name; also for the variants that Also names
	Also    []string
	Option  string // of the variant; its strategy's set comes before it. Empty: the set is the strategy's
	Note    string // what else to know, for the docs; empty: nothing
	Parts   []Part
}

// A Part is one rule, as ACL SETUSER takes it.
type Part struct {
	Rule string
	// Cost is what happens without it, as a sentence; empty: there is no lock without it.
	Cost string
	// Wait is the way to wait, if any, whose users cannot do without it, so that Check tells
	// them.
	Wait strategy.Wait
}

// Line is what a user needs, in the order of Parts, or with what he can do without as well.
func (r Rights) Line(all bool) string {
	var rules []string
	for _, p := range r.Parts {
		if all || p.Cost == "" {
			rules = append(rules, p.Rule)
		}
	}
	return strings.Join(rules, " ")
}

const (
	lockKey   = "~lock:{*}"
	queueKey  = "~lock:{*}:queue"
	readKey   = "~lock:{*}:readers"
	writeKey  = "~lock:{*}:writers"
	fenceKey  = "~lock:{*}:fence"
	permitKey = "~lock:{*}:permits"
	waitKey   = "~lock:{*}:waiters"
	guardKey  = "~lock:redlock:guard"
	freeChan  = "&lock:{*}:free"
	queueChan = "&lock:{*}:queue:*"
	waitChan  = "&lock:{*}:waiters:*"
	readChan  = "&lock:{*}:readers:*"
	writeChan = "&lock:{*}:writers:*"
)

// AllRights returns the sets, in the order of All.
func AllRights() []Rights {
	const (
		order    = "A request that was sent before a time-out may take effect after a later one. So the undo of an acquire whose answer was lost is repeated for a TTL, and no two callers share a request."
		looks    = "`Check` does not see a replica, or a server that evicts keys or is full. `locks exec --strict` refuses to run."
		alive    = "Nothing is lost, but the server's `ACL LOG` gets entries: a refusal, too, shows that the server lives."
		loads    = "`Check` does not load the scripts. The first locks on a new server load them. The client then meets with `NOSCRIPT`, which your calls never see."
		tidy     = "Each transaction that comes to nothing costs a connection."
		inspect  = "`Inspect` and `ForceRelease` of a lock that is held fail. A `HeldError` does not say for how long the lock is held."
		fifo     = "There is no queue: the first to ask when the lock is free gets it."
		quiet    = "A waiter that has asked again, because the holder keeps the lock, goes on asking after pauses."
		gaveUp   = "When an entry that a waiter gave up becomes the first in the queue, the others wait for a second."
		wakeUp   = "Nothing wakes a waiter: it asks again at the end of the holder's TTL, or earlier at random."
		notified = "Nothing wakes the waiters that do not queue (`WaitNotification`)."
		speed    = "The scripts need more commands, and so more time."
		lists    = "`Inspect` does not report the queue."
		grants   = "Each direct grant needs one more message."
		full     = "When Redis has no memory left, it refuses a renewal, and the lock is lost at its deadline."
		stays    = "A subscription ends only with its connection, and waiters that have left count as waiting."
	)
	needed := func(rules ...string) (parts []Part) {
		for _, r := range rules {
			parts = append(parts, Part{Rule: r})
		}
		return parts
	}
	optional := func(cost string, w strategy.Wait, rules ...string) (parts []Part) {
		for _, r := range rules {
			parts = append(parts, Part{Rule: r, Cost: cost, Wait: w})
		}
		return parts
	}
	node := slices.Concat(optional(order, 0, "+client|info", "+client|kill"), optional(looks, 0, "+info"), optional(alive, 0, "+ping"))
	told := func(w strategy.Wait, channels ...string) []Part {
		return slices.Concat(optional(wakeUp, w, channels...), optional(wakeUp, w, "+publish", "+subscribe"), optional(stays, 0, "+unsubscribe"))
	}
	queued := func(channels ...string) []Part {
		return slices.Concat(optional(fifo, strategy.WaitQueue, "+lindex", "+lpop", "+rpush"), optional(quiet, strategy.WaitQueue, "+lpos"), optional(gaveUp, strategy.WaitQueue, "+lrem"),
			optional(lists, 0, "+lrange"), optional(grants, 0, "+pubsub|numsub"),
			told(strategy.WaitQueue, channels...), optional(notified, strategy.WaitNotification, freeChan))
	}
	scripts := slices.Concat(needed("+eval", "+evalsha"), optional(loads, 0, "+script|load"))
	guard := needed(guardKey, "+info", "+hmget", "+hset", "+time")
	quorum := slices.Concat(needed(lockKey), scripts, needed("+get", "+getex", "+set", "+del", "+pttl", "+pexpire"))
	return []Rights{
		{
			Variant: "setnxgetset", Also: []string{"setnxgetset-blind"},
			Parts: slices.Concat(needed(lockKey, "+getex", "+set", "+setnx", "+getset", "+del"), node),
		},
		{
			Variant: "setnxgetset-watch", Option: "WithWatchTakeOver",
			Parts: slices.Concat(needed(lockKey, "+getex", "+set", "+setnx", "+del", "+watch", "+multi", "+exec"),
				optional(tidy, 0, "+unwatch", "+discard"), node),
		},
		{
			Variant: "setnxpx", Also: []string{"setnxpx-blind"},
			Parts: slices.Concat(needed(lockKey, "+getex", "+set", "+pexpire", "+del"), optional(inspect, 0, "+pttl"), node),
		},
		{
			Variant: "ifeq", Note: "For Valkey 9.0 or later. On Redis 8.4 or later write `+delex` in place of `+delifeq`.",
			Parts: slices.Concat(needed(lockKey, "+getex", "+set", "+delifeq"), optional(inspect, 0, "+pttl"),
				optional(full, 0, "+watch", "+multi", "+pexpire", "+exec"), optional(tidy, 0, "+unwatch", "+discard"),
				told(strategy.WaitNotification, freeChan), node),
		},
		{
			Variant: "luascript", Note: "With `WithoutFences` leave out `~lock:{*}:fence` and `+time`.",
			Parts: slices.Concat(needed(lockKey, fenceKey), scripts, needed("+get", "+getex", "+set", "+del", "+pttl", "+pexpire", "+time"),
				told(strategy.WaitNotification, freeChan), node),
		},
		{
			Variant: "fairqueue", Note: "`WithoutFences` needs the same rights.",
			Parts: slices.Concat(needed(lockKey, queueKey, fenceKey), scripts, needed("+get", "+getex", "+set", "+del", "+pttl", "+pexpire", "+time"),
				optional(speed, 0, "+exists", "+mget"), queued(queueChan), node),
		},
		{
			Variant: "reentrant",
			Parts: slices.Concat(needed(lockKey, fenceKey), scripts,
				needed("+get", "+set", "+del", "+hgetall", "+hset", "+hdel", "+pttl", "+pexpireat", "+time"),
				told(strategy.WaitNotification, freeChan), node),
		},
		{
			Variant: "semaphore",
			Parts: slices.Concat(needed(lockKey, waitKey, fenceKey, permitKey), scripts,
				needed("+get", "+set", "+zrange", "+zadd", "+zrem", "+zremrangebyscore", "+zscore", "+zcount", "+zcard", "+pttl", "+pexpireat", "+time"),
				optional(speed, 0, "+exists"), optional(fifo, strategy.WaitQueue, "+pexpire"), queued(waitChan), node),
		},
		{
			Variant: "rwlock",
			Parts: slices.Concat(needed(lockKey, readKey, writeKey, fenceKey), scripts,
				needed("+get", "+set", "+zrange", "+zadd", "+zrem", "+zremrangebyscore", "+zscore", "+zcount", "+pttl", "+pexpireat", "+time"),
				optional(speed, 0, "+exists"), optional(fifo, strategy.WaitQueue, "+pexpire"), queued(readChan, writeChan), node),
		},
		{
			Variant: "redlock", Also: []string{"redlock-1", "redlock-3", "redlock-2-dead"}, Note: "On each server.",
			Parts: slices.Concat(quorum, guard, told(strategy.WaitNotification, freeChan), without(node, "+info")),
		},
		{
			Variant: "redlock-fenced", Option: "WithFences", Note: "If `Options.FenceTTL` is negative, write `+persist` in place of `+pexpireat`.",
			Parts: slices.Concat(quorum, guard, needed(fenceKey, "+hget", "+pexpireat"), told(strategy.WaitNotification, freeChan), without(node, "+info")),
		},
		{
			Variant: "redlock-unguarded", Option: "WithoutGuard",
			Parts: slices.Concat(quorum, told(strategy.WaitNotification, freeChan), node),
		},
	}
}

func without(parts []Part, rule string) []Part {
	return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.Rule == rule })
}

// RightsOf returns the set of a variant.
func RightsOf(variant string) (Rights, error) {
	for _, r := range AllRights() {
		if r.Variant == variant || slices.Contains(r.Also, variant) {
			return r, nil
		}
	}
	return Rights{}, fmt.Errorf("subjects: no rights are known of %q", variant)
}

const rightsHead = `<!-- go test ./internal/testkit/subjects -run TestSecurityPage -update writes this page from rights.go -->

# Rights of each strategy

Paste the two lines of your strategy into an open ` + "`redis-cli`" + `, with a name and a password of your own. The first line has the
least rights: without one of them there is no lock. The second line adds what you may leave out, at the cost that the
table names. [Security](../run/security.md#rights) says what other rights a program can need, and how to keep
users in a file. [An operator](#an-operators-user) needs more.

## What you may leave out

| rules | without them |
|---|---|
`

// Operator is what an operator's user may do besides both lines of a strategy: what the tool needs, and what the runbook asks
// servers by redis-cli.
const Operator = "+scan +type +info +ping +config|get +slowlog|get +latency|doctor +client|list +pubsub|channels +acl|log"

const operatorPart = `
## An operator's user

` + "`locks list`" + ` and the questions of the [runbook](../run/runbook.md) need more than a program: both lines of each strategy (a second ` + "`reset`" + `
takes back the first), and this one. ` + "`CONFIG SET`" + ` and the like need an administrator.

` + "```\nACL SETUSER operator " + Operator + "\n```\n"

// RightsPage is docs/data/rights.md: the sets, and once for all of them what may be left out.
func RightsPage() string {
	var b strings.Builder
	b.WriteString(rightsHead)
	sets := AllRights()
	for _, r := range costs(sets) {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(strings.Join(r.rules, " "), "|", `\|`), r.cost)
	}
	b.WriteString("\n## The lines\n")
	var base Rights
	for _, r := range sets {
		if r.Option != "" {
			fmt.Fprintf(&b, "\nWith `%s` %s\n", r.Option, strings.TrimSpace(r.unlike(base)+" "+r.Note))
			continue
		}
		base = r
		fmt.Fprintf(&b, "\n### `%s`\n\n", r.Variant)
		if r.Note != "" {
			fmt.Fprintf(&b, "%s\n\n", r.Note)
		}
		var more []string
		for _, p := range r.Parts {
			if p.Cost != "" {
				more = append(more, p.Rule)
			}
		}
		fmt.Fprintf(&b, "```\nACL SETUSER orders reset on >password %s\nACL SETUSER orders %s\n```\n", r.Line(false), strings.Join(more, " "))
	}
	b.WriteString(operatorPart)
	return b.String()
}

// unlike says which rules the set has, and the base has not, and the other way round.
func (r Rights) unlike(base Rights) string {
	mine, its := strings.Fields(r.Line(true)), strings.Fields(base.Line(true))
	var said []string
	for _, d := range []struct {
		do       string
		of, less []string
	}{{"add", mine, its}, {"leave out", its, mine}} {
		only := slices.DeleteFunc(slices.Clone(d.of), func(rule string) bool { return slices.Contains(d.less, rule) })
		if len(only) > 0 {
			said = append(said, d.do+" `"+strings.Join(only, "` `")+"`")
		}
	}
	return strings.Join(said, ", and ") + "."
}

// A costRow is a row of the page's table: the rules whose lack costs the same.
type costRow struct {
	cost  string
	rules []string
}

// costs returns the rows. A rule that has several costs is followed by the sets in which it has this one.
func costs(sets []Rights) (rows []costRow) {
	of := map[string]map[string][]string{} // by rule and cost: titles
	for _, r := range sets {
		for _, p := range r.Parts {
			if p.Cost == "" || r.Option != "" {
				continue
			}
			i := slices.IndexFunc(rows, func(r costRow) bool { return r.cost == p.Cost })
			if i < 0 {
				rows, i = append(rows, costRow{cost: p.Cost}), len(rows)
			}
			if of[p.Rule] == nil {
				of[p.Rule] = map[string][]string{}
			}
			if of[p.Rule][p.Cost] == nil {
				rows[i].rules = append(rows[i].rules, p.Rule)
			}
			of[p.Rule][p.Cost] = append(of[p.Rule][p.Cost], "`"+r.Variant+"`")
		}
	}
	for _, row := range rows {
		for i, rule := range row.rules {
			row.rules[i] = "`" + rule + "`"
			if len(of[rule]) > 1 {
				row.rules[i] += " (" + strings.Join(of[rule][row.cost], ", ") + ")"
			}
		}
	}
	return rows
}
