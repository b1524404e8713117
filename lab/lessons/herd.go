package lessons

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
)

var releasePublish = script("release_publish")

// herdLessons are about those who wait.
func herdLessons() []Lesson {
	return []Lesson{{
		Number: 21, Name: "herd", Title: "Those who wait: polling, the herd, and the direct grant",
		Idea: "A client that finds the lock held has to learn somehow that the lock is free again. It can ask again and again, get a message that goes to all, or be made the next holder. " +
			"The three differ in how many commands it takes to bring the lock from one holder to the next, and in which waiter is served first.",
		Fix: "Let the release itself choose the next holder, from a queue that the server keeps, as package fairqueue does. " +
			"Where the server can keep no queue, ask again after random pauses that grow.",
		Acts: []Act{
			{Title: "polling: a waiter asks again and again", play: (*Stage).pollers},
			{Title: "wake-up: a release notifies all, and all ask", lists: []string{"release_publish"}, play: (*Stage).herd},
			// A successor has a second to extend.
			{Title: "direct grant: the release makes the next in the queue the holder", Timed: true, play: (*Stage).successors},
		},
	}}
}

// pollers have nothing but luck.
func (s *Stage) pollers(a, b, c, d *client) {
	a.takes("token-of-A")
	for range 2 { // rounds
		for _, w := range []*client{b, c, d} {
			w.takes("token-of-" + w.name)
		}
	}
	a.ends()
	a.eval(s.redis(), compareDelete, s.key(), "token-of-A")
	// Each pauses for as long as it likes; C is the first whose pause is over.
	for _, w := range []*client{c, d, b} {
		if w.takes("token-of-" + w.name) {
			s.served(w)
		}
	}
	s.firstComeFirstServed()
	s.relays(polling)
}

// herd is what runs for the lock when a release notifies all.
func (s *Stage) herd(a, b, c, d *client) {
	free := s.free(s.key())
	a.takes("token-of-A")
	for _, w := range []*client{b, c, d} {
		w.listens()
		w.subscribes(s.redis(), free, func() {})
		w.takes("token-of-" + w.name) // a release before the SUBSCRIBE notified nobody
	}
	a.ends()
	a.eval(s.redis(), releasePublish, s.key(), "token-of-A", free)
	for _, w := range []*client{b, c, d} {
		w.hears()
	}
	// All are awake, and run; D's network is the fastest.
	for _, w := range []*client{d, b, c} {
		if w.takes("token-of-" + w.name) {
			s.served(w)
		}
	}
	s.firstComeFirstServed()
	s.relays(wakeUp)
}

// successors stand in a queue.
func (s *Stage) successors(a, b, c, d *client) {
	for _, w := range s.clients {
		w.opens(queueing)
	}
	held := a.begins()
	got := map[*client]<-chan strategy.Lease{}
	for i, w := range []*client{b, c, d} {
		got[w] = w.queues(w.locks.NewLock(s.name), "queue", i+1)
	}
	passes := func(from, to *client) { // the lock
		from.releases(held)
		if from == a {
			s.redis().look("GET", s.key()) // which is B's already, who does not know yet
		}
		held = to.leased(got[to]) // it hears that it is the holder
		to.holds()
		s.served(to)
	}
	passes(a, b)
	c.hears() // that it is the next
	passes(b, c)
	d.hears()
	s.firstComeFirstServed()
	s.offstage(func() { // D's hold is like the others'
		passes(c, d)
		d.releases(held)
	})
	s.relays(polling, wakeUp, directGrant)
}

// queues has the client wait for a lock, in that place of a queue of the server. Its lease comes when
// the story is there: see hears.
func (c *client) queues(lock strategy.Lock, in string, place int) <-chan strategy.Lease {
	s, queue, asked := c.s, c.s.leaves(driver.SiblingKey(c.s.key(), in)), c.s.answers(c, "acquire.lua")
	granted := make(chan strategy.Lease, 1)
	c.listens()
	go func() {
		lease, err := lock.Acquire(s.ctx)
		if err != nil {
			s.note("%s gives up: %v", c.name, err) // the act ends for want of it
		}
		granted <- lease
	}()
	s.until(c.name+" has its place in the queue", func() bool {
		return s.redis().ask("LLEN", queue) == int64(place) && s.answers(c, "acquire.lua") == asked+2
	})
	s.note("%s has its place in the queue, and sleeps", c.name)
	return granted
}

// leased is the lease that a client has waited for. Until it has that, it hears what else comes.
func (c *client) leased(granted <-chan strategy.Lease) strategy.Lease {
	for {
		taken := make(chan struct{})
		select {
		case lease := <-granted:
			if lease == nil {
				c.s.Cannot("%s does not get the lock", c.name)
			}
			return lease
		case c.ears <- taken:
			<-taken
		case <-time.After(10 * time.Second):
			c.s.Cannot("%s waits for the lock, and hears nothing", c.name)
		}
	}
}

func queueing(n []driver.Node) driver.Protocol {
	return fairqueue.On(n[0], fairqueue.WithoutFences())
}

// free is the channel of a lock's releases; queue is the key of fairqueue's queue.
func (s *Stage) free(key string) string  { return driver.SiblingKey(key, "free") }
func (s *Stage) queue(key string) string { return s.leaves(driver.SiblingKey(key, "queue")) }

// subscribes has the client listen to a channel: fn is called for each message.
func (c *client) subscribes(srv *server, channel string, fn func()) (stop func(), err error) {
	return c.node(srv).Subscribe(c.s.ctx, channel, func(_ []byte, err error) {
		if err == nil {
			fn()
		}
	})
}

const firstCome = "who comes first is served first"

// served marks the moment at which a client gets the lock for which another has asked before
// it, and waits still.
func (s *Stage) served(c *client) {
	if by := s.passedOver(c); len(by) > 0 {
		s.add(Event{Kind: Violation, From: c.name, Promise: firstCome,
			Text: fmt.Sprintf("%s is served, though %s asked before", c.name, strings.Join(by, " and "))})
	}
}

// passedOver are those who have asked before the client did, and have not held the lock yet.
func (s *Stage) passedOver(c *client) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, held := []string{}, map[string]bool{}
	seen := map[string]bool{}
	for _, e := range s.trace.Events {
		switch {
		case e.Kind == Send && !seen[e.From]:
			seen[e.From] = true
			asked = append(asked, e.From)
		case e.Kind == State && e.Condition == Holds:
			held[e.From] = true
		}
	}
	for _, name := range asked {
		if name == c.name {
			break
		}
		if !held[name] {
			names = append(names, name)
		}
	}
	return names
}

// firstComeFirstServed judges the order in which those who waited were served.
func (s *Stage) firstComeFirstServed() {
	var order []string
	for _, e := range s.trace.Events {
		switch {
		case e.Kind == Violation && e.Promise == firstCome:
			s.judge(firstCome, false, "%s", e.Text)
			return
		case e.Kind == State && e.Condition == Holds:
			order = append(order, e.From)
		}
	}
	s.judge(firstCome, true, "%s have held it, in the order in which they asked", strings.Join(order, ", "))
}
