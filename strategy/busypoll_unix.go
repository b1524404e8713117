//go:build unix

package strategy

import (
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// polling makes reads from c poll, if c is a socket's.
func polling(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil || runtime.GOMAXPROCS(0) < 2 { // with a single one the server, if it is here, waits for us
		return c
	}
	p := &pollConn{Conn: c, raw: raw}
	p.once = func(fd uintptr) bool {
		p.n, p.err = syscall.Read(int(fd), p.into)
		return true // else RawConn would wait
	}
	return p
}

// pollers is how many goroutines of the process poll: none or one. Several would take the
// processors from each other, and from the server, if it is here.
var pollers atomic.Int32

// A pollConn is a connection that polls.
type pollConn struct {
	net.Conn
	raw syscall.RawConn

	misses atomic.Int32 // polls in vain, since one was not
	rest   atomic.Int32 // how many reads are not to poll

	// Of the goroutine that polls. A function made for each read would be garbage each time.
	once func(fd uintptr) bool
	into []byte
	n    int
	err  error
}

// SyscallConn is for clients that look whether a connection at rest is alive.
func (c *pollConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

func (c *pollConn) Read(b []byte) (int, error) {
	if len(b) > 0 && c.may() && pollers.CompareAndSwap(0, 1) {
		n := c.poll(b)
		pollers.Store(0)
		if n > 0 {
			c.misses.Store(0)
			return n, nil
		}
		c.rest.Store(1<<min(c.misses.Add(1), 6) - 1)
	}
	return c.Conn.Read(b) // which knows best what an error is, and the end of a stream
}

// may tells whether a read is to poll.
func (c *pollConn) may() bool {
	if c.rest.Load() <= 0 {
		return true
	}
	c.rest.Add(-1)
	return false
}

// poll looks for bytes until there are some, busyPollLimit is over, or something is wrong.
// Whoever else of the program wants to run does so meanwhile.
func (c *pollConn) poll(b []byte) int {
	c.into = b
	defer func() { c.into = nil }()
	for end := time.Now().Add(busyPollLimit); ; runtime.Gosched() {
		c.n, c.err = 0, nil
		if err := c.raw.Read(c.once); err != nil { // closed, or its deadline is over
			return 0
		}
		switch {
		case c.n > 0:
			return c.n
		case c.err != syscall.EAGAIN && c.err != syscall.EINTR:
			return 0 // the end of the stream, too
		case time.Now().After(end):
			return 0
		}
	}
}
