package lessons

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/strategy"
)

// A client is a contender: a program with connections, and a clock, of its own.
type client struct {
	s     *Stage
	name  string
	ahead time.Duration // by how much its wall clock is
	nodes map[*server]*recorder
	links map[*server]*rig.Link
	locks strategy.Strategy
	poll  atomic.Pointer[poll] // its attempt by a quorum's package
	ears  chan chan struct{}   // not nil: messages wait until it hears

	holding bool // it believes it holds the lock
	writes  bool // … and may write, where others may only read
	dead    bool
}

// client is a new one.
func (s *Stage) client(name string) *client {
	c := &client{s: s, name: name, nodes: map[*server]*recorder{}, links: map[*server]*rig.Link{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients = append(s.clients, c)
	if s.quiet {
		return c
	}
	// Clients stand before servers, in the order in which they come on.
	at := 0
	for at < len(s.trace.Actors) && !s.trace.Actors[at].Server {
		at++
	}
	s.trace.Actors = append(s.trace.Actors[:at], append([]Actor{{Name: name}}, s.trace.Actors[at:]...)...)
	return c
}

// node is the client's connection to a server, all requests on which are written down.
func (c *client) node(srv *server) *recorder {
	if n := c.nodes[srv]; n != nil {
		return n
	}
	n, l := srv.connect()
	c.links[srv] = l
	return c.goesBy(srv, n)
}

// goesBy has all requests of the client to the server go by that node.
func (c *client) goesBy(srv *server, n driver.Node) *recorder {
	r := &recorder{c: c, srv: srv}
	r.Node = conformance.GateNode(n, r.pass)
	c.nodes[srv] = r
	c.s.ending = append(c.s.ending, func() { n.Close() })
	return r
}

// A reply is what a client got for a command.
type reply struct{ value any }

// is reports whether the reply is that: nil, a whole number, or a string.
func (r reply) is(want any) bool {
	switch want := want.(type) {
	case nil:
		return r.value == nil
	case int:
		return r.value == int64(want)
	case string:
		b, ok := r.value.([]byte)
		return ok && string(b) == want
	}
	panic(fmt.Sprintf("lessons: a reply is no %T", want))
}

// text is the reply as a string; empty for nil.
func (r reply) text() string {
	switch v := r.value.(type) {
	case []byte:
		return string(v)
	case int64:
		return fmt.Sprint(v)
	}
	return ""
}

// do sends a command, and returns its reply. A client that gets an error cannot go on.
func (c *client) do(srv *server, cmd string, args ...any) reply {
	v, err := c.try(srv, cmd, args...)
	if err != nil {
		c.s.Cannot("%s: %s: %w", c.name, cmd, err)
	}
	return v
}

// try is do for those who expect an error.
func (c *client) try(srv *server, cmd string, args ...any) (reply, error) {
	key, rest := "", args
	if len(args) > 0 {
		key, rest = fmt.Sprint(args[0]), args[1:]
	}
	v, err := c.node(srv).Do(c.s.ctx, c.s.due(), cmd, key, rest...)
	return reply{v}, err
}

// eval runs a script for one key.
func (c *client) eval(srv *server, script *driver.Script, key string, args ...any) reply {
	v, err := c.tryEval(srv, script, []string{key}, args...)
	if err != nil {
		c.s.Cannot("%s: %s: %w", c.name, script.Name(), err)
	}
	return v
}

// tryEval is eval for those who expect an error.
func (c *client) tryEval(srv *server, script *driver.Script, keys []string, args ...any) (reply, error) {
	v, err := c.node(srv).Eval(c.s.ctx, c.s.due(), script, keys, args...)
	return reply{v}, err
}

// due is when a command that has no answer is given up.
func (s *Stage) due() time.Time {
	if s.step != nil {
		return time.Now().Add(time.Hour)
	}
	return time.Now().Add(10 * time.Second)
}

// session has the client send commands on one connection, as WATCH and MULTI take it.
func (c *client) session(srv *server, key string, do func(do func(cmd string, args ...any) reply)) {
	err := c.node(srv).Session(c.s.ctx, c.s.due(), key, func(conn driver.Conn) error {
		do(func(cmd string, args ...any) reply {
			v, err := conn.Do(cmd, args...)
			if err != nil {
				c.s.Cannot("%s: %s: %w", c.name, cmd, err)
			}
			return reply{v}
		})
		return nil
	})
	if err != nil {
		c.s.Cannot("%s: %w", c.name, err)
	}
}

// opens has the client lock by one of this module's algorithms, on those servers.
func (c *client) opens(on func([]driver.Node) driver.Protocol, set ...func(*strategy.Options)) {
	opensAs(c, func(n []driver.Node, o strategy.Options) (strategy.Strategy, error) { return engine.New(on(n), o) }, set...)
}

// opensAs is opens for an algorithm whose strategy can do more than others, which it returns.
func opensAs[S strategy.Strategy](c *client, create func([]driver.Node, strategy.Options) (S, error), set ...func(*strategy.Options)) S {
	var nodes []driver.Node
	for _, srv := range c.s.servers {
		nodes = append(nodes, c.node(srv))
	}
	o := strategy.Options{TTL: c.s.ttl, OpTimeout: c.s.op, Label: c.name}
	for _, f := range set {
		f(&o)
	}
	locks, err := create(nodes, o)
	if err != nil {
		c.s.Cannot("%s: %w", c.name, err)
	}
	c.locks = locks
	c.s.ending = append(c.s.ending, func() { locks.Close() })
	return locks
}

// openAll has all clients lock by one algorithm, whose strategies it returns.
func openAll[S strategy.Strategy](s *Stage, create func(driver.Node, strategy.Options) (S, error)) map[*client]S {
	all := map[*client]S{}
	for _, c := range s.clients {
		all[c] = opensAs(c, func(n []driver.Node, o strategy.Options) (S, error) { return create(n[0], o) })
	}
	return all
}

// acquires asks once, and returns nil where another holds the lock.
func (c *client) acquires() strategy.Lease { return c.acquiresAs(c.s.ctx) }

// begins is acquires for those who have to get it.
func (c *client) begins() strategy.Lease {
	lease := c.acquires()
	if lease == nil {
		c.s.Cannot("%s does not get the lock to begin with", c.name)
	}
	return lease
}

// acquiresAs is acquires for an owner whom the context names.
func (c *client) acquiresAs(ctx context.Context) strategy.Lease {
	lease := c.gets(ctx, c.locks.NewLock(c.s.name))
	if lease != nil {
		c.holds()
	}
	return lease
}

// gets asks once for a lock, and returns nil where the client is kept out.
func (c *client) gets(ctx context.Context, lock strategy.Lock) strategy.Lease {
	lease, err := lock.TryAcquire(ctx)
	if err != nil && !errors.Is(err, strategy.ErrHeld) {
		c.s.Cannot("%s gets no lock: %w", c.name, err)
	}
	if err != nil {
		return nil
	}
	return lease
}

// releases gives the lock back, and returns what it hears.
func (c *client) releases(lease strategy.Lease) error {
	c.ends()
	return lease.Release(c.s.ctx)
}

// now is the client's wall clock.
func (c *client) now() time.Time {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return time.Now().Add(c.s.moved + c.ahead)
}

// stamp is its wall clock in milliseconds, ahead by so much: the moment at which a lock of
// those days lapses.
func (c *client) stamp(ahead time.Duration) string {
	return fmt.Sprint(c.now().Add(ahead).UnixMilli())
}

// holds: from here on the client believes it holds the lock. If others do, too, who must not,
// that is where the promise breaks.
func (c *client) holds() {
	if c.holding {
		return
	}
	s := c.s
	s.add(Event{Kind: State, From: c.name, Condition: Holds, Text: c.name + " believes it " + s.shares.believes(c)})
	c.holding = true
	var others []*client
	for _, other := range s.clients {
		if other != c && other.holding && !other.dead {
			others = append(others, other)
		}
	}
	s.held++
	s.most = max(s.most, len(others)+1)
	for _, text := range s.shares.broken(c, others) {
		s.add(Event{Kind: Violation, From: c.name, Promise: s.shares.promise, Text: text})
	}
}

// ends: it does not believe that any more.
func (c *client) ends() { c.leaves("is done") }

// worked: nor then, though it has yet to release the lock.
func (c *client) worked() { c.leaves("is done with its work") }

func (c *client) leaves(what string) {
	if c.holding {
		c.holding = false
		c.s.add(Event{Kind: State, From: c.name, Condition: Ended, Text: c.name + " " + what})
	}
}

// dies: nothing of it happens any more.
func (c *client) dies() {
	c.becomes(Dead, "dies")
	c.dead = true
}

// pauses: it does nothing, as a program does whose garbage is collected, or whose machine is
// moved, and believes what it believed.
func (c *client) pauses() { c.becomes(Paused, "is paused") }

// wakes: it goes on where it stood.
func (c *client) wakes() { c.becomes(Awake, "goes on") }

func (c *client) becomes(to Condition, what string) {
	c.s.pause(Event{Kind: State, From: c.name, Condition: to, Text: c.name + " " + what})
	c.s.add(Event{Kind: State, From: c.name, Condition: to, Text: c.name + " " + what})
}

// listens: from here on the client takes in what is published when the story is there (see
// hears), and not at the moment when it comes, which no two runs have in the same order. It
// comes before the client subscribes.
func (c *client) listens() { c.ears = make(chan chan struct{}) }

// hears has it take in one message, which has come or is about to.
func (c *client) hears() {
	taken := make(chan struct{})
	select {
	case c.ears <- taken:
		<-taken
	case <-time.After(10 * time.Second):
		c.s.Cannot("%s hears nothing", c.name)
	}
}

// listening waits until the client hears. ok is false when the act is over.
func (c *client) listening() (taken func(), ok bool) {
	if c.ears == nil {
		return func() {}, true
	}
	select {
	case t := <-c.ears:
		return func() { close(t) }, true
	case <-c.s.over:
		return nil, false
	}
}
