package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/lab/stage"
	"github.com/lockstrategies/locks/strategy"
)

// A Stage is where one fault meets one lock. Its play tells a story, line by line: what
// happens is done by its methods, and what that means for the lock is noted there.
type Stage struct {
	ctx    context.Context
	column Column
	sloppy *Sloppy
	rig    *rig.Rig
	dial   func(*rig.Link) (driver.Node, error) // nil: the strategies' own client
	name   string                               // of the lock
	ttl    time.Duration                        // ample: nothing lapses unless the play waits for it
	brief  time.Duration                        // where a play lives through an expiry
	op     time.Duration                        // what a request may take

	stage.Story
	mu         sync.Mutex
	began      time.Time
	events     []lessons.Event
	contenders []*contender
	holds      []*hold
	facts      map[Verdict][]string
	repairs    []func(context.Context) error
	tired      func(*rig.Link) *redis.Pool   // what the next contenders dial with; nil: pools of their own
	weather    map[*rig.Node]func(*rig.Link) // everybody's network to a server
	linked     sync.Map                      // the address of each link: the number of its server, from 0
	late       string                        // which lock lapsed that had ample time
}

// History is what happened, as a diagram.
func (o Outcome) History() string {
	return o.Trace.Diagram(100, func(_ diagram.Style, s string) string { return s })
}

// An Outcome is how a play ended.
type Outcome struct {
	Verdict Verdict
	Saw     []string // the facts that it depends on
	Trace   lessons.Trace
	Err     error // the play could not be played to its end: the verdict is on what was seen till then

	Slow   string   // why the machine was too slow for the play, if it was
	Before []string // how it ended before, where that did not count
}

// errHangs is the end of a play that does not end.
var errHangs = errors.New("the play hangs")

