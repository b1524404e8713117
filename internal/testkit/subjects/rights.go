package subjects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstrategies/locks/strategy"
)

// Rights are the least that a server's ACL has to allow a user of a variant: docs/run/security.md
// has them to copy, and tests hold both to what real servers refuse.
type Rights struct {
	Variant string // its Name; also for the variants that Also names
	Also    []string
	Of      string // what options go with it, for the docs; empty: none
	Parts   []Part
}

// A Part is one rule, as ACL SETUSER takes it.
type Part struct {
	Rule string
	// Cost is what is lost without it; empty: there is no lock without it.
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
		order    = "order: what was sent before a time-out may take effect after what was sent later. So the undo of an acquire whose answer was lost is repeated for a TTL, and no two callers share a request"
		looks    = "Check does not see a replica, or a server that evicts keys"
		alive    = "nothing but entries in the server's ACL LOG: a refusal is a sign of life, too"
		loads    = "Check does not load the scripts: the first locks on a server that is new do, and their client meets with NOSCRIPT, which your calls never see"
		tidy     = "a connection for each transaction that comes to nothing"
		inspect  = "Inspect, and so ForceRelease, of a lock that is held; a HeldError does not say for how long"
		fifo     = "the queue: the first to ask when the lock is free gets it"
		quiet    = "quiet waiting: a waiter that has asked again, because the holder keeps the lock, goes on asking after pauses"
		gaveUp   = "a second, when an entry that was given up becomes the first in the queue"
		wakeUp   = "wake-ups: a waiter asks again at the end of the holder's TTL, or earlier at random"
		notified = "wake-ups of waiters that do not queue (WaitNotification)"
		speed    = "time: the scripts need more commands"
		lists    = "Inspect does not report the queue"
		grants   = "one more message for each direct grant"
		full     = "time, where Redis has no memory left: it refuses a renewal, and the lock is lost at its deadline"
		stays    = "subscriptions end only with their connection, and waiters that have left count as waiting"
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
			Variant: "setnxgetset-watch", Of: "WithWatchTakeOver",
			Parts: slices.Concat(needed(lockKey, "+getex", "+set", "+setnx", "+del", "+watch", "+multi", "+exec"),
				optional(tidy, 0, "+unwatch", "+discard"), node),
		},
		{
			Variant: "setnxpx", Also: []string{"setnxpx-blind"},
			Parts: slices.Concat(needed(lockKey, "+getex", "+set", "+pexpire", "+del"), optional(inspect, 0, "+pttl"), node),
		},
		{
			Variant: "ifeq", Of: "on Valkey 9.0 or later (+delex in place of +delifeq on Redis 8.4 or later)",
			Parts: slices.Concat(needed(lockKey, "+getex", "+set", "+delifeq"), optional(inspect, 0, "+pttl"),
				optional(full, 0, "+watch", "+multi", "+pexpire", "+exec"), optional(tidy, 0, "+unwatch", "+discard"),
				told(strategy.WaitNotification, freeChan), node),
		},
		{
			Variant: "luascript", Of: "WithoutFences does without the fence key and TIME",
			Parts: slices.Concat(needed(lockKey, fenceKey), scripts, needed("+get", "+getex", "+set", "+del", "+pttl", "+pexpire", "+time"),
				told(strategy.WaitNotification, freeChan), node),
		},
		{
			Variant: "fairqueue", Of: "also WithoutFences",
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
			Variant: "redlock", Also: []string{"redlock-1", "redlock-3", "redlock-2-dead"}, Of: "on each server",
			Parts: slices.Concat(quorum, guard, told(strategy.WaitNotification, freeChan), without(node, "+info")),
		},
		{
			Variant: "redlock-fenced", Of: "WithFences, on each server (+persist in place of +pexpireat if Options.FenceTTL is negative)",
			Parts: slices.Concat(quorum, guard, needed(fenceKey, "+hget", "+pexpireat"), told(strategy.WaitNotification, freeChan), without(node, "+info")),
		},
		{
			Variant: "redlock-unguarded", Of: "WithoutGuard, on each server",
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

// RightsPage is the sets as docs/run/security.md has them.
func RightsPage() string {
	var b strings.Builder
	for _, r := range AllRights() {
		title := "`" + r.Variant + "`"
		if names := slices.Concat([]string{r.Variant}, r.Also); len(names) > 1 {
			title = "`" + strings.Join(names, "`, `") + "`"
		}
		fmt.Fprintf(&b, "\n### %s\n\n", title)
		if r.Of != "" {
			fmt.Fprintf(&b, "%s%s.\n\n", strings.ToUpper(r.Of[:1]), r.Of[1:])
		}
		fmt.Fprintf(&b, "```\nACL SETUSER locker reset on >password %s\n```\n\n", r.Line(true))
		fmt.Fprintf(&b, "Least: `%s`\n\n| may be left out | what that costs |\n|---|---|\n", r.Line(false))
		var rules []string
		optional := slices.DeleteFunc(slices.Clone(r.Parts), func(p Part) bool { return p.Cost == "" })
		for i, p := range optional {
			rules = append(rules, "`"+strings.ReplaceAll(p.Rule, "|", `\|`)+"`") // it stands in a table
			if i+1 < len(optional) && optional[i+1].Cost == p.Cost {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(rules, " "), p.Cost)
			rules = nil
		}
	}
	return b.String() + "\n"
}
