package faults

import (
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/setnxgetset"
	"github.com/lockstrategies/locks/setnxpx"
	"github.com/lockstrategies/locks/strategy"
)

// A Column is a strategy, or a variant of one that differs in some rows.
type Column struct {
	Name    string
	Of      string // the column of which it is a variant, told only where it differs
	Summary string
	Servers int
	Fenced  bool

	more int // round trips of an acquire beside the first: to wait for others, or for a fence to be noted

	// Which request of a release deletes the key, and which of an extension renews it: it
	// comes after one that compared, if it is not the first.
	deletes, renews int

	stamps bool // it reads its contenders' wall clocks

	replicas int  // how many must have a grant before it counts; the server is given one
	synced   bool // a grant counts once it is in the append-only file, and that synced; the server is given one

	on func(nodes []driver.Node, ahead, patience time.Duration) driver.Protocol

	// How its contenders wait, where that is not the best.
	wait     strategy.Wait
	handOver strategy.HandOver
}

// trips is how many answers a contender waits for, one after the other, who gets a free lock.
func (c Column) trips() int { return 1 + c.more }

// Columns returns the strategies in teaching order, each followed by its variants.
func Columns() []Column {
	stamps := func(own ...setnxgetset.Option) func([]driver.Node, time.Duration, time.Duration) driver.Protocol {
		return func(nodes []driver.Node, ahead, _ time.Duration) driver.Protocol {
			clock := func() time.Time { return time.Now().Add(ahead) }
			return setnxgetset.On(nodes[0], append([]setnxgetset.Option{setnxgetset.Clock(clock)}, own...)...)
		}
	}
	single := func(on func(driver.Node) driver.Protocol) func([]driver.Node, time.Duration, time.Duration) driver.Protocol {
		return func(nodes []driver.Node, _, _ time.Duration) driver.Protocol { return on(nodes[0]) }
	}
	quorum := func(own ...redlock.Option) func([]driver.Node, time.Duration, time.Duration) driver.Protocol {
		return func(nodes []driver.Node, _, patience time.Duration) driver.Protocol {
			return redlock.On(nodes, append([]redlock.Option{redlock.NodeTimeout(patience)}, own...)...)
		}
	}
	replica, file := strategy.Acks{Replicas: 1}, strategy.Acks{AOF: true}
	const (
		confirmed = "with Acknowledged: a grant counts once the server's one replica has it, too (WAIT)"
		synced    = "with Acknowledged: a grant counts once the server has synced it to its append-only file (WAITAOF)"
	)
	return []Column{
		{Name: "setnxgetset", Servers: 1, stamps: true, deletes: 2, renews: 2, on: stamps(), Summary: "SETNX and a stamp, taken over by GETSET, released by GET, compare, DEL"},
		{Name: "setnxgetset-blind", Of: "setnxgetset", Servers: 1, stamps: true, deletes: 1, renews: 2, on: stamps(setnxgetset.BlindRelease()), Summary: "with BlindRelease: released by DEL, which does not compare"},
		{Name: "setnxgetset-watch", Of: "setnxgetset", Servers: 1, stamps: true, deletes: 5, renews: 5, on: stamps(setnxgetset.WatchTakeOver()), Summary: "with WatchTakeOver: taken over, renewed and released in transactions"},
		{Name: "setnxgetset-acknowledged", Of: "setnxgetset", Servers: 1, stamps: true, deletes: 2, renews: 2, replicas: 1, more: 2, Summary: confirmed,
			on: stamps(setnxgetset.Acknowledged(replica))},
		{Name: "setnxgetset-synced", Of: "setnxgetset", Servers: 1, stamps: true, deletes: 2, renews: 2, synced: true, more: 2, Summary: synced,
			on: stamps(setnxgetset.Acknowledged(file))},
		{Name: "setnxpx", Servers: 1, deletes: 2, renews: 2, Summary: "SET NX PX, released by GET, compare, DEL",
			on: single(func(n driver.Node) driver.Protocol { return setnxpx.On(n) })},
		{Name: "setnxpx-blind", Of: "setnxpx", Servers: 1, deletes: 1, renews: 2, Summary: "with BlindRelease: released by DEL, which does not compare",
			on: single(func(n driver.Node) driver.Protocol { return setnxpx.On(n, setnxpx.BlindRelease()) })},
		{Name: "setnxpx-acknowledged", Of: "setnxpx", Servers: 1, deletes: 2, renews: 2, replicas: 1, more: 2, Summary: confirmed,
			on: single(func(n driver.Node) driver.Protocol { return setnxpx.On(n, setnxpx.Acknowledged(replica)) })},
		{Name: "setnxpx-synced", Of: "setnxpx", Servers: 1, deletes: 2, renews: 2, synced: true, more: 2, Summary: synced,
			on: single(func(n driver.Node) driver.Protocol { return setnxpx.On(n, setnxpx.Acknowledged(file)) })},
		{Name: "luascript", Servers: 1, deletes: 1, renews: 1, Fenced: true, Summary: "SET NX PX, compared and deleted in one script",
			on: single(func(n driver.Node) driver.Protocol { return luascript.On(n) })},
		{Name: "fairqueue", Servers: 1, deletes: 1, renews: 1, Fenced: true, Summary: "the same, with a queue: a release grants the lock to the next",
			on: single(func(n driver.Node) driver.Protocol { return fairqueue.On(n) })},
		{Name: "fairqueue-acknowledged", Of: "fairqueue", Servers: 1, Fenced: true, deletes: 1, renews: 1, replicas: 1, more: 2, Summary: confirmed,
			on: single(func(n driver.Node) driver.Protocol { return fairqueue.On(n, fairqueue.Acknowledged(replica)) })},
		{Name: "fairqueue-synced", Of: "fairqueue", Servers: 1, Fenced: true, deletes: 1, renews: 1, synced: true, more: 2, Summary: synced,
			on: single(func(n driver.Node) driver.Protocol { return fairqueue.On(n, fairqueue.Acknowledged(file)) })},
		{Name: "fairqueue-asking", Of: "fairqueue", Servers: 1, deletes: 1, renews: 1, Fenced: true, handOver: strategy.HandOverNone, Summary: "with HandOverNone: the servers are asked each time",
			on: single(func(n driver.Node) driver.Protocol { return fairqueue.On(n) })},
		{Name: "fairqueue-notification", Of: "fairqueue", Servers: 1, deletes: 1, renews: 1, Fenced: true, wait: strategy.WaitNotification, Summary: "with WaitNotification: nobody queues",
			on: single(func(n driver.Node) driver.Protocol { return fairqueue.On(n) })},
		{Name: "fairqueue-poll", Of: "fairqueue", Servers: 1, deletes: 1, renews: 1, Fenced: true, wait: strategy.WaitPoll, Summary: "with WaitPoll: nobody is told",
			on: single(func(n driver.Node) driver.Protocol { return fairqueue.On(n) })},
		{Name: "reentrant", Servers: 1, deletes: 1, renews: 1, Fenced: true, Summary: "a hash with a field for each hold of its owner",
			on: single(func(n driver.Node) driver.Protocol { return reentrant.On(n) })},
		{Name: "reentrant-poll", Of: "reentrant", Servers: 1, deletes: 1, renews: 1, Fenced: true, wait: strategy.WaitPoll, Summary: "with WaitPoll: nobody is told",
			on: single(func(n driver.Node) driver.Protocol { return reentrant.On(n) })},
		{Name: "reentrant-acknowledged", Of: "reentrant", Servers: 1, Fenced: true, deletes: 1, renews: 1, replicas: 1, more: 2, Summary: confirmed,
			on: single(func(n driver.Node) driver.Protocol { return reentrant.On(n, reentrant.Acknowledged(replica)) })},
		{Name: "reentrant-synced", Of: "reentrant", Servers: 1, Fenced: true, deletes: 1, renews: 1, synced: true, more: 2, Summary: synced,
			on: single(func(n driver.Node) driver.Protocol { return reentrant.On(n, reentrant.Acknowledged(file)) })},
		{Name: "redlock", Servers: 5, deletes: 1, renews: 1, on: quorum(), Summary: "SET NX PX on five servers, most of which must grant it"},
		{Name: "redlock-unguarded", Of: "redlock", Servers: 5, deletes: 1, renews: 1, on: quorum(redlock.WithoutGuard()), Summary: "with WithoutGuard: every server votes at once"},
		{Name: "redlock-fenced", Of: "redlock", Servers: 5, deletes: 1, renews: 1, Fenced: true, more: 1, on: quorum(redlock.WithFences()), Summary: "with WithFences"},
	}
}

// Players are the columns for those who contend in processes of their own: whoever plays
// calls contender.Child with them.
func Players() (all []subjects.Variant) {
	for _, c := range Columns() {
		all = append(all, subjects.Variant{
			Name: c.Name, Summary: c.Summary, Servers: c.Servers, Fenced: c.Fenced,
			On: func(nodes []driver.Node) driver.Protocol { return c.on(nodes, 0, time.Minute) },
		})
	}
	return all
}
