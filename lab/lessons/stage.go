package lessons

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/stage"
	"github.com/lockstrategies/locks/strategy"
)

// A Stage is where an act is played. Its words, and those of the clients and servers on it,
// do what they say and write it down; nothing else comes into the diagram.
type Stage struct {
	school  *School
	ctx     context.Context
	quit    context.CancelCauseFunc
	servers []*server
	rig     *rig.Rig      // that they are; nil: they are not ours
	name    string        // of the lock
	ttl     time.Duration // of locks, and of what else ends by time
	op      time.Duration // what an operation may take; 0: the strategies' default
	step    func(Event, []Actor) error
	watch   func(Event, []Actor)

	stage.Story
	mu      sync.Mutex
	began   time.Time
	moved   time.Duration // by how much clients' clocks have been put forward in place of waiting
	last    time.Time     // when something happened, other than what was waited for
	slow    time.Duration // the longest that nothing happened
	rest    time.Duration // by how much longer than usual nothing happens on purpose
	trace   Trace
	clients []*client
	shares  sharing  // who may hold the lock at the same time
	held    int      // how many holds there were
	most    int      // at the same time
	permits int      // how many may, where that is a number
	left    []string // keys besides the lock's
	quiet   bool     // nothing is drawn: see offstage
	sent    int      // commands, drawn or not
	over    chan struct{}
	ending  []func()
	scripts map[string]string // that ran, by name
	hashes  map[string]string // their names, by hash
}

func (s *Stage) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// late ends an act for which the machine was too slow: it is played again, with more time.
func (s *Stage) late(format string, args ...any) {
	s.locked(func() { s.slow = max(s.slow, s.ttl) })
	s.Cannot(format, args...)
}

// stillHeld is called where a lock matters that was asked for then: its holder is not to have
// lost it to time.
func (s *Stage) stillHeld(since time.Time) {
	if took := time.Since(since); took > s.ttl*3/4 {
		s.late("%v have gone by, which is too much of a TTL of %v", took, s.ttl)
	}
}

// act plays an act, and returns what happened.
func (s *Stage) act(a Act) (Trace, error) {
	s.began, s.last = time.Now(), time.Now()
	s.over = make(chan struct{})
	done := s.Play(func() {
		defer func() {
			close(s.over)
			for _, end := range slices.Backward(s.ending) {
				end()
			}
		}()
		a.perform(s)
		s.together()
		for _, name := range a.lists {
			source, ok := s.scripts[name]
			if !ok {
				s.Cannot("no script %q has run", name)
			}
			s.trace.Listings = append(s.trace.Listings, Listing{name + ".lua", source})
		}
	})
	select {
	case <-done:
	case <-s.ctx.Done():
		// Nothing is sent any more. A client may wait for an answer that will not come: the stage leaves it behind.
		select {
		case <-done:
		case <-time.After(time.Second):
			return Trace{}, context.Cause(s.ctx)
		}
	}
	s.Fail(context.Cause(s.ctx))
	return s.trace, s.Err()
}

// add writes an event down, and returns its index; -1 if it is not to be drawn.
func (s *Stage) add(e Event) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.slow = max(s.slow, now.Sub(s.last)-s.rest)
	s.last = now
	if e.Kind == Send {
		s.sent++
	}
	if s.quiet && e.Kind != Violation {
		return -1
	}
	e.At = now.Sub(s.began)
	s.trace.Events = append(s.trace.Events, e)
	if s.watch != nil && s.ctx.Err() == nil {
		s.watch(e, s.trace.Actors)
	}
	return len(s.trace.Events) - 1
}

// offstage is for what would fill pages: it runs, and its commands are counted, but it is
// not drawn, and nobody steps through it. Clients who come on in it stay unseen. Nothing of
// it may be under way when it ends.
func (s *Stage) offstage(do func()) {
	s.locked(func() { s.quiet = true })
	defer s.locked(func() { s.quiet = false })
	do()
	s.waited()
}

// commands is how many were sent until now, drawn or not. A script is one, and so is SUBSCRIBE.
func (s *Stage) commands() (n int) {
	s.locked(func() { n = s.sent })
	return n
}

// ran says that a script is part of the story.
func (s *Stage) ran(script *driver.Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scripts == nil {
		s.scripts, s.hashes = map[string]string{}, map[string]string{}
	}
	s.scripts[script.Name()] = script.Source()
	s.hashes[script.Hash()] = script.Name() + ".lua"
}

// called is the name of a script that ran, in place of its hash.
func (s *Stage) called(hash string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.hashes[hash], hash)
}

