package nodetest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// LateRequest checks that an acquire which the network delivers after its undo finds its connection dead. Without the kill
// it leaves a key that nobody owns: so the kill is what prevents that. It is for Nodes that keep an order.
func LateRequest(t *testing.T, s Subject) {
	undo := driver.NewScript("undo", "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0")
	for name, c := range map[string]struct {
		network, user string
		ordered       bool
	}{
		"killed": {"tcp", "all", true}, "killed on a Unix socket": {"unix", "all", true}, "not killed": {"tcp", "nokill", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, socket := redistest.OwnSocket(t, "a socket", redistest.Config{})
			if err := kills(srv); err != nil {
				t.Skipf("NOT PROVEN: that the kill is what prevents ghosts: %v", err)
			}
			redistest.Do(t, srv, "ACL", "SETUSER", "all", "on", ">pw", "~*", "&*", "+@all")
			redistest.Do(t, srv, "ACL", "SETUSER", "nokill", "on", ">pw", "~*", "&*", "+@all", "-client|kill")
			addr := map[string]string{"tcp": srv.Addr(), "unix": socket}[c.network]
			verdict.Conclusive(t, func() verdict.Slow {
				redistest.Do(t, srv, "DEL", "k")
				r := newRelay(t, c.network, addr)
				n := s.Open(t, Options{URL: "redis://" + c.user + ":pw@" + r.Addr().String()})
				Echo(t, n, "warm")
				deliver := r.hold()
				const op = 250 * time.Millisecond
				_, err := n.Do(t.Context(), time.Now().Add(op), "SET", "k", "tok", "NX", "PX", 600_000)
				if errors.Is(err, strategy.ErrUnsent) {
					return verdict.Slowf("SET was not sent within %v", op)
				}
				Want(t, "SET that is under way", err, strategy.ErrUnknown)
				if _, err := n.Eval(t.Context(), Soon(), undo, []string{"k"}, "tok"); err != nil {
					t.Fatalf("the undo = %v, want nil", err)
				}
				deliver()
				if ghost := redistest.Do(t, srv, "EXISTS", "k") == int64(1); ghost == c.ordered || n.Ordered() != c.ordered {
					t.Errorf("the key is there after its undo: %v, Ordered = %v, want %v, %v", ghost, n.Ordered(), !c.ordered, c.ordered)
				}
				return ""
			})
		})
	}
}

// A relay is a network between clients and a server. It can keep back what a client says.
type relay struct {
	net.Listener
	work sync.WaitGroup

	mu    sync.Mutex
	ways  []*way
	ended bool
}

// A way is one connection.
type way struct {
	server net.Conn
	ended  chan struct{} // closed when the server, or the client, hears nothing more
	held   bool
	late   []byte // kept back
}

func newRelay(t testing.TB, network, addr string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	redistest.Must(t, err)
	r := &relay{Listener: ln}
	r.work.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial(network, addr)
			if err != nil {
				from.Close()
				continue
			}
			r.add(from, to)
		}
	})
	t.Cleanup(func() {
		ln.Close()
		r.mu.Lock()
		r.ended = true
		for _, w := range r.ways {
			w.server.Close()
		}
		r.mu.Unlock()
		r.work.Wait()
	})
	return r
}

func (r *relay) add(from, to net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		to.Close()
	}
	w := &way{server: to, ended: make(chan struct{})}
	r.ways = append(r.ways, w)
	r.work.Go(func() {
		defer close(w.ended)
		io.Copy(from, to) //nolint:errcheck // either end may end it
		from.Close()
	})
	r.work.Go(func() { r.pass(from, w) })
}

// pass passes on what a client says, or keeps it back, also after the client has hung up.
func (r *relay) pass(from net.Conn, w *way) {
	for buf := make([]byte, 1<<12); ; {
		n, err := from.Read(buf)
		r.mu.Lock()
		if w.held {
			w.late = append(w.late, buf[:n]...)
		} else if w.server.Write(buf[:n]); err != nil { //nolint:errcheck // of a server that has hung up
			w.server.Close()
		}
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// hold keeps back what is said from now on, on the connections that there are. deliver brings it to the server, and returns
// when the server has answered, or has hung up.
func (r *relay) hold() (deliver func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.ways
	for _, w := range held {
		w.held = true
	}
	return func() {
		for _, w := range held {
			r.mu.Lock()
			w.server.Write(w.late)                                  //nolint:errcheck // of a connection that the server has killed
			w.server.(interface{ CloseWrite() error }).CloseWrite() //nolint:errcheck // likewise
			r.mu.Unlock()
			<-w.ended
		}
	}
}
