// Package play is a stage on which somebody moves clients and servers by hand: the project's own
// algorithms, engine and scripts run on embedded servers (miniredis), and time goes by only when a move
// says so. A message between them stays on the wire until it is delivered or lost.
// Compiled to WebAssembly it is the page docs/learn/play.html; see lab/play/build.
//
// It judges by what holders believe, and by what the database took.
package play

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/strategy"
)

// TTL is that of the locks on the stage.
const TTL = 10 * time.Second

const lockName = "stock"

// A Stage has three clients, the servers of an algorithm, and a database that the lock protects. Its
// methods are for one goroutine, which runs in a bubble of testing/synctest.
type Stage struct {
	algorithm Algorithm
	clients   []*client
	servers   []*server
	db        database
	began     time.Time
	moves     []Move
	events    []diagram.Event
	judged    map[string]bool // what has been said already
	stopped   []string        // late writes
	holds     int             // how many there were
	names     names

	mu     sync.Mutex
	posted []*message    // that have no number yet
	wire   []*message    // that have not arrived
	number int           // of the last message
	wakes  chan struct{} // something has happened that the stage has not seen
}

// A Move is one step of the play, as it is written in the page's address.
type Move struct {
	Text  string `json:"text"`
	Error string `json:"error,omitempty"` // why it could not be made
}

// Play plays an algorithm in a bubble of its own, for as long as next returns moves; show gets the state
// before the first move and after each.
func Play(t *testing.T, a Algorithm, next func() (move string, ok bool), show func(*Stage)) {
	synctest.Test(t, func(t *testing.T) {
		s, err := open(a)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		for show(s); ; show(s) {
			move, ok := next()
			if !ok {
				return
			}
			s.Make(move)
		}
	})
}

func open(a Algorithm) (*Stage, error) {
	time.Sleep(time.Millisecond) // fences are counted from the bubble's beginning: none is to look like 0
	s := &Stage{algorithm: a, began: time.Now(), judged: map[string]bool{}, wakes: make(chan struct{}, 1)}
	for i := range a.Servers {
		s.servers = append(s.servers, newServer(s, i, "r"+strconv.Itoa(i+1)))
	}
	if err := a.prepare(s); err != nil {
		return nil, err
	}
	for i, name := range []string{"A", "B", "C"} {
		c, err := newClient(s, i, name)
		if err != nil {
			return nil, err
		}
		s.clients = append(s.clients, c)
	}
	s.settle()
	return s, nil
}

// close ends everything that runs in the bubble.
func (s *Stage) close() {
	for _, c := range s.clients {
		c.die()
	}
	for _, c := range s.clients {
		<-c.closed
	}
	for _, srv := range s.servers {
		srv.redis.Close()
	}
}

// Make makes a move, and lets everything happen that comes of it at this moment.
func (s *Stage) Make(text string) {
	m := Move{Text: text}
	if err := s.make(text); err != nil {
		m.Error = err.Error()
	}
	s.moves = append(s.moves, m)
	s.settle()
}

func (s *Stage) make(text string) error {
	if d, ok := strings.CutPrefix(text, "+"); ok {
		pass := TTL
		if d != "ttl" {
			var err error
			if pass, err = time.ParseDuration(d); err != nil || pass <= 0 || pass > 10*time.Minute {
				return fmt.Errorf("%q is no time: allowed are +500ms, +5s, +ttl, up to +10m", text)
			}
		}
		s.note("%v go by", pass)
		s.pass(pass)
		return nil
	}
	who, what, _ := strings.Cut(text, ".")
	for _, c := range s.clients {
		if strings.EqualFold(c.name, who) {
			return c.make(what)
		}
	}
	for _, srv := range s.servers {
		if srv.name == who {
			return srv.make(what)
		}
	}
	if n, err := strconv.Atoi(strings.TrimPrefix(who, "m")); err == nil {
		for _, m := range s.wire {
			if m.n == n {
				return s.decide(m, what)
			}
		}
		return fmt.Errorf("no message %d is on the wire", n)
	}
	return fmt.Errorf("%q is no move of this play", text)
}

// decide delivers a message, or loses it.
func (s *Stage) decide(m *message, what string) error {
	switch {
	case what == "lose":
		s.note("a message is lost: %s", m.words())
		s.drop(m)
		return nil
	case what != "pass":
		return fmt.Errorf("%q is nothing that a message does: allowed are pass and lose", what)
	case m.client.paused:
		return fmt.Errorf("%s is paused: what it sends and gets stays on the wire", m.client.name)
	case !s.first(m):
		return fmt.Errorf("message %d comes after another on the same connection", m.n)
	}
	s.arrive(m)
	return nil
}

