// The node on real servers: a request that comes after its undo, and connections that end at rest.
package redigonode

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// The network delivers an acquire that timed out after its undo. Without the KILL that leaves a ghost, a key that nobody
// owns; so the KILL is what prevents it.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		network string
		ordered bool
	}{"killed": {"tcp", true}, "killed on a Unix socket": {"unix", true}, "not killed": {"tcp", false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv, addr := redistest.Own(t, redistest.Config{}), ""
			if addr = srv.Addr(); c.network == "unix" {
				srv, addr = redistest.OwnSocket(t, "a socket", redistest.Config{})
			}
			admin := srv.Pool().Get()
			defer admin.Close()
			if _, err := admin.Do("CLIENT", "KILL", "ID", 1, "ADDR", "0.0.0.0:0"); err != nil {
				t.Skipf("NOT PROVEN: that the kill is what prevents ghosts: %v", err)
			}
			verdict.Conclusive(t, func() verdict.Slow {
				redistest.Do(t, srv, "DEL", "k")
				dialled := make(chan *late, 100)
				n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
					conn, err := net.Dial(c.network, addr)
					if err != nil {
						return nil, err
					}
					t.Cleanup(func() { conn.Close() })
					l := &late{Conn: conn, held: make(chan []byte, 10)}
					dialled <- l
					return redis.NewConn(l, 0, 0), nil
				}})
				n.unordered.Store(!c.ordered)
				echo(t, n, "warm")
				l := receive(t, "the first connection", dialled)
				l.holds.Store(true)
				const op = 250 * time.Millisecond
				_, err := n.Do(t.Context(), time.Now().Add(op), "SET", "k", "tok", "NX", "PX", 600_000)
				if errors.Is(err, strategy.ErrUnsent) {
					return verdict.Slowf("SET was not sent within %v", op)
				}
				want(t, "SET that is under way", err, strategy.ErrUnknown)
				if _, err := n.Eval(t.Context(), soon(), release, []string{"k"}, "tok"); err != nil {
					t.Fatalf("the undo = %v, want nil", err)
				}
				l.deliver(receive(t, "the SET", l.held))
				if ghost := redistest.Do(t, srv, "EXISTS", "k") == int64(1); ghost == c.ordered {
					t.Errorf("the key is there after its undo: %v, want %v", ghost, !c.ordered)
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

// Where Redis closes a connection at rest, that is seen before anything is written to it, also within TLS.
func TestPeekWithinTLS(t *testing.T) {
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
	config := &tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	config.RootCAs.AppendCertsFromPEM(a.PEM)
	n := newNode(t, &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, redis.DialUseTLS(true), redis.DialTLSConfig(config))
	}})
	for range 5 {
		echo(t, n, "here")
		var w *wire
		locked(n, func(p *pipe) { w = p.wire })
		redistest.Do(t, srv, "CLIENT", "KILL", "TYPE", "normal")
		verdict.Eventually(t, "the end is here", w.peeker.readable)
		echo(t, n, "here again")
	}
}
