package main

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// The server's own count (INFO) includes what scripts call, so it does not show how many requests
// were sent. These are counted at the clients' sockets: the header of a RESP array begins each.

// dial connects a contestant, for clients that take such a function.
func (s *seat) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &counted{socket: c.(socket), requests: &s.requests}, nil
}

// A socket is a connection with all that clients look for in one.
type socket interface {
	net.Conn
	syscall.Conn
}

// counted counts the requests that are written.
type counted struct {
	socket
	requests *atomic.Int64
	last     byte // that was written
}

// Write counts the lines that begin with an asterisk: no argument of a lock does.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.socket.Write(p)
	for _, b := range p[:n] {
		if b == '*' && (c.last == '\n' || c.last == 0) {
			c.requests.Add(1)
		}
		c.last = b
	}
	return n, err
}

// pool is a redigo pool that keeps n connections. It dials without time-outs, as these cost
// a system call per command.
func (s *seat) pool(url string, n int, more ...redis.DialOption) *redis.Pool {
	options := append([]redis.DialOption{redis.DialContextFunc(s.dial)}, more...)
	return &redis.Pool{MaxIdle: n, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialURLContext(ctx, url, options...)
	}}
}

// A reading is what was counted up to a moment.
type reading struct {
	requests, commands int64
	server             time.Duration // CPU time of the server
}

// read looks at the server's counts, without its own looking.
func (s *seat) read() (reading, error) {
	text, err := redis.String(s.admin.Do("INFO"))
	if err != nil {
		return reading{}, err
	}
	s.said++
	info := map[string]float64{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			if f, err := strconv.ParseFloat(v, 64); err == nil {
				info[k] = f
			}
		}
	}
	return reading{
		requests: s.requests.Load(),
		commands: int64(info["total_commands_processed"]) - s.said,
		server:   time.Duration((info["used_cpu_sys"] + info["used_cpu_user"]) * float64(time.Second)),
	}, nil
}

// ping is the median time of a PING on a connection that has nothing else to do.
func (s *seat) ping() (time.Duration, error) {
	var took []time.Duration
	for range 400 {
		start := time.Now()
		if _, err := s.admin.Do("PING"); err != nil {
			return 0, err
		}
		s.said++
		took = append(took, time.Since(start))
	}
	return quantile(took, 0.5), nil
}