// wake says that something has happened that the stage is to see.
func (s *Stage) wake() {
	select {
	case s.wakes <- struct{}{}:
	default:
	}
}

// settle lets happen whatever happens at this moment.
func (s *Stage) settle() {
	for seen := -1; seen < len(s.events); {
		synctest.Wait()
		s.take()
		for s.deliver(func(m *message) bool { return m.client.delivers() }) {
			synctest.Wait()
			s.take()
		}
		seen = len(s.events)
		s.expire()
		s.observe()
	}
}

// deliver lets those messages arrive that are on the wire now. What comes of them comes after the last: so the answers
// of several servers are one row of the diagram.
func (s *Stage) deliver(which func(*message) bool) (arrived bool) {
	for _, m := range slices.Clone(s.wire) {
		if which(m) && s.first(m) {
			s.arrive(m)
			arrived = true
		}
	}
	return arrived
}

// pass lets time go by. A message that is sent meanwhile is delivered at that moment.
func (s *Stage) pass(d time.Duration) {
	s.settle()
	for end := time.Now().Add(d); time.Now().Before(end); s.settle() {
		until := end
		for _, srv := range s.servers {
			if at := srv.nextExpiry(); !at.IsZero() && at.Before(until) {
				until = at
			}
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-s.wakes:
		case <-t.C:
		}
		t.Stop()
	}
}

// expire says which keys have come to their end.
func (s *Stage) expire() {
	for _, srv := range s.servers {
		for _, key := range srv.expired() {
			s.note("%s: %s has expired", srv.name, s.names.brief(key))
		}
	}
}

// observe sees what has become of the clients' calls and holds, and judges.
func (s *Stage) observe() {
	for _, c := range s.clients {
		c.observe()
	}
	s.judge()
}

func (s *Stage) add(e diagram.Event) int {
	e.At = time.Since(s.began)
	e.Args = s.names.all(e.Args)
	e.Answer, e.Text = s.names.brief(e.Answer), s.names.brief(e.Text)
	s.events = append(s.events, e)
	return len(s.events) - 1
}

func (s *Stage) note(format string, args ...any) {
	s.add(diagram.Event{Kind: diagram.Note, Text: fmt.Sprintf(format, args...)})
}

// violated says, once, that a promise is broken here.
func (s *Stage) violated(once, promise, format string, args ...any) {
	if !s.judged[once] {
		s.judged[once] = true
		s.add(diagram.Event{Kind: diagram.Violation, Promise: promise, Text: fmt.Sprintf(format, args...)})
	}
}

// The promises that are judged.
const (
	oneHolder = "one holder at a time"
	noLate    = "no write of a hold that is over gets into the database"
	comesFree = "the lock of a holder that does not get on comes free"
)

// judge looks for two clients that both believe they hold the lock. A paused client that is past its
// deadline cannot know that, whatever the algorithm: it does not count, and what it writes is judged.
func (s *Stage) judge() {
	var holding []*hold
	for _, c := range s.clients {
		h := c.holding()
		switch {
		case h == nil:
		case c.paused && !time.Now().Before(h.lease.Deadline()):
			if once := "paused " + h.name; !s.judged[once] {
				s.judged[once] = true
				s.note("%s's deadline has passed, but %s is paused, and does not know that", c.name, c.name)
			}
		default:
			holding = append(holding, h)
		}
	}
	slices.SortFunc(holding, func(a, b *hold) int { return cmp.Compare(a.n, b.n) })
	for i, a := range holding {
		for _, b := range holding[i+1:] {
			s.violated(a.name+" "+b.name, oneHolder, "%s and %s both believe that they hold the lock", a.client.name, b.client.name)
		}
	}
}

// kept judges a renewal without end, when somebody is kept out: by the first client that holds the lock and
// has been getting nowhere for three TTLs.
func (s *Stage) kept(out *client) {
	for _, c := range s.clients {
		if h := c.holding(); h != nil && c != out && !c.hangs.IsZero() && time.Since(c.hangs) >= 3*TTL {
			s.violated("kept "+h.name, comesFree, "%s has hung for %v, its lock is renewed all the same, and %s is kept out",
				c.name, time.Since(c.hangs).Round(time.Second), out.name)
		}
	}
}

// options are those of every client.
func (c *client) options() strategy.Options {
	return strategy.Options{TTL: TTL, Label: c.name, Backoff: func(int) time.Duration { return 4 * time.Second }}
}
