package lessons

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

// handOffs is in how many hand-offs the commands are counted.
const handOffs = 8

// waiters are how many wait meanwhile, in each relay.
var waiters = []int{2, 4, 8}

// A relay is a lock that goes from hand to hand: one holds it, and all others wait. A client that
// has passed it on comes back, so their number stays the same. A hold lasts until all others
// wait again: work that is shorter would hide what waiting costs.
type relay struct {
	s         *Stage
	name, key string // of the lock
	all       []*client
}

// A way is how those who wait learn that the lock is free. begin has the first of all hold the
// lock, and the others wait.
type way struct {
	name  string
	begin func(r *relay) runners
}

type runners struct {
	pass func(from, to *client) // the lock, and then from waits
	end  func()
}

var polling = way{"polling, twice in each hold", func(r *relay) runners {
	r.asks(r.all[0], true)
	return runners{end: func() {}, pass: func(from, to *client) {
		r.releases(from, compareDelete)
		r.asks(to, true)
		for range 2 {
			r.others(func(c *client) { r.asks(c, false) }, to)
		}
	}}
}}

var wakeUp = way{"wake-up of all", func(r *relay) runners {
	free := r.s.free(r.key)
	told, stop := map[*client]chan struct{}{}, map[*client]func(){}
	wait := func(c *client) {
		heard := make(chan struct{}, 1)
		leave, err := c.subscribes(r.s.redis(), free, func() { heard <- struct{}{} })
		if err != nil {
			r.s.Cannot("%s cannot listen: %w", c.name, err)
		}
		told[c], stop[c] = heard, leave
		r.asks(c, false)
	}
	r.asks(r.all[0], true)
	r.others(wait, r.all[0])
	return runners{
		pass: func(from, to *client) {
			r.releases(from, releasePublish, free)
			r.others(func(c *client) { taken(r, c, told[c]) }, from)
			stop[to]()
			delete(stop, to)
			r.asks(to, true)
			r.others(func(c *client) { r.asks(c, false) }, from, to)
			wait(from)
		},
		end: func() {
			for _, leave := range stop {
				leave()
			}
		},
	}
}}

var directGrant = way{"direct grant", func(r *relay) runners {
	ctx, giveUp := context.WithCancel(r.s.ctx)
	queue, waiting, granted := r.s.queue(r.key), int64(0), map[*client]chan strategy.Lease{}
	acquire := func(c *client) {
		got := make(chan strategy.Lease, 1)
		granted[c] = got
		go func() {
			lease, _ := c.locks.NewLock(r.name).Acquire(ctx) // nil when it gives up
			got <- lease
		}()
	}
	wait := func(c *client) {
		waiting++
		acquire(c)
		r.s.until(c.name+" has its place in the queue", func() bool { return r.s.redis().ask("LLEN", queue) == waiting })
	}
	for _, c := range r.all {
		c.opens(queueing)
	}
	acquire(r.all[0])
	held := taken(r, r.all[0], granted[r.all[0]])
	r.others(wait, r.all[0])
	release := func() {
		if held == nil || held.Release(r.s.ctx) != nil {
			r.s.Cannot("the lock is lost before its release")
		}
	}
	return runners{
		pass: func(from, to *client) {
			release()
			held = taken(r, to, granted[to])
			waiting--
			wait(from)
		},
		end: func() {
			giveUp()
			release()
			for _, c := range r.all {
				c.locks.Close() // what that sends is not drawn either
			}
		},
	}
}}

// taken is what the client gets sooner or later.
func taken[T any](r *relay, c *client, from <-chan T) T {
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		r.s.Cannot("%s hears nothing of %s", c.name, r.name)
		panic("unreachable")
	}
}

// others does something for all but some.
func (r *relay) others(do func(*client), but ...*client) {
	for _, c := range r.all {
		if c != but[0] && c != but[len(but)-1] {
			do(c)
		}
	}
}

// asks sends SET NX, which is granted where it should be.
func (r *relay) asks(c *client, granted bool) {
	if c.do(r.s.redis(), "SET", r.key, c.name, "NX", "PX", r.s.px()).is("OK") != granted {
		r.s.late("%s asks for the lock, and should get it: %v", c.name, granted)
	}
}

func (r *relay) releases(c *client, script *driver.Script, args ...any) {
	if !c.eval(r.s.redis(), script, r.key, append([]any{c.name}, args...)...).is(1) {
		r.s.late("%s has lost the lock before its release", c.name)
	}
}

// relays measures what a hand-off costs, by each of some ways, and shows it; the last is
// judged.
func (s *Stage) relays(ways ...way) {
	t := Table{Title: "commands per hand-off, all that everybody sends", Head: []string{""}}
	for _, n := range waiters {
		t.Head = append(t.Head, fmt.Sprintf("%d wait", n))
	}
	var costs []float64
	for _, w := range ways {
		row := []string{w.name}
		costs = nil
		for _, n := range waiters {
			s.offstage(func() { costs = append(costs, s.relay(w, n)) })
			row = append(row, fmt.Sprintf("%.1f", costs[len(costs)-1]))
		}
		t.Rows = append(t.Rows, row)
	}
	s.trace.Tables = append(s.trace.Tables, t)
	// Each who waits either sends something per hand-off, which is a command at least, or nothing;
	// half a command is between.
	last := len(waiters) - 1
	each := (costs[last] - costs[0]) / float64(waiters[last]-waiters[0])
	s.judge(costsTheSame, each < 0.5, "%.1f commands where %d wait, and %.1f where %d do: each who waits adds %.1f",
		costs[0], waiters[0], costs[last], waiters[last], each)
}

const costsTheSame = "a hand-off costs the same however many wait"

// relay is one of those, and returns how many commands a hand-off took.
func (s *Stage) relay(w way, waiting int) float64 {
	r := &relay{s: s, name: s.name + "-relay"}
	r.key = s.leaves(strategy.DefaultKey(r.name))
	for i := range waiting + 1 {
		r.all = append(r.all, s.client(fmt.Sprintf("%c", 'A'+i)))
	}
	run := w.begin(r)
	before := s.commands()
	for i := range handOffs {
		run.pass(r.all[i%len(r.all)], r.all[(i+1)%len(r.all)])
	}
	sent := s.commands() - before
	run.end()
	s.redis().ask("DEL", r.key)
	return float64(sent) / handOffs
}
