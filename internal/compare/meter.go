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
)

// A meter counts what clients send, command by command. The server's own count
// would not do: it adds what scripts call, and on a shared server what others send.
type meter struct {
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

// pool is p with every connection counted. It is to be closed by the caller.
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
}

func (c *meteredConn) Send(cmd string, args ...any) error {
	c.m.command(cmd)
	return c.fullConn.Send(cmd, args...)
}

func (c *meteredConn) Flush() error {
	c.m.flushed()
	return c.fullConn.Flush()
}

func (c *meteredConn) did(cmd string) {
	c.m.command(cmd)
	c.m.flushed()
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
