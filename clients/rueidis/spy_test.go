// A network that tests look into, and hold up.
package rueidisnode

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A spy dials for a client, notes what it says, and can cut its connections.
type spy struct {
	mu    sync.Mutex
	tries int // dials, also those that failed
	conns []*spied

	// cutAfter: so many bytes of what the server says from now on arrive, and then the
	// connection ends; 0: all do.
	cutAfter atomic.Int64
}

type spied struct {
	net.Conn
	spy *spy

	mu   sync.Mutex
	sent bytes.Buffer
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
		s.conns = append(s.conns, &spied{Conn: c, spy: s, over: make(chan struct{})})
		return s.conns[len(s.conns)-1], nil
	}
	return o
}

// said is all that the client has said, on each connection.
func (s *spy) said() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.mu.Lock()
		all = append(all, c.sent.String())
		c.mu.Unlock()
	}
	return all
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
	c.sent.Write(b)
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
	most := c.spy.cutAfter.Load()
	if most == 0 {
		n, err := c.Conn.Read(b)
		if most = c.spy.cutAfter.Load(); most == 0 || err != nil {
			return n, err
		}
		return c.cut(n, most)
	}
	if most < 0 {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if err != nil {
		return n, err
	}
	return c.cut(n, most)
}

// cut lets through what may pass; after that there is nothing.
func (c *spied) cut(n int, most int64) (int, error) {
	if int64(n) < most {
		c.spy.cutAfter.Add(-int64(n))
		return n, nil
	}
	c.spy.cutAfter.Store(-1)
	c.Conn.Close()
	return int(most), nil
}

// repair lets connections live again.
func (s *spy) repair() { s.cutAfter.Store(0) }