// act runs the play. A part that cannot be set up ends it.
func (s *Stage) act(play func(*Stage)) Outcome {
	s.began = time.Now()
	var hangs error
	select {
	case <-s.Play(func() { s.prologue(); play(s); s.epilogue() }):
		for _, c := range s.contenders {
			c.leave()
		}
	case <-time.After(20*s.longest() + time.Minute):
		hangs = errHangs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Outcome{Verdict: Kept, Trace: s.trace(), Err: errors.Join(hangs, s.Err()), Slow: s.late}
	for _, v := range []Verdict{Violated, Detected, Unavailable} {
		if saw := s.facts[v]; len(saw) > 0 {
			out.Verdict, out.Saw = v, saw
			break
		}
	}
	return out
}

// prologue makes servers that are known to be new fit for redlock, and makes them know all
// scripts. Otherwise the reply that a play loses might be the one that asks for a script's
// source.
func (s *Stage) prologue() {
	if s.quorum() > 1 {
		s.Must(stage.Bootstrap(s.ctx, s.rig), "the servers cannot be bootstrapped")
	}
	if s.column.replicas > 0 {
		s.Must(s.victim().Replicate(s.ctx), "the server cannot be given a replica")
	}
	sloppy := s.sloppy
	s.sloppy = nil
	defer func() { s.sloppy = sloppy }()
	c := s.contender("somebody")
	h := c.acquire(s.longest())
	if h == nil {
		s.Cannot("nobody gets the lock to begin with")
	}
	s.Must(errors.Join(h.extend(), h.release()), "the lock cannot be used to begin with")
	c.leave()
	s.contenders, s.holds, s.events, s.began = nil, nil, nil, time.Now()
}

// epilogue is how all plays end: everything is repaired, a client that still holds the
// lock releases it, and then somebody must get it, at the latest when the TTL is over.
func (s *Stage) epilogue() {
	s.repair()
	for _, h := range slices.Clone(s.holds) {
		if !h.over.Load() && !h.by.dead {
			h.release()
		}
	}
	z := s.contender("Z")
	if h := z.acquire(s.longest() + 20*time.Second); h == nil {
		s.note(Violated, "nobody gets the lock any more, though everything is repaired and the TTL is over")
	} else {
		h.release()
	}
}

// longest is what a key may live.
func (s *Stage) longest() time.Duration { return s.ttl + time.Second }

// say adds what happened to the trace.
func (s *Stage) say(format string, args ...any) {
	s.add(lessons.Event{Kind: lessons.Note, Text: fmt.Sprintf(format, args...)})
}

// becomes adds to the trace how a contender changes.
func (s *Stage) becomes(who string, c lessons.Condition, format string, args ...any) {
	s.add(lessons.Event{Kind: lessons.State, From: who, Condition: c, Text: who + " " + fmt.Sprintf(format, args...)})
}

func (s *Stage) add(e lessons.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At = time.Since(s.began)
	s.events = append(s.events, e)
}

// trace is what happened, with a column for each contender. The caller holds mu.
func (s *Stage) trace() lessons.Trace {
	var names []string
	for _, c := range s.contenders {
		names = append(names, c.who)
	}
	for _, e := range s.events {
		if e.From != "" {
			names = append(names, e.From)
		}
	}
	slices.Sort(names)
	t := lessons.Trace{Events: slices.Clone(s.events)}
	for _, name := range slices.Compact(names) {
		t.Actors = append(t.Actors, lessons.Actor{Name: name})
	}
	return t
}

// note adds a fact that the verdict depends on.
func (s *Stage) note(v Verdict, format string, args ...any) {
	fact := fmt.Sprintf(format, args...)
	if v == Violated {
		s.add(lessons.Event{Kind: lessons.Violation, Text: fact})
	} else {
		s.say("⇒ %v: %s", v, fact)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts[v] = append(s.facts[v], fact)
}

// do does something to the servers or the network, now.
func (s *Stage) do(what string, f func(context.Context) error) {
	s.Must(f(s.ctx), "%s", what)
	s.say("%s", what)
}

// later is done by repair, or at the end of the play.
func (s *Stage) later(f func(context.Context) error) { s.repairs = append(s.repairs, f) }

// repair undoes what was broken.
func (s *Stage) repair() {
	if len(s.repairs) > 0 {
		s.say("everything is repaired")
	}
	for _, f := range slices.Backward(s.repairs) {
		s.Must(f(s.ctx), "repairing")
	}
	s.repairs = nil
	clear(s.weather)
	for _, c := range s.contenders {
		if !c.dead {
			c.heal()
		}
	}
}

// everywhere does something to everybody's network to a server, also to that of those
// who come later.
func (s *Stage) everywhere(what string, where *rig.Node, f func(*rig.Link)) {
	s.weather[where] = f
	for _, c := range s.contenders {
		for i, l := range c.links {
			if s.rig.Nodes[i] == where && !c.dead {
				f(l)
			}
		}
	}
	s.say("%s", what)
}

func (s *Stage) quorum() int { return len(s.rig.Nodes)/2 + 1 }

// victim is the server that the fault strikes: one without which the holder has no
// quorum, and which a rival needs for his.
func (s *Stage) victim() *rig.Node { return s.rig.Nodes[s.struck()] }

func (s *Stage) struck() int { return s.quorum() - 1 }

// majority are as many servers as the holder cannot do without.
func (s *Stage) majority() []*rig.Node { return s.rig.Nodes[:s.quorum()] }

func (s *Stage) key() string { return strategy.DefaultKey(s.name) }

// holder is a new contender who gets the lock, from no more servers than it needs: the
// others are out of its reach meanwhile.
func (s *Stage) holder(who string, set ...func(*strategy.Options)) *hold {
	c := s.contender(who, set...)
	c.beyond((*rig.Link).Refuse)
	h, err := c.try()
	s.Must(err, "%s gets no lock to begin with", who)
	c.repair()
	return h
}

// rival is a new contender who asks once for a lock that another believes it holds. A
// server that has just come back may not answer the first time.
func (s *Stage) rival(who string) *hold {
	c := s.contender(who)
	for range 5 {
		h, err := c.try()
		if err == nil {
			return h
		}
		if errors.Is(err, strategy.ErrHeld) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// next is a new contender who ought to get the lock now: it is nobody's. If it does not,
// the lock is unavailable. The undoing in the background has a moment for it.
func (s *Stage) next(who string) *hold {
	h := s.contender(who).acquire(s.ttl / 3)
	if h == nil {
		s.note(Unavailable, "%s does not get the lock, though nobody works under it", who)
	}
	return h
}

// succeeds has a new contender wait for a lock whose end is near.
func (s *Stage) succeeds(who, end string) {
	if s.contender(who).acquire(s.ttl) == nil {
		s.note(Unavailable, "%s does not get the lock after %s", who, end)
	}
}

// follow is how most plays go on when the fault has struck: a rival must not get the lock,
// the holder releases it, after what it does first, and somebody else gets it.
func (s *Stage) follow(a *hold, first ...func()) {
	if s.rival("B") != nil {
		return // two have it: what comes of that does not matter any more
	}
	for _, f := range first {
		f()
	}
	if !a.over.Load() {
		a.release()
	}
	s.next("C")
}

// beginAfterFault is how a play begins whose fault has struck before anybody had the lock.
func (s *Stage) beginAfterFault() {
	if a := s.next("A"); a != nil {
		s.follow(a)
	}
}

// expire takes the lock from its holder on all servers, as an expiry would.
func (s *Stage) expire() {
	s.do("the lock expires", func(ctx context.Context) error {
		for _, n := range s.rig.Nodes {
			if _, err := n.Do(ctx, "DEL", s.key()); err != nil {
				return err
			}
		}
		return nil
	})
}
