//go:build unix

package strategy

import (
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// polling makes reads from c poll, if c is a stream of a socket. What only embeds one may
// have a way of its own to read.
func polling(c net.Conn) net.Conn {
	switch c.(type) {
	case *net.TCPConn, *net.UnixConn:
	default:
		return c
	}
	if c.LocalAddr().Network() == "unixpacket" || c.LocalAddr().Network() == "unixgram" {
		return c // where nothing that is read is not the end
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

// polls tells that a goroutine of the process does. Several would take the processors from
// each other, and from the server, if it is here.
var polls atomic.Bool

// mostMisses in a row and more let one of 64 reads poll.
const mostMisses = 6

// A pollConn is a connection that polls.
type pollConn struct {
	net.Conn
	raw syscall.RawConn

	misses atomic.Int32 // polls in vain, since one was not; mostMisses at most
	rest   atomic.Int32 // how many reads are not to poll

	// Who reads. RawConn has such a lock, too: who waited for that would keep all others from
	// polling.
	mu sync.Mutex

	// Of the goroutine that polls. A function made for each read would be garbage each time.
	once func(fd uintptr) bool
	into []byte
	n    int
	err  error
}

// SyscallConn is for clients that look whether a connection at rest is alive.
func (c *pollConn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

func (c *pollConn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b) > 0 && c.may() && polls.CompareAndSwap(false, true) {
		n, err := c.poll(b)
		polls.Store(false)
		if n > 0 || err != nil {
			c.misses.Store(0)
			return n, err
		}
		misses := min(c.misses.Load()+1, mostMisses)
		c.misses.Store(misses)
		c.rest.Store(1<<misses - 1)
	}
	return c.Conn.Read(b) // also of a stream that has ended, or when it is closed or late
}

// may tells whether a read is to poll.
func (c *pollConn) may() bool {
	if c.rest.Load() <= 0 {
		return true
	}
	c.rest.Add(-1)
	return false
}

// poll looks for bytes until there are some, busyPollLimit is over, or something is wrong: an
// error of the socket, which it tells only once, or what another read finds, too. Whoever
// else of the program wants to run does so meanwhile.
func (c *pollConn) poll(b []byte) (int, error) {
	c.into = b
	defer func() { c.into = nil }()
	for end := time.Now().Add(busyPollLimit); ; runtime.Gosched() {
		c.n, c.err = 0, nil
		if err := c.raw.Read(c.once); err != nil { // closed, or its deadline is over
			return 0, nil
		}
		switch {
		case c.n > 0:
			return c.n, nil
		case c.err == nil: // the end of the stream
			return 0, nil
		case c.err != syscall.EAGAIN && c.err != syscall.EINTR:
			return 0, &net.OpError{Op: "read", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(),
				Err: os.NewSyscallError("read", c.err)} // as net has it
		case time.Now().After(end):
			return 0, nil
		}
	}
}
