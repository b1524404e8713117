// The node on real servers: frozen ones that thaw, late requests, killed connections.
package redigonode

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// ghostOp is the operation time-out of an acquire that times out. Its ghost: the server reads it after
// its undo, and it leaves a key that nobody owns.
const ghostOp = 250 * time.Millisecond

// needsKill skips a test that is about CLIENT KILL or ACL on a server without them.
func needsKill(t *testing.T, what string) {
	t.Helper()
	c := redistest.Shared(t).Pool().Get()
	defer c.Close()
	if _, err := c.Do("CLIENT", "KILL", "ID", 1, "ADDR", "0.0.0.0:0"); err != nil {
		t.Skipf("NOT PROVEN: %s: %v", what, err)
	}
}

// A server that thaws reads the request of the connection that was given up, but not before that has been killed; also
// when the next connection is there before the freeze, and is the first that it finds readable.
func TestNoGhost(t *testing.T) {
	t.Parallel()
	needsKill(t, "that a thawed server holds no ghost")
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			g := &ghosts{network: network, stock: make(chan net.Conn, 1)}
			if network == "unix" {
				g.srv, g.addr = redistest.OwnSocket(t, "a socket", redistest.Config{})
			} else {
				g.srv = redistest.Own(t, redistest.Config{})
				g.addr = g.srv.Addr()
			}
			g.n = newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
				select {
				case c := <-g.stock:
					return redis.NewConn(c, 0, 0), nil
				default:
					return redis.Dial(g.network, g.addr)
				}
			}})
			if _, err := g.n.Eval(t.Context(), soon(), release, []string{"k"}, "tok"); err != nil { // the server knows the script from now on
				t.Fatal(err)
			}
			for i := range 6 {
				if g.try(t, i); !g.n.Ordered() {
					t.Fatal("Ordered = false, want true")
				}
			}
		})
	}
}

type ghosts struct {
	srv           *redistest.Server
	n             *node
	network, addr string
	stock         chan net.Conn // what is dialled already
}

// try acquires on a frozen server, undoes that as the engine does, and looks whether the key is there when it must not be.
func (g *ghosts) try(t *testing.T, i int) {
	t.Helper()
	ctx, key := t.Context(), fmt.Sprintf("ghost:%d", i)
	if _, err := g.n.Do(ctx, soon(), "GET", key); err != nil {
		t.Fatal(err)
	}
	second := g.ready(t)
	redistest.Skip(t, g.srv.Freeze(ctx), "no ghost keys after a freeze")
	fmt.Fprint(second.Conn, "\r\n") // an empty line gets no answer, but puts this connection first in the line
	_, err := g.n.Do(ctx, time.Now().Add(ghostOp), "SET", key, "tok", "NX", "PX", 5000)
	want(t, "SET on a frozen server", err, strategy.ErrUnknown)

	begun, undone := make(chan struct{}, 100), make(chan struct{})
	go func() { // delete the token if it is there, until the server says that it is not
		defer close(undone)
		for err := error(strategy.ErrUnknown); err != nil && ctx.Err() == nil; {
			begun <- struct{}{}
			_, err = g.n.Eval(ctx, time.Now().Add(ghostOp), release, []string{key}, "tok")
		}
	}()
	for range 1 + i%2 { // the thaw comes in the first undo, which is when it is worst, or in the second
		receive(t, "an undo", begun)
	}
	if i%2 == 0 {
		receive(t, "a request on the second connection", second.wrote)
	}
	if err := g.srv.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the undo", undone)
	// The bytes that lay in a socket at the thaw have been read by the time another connection has had an answer.
	redistest.Do(t, g.srv, "PING")
	if redistest.Do(t, g.srv, "EXISTS", key) == int64(1) {
		t.Errorf("try %d: the key is there after its undo", i)
	}
}

// ready dials the connection that is used next.
func (g *ghosts) ready(t *testing.T) *noting {
	t.Helper()
	for len(g.stock) > 0 {
		(<-g.stock).Close()
	}
	c, err := net.Dial(g.network, g.addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "PING\r\n") // the server has accepted it
	if _, err := c.Read(make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	second := &noting{c, make(chan struct{}, 1)}
	g.stock <- second
	return second
}

// A noting connection tells when something was written.
type noting struct {
	net.Conn
	wrote chan struct{}
}

func (n *noting) Write(b []byte) (int, error) {
	defer func() {
		select {
		case n.wrote <- struct{}{}:
		default: // it has told
		}
	}()
	return n.Conn.Write(b)
}

// The same by a schedule: the network delivers a request after its undo. Without the KILL that
// leaves a ghost, so the KILL is what prevents it.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	needsKill(t, "that the kill is what prevents ghosts")
	for name, ordered := range map[string]bool{"killed": true, "not killed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Own(t, redistest.Config{})
			verdict.Conclusive(t, func() verdict.Slow {
				redistest.Do(t, srv, "DEL", "k")
				dialled := make(chan *late, 100)
				n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
					c, err := net.Dial("tcp", srv.Addr())
					if err != nil {
						return nil, err
					}
					t.Cleanup(func() { c.Close() })
					l := &late{Conn: c, held: make(chan []byte, 10)}
					dialled <- l
					return redis.NewConn(l, 0, 0), nil
				}})
				n.unordered.Store(!ordered)
				echo(t, n, "warm")
				l := receive(t, "the first connection", dialled)
				l.holds.Store(true)
				_, err := n.Do(t.Context(), time.Now().Add(ghostOp), "SET", "k", "tok", "NX", "PX", 600_000)
				if errors.Is(err, strategy.ErrUnsent) {
					return verdict.Slowf("SET was not sent within %v", ghostOp)
				}
				want(t, "SET that is under way", err, strategy.ErrUnknown)
				if _, err := n.Eval(t.Context(), soon(), release, []string{"k"}, "tok"); err != nil {
					t.Fatalf("the undo = %v, want nil", err)
				}
				l.deliver(receive(t, "the SET", l.held))
				if ghost := redistest.Do(t, srv, "EXISTS", "k") == int64(1); ghost == ordered {
					t.Errorf("the key is there after its undo: %v, want %v", ghost, !ordered)
				}
				return ""
			})
		})
	}
}

