// A server that has become a replica is left; and what CLIENT INFO tells.
package node

import (
	"errors"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/nodetest"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// TestReplicaIsLeft: once a server turns out to be a replica, the pool's connection to it is
// not lent again, and its subscribers hear of the end, so that they subscribe again.
func TestReplicaIsLeft(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	if _, err := srv.Peer(t.Context()); errors.Is(err, redistest.ErrImpossible) {
		t.Skipf("NOT PROVEN: that a replica is left: %v", err)
	}
	set := func(n *Node, by string) error {
		if by == "the pipe" {
			_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
			return err
		}
		return n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
			_, err := c.Do("SET", "k", "v")
			return err
		})
	}
	for _, by := range []string{"the pipe", "a session"} {
		pool := plainPool(t, srv, 1)
		n := newNode(t, pool)
		if err := set(n, by); err != nil {
			t.Fatal(err)
		}
		h, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		dialled := func(ago time.Duration) {
			n.sub.mu.Lock()
			defer n.sub.mu.Unlock()
			n.sub.line.born = time.Now().Add(-ago)
		}
		redistest.Do(t, srv, "REPLICAOF", "127.0.0.1", "1")
		dialled(-time.Hour)
		want(t, by+": SET", set(n, by), strategy.ErrRefused)
		if !h.Silent() {
			t.Errorf("%s: something was heard within a second of the dial, want nothing: that would be a storm of dials", by)
		}
		dialled(2 * time.Second)
		want(t, by+": SET", set(n, by), strategy.ErrRefused)
		if got := receive(t, "the end of the subscription", h.Ends); !errors.Is(got, errReplaced) {
			t.Errorf("%s: heard %v, want that the subscription is over", by, got)
		}
		if by == "a session" && pool.IdleCount() != 0 {
			t.Errorf("%d connections in the pool, want none: it would lend them again", pool.IdleCount())
		}
		redistest.Do(t, srv, "REPLICAOF", "NO", "ONE")
		again, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		nodetest.Publish(t, n, "c", "1")
		if got := receive(t, "a message", again.Msgs); got != "1" {
			t.Errorf("%s: heard %q, want 1", by, got)
		}
	}
}

// TestClientInfo: the path of a Unix socket is reported as it is, also with blanks in it.
func TestClientInfo(t *testing.T) {
	for text, want := range map[string]identity{
		"id=3 addr=127.0.0.1:1 laddr=127.0.0.1:6379 fd=8 name= age=0\n": {"3", "127.0.0.1:1"},
		"id=3 addr=/a/b:0 laddr=/a/b:0 fd=8 name=\n":                    {"3", "/a/b:0"},
		"id=3 addr=/a b/c =d:0 laddr=/a b/c =d:0 fd=8 name=addr=1\n":    {"3", "/a b/c =d:0"},
		"id=3 addr=127.0.0.1:1":                                         {"3", "127.0.0.1:1"},
		"id=3 addr=127.0.0.1:1\n":                                       {"3", "127.0.0.1:1"},
		"id=3 fd=8\n":                                                   {},
		"":                                                              {},
	} {
		n := &Node{}
		if got := n.introduced([]byte(text)); got != want {
			t.Errorf("introduced(%q) = %q, want %q", text, got, want)
		}
	}
	n := &Node{}
	n.introduced("id=3 addr=/a b:0 laddr=/a b:0 fd=8")
	if n.Name() != "/a b:0" {
		t.Errorf("Name() = %q, want /a b:0", n.Name())
	}
}
