package exercises

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lab/diagram"
	"github.com/lockstrategies/locks/lab/lessons"
	"github.com/lockstrategies/locks/strategy"
)

// A recorder writes down what happens in one trial: what the suite says, and what the servers are asked.
type recorder struct {
	mu      sync.Mutex
	began   time.Time
	clients map[string]*client // the last one of each name
	opened  *client            // the last one
	names   map[string]string  // of addresses, tokens and owners
	steps   []step
	said    int // how many steps there were when the suite last said something: what comes later tidies up
}

// A client is what the suite has opened. Several may have one name, one after the other.
type client struct {
	name string
	dead bool
}

// A step is what one row of the diagram shows: a command with its answer, or one event.
type step struct {
	events []lessons.Event
	key    string // of a command
}

func newRecorder() *recorder {
	return &recorder{began: time.Now(), clients: map[string]*client{}, names: map[string]string{}}
}

// add is for callers that hold mu. It leaves out the calls of a client that is dead.
func (r *recorder) add(c *client, key string, events ...lessons.Event) {
	if c != nil && c.dead {
		return
	}
	for i := range events {
		e := &events[i]
		e.At, e.Text, e.Answer = time.Since(r.began), r.plain(e.Text), r.plain(e.Answer)
		for j := range e.Args {
			e.Args[j] = r.plain(e.Args[j])
		}
		if c != nil && e.Condition == lessons.Dead {
			c.dead = true
		}
	}
	r.steps = append(r.steps, step{events, key})
}

var trialLock = regexp.MustCompile(`lock(?::\{| ")conformance \w{26}(\w*)(?:/\d+)?["}]`)

// plain is a text without what differs each time.
func (r *recorder) plain(text string) string {
	for from, to := range r.names {
		text = strings.ReplaceAll(text, from, to)
	}
	return trialLock.ReplaceAllString(text, "lock$1")
}

// opens is conformance.Subject.Opens.
func (r *recorder) opens(who string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[who]; c != nil && c.dead {
		r.add(nil, "", lessons.Event{Kind: lessons.State, From: who, Condition: lessons.Alive, Text: "another " + who})
	}
	r.opened = &client{name: who}
	r.clients[who] = r.opened
}

var said = regexp.MustCompile(`^(\w+)(?:\.(\w+)\(.*\) = (.*)| dies after request \d+)$`)

// observe is conformance.Subject.Observe.
func (r *recorder) observe(happened conformance.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if strings.Contains(happened.Text, " sends request ") {
		return // the command itself is written down
	}
	e := lessons.Event{Kind: lessons.Note, Text: happened.Text}
	if m := said.FindStringSubmatch(e.Text); m != nil {
		who, call, err := m[1], m[2], m[3]
		e.From = who
		become := func(c lessons.Condition, text string) { e.Kind, e.Condition, e.Text = lessons.State, c, who+text }
		acquires, done := call == "TryAcquire" || call == "Acquire", err == "<nil>"
		switch {
		case call == "" || call == "Detach":
			become(lessons.Dead, " dies")
		case acquires && done:
			become(lessons.Holds, " believes it holds the lock")
		case acquires && strings.HasSuffix(err, ": held"):
			e.Text = who + " is refused"
		case call == "Extend" && done:
			e.Text = who + " believes it holds the lock for longer"
		case call == "Release" && done:
			become(lessons.Ended, " has released")
		case call == "Release" && err == strategy.ErrReleased.Error():
			become(lessons.Ended, ".Release() again is refused: "+err)
		case call == "Release":
			become(lessons.Ended, ".Release() = "+err)
		}
	}
	r.add(r.clients[e.From], "", e)
	r.said = len(r.steps)
}

// A recordedNode is a server as one client reaches it. It writes commands down in the order in which the server gets them.
type recordedNode struct {
	driver.Node
	r      *recorder
	c      *client
	server string
}

// node is n, which diagrams call server, for the client that was opened last.
func (r *recorder) node(n driver.Node, server string) driver.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return recordedNode{n, r, r.opened, server}
}

// theOwner is in texts the owner who may have the lock several times.
const theOwner = "the-owner"

// claims returns what hears of the claims of the client that was opened last: texts call their tokens by its name.
func (r *recorder) claims() func(driver.Claim, ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := r.opened
	return func(c driver.Claim, notes ...string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if c.Owner != "" {
			r.names[c.Owner] = theOwner // or it is the token
		}
		r.names[c.Token] = "token-of-" + by.name
		for _, text := range notes {
			r.add(by, "", lessons.Event{Kind: lessons.Note, Text: text})
		}
	}
}

// unrecorded is a context whose commands are not written down.
func unrecorded(ctx context.Context) context.Context {
	return context.WithValue(ctx, unrecordedKey{}, true)
}

type unrecordedKey struct{}