// waited says that time has passed on purpose.
func (s *Stage) waited() { s.locked(func() { s.last = time.Now() }) }

// until waits for what goroutines of clients do, such as renewals, of which the next comes
// within half a TTL. If it does not come, a lock may have lapsed meanwhile, so the act is played again.
func (s *Stage) until(what string, so func() bool) {
	s.locked(func() { s.rest = s.ttl / 2 })
	for limit := s.due(); !so(); time.Sleep(time.Millisecond) {
		if s.ctx.Err() != nil || time.Now().After(limit) {
			s.late("it was too late for this: %s", what)
		}
	}
	s.locked(func() { s.rest, s.last = 0, time.Now() })
}

// answers is how many requests of a client whose words contain that have been answered.
func (s *Stage) answers(c *client, request string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, e := range s.trace.Events {
		if e.Kind == Reply && e.To == c.name && strings.Contains(strings.Join(s.trace.Events[e.Of].Args, " "), request) {
			n++
		}
	}
	return n
}

// slower reports whether at some time nothing happened for longer than that.
func (s *Stage) slower(than time.Duration) (slower bool) {
	s.locked(func() { slower = s.slow > than })
	return slower
}

// pause lets a reader who steps read what comes next.
func (s *Stage) pause(e Event) {
	s.mu.Lock()
	quiet, on := s.quiet, slices.Clone(s.trace.Actors)
	s.mu.Unlock()
	if s.step == nil || quiet || s.ctx.Err() != nil {
		return
	}
	if err := s.step(e, on); err != nil {
		s.Fail(err)
		s.quit(err)
	}
}

// note tells what happens besides the commands.
func (s *Stage) note(format string, args ...any) {
	s.add(Event{Kind: Note, Text: fmt.Sprintf(format, args...)})
}

// happens does something to the servers or to the network, and says so.
func (s *Stage) happens(what string, do func(context.Context) error) {
	s.pause(Event{Kind: Note, Text: what})
	if err := do(s.ctx); err != nil {
		s.Cannot("%s: %w", what, err)
	}
	s.waited()
	s.note("%s", what)
}

// redis is the server of lessons that have one.
func (s *Stage) redis() *server { return s.servers[0] }

func (s *Stage) key() string { return strategy.DefaultKey(s.name) }

// px is the TTL in milliseconds, as commands take it.
func (s *Stage) px() string { return strconv.FormatInt(s.ttl.Milliseconds(), 10) }

// lapse is the time in which a lock's TTL ends. It is over when the servers have dropped the
// keys, or, for locks that Redis does not know the end of, when every clock says so. A reader
// who steps does not wait for minutes: the keys' TTLs are ended, and clients' clocks are
// put forward.
func (s *Stage) lapse(keys ...string) {
	const what = "a TTL goes by"
	if s.step != nil {
		s.pause(Event{Kind: Note, Text: what})
		how := "clocks are put forward"
		for _, srv := range s.servers {
			for _, k := range keys {
				if n, _ := srv.ask("PTTL", k).(int64); n > 0 {
					srv.ask("PEXPIRE", k, 0)
					how = "PEXPIRE"
				}
			}
		}
		s.forward(s.ttl)
		s.note("%s (by hand: %s)", what, how)
		return
	}
	end := time.Now().Add(s.ttl + 2*time.Millisecond)
	whole := len(keys) == 0 // nothing that Redis ends tells when the TTL is over
	for _, srv := range s.servers {
		for _, k := range keys {
			for limit := end.Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				left := srv.ask("PTTL", k).(int64)
				if left < 0 {
					whole = whole || left == -1
					break
				}
				if time.Now().After(limit) {
					s.Cannot("%s does not end its TTL", k)
				}
			}
		}
	}
	if whole {
		time.Sleep(time.Until(end))
	}
	s.waited()
	s.note(what)
}

// passes is a time that only clients' clocks tell: no key's TTL is to end in it.
func (s *Stage) passes(d time.Duration) {
	what := fmt.Sprintf("%v go by", d)
	if s.step != nil {
		s.pause(Event{Kind: Note, Text: what})
		s.forward(d)
		s.note("%s (by hand: clocks are put forward)", what)
		return
	}
	time.Sleep(d + 2*time.Millisecond)
	s.waited()
	s.note("%s", what)
}

// forward puts clients' clocks past that time, in place of waiting.
func (s *Stage) forward(d time.Duration) { s.locked(func() { s.moved += d + time.Millisecond }) }
