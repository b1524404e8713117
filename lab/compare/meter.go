package compare

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/lab/wait"
)

// A Meter counts what clients send, command by command. The server's own count
// would not do: it adds what scripts call, and on a shared server what others send.
type Meter struct {
	mu    sync.Mutex
	count sent
}

type sent struct {
	flushes  map[int]int64    // by server; each is a round trip, or shares one
	commands map[string]int64 // by name
	order    []string         // of the names, as first seen
}

func sum[K comparable](counts map[K]int64) (n int64) {
	for _, k := range counts {
		n += k
	}
	return n
}

// each is the average of n calls.
func (s *sent) each(n float64) Requests {
	r := Requests{RoundTrips: float64(sum(s.flushes)) / n}
	for _, k := range s.flushes {
		r.InTurn = max(r.InTurn, int(math.Round(float64(k)/n)))
	}
	for _, name := range s.order {
		r.Commands = append(r.Commands, Commands{Name: name, Times: float64(s.commands[name]) / n})
	}
	return r
}

// add counts a command, and with flush what was waiting to be sent, too.
func (m *Meter) add(server int, command string, flush bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count.commands == nil {
		m.count = sent{flushes: map[int]int64{}, commands: map[string]int64{}}
	}
	if command = strings.ToUpper(command); command != "" { // redigo's way to flush and read
		if m.count.commands[command]++; m.count.commands[command] == 1 {
			m.count.order = append(m.count.order, command)
		}
	}
	if flush {
		m.count.flushes[server]++
	}
}

// take returns what was sent since it was last called.
func (m *Meter) take() sent {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.count
	m.count = sent{}
	return s
}

// Commands is how many were sent since it was last called.
func (m *Meter) Commands() int64 { return sum(m.take().commands) }

// standstill is how long nothing is sent, when nothing more will be: a strategy that
// answers as soon as a quorum has may still be sending to the others.
const standstill = 10 * time.Millisecond

// settle waits until nothing has been sent for this time. One server is never behind
// its caller.
func (m *Meter) settle(ctx context.Context, servers int) {
	if servers == 1 {
		return
	}
	for before := int64(-1); ctx.Err() == nil; {
		m.mu.Lock()
		now := sum(m.count.flushes)
		m.mu.Unlock()
		if now == before {
			return
		}
		before = now
		wait.For(ctx, standstill)
	}
}

// add sums up. Names keep the order in which they were first seen.
func (s *sent) add(t sent) {
	if s.commands == nil {
		s.flushes, s.commands = map[int]int64{}, map[string]int64{}
	}
	for server, n := range t.flushes {
		s.flushes[server] += n
	}
	for _, name := range t.order {
		if !slices.Contains(s.order, name) {
			s.order = append(s.order, name)
		}
	}
	for name, n := range t.commands {
		s.commands[name] += n
	}
}

// Pools are the servers' with every connection counted. The caller ends them.
func (m *Meter) Pools(servers []*redistest.Server) (pools []*redis.Pool, end func()) {
	for i, s := range servers {
		pools = append(pools, m.pool(i, s.Pool()))
	}
	return pools, func() {
		for _, p := range pools {
			p.Close()
		}
	}
}

func (m *Meter) pool(server int, p *redis.Pool) *redis.Pool {
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
			return &meteredConn{fullConn: full, m: m, server: server}, nil
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
	m      *Meter
	server int
	unsent atomic.Bool // commands are in the buffer
}

func (c *meteredConn) Send(cmd string, args ...any) error {
	c.m.add(c.server, cmd, false)
	c.unsent.Store(true)
	return c.fullConn.Send(cmd, args...)
}

func (c *meteredConn) Flush() error {
	c.unsent.Store(false)
	c.m.add(c.server, "", true)
	return c.fullConn.Flush()
}

// did counts a request whose answer is read at once, with what was waiting to be sent. A pool sends nothing, to see whether
// something is left.
func (c *meteredConn) did(cmd string) {
	waiting := c.unsent.Swap(false)
	c.m.add(c.server, cmd, cmd != "" || waiting)
}

func (c *meteredConn) Do(cmd string, args ...any) (any, error) {
	c.did(cmd)
	return c.fullConn.Do(cmd, args...)
}

func (c *meteredConn) DoWithTimeout(limit time.Duration, cmd string, args ...any) (any, error) {
	c.did(cmd)
	return c.fullConn.DoWithTimeout(limit, cmd, args...)
}

func (c *meteredConn) DoContext(ctx context.Context, cmd string, args ...any) (any, error) {
	c.did(cmd)
	return c.fullConn.DoContext(ctx, cmd, args...)
}
