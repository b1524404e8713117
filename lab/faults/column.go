package faults

import (
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/subjects"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// A Column is a strategy, or a variant of one that differs in some rows.
type Column struct {
	subjects.Variant
	Of string // the column of which it is a variant, told only where it differs

	more int // round trips of an acquire after the first: to wait for others, or for a fence to be noted

	// Which request of a release deletes the key, and which of an extension renews it: it
	// comes after one that compared, if it is not the first.
	deletes, renews int

	replicas int  // how many must have a grant before it counts; the server is given one
	synced   bool // a grant counts once it is in the append-only file, and that synced; the server is given one

	// The way in which its contenders wait, where that is not the best.
	wait       strategy.Wait
	noHandOver bool
}

// trips is how many answers a contender waits for, one after the other, who gets a free lock.
func (c Column) trips() int { return 1 + c.more }

// Columns returns the strategies in teaching order, each followed by its variants.
func Columns() []Column {
	known := map[string]subjects.Variant{}
	for _, v := range subjects.All() {
		known[v.Name] = v
	}
	plain := func(name string, deletes, renews int) Column {
		return Column{Variant: known[name], deletes: deletes, renews: renews}
	}
	// variant has the algorithm of c; else of the list's entry of its name; else of its strategy.
	variant := func(of, what, summary string, c Column) Column {
		v, ok := known[of+"-"+what]
		if !ok {
			v = known[of]
		}
		if c.On != nil {
			v.On, v.Skewed = c.On, c.Skewed
		}
		v.Name, v.Summary = of+"-"+what, summary
		c.Variant, c.Of = v, of
		return c
	}
	waiting := func(steps int, a strategy.Acks, on func(driver.Node) driver.Protocol) Column {
		c := Column{deletes: steps, renews: steps, replicas: a.Replicas, synced: a.AOF, more: 2}
		c.On = func(nodes []driver.Node) driver.Protocol {
			return on(nodes[0]).(driver.Acknowledger).Acknowledged(a)
		}
		return c
	}
	stamping := func(a strategy.Acks) Column {
		c := waiting(2, a, func(n driver.Node) driver.Protocol { return setnxgetset.On(n) })
		c.Skewed = func(nodes []driver.Node, ahead time.Duration) driver.Protocol {
			clock := func() time.Time { return time.Now().Add(ahead) }
			return setnxgetset.On(nodes[0], setnxgetset.WithClock(clock)).(driver.Acknowledger).Acknowledged(a)
		}
		return c
	}
	unguarded := Column{deletes: 1, renews: 1}
	unguarded.On = func(nodes []driver.Node) driver.Protocol {
		return redlock.On(nodes, redlock.WithNodeTimeout(time.Minute), redlock.WithoutGuard())
	}
	replica, file := strategy.Acks{Replicas: 1}, strategy.Acks{AOF: true}
	const (
		blind     = "WithBlindRelease: released by DEL, which does not compare"
		polls     = "with WaitPoll: nobody is notified"
		confirmed = "with Acks: a grant counts once the server's one replica has it, too (WAIT)"
		synced    = "with Acks: a grant counts once the server has synced it to its append-only file (WAITAOF)"
	)
	return []Column{
		plain("setnxgetset", 2, 2),
		variant("setnxgetset", "blind", blind, Column{deletes: 1, renews: 2}),
		variant("setnxgetset", "watch", "WithWatchTakeOver: taken over, renewed and released in transactions", Column{deletes: 5, renews: 5}),
		variant("setnxgetset", "acknowledged", confirmed, stamping(replica)),
		variant("setnxgetset", "synced", synced, stamping(file)),
		plain("setnxpx", 2, 2),
		variant("setnxpx", "blind", blind, Column{deletes: 1, renews: 2}),
		variant("setnxpx", "acknowledged", confirmed, waiting(2, replica, func(n driver.Node) driver.Protocol { return setnxpx.On(n) })),
		variant("setnxpx", "synced", synced, waiting(2, file, func(n driver.Node) driver.Protocol { return setnxpx.On(n) })),
		plain("ifeq", 1, 1),
		plain("luascript", 1, 1),
		plain("fairqueue", 1, 1),
		variant("fairqueue", "acknowledged", confirmed, waiting(1, replica, func(n driver.Node) driver.Protocol { return fairqueue.On(n) })),
		variant("fairqueue", "synced", synced, waiting(1, file, func(n driver.Node) driver.Protocol { return fairqueue.On(n) })),
		variant("fairqueue", "asking", "with NoHandOver: the servers are asked each time", Column{deletes: 1, renews: 1, noHandOver: true}),
		variant("fairqueue", "notification", "with WaitNotification: nobody queues", Column{deletes: 1, renews: 1, wait: strategy.WaitNotification}),
		variant("fairqueue", "poll", polls, Column{deletes: 1, renews: 1, wait: strategy.WaitPoll}),
		plain("semaphore", 1, 1),
		plain("rwlock", 1, 1),
		plain("reentrant", 1, 1),
		variant("reentrant", "poll", polls, Column{deletes: 1, renews: 1, wait: strategy.WaitPoll}),
		variant("reentrant", "acknowledged", confirmed, waiting(1, replica, func(n driver.Node) driver.Protocol { return reentrant.On(n) })),
		variant("reentrant", "synced", synced, waiting(1, file, func(n driver.Node) driver.Protocol { return reentrant.On(n) })),
		plain("redlock", 1, 1),
		variant("redlock", "unguarded", "with WithoutGuard: every server votes at once", unguarded),
		variant("redlock", "fenced", "with WithFences", Column{deletes: 1, renews: 1, more: 1}),
	}
}

// Players are the columns for those who contend in processes of their own: a program that
// plays calls contender.Child with them.
func Players() (all []subjects.Variant) {
	for _, c := range Columns() {
		all = append(all, c.Variant)
	}
	return all
}
