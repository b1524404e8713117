package flashsale

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A counter counts the commands that clients send. The server's own count would not
// do: it adds what scripts call, and what others send.
type counter struct{ n atomic.Int64 }

// pool is a pool like p, of connections that are counted. It is to be closed by the
// caller.
func (c *counter) pool(p *redis.Pool) *redis.Pool {
	return &redis.Pool{
		MaxIdle:     p.MaxIdle,
		IdleTimeout: p.IdleTimeout,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			conn, err := p.DialContext(ctx)
			if err != nil {
				return nil, err
			}
			full, ok := conn.(fullConn)
			if !ok {
				conn.Close()
				return nil, errors.New("flashsale: the connection has no time-outs or contexts, so it cannot be counted")
			}
			return &countedConn{full, c}, nil
		},
	}
}

// fullConn is all that redigo's own connections can do.
type fullConn interface {
	redis.ConnWithTimeout
	redis.ConnWithContext
}

type countedConn struct {
	fullConn
	c *counter
}

func (c *countedConn) sends(cmd string) {
	if cmd != "" { // redigo's way to flush and read
		c.c.n.Add(1)
	}
}

func (c *countedConn) Send(cmd string, args ...any) error {
	c.sends(cmd)
	return c.fullConn.Send(cmd, args...)
}

func (c *countedConn) Do(cmd string, args ...any) (any, error) {
	c.sends(cmd)
	return c.fullConn.Do(cmd, args...)
}

func (c *countedConn) DoWithTimeout(limit time.Duration, cmd string, args ...any) (any, error) {
	c.sends(cmd)
	return c.fullConn.DoWithTimeout(limit, cmd, args...)
}

func (c *countedConn) DoContext(ctx context.Context, cmd string, args ...any) (any, error) {
	c.sends(cmd)
	return c.fullConn.DoContext(ctx, cmd, args...)
}