func (n recordedNode) Do(ctx context.Context, due time.Time, cmd, key string, args ...any) (any, error) {
	v, err := n.Node.Do(ctx, due, cmd, key, args...)
	n.asked(ctx, key, append([]any{cmd, key}, args...), v, err)
	return v, err
}

func (n recordedNode) Eval(ctx context.Context, due time.Time, s *driver.Script, keys []string, args ...any) (any, error) {
	v, err := n.Node.Eval(ctx, due, s, keys, args...)
	n.asked(ctx, keys[0], append([]any{"EVAL", s.Name(), 1, keys[0]}, args...), v, err)
	return v, err
}

func (n recordedNode) asked(ctx context.Context, key string, words []any, v any, err error) {
	if ctx.Value(unrecordedKey{}) != nil {
		return
	}
	e := lessons.Event{Kind: lessons.Send, From: n.c.name, To: n.server}
	for _, w := range words {
		e.Args = append(e.Args, fmt.Sprint(w))
	}
	n.r.mu.Lock()
	defer n.r.mu.Unlock()
	n.r.add(n.c, key, e, lessons.Event{Kind: lessons.Reply, From: n.server, To: n.c.name, Answer: diagram.AnswerText(v, err)})
}

// trace is what happened, up to the violation, with each repetition once.
func (r *recorder) trace(broken conformance.Result, servers []string) lessons.Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := lessons.Trace{Title: broken.Property.Name}
	steps := slices.Clone(r.lastPart())
	for i := range steps { // in the order of the servers, where several were asked at the same time
		for k := i; k > 0 && besides(steps[k-1], steps[k]); k-- {
			steps[k-1], steps[k] = steps[k], steps[k-1]
		}
	}
	var owners []string
	for _, s := range steps {
		if who := s.events[0].From; !slices.Contains(owners, who) && slices.Contains(s.events[0].Args, theOwner) {
			owners = append(owners, who)
		}
		if who := s.events[0].From; who != "" && !slices.ContainsFunc(t.Actors, func(a lessons.Actor) bool { return a.Name == who }) {
			t.Actors = append(t.Actors, lessons.Actor{Name: who})
		}
	}
	slices.SortFunc(t.Actors, func(a, b lessons.Actor) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range servers {
		t.Actors = append(t.Actors, lessons.Actor{Name: name, Server: true})
	}
	if len(owners) > 1 {
		slices.Sort(owners)
		t.Events = append(t.Events, lessons.Event{Kind: lessons.Note, Text: strings.Join(owners, " and ") + " have one owner"})
	}
	for len(steps) > 0 {
		n, times := repeated(steps)
		for _, s := range steps[:n] {
			for _, e := range s.events {
				e.Of = len(t.Events) - 1 // a reply comes right after its command
				t.Events = append(t.Events, e)
			}
		}
		if times > 1 {
			t.Events = append(t.Events, lessons.Event{Kind: lessons.Note, Text: fmt.Sprintf("(%d times)", times)})
		}
		steps = steps[n*times:]
	}
	text := fmt.Sprintf("%s: %s", broken.Property.Name, r.plain(fmt.Sprint(broken.Err)))
	t.Events = append(t.Events, lessons.Event{Kind: lessons.Violation, Promise: broken.Property.Name, Text: text})
	return t
}

var (
	part  = regexp.MustCompile(`/\d+}$`)
	trial = regexp.MustCompile(`conformance \w{26}`)
)

// lastPart are the steps up to the violation. Of a trial in several parts, each with a lock of its own, they are those of the last.
// On a slow machine the suite may have held the trial several times.
func (r *recorder) lastPart() []step {
	steps, last := r.steps[:r.said], ""
	for i, s := range slices.Backward(steps) {
		if last == "" {
			last = s.key
		}
		if s.key != "" && s.key != last && (part.MatchString(last) || trial.FindString(s.key) != trial.FindString(last)) {
			steps = steps[i+1:]
			break
		}
	}
	for len(steps) > 0 && steps[0].key == "" && steps[0].events[0].From != "" { // the end of the part before
		steps = steps[1:]
	}
	return steps
}

// besides reports whether a is the same command as b, to a server that comes after b's.
func besides(a, b step) bool {
	x, y := a.events[0], b.events[0]
	return x.Kind == lessons.Send && x.From == y.From && slices.Equal(x.Args, y.Args) && x.To > y.To
}

// repeated is how many of the steps come again at once, and how often they are there.
func repeated(steps []step) (n, times int) {
	for n = 1; n <= len(steps)/2 && n <= 12; n++ {
		for times = 1; (times+1)*n <= len(steps) && slices.EqualFunc(steps[:n], steps[times*n:(times+1)*n], same); times++ {
		}
		if times > 1 {
			return n, times
		}
	}
	return 1, 1
}

func same(a, b step) bool {
	return slices.EqualFunc(a.events, b.events, func(x, y lessons.Event) bool {
		x.At, y.At = 0, 0
		return reflect.DeepEqual(x, y)
	})
}
