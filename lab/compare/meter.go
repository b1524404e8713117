package compare

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/wait"
)

// A meter counts what clients send, command by command. The server's own count
// would not do: it adds what scripts call, and on a shared server what others send.
type meter struct {
	// trip is how long every request's answer is kept back, as if the server were
	// that far away.
	trip time.Duration

	mu    sync.Mutex
	count sent
}

// sent is what was sent.
type sent struct {
	flushes  int64            // each is a round trip, or shares one
	commands map[string]int64 // by name
	order    []string         // of the names, as first seen
}

func (s *sent) total() int64 {
	var n int64
	for _, k := range s.commands {
		n += k
	}
	return n
}

// each is the average of n calls.
func (s *sent) each(n float64) Requests {
	r := Requests{RoundTrips: float64(s.flushes) / n}
	for _, name := range s.order {
		r.Commands = append(r.Commands, Commands{Name: name, Times: float64(s.commands[name]) / n})
	}
	return r
}

func (m *meter) flushed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count.flushes++
}

func (m *meter) command(name string) {
	if name == "" { // redigo's way to flush and read
		return
	}
	name = strings.ToUpper(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count.commands == nil {
		m.count.commands = map[string]int64{}
	}
	if m.count.commands[name]++; m.count.commands[name] == 1 {
		m.count.order = append(m.count.order, name)
	}
}

// take returns what was sent since it was last called.
func (m *meter) take() sent {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.count
	m.count = sent{}
	return s
}

// standstill is how long nothing is sent, when nothing more will be: a strategy that
// answers as soon as a quorum has may still be sending to the others.
const standstill = 3 * time.Millisecond

// settle waits until nothing has been sent for this time. One server is never behind
// its caller.
func (m *meter) settle(ctx context.Context, servers int, long time.Duration) {
	if servers == 1 {
		return
	}
	for before := int64(-1); ctx.Err() == nil; {
		m.mu.Lock()
		now := m.count.flushes
		m.mu.Unlock()
		if now == before {
			return
		}
		before = now
		wait.For(ctx, long)
	}
}

// add sums up. Names keep the order in which they were first seen.
func (s *sent) add(t sent) {
	s.flushes += t.flushes
	if s.commands == nil {
		s.commands = map[string]int64{}
	}
	for _, name := range t.order {
		if !slices.Contains(s.order, name) {
			s.order = append(s.order, name)
		}
	}
	for name, n := range maps.All(t.commands) {
		s.commands[name] += n
	}
}

// pools are the servers' with every connection counted. They are to be closed by the
// caller.
func (m *meter) pools(servers []*redistest.Server) (pools []*redis.Pool, end func()) {
	for _, s := range servers {
		pools = append(pools, m.pool(s.Pool()))
	}
	return pools, func() {
		for _, p := range pools {
			p.Close()
		}
	}
}

func (m *meter) pool(p *redis.Pool) *redis.Pool {
	return &redis.Pool{
		MaxIdle:     p.MaxIdle,
		IdleTimeout: p.IdleTimeout,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			c, err := dial(ctx, p)
			if err != nil {
				return nil, err
			}
			full, ok := c.(fullConn)
			if !ok {
				c.Close()
				return nil, errors.New("compare: the connection has no time-outs or contexts, so it cannot be counted")
			}
			return &meteredConn{fullConn: full, m: m}, nil
		},
	}
}

func dial(ctx context.Context, p *redis.Pool) (redis.Conn, error) {
	if p.DialContext != nil {
		return p.DialContext(ctx)
	}
	return p.Dial()
}

// fullConn is all that redigo's own connections can do.
type fullConn interface {
	redis.ConnWithTimeout
	DoContext(ctx context.Context, cmd string, args ...any) (any, error)
	ReceiveContext(ctx context.Context) (any, error)
}

type meteredConn struct {
	fullConn
	m *meter

	mu      sync.Mutex
	unsent  int         // commands in the buffer
	answers []time.Time // when the answers to those sent are here, at the earliest
}

func (c *meteredConn) Send(cmd string, args ...any) error {
	c.m.command(cmd)
	c.mu.Lock()
	c.unsent++
	c.mu.Unlock()
	return c.fullConn.Send(cmd, args...)
}

func (c *meteredConn) Flush() error {
	c.m.flushed()
	c.mu.Lock()
	here := time.Now().Add(c.m.trip)
	for ; c.unsent > 0; c.unsent-- {
		c.answers = append(c.answers, here)
	}
	c.mu.Unlock()
	return c.fullConn.Flush()
}

// received keeps an answer back until the way is done. Nothing keeps back a
// message, for which nobody asked.
func (c *meteredConn) received() {
	c.mu.Lock()
	var here time.Time
	if len(c.answers) > 0 {
		here, c.answers = c.answers[0], c.answers[1:]
	}
	c.mu.Unlock()
	time.Sleep(time.Until(here))
}

func (c *meteredConn) Receive() (any, error) {
	defer c.received()
	return c.fullConn.Receive()
}

func (c *meteredConn) ReceiveWithTimeout(limit time.Duration) (any, error) {
	defer c.received()
	return c.fullConn.ReceiveWithTimeout(limit)
}

func (c *meteredConn) ReceiveContext(ctx context.Context) (any, error) {
	defer c.received()
	return c.fullConn.ReceiveContext(ctx)
}

// did counts a request whose answer is read at once, and what was waiting to be
// sent with it. The answer is here when the returned function returns.
func (c *meteredConn) did(cmd string) (received func()) {
	c.m.command(cmd)
	c.mu.Lock()
	defer c.mu.Unlock()
	var here time.Time
	if len(c.answers) > 0 {
		here = c.answers[len(c.answers)-1] // redigo reads these as well
	}
	if cmd != "" || c.unsent > 0 { // a pool sends nothing, to see whether something is left
		c.m.flushed()
		here = time.Now().Add(c.m.trip)
	}
	c.unsent, c.answers = 0, nil
	return func() { time.Sleep(time.Until(here)) }
}

func (c *meteredConn) Do(cmd string, args ...any) (any, error) {
	defer c.did(cmd)()
	return c.fullConn.Do(cmd, args...)
}

func (c *meteredConn) DoWithTimeout(limit time.Duration, cmd string, args ...any) (any, error) {
	defer c.did(cmd)()
	return c.fullConn.DoWithTimeout(limit, cmd, args...)
}

func (c *meteredConn) DoContext(ctx context.Context, cmd string, args ...any) (any, error) {
	defer c.did(cmd)()
	return c.fullConn.DoContext(ctx, cmd, args...)
}
