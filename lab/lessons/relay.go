package lessons

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/strategy"
)

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

// A way is how those who wait learn that the lock is free. handOff has the first of all hold the
// lock, and the others wait; then the first passes it to the second, and waits, and counts what that sends.
type way struct {
	name    string
	handOff func(r *relay, counts func(pass func()))
}

var polling = way{"polling, twice in each hold", func(r *relay, counts func(func())) {
	r.asks(r.all[0], true)
	counts(func() {
		r.releases(r.all[0], compareDelete)
		r.asks(r.all[1], true)
		for range 2 {
			r.others(func(c *client) { r.asks(c, false) }, 1)
		}
	})
}}

var wakeUp = way{"wake-up of all", func(r *relay, counts func(func())) {
	free, told, leaves := r.s.free(r.key), map[*client]chan struct{}{}, []func(){}
	wait := func(c *client) {
		heard := make(chan struct{}, 1)
		leave, err := c.subscribes(r.s.redis(), free, func() { heard <- struct{}{} })
		if err != nil {
			r.s.Cannot("%s cannot listen: %w", c.name, err)
		}
		told[c], leaves = heard, append(leaves, leave)
		r.asks(c, false)
	}
	r.asks(r.all[0], true)
	r.others(wait, 0)
	counts(func() {
		r.releases(r.all[0], releasePublish, free)
		r.others(func(c *client) { taken(r, c, told[c]) }, 0)
		r.asks(r.all[1], true)
		for _, c := range r.all[2:] {
			r.asks(c, false)
		}
		wait(r.all[0])
	})
	for _, leave := range leaves {
		leave()
	}
}}

var directGrant = way{"direct grant", func(r *relay, counts func(func())) {
	ctx, giveUp := context.WithCancel(r.s.ctx)
	queue, granted := r.s.queue(r.key), map[*client]chan strategy.Lease{}
	acquire := func(c *client) {
		got := make(chan strategy.Lease, 1)
		granted[c] = got
		go func() {
			lease, _ := c.locks.NewLock(r.name).Acquire(ctx) // nil when it gives up
			got <- lease
		}()
	}
	wait := func(c *client, place int) {
		acquire(c)
		r.s.until(c.name+" has its place in the queue", func() bool { return r.s.redis().ask("LLEN", queue) == int64(place) })
	}
	release := func(c *client) {
		if lease := taken(r, c, granted[c]); lease == nil || lease.Release(r.s.ctx) != nil {
			r.s.Cannot("the lock is lost before its release")
		}
	}
	for _, c := range r.all {
		c.opens(queueing)
	}
	acquire(r.all[0])
	granted[r.all[0]] <- taken(r, r.all[0], granted[r.all[0]]) // it has the lock before the others come
	for i, c := range r.all[1:] {
		wait(c, i+1)
	}
	counts(func() {
		release(r.all[0])
		granted[r.all[1]] <- taken(r, r.all[1], granted[r.all[1]])
		wait(r.all[0], len(r.all)-1)
	})
	giveUp()
	release(r.all[1])
	for _, c := range r.all {
		c.locks.Close() // what that sends is not drawn either
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

// others does something for all but one.
func (r *relay) others(do func(*client), but int) {
	for i, c := range r.all {
		if i != but {
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
	var costs []int
	for _, w := range ways {
		row := []string{w.name}
		costs = nil
		for _, n := range waiters {
			s.offstage(func() { costs = append(costs, s.relay(w, n)) })
			row = append(row, fmt.Sprint(costs[len(costs)-1]))
		}
		t.Rows = append(t.Rows, row)
	}
	s.trace.Tables = append(s.trace.Tables, t)
	// Each who waits either sends something per hand-off, which is a command at least, or nothing;
	// half a command is between.
	last := len(waiters) - 1
	each := float64(costs[last]-costs[0]) / float64(waiters[last]-waiters[0])
	s.judge(costsTheSame, each < 0.5, "%d commands where %d wait, and %d where %d do: each who waits adds %.1f",
		costs[0], waiters[0], costs[last], waiters[last], each)
}

const costsTheSame = "a hand-off costs the same however many wait"

// relay is one of those, and returns how many commands a hand-off took.
func (s *Stage) relay(w way, waiting int) (sent int) {
	r := &relay{s: s, name: s.name + "-relay"}
	r.key = s.leaves(strategy.DefaultKey(r.name))
	for i := range waiting + 1 {
		r.all = append(r.all, s.client(fmt.Sprintf("%c", 'A'+i)))
	}
	w.handOff(r, func(pass func()) {
		before := s.commands()
		pass()
		sent = s.commands() - before
	})
	s.redis().ask("DEL", r.key)
	return sent
}