// A late connection holds back what is written, also after its client has closed it.
type late struct {
	net.Conn
	holds atomic.Bool
	held  chan []byte
}

func (l *late) Write(b []byte) (int, error) {
	if !l.holds.Load() {
		return l.Conn.Write(b)
	}
	l.held <- bytes.Clone(b)
	return len(b), nil
}

// Close ends what the client does with it, and leaves the server's side open.
func (l *late) Close() error { return l.SetReadDeadline(time.Now()) }

// deliver returns once the server has answered, or has hung up.
func (l *late) deliver(b []byte) {
	l.SetDeadline(soon())
	if _, err := l.Conn.Write(b); err == nil {
		l.Read(make([]byte, 100))
	}
}

func TestKillStorm(t *testing.T) {
	t.Parallel()
	needsKill(t, "that a node outlives a storm of kills")
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, plainPool(t, srv, 0))
	echo(t, n, "before the storm")
	stop, kills := make(chan struct{}), 0
	var killer, callers sync.WaitGroup
	killer.Go(func() {
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for {
			conn := srv.Pool().Get()
			killed, err := redis.Int(conn.Do("CLIENT", "KILL", "TYPE", "normal"))
			if conn.Close(); err != nil {
				t.Error(err)
			}
			kills += killed
			select {
			case <-stop:
				return
			case <-pause.C:
			}
		}
	})
	for c := range 32 {
		callers.Go(func() {
			for i := range 400 {
				value := fmt.Sprintf("%d-%d", c, i)
				r, err := n.Do(t.Context(), soon(), "ECHO", value)
				if b, _ := r.([]byte); err == nil && string(b) != value || err != nil && !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
					t.Errorf("ECHO %s = %q, %v, want it, or unsent or unknown", value, r, err)
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	killer.Wait()
	if kills == 0 {
		t.Error("nothing was killed")
	}
	verdict.Eventually(t, "a call gets through", func() bool { // the last kill may not have been noticed yet, and have met a dial, too
		_, err := n.Do(t.Context(), soon(), "PING", "")
		return err == nil
	})
	if echo(t, n, "after the storm"); !n.Ordered() {
		t.Error("Ordered = false, want true")
	}
}

// Where Redis closes a connection at rest, over TCP or TLS, that is seen before anything is written to it.
func TestPeekOnRealServers(t *testing.T) {
	t.Parallel()
	a, err := redistest.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	srv, addr := redistest.OwnTLS(t, a, redistest.Config{})
	pem, key, err := a.Issue("client", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(pem, key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(a.PEM)
	config := &tls.Config{RootCAs: trusted, Certificates: []tls.Certificate{pair}}
	for name, dial := range map[string]func(ctx context.Context) (redis.Conn, error){
		"tcp": func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", srv.Addr()) },
		"tls": func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, redis.DialUseTLS(true), redis.DialTLSConfig(config))
		},
	} {
		n := newNode(t, &redis.Pool{DialContext: dial})
		for range 5 {
			echo(t, n, name)
			var w *wire
			locked(n, func(p *pipe) { w = p.wire })
			redistest.Do(t, srv, "CLIENT", "KILL", "TYPE", "normal")
			verdict.Eventually(t, "the end is here", w.peeker.readable)
			echo(t, n, name)
		}
	}
}

// A probe finds a replica also for a user who may do nothing: every user may send HELLO.
func TestEveryUserMaySendHello(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	if _, err := srv.Peer(t.Context()); errors.Is(err, redistest.ErrImpossible) {
		t.Skipf("NOT PROVEN: that every user may send HELLO: %v", err)
	}
	redistest.Do(t, srv, "ACL", "SETUSER", "least", "on", ">pw", "-@all", "resetkeys", "resetchannels")
	n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL("redis://least:pw@" + srv.Addr()) }})
	for replica, cmd := range map[bool][]any{false: {"NO", "ONE"}, true: {"127.0.0.1", "1"}} {
		redistest.Do(t, srv, "REPLICAOF", cmd...)
		hello, err := n.Do(t.Context(), soon(), "HELLO", "")
		if err != nil || rediskit.Demoted(hello) != replica {
			t.Errorf("HELLO = %q, %v, want the role of a replica: %v", hello, err, replica)
		}
	}
}
