// A network that tests hold up.
package rueidisnode

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// A spy dials for a client, and can hold up its connections.
type spy struct {
	mu    sync.Mutex
	tries int // dials, also those that failed
	conns []*spied
}

type spied struct {
	net.Conn

	mu   sync.Mutex
	held bool
	late []byte        // held on its way
	over chan struct{} // closed when the client has done with a connection that is held
	end  sync.Once

	reading sync.RWMutex // the client reads; or nobody else may
}

func (s *spy) options(o rueidis.ClientOption) rueidis.ClientOption {
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		c, err := d.DialContext(ctx, "tcp", addr)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tries++
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, &spied{Conn: c, over: make(chan struct{})})
		return s.conns[len(s.conns)-1], nil
	}
	return o
}

func (s *spy) last() *spied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[len(s.conns)-1]
}

func (s *spy) dialled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (c *spied) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.late = append(c.late, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Close leaves the server's side open while the network holds something for it.
func (c *spied) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		c.end.Do(func() { close(c.over) })
		return c.Conn.SetDeadline(time.Now()) // the client has done with it
	}
	return c.Conn.Close()
}

// hold has the network keep what the client says from now on.
func (c *spied) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// deliver brings it once the client has closed the connection, and returns when the server has read it, or has
// hung up.
func (c *spied) deliver() {
	<-c.over
	c.reading.Lock()
	defer c.reading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
	c.Conn.SetDeadline(time.Now().Add(generous))
	c.Conn.Write(c.late)
	c.Conn.Read(make([]byte, 100))
	c.Conn.Close()
}

func (c *spied) Read(b []byte) (int, error) {
	c.reading.RLock()
	defer c.reading.RUnlock()
	return c.Conn.Read(b)
}
