package lessons

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// majority is how many of the servers have to agree.
func (s *Stage) majority() int { return len(s.servers)/2 + 1 }

// canvasses is the plain client of a quorum: it asks one server after the other for the
// lock, and returns those that have granted it.
func (c *client) canvasses(servers []*server) (votes []*server) {
	for _, srv := range servers {
		if c.do(srv, "SET", c.s.key(), c.token(), "NX", "PX", c.s.px()).is("OK") {
			votes = append(votes, srv)
		}
	}
	return votes
}

// elects has the plain client ask, and hold the lock if that makes a majority, or else give
// back.
func (c *client) elects(servers []*server) bool {
	votes := c.canvasses(servers)
	if len(votes) < c.s.majority() {
		c.yields(votes)
		return false
	}
	c.holds()
	return true
}

func (c *client) yields(votes []*server) {
	for _, srv := range votes {
		c.eval(srv, compareDelete, c.s.key(), c.token())
	}
}

// token is that of the plain client.
func (c *client) token() string { return "token-of-" + c.name }

// joins has the client lock by package redlock on all servers.
func (c *client) joins(options ...redlock.Option) {
	s := c.s
	s.oneStepAtATime()
	c.opens(func(nodes []driver.Node) driver.Protocol {
		for i, n := range nodes {
			nodes[i] = conformance.GateNode(n, c.passes)
		}
		// Time-outs are longer than usual: who is late here is the machine.
		return redlock.On(nodes, append([]redlock.Option{redlock.WithNodeTimeout(s.ttl / 3)}, options...)...)
	}, func(o *strategy.Options) { o.OpTimeout = s.ttl * 2 / 3 })
}

// asksAll asks once by package redlock, and says what the client hears.
func (c *client) asksAll() (strategy.Lease, error) {
	p := &poll{counted: make(chan struct{})}
	p.unasked.Store(int32(len(c.s.servers)))
	c.poll.Store(p)
	lease, err := c.locks.NewLock(c.s.name).TryAcquire(c.s.ctx)
	return lease, c.isTold(err)
}

// isTold is what the client makes of the outcome of its attempt.
func (c *client) isTold(err error) error {
	var held *strategy.HeldError
	switch {
	case err == nil:
		c.holds()
	case errors.As(err, &held) && held.Holder == "":
		c.s.note("%s hears: too few votes, as others have the rest (ErrHeld)", c.name)
	case errors.Is(err, strategy.ErrHeld):
		c.s.note("%s hears: held by another (ErrHeld)", c.name)
	case errors.Is(err, strategy.ErrNoQuorum):
		c.s.note("%s hears: no quorum (ErrNoQuorum, and not ErrHeld)", c.name)
	default:
		c.s.Cannot("%s gets no lock: %w", c.name, err)
	}
	return err
}

// A poll is one attempt of a client. Its requests go out side by side. Answers count, and the client gets them,
// when every server has been asked: else it would be chance which three of five a majority is, and what comes after it.
type poll struct {
	unasked atomic.Int32 // servers
	counted chan struct{}
}

// passes is the gate of a client's requests to a server.
func (c *client) passes(request string, send func()) {
	send()
	if !strings.Contains(request, "script acquire") {
		return
	}
	p := c.poll.Load()
	if p.unasked.Add(-1) == 0 {
		close(p.counted)
	}
	select {
	case <-p.counted:
	case <-c.s.over:
	case <-c.s.ctx.Done():
	}
}

// oneStepAtATime: what is sent side by side is shown one by one to a reader who steps.
func (s *Stage) oneStepAtATime() {
	if s.step == nil {
		return
	}
	var mu sync.Mutex
	step := s.step
	s.step = func(e Event, on []Actor) error {
		mu.Lock()
		defer mu.Unlock()
		return step(e, on)
	}
}

// vouched lets all servers vote at once, as they are known to be new (see [redlock.Bootstrap]).
func (s *Stage) vouched() {
	var nodes []driver.Node
	for _, srv := range s.servers {
		n := redigonode.New(srv.redis.Pool())
		defer n.Close()
		nodes = append(nodes, n)
	}
	if err := redlock.Bootstrap(s.ctx, nodes); err != nil {
		s.Cannot("the servers cannot be bootstrapped: %w", err)
	}
	s.waited()
	s.note("the servers are new, and learn that: redlock.Bootstrap")
}

// cutOff ends the client's network to servers of ours.
func (c *client) cutOff(servers ...*server) {
	c.s.happens(c.name+"'s network does not reach "+names(servers), func(context.Context) error {
		for _, srv := range servers {
			c.node(srv)
			c.links[srv].Refuse()
		}
		return nil
	})
}

// reconnects has the client find out that its connection has ended with the server, as a
// pool does sooner or later: else its next request would be lost.
func (c *client) reconnects(srv *server) {
	for limit := c.s.due(); ; {
		_, err := c.node(srv).Node.Do(c.s.ctx, c.s.due(), "EXISTS", c.s.key())
		if err == nil {
			c.s.waited()
			return
		}
		if c.s.ctx.Err() != nil || time.Now().After(limit) {
			c.s.Cannot("%s does not reach %s again: %w", c.name, srv.name, err)
		}
	}
}

func names(servers []*server) string {
	var all []string
	for _, srv := range servers {
		all = append(all, srv.name)
	}
	return strings.Join(all, " and ")
}

func die(servers []*server) {
	for _, srv := range servers {
		srv.becomes(Dead, "dies", srv.node.Kill)
	}
}
