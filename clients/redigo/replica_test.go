// A server that has become a replica is left; and what CLIENT INFO tells.
package redigonode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// TestReplicaIsLeft: once a server turns out to be a replica, no connection to it is used again, and its
// subscribers hear of the end, so that they subscribe again. While it stays a replica, its refusal is the caller's.
func TestReplicaIsLeft(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	if _, err := srv.Peer(t.Context()); errors.Is(err, redistest.ErrImpossible) {
		t.Skipf("NOT PROVEN: that a replica is left: %v", err)
	}
	for by, ask := range map[string]func(n *node) error{
		"the pipe": func(n *node) error {
			_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
			return err
		},
		"a session": func(n *node) error {
			return n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
				_, err := c.Do("SET", "k", "v")
				return err
			})
		},
		"a probe": func(n *node) error {
			n.Probe(t.Context(), soon())
			return nil
		},
	} {
		pool := plainPool(t, srv, 1)
		n := newNode(t, pool)
		if err := errors.Join(ask(n), n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil })); err != nil {
			t.Fatal(err)
		}
		h, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		redistest.Do(t, srv, "REPLICAOF", "127.0.0.1", "1")
		if err := ask(n); by != "a probe" {
			want(t, by, err, strategy.ErrRefused)
		}
		if got := receive(t, "the end of the subscription", h.Ends); !errors.Is(got, subscription.ErrReplaced) {
			t.Errorf("%s: heard %v, want that the subscription is over", by, got)
		}
		if by == "a session" && pool.IdleCount() != 0 {
			t.Errorf("%d connections in the pool, want none: it would lend them again", pool.IdleCount())
		}
		redistest.Do(t, srv, "REPLICAOF", "NO", "ONE")
		if err := ask(n); err != nil {
			t.Errorf("%s = %v at a primary, want nil", by, err)
		}
		again, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		nodetest.Publish(t, n, "c", "1")
		if got := receive(t, "a message", again.Msgs); got != "1" {
			t.Errorf("%s: heard %q, want 1", by, got)
		}
	}
}

// TestEveryUserMaySendHello: a probe finds a replica also for a user who may do nothing.
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

// TestNameOfAServerThatRefuses: a server that lets nobody in has the address to which the pool has connected.
func TestNameOfAServerThatRefuses(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Write([]byte("-WRONGPASS invalid username-password pair\r\n")) //nolint:errcheck // it hangs up
			conn.Close()
		}
	}()
	n := New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", listener.Addr().String(), redis.DialPassword("no"))
	}})
	defer n.Close()
	_, err = n.Do(t.Context(), time.Now().Add(time.Minute), "GET", "k")
	if want := listener.Addr().String() + ": not sent: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("Do = %v, want the address first: %s", err, want)
	}
}

// TestNameOfATranslatedAddress: servers in containers on several hosts may all see the same address of their own, and are not one
// server: package redlock refuses two nodes of one name.
func TestNameOfATranslatedAddress(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if strings.Join(cmd, " ") == "CLIENT INFO" {
			c.Bulk(fmt.Sprintf("id=%d addr=172.17.0.1:%d laddr=172.17.0.2:6379 fd=8 name=", c.ID, c.ID))
			return
		}
		c.Plain(cmd)
	})
	n := newNode(t, poolOf(f))
	if echo(t, n, "x"); n.Name() != f.Addr {
		t.Errorf("Name = %q, want %q, to which the pool connects", n.Name(), f.Addr)
	}
}

// TestName: the node's name is the server's address, as it is, also with blanks in it.
func TestName(t *testing.T) {
	n := &node{}
	n.introduced("id=3 addr=/a b:0 laddr=/a b:0 fd=8")
	n.introduced("")
	if n.Name() != "/a b:0" {
		t.Errorf("Name() = %q, want /a b:0", n.Name())
	}
}
