package lessons

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	s          *Stage
	name       string // of the lock
	key, queue string
	ctx        context.Context // of those who wait: it ends with the last hand-off
	end        context.CancelFunc

	mu      sync.Mutex
	all     []*client
	refused map[*client]int // since the last release
	turn    int             // how many holds have begun
	inside  int
	begun   int // commands at the first hold, when all others wait
	ended   int // … and after the last hand-off
	err     error
}

// A way is how those who wait learn that the lock is free.
type way struct {
	name  string
	joins func(r *relay, c *client) runner

	// wait reports whether all others than the holder wait, since the last release.
	wait func(r *relay, holder *client) bool
}

// A runner acquires, waiting until the relay ends, and releases.
type runner struct{ acquire, release func() error }

const pollEvery = 2 * time.Millisecond

var polling = way{
	name: "polling, twice in each hold",
	wait: func(r *relay, holder *client) bool { return r.eachRefused(holder, 2) },
	joins: func(r *relay, c *client) runner {
		return runner{
			acquire: func() error { return r.asks(c, time.After) },
			release: func() error { return r.eval(c, compareDelete) },
		}
	},
}

var wakeUp = way{
	name: "wake-up of all",
	wait: func(r *relay, holder *client) bool { return r.eachRefused(holder, 1) },
	joins: func(r *relay, c *client) runner {
		free := r.s.free(r.key)
		return runner{
			acquire: func() error {
				told := make(chan time.Time, 1)
				stop, err := c.subscribes(r.s.redis(), free, func() {
					select {
					case told <- time.Now():
					default: // it has not yet done its last task
					}
				})
				if err != nil {
					return err
				}
				defer stop()
				return r.asks(c, func(time.Duration) <-chan time.Time { return told })
			},
			release: func() error { return r.eval(c, releasePublish, free) },
		}
	},
}

var directGrant = way{
	name: "direct grant",
	wait: func(r *relay, holder *client) bool {
		return r.s.redis().ask("LLEN", r.queue) == int64(len(r.all)-1)
	},
	joins: func(r *relay, c *client) runner {
		var lease strategy.Lease
		c.opens(queueing)
		return runner{
			acquire: func() (err error) {
				lease, err = c.locks.NewLock(r.name).Acquire(r.ctx)
				return err
			},
			release: func() error { return lease.Release(r.s.ctx) },
		}
	},
}

// asks sends SET NX until that is granted, with a pause after each refusal.
func (r *relay) asks(c *client, pause func(time.Duration) <-chan time.Time) error {
	for {
		v, err := c.try(r.s.redis(), "SET", r.key, c.name, "NX", "PX", r.s.px())
		if err != nil || v.is("OK") {
			return err
		}
		r.mu.Lock()
		r.refused[c]++
		r.mu.Unlock()
		select {
		case <-pause(pollEvery):
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
	}
}

// eval releases by a script.
func (r *relay) eval(c *client, script *driver.Script, args ...any) error {
	v, err := c.node(r.s.redis()).Eval(r.s.ctx, r.s.due(), script, []string{r.key}, append([]any{c.name}, args...)...)
	if err == nil && !(reply{v}).is(1) {
		err = fmt.Errorf("%s has lost the lock before its release", c.name)
	}
	return err
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
			cost := s.relay(w, n)
			row, costs = append(row, fmt.Sprintf("%.1f", cost)), append(costs, cost)
		}
		t.Rows = append(t.Rows, row)
	}
	s.trace.Tables = append(s.trace.Tables, t)
	s.sameCost(costs)
}

const costsTheSame = "a hand-off costs the same however many wait"

// sameCost judges what it costs where the fewest and where the most wait. Each who waits
// either sends something per hand-off, which is a command at least, or nothing; half a
// command is between.
func (s *Stage) sameCost(costs []float64) {
	last := len(waiters) - 1
	each := (costs[last] - costs[0]) / float64(waiters[last]-waiters[0])
	s.judge(costsTheSame, each < 0.5, "%.1f commands where %d wait, and %.1f where %d do: each who waits adds %.1f",
		costs[0], waiters[0], costs[last], waiters[last], each)
}

// relay is one of those, and returns how many commands a hand-off took.
func (s *Stage) relay(w way, waiting int) float64 {
	r := &relay{s: s, name: s.name + "-relay", refused: map[*client]int{}}
	r.key = s.leaves(strategy.DefaultKey(r.name))
	r.queue = s.queue(r.key)
	r.ctx, r.end = context.WithCancel(s.ctx)
	defer r.end()
	s.offstage(func() { r.run(w, waiting) })
	if r.err != nil {
		s.Cannot("%s, %d waiting: %w", w.name, waiting, r.err)
	}
	return float64(r.ended-r.begun) / handOffs
}

// run lets all run, and returns when nobody does any more.
func (r *relay) run(w way, waiting int) {
	var cs []runner
	for i := range waiting + 1 {
		c := r.s.client(fmt.Sprintf("%c", 'A'+i))
		c.node(r.s.redis())
		r.all = append(r.all, c)
		cs = append(cs, w.joins(r, c))
	}
	var everybody sync.WaitGroup
	var holding atomic.Pointer[runner] // who has it in the end
	for i, c := range r.all {
		everybody.Go(func() {
			defer r.end() // when one goes, it is over
			last, err := r.runs(c, cs[i], w)
			if last {
				holding.Store(&cs[i])
			}
			if err != nil && r.ctx.Err() == nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.err = err
			}
		})
	}
	everybody.Wait()
	if last := holding.Load(); last != nil {
		if err := last.release(); err != nil && r.err == nil {
			r.err = err
		}
	}
	for _, c := range r.all {
		if c.locks != nil {
			c.locks.Close() // what that sends is not drawn either
		}
	}
}

// runs is what each does. last: it holds the lock when all is over.
func (r *relay) runs(c *client, with runner, w way) (last bool, err error) {
	for {
		if err := with.acquire(); err != nil {
			return false, err
		}
		mine := r.enter(c)
		if err := r.allWait(c, w); err != nil {
			return true, err
		}
		if sent := r.s.commands(); mine == 1 {
			r.begun = sent
		} else if mine == 1+handOffs {
			r.ended = sent
			r.end()
			return true, nil
		}
		r.leave()
		if err := with.release(); err != nil {
			return false, err
		}
		for !r.passedOn(mine) { // only then it comes back, or would take it from those who wait
			if r.ctx.Err() != nil {
				return false, context.Cause(r.ctx)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// enter says that a hold has begun, and returns which.
func (r *relay) enter(c *client) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	r.inside++
	if r.inside > 1 {
		r.s.add(Event{Kind: Violation, From: c.name, Promise: oneHolder, Text: fmt.Sprintf("%s believes it holds the lock, and another does", c.name)})
	}
	return r.turn
}

// leave says that one is about to end: from here on refusals are counted again.
func (r *relay) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inside--
	clear(r.refused)
}

func (r *relay) passedOn(turn int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turn > turn
}

// eachRefused reports whether everybody but the holder was refused so often since the last
// release.
func (r *relay) eachRefused(holder *client, times int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(r.all, func(c *client) bool { return c != holder && r.refused[c] < times })
}

// allWait returns when everybody but the holder waits.
func (r *relay) allWait(holder *client, w way) error {
	for limit := time.Now().Add(time.Minute); !w.wait(r, holder); time.Sleep(100 * time.Microsecond) {
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if time.Now().After(limit) {
			return errors.New("not all of them wait")
		}
	}
	return nil
}
