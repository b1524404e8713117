// The Node by itself: names, arguments, and connections that it gives back.
package rueidisnode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestNewWantsAClient(t *testing.T) {
	if err := New(nil).Use(); err == nil || !strings.Contains(err.Error(), "rueidis.NewClient") {
		t.Errorf("New(nil).Use() = %v, want an error that says how to make a client", err)
	}
}

func TestNameIsTheAddress(t *testing.T) {
	s := redistest.Shared(t)
	if got := shared(t).Name(); got != s.Addr() {
		t.Errorf("Name() = %s, want %s", got, s.Addr())
	}
	n := lendingNode(t, sentinel{newClient(t, optionsOf(t, s))})
	if got := n.Name(); got != driver.Unnamed {
		t.Errorf("Name() = %s before the first request, want %s", got, driver.Unnamed)
	}
	echo(t, n, "x")
	if got := n.Name(); !strings.Contains(got, ":") {
		t.Errorf("Name() = %s after the first request, want the server's own address", got)
	}
}

// A command at which the client's builder panics is refused; an empty key is not sent.
func TestCommandsThatAreRefused(t *testing.T) {
	t.Parallel()
	n := shared(t)
	for _, cmd := range []string{"", "SUBSCRIBE", "psubscribe", "UNSUBSCRIBE"} {
		_, err := n.Do(t.Context(), soon(), cmd, "k")
		want(t, "Do "+cmd, err, strategy.ErrUnsent)
	}
	want(t, "SUBSCRIBE in a session", n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
		_, err := c.Do("SUBSCRIBE", "x")
		return err
	}), strategy.ErrUnsent)
	if reply, err := n.Do(t.Context(), soon(), "EVAL", "return ARGV[1]", 1, "", "x"); err != nil || fmt.Sprintf("%s", reply) != "x" {
		t.Errorf("EVAL with an empty key = %s, %v", reply, err)
	}
}

// As many connections are the server's as before.
func TestConnectionsAreGivenBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	client := newClient(t, optionsOf(t, srv))
	n := New(client).(*lending.Node)
	echo(t, n, "first")
	_, stop := nodetest.Subscribe(t, n, t.Name())
	stop()
	if err := n.Session(t.Context(), soon(), "k", func(c driver.Conn) error { return nil }); err != nil {
		t.Error(err)
	}
	n.Close()
	// The pipe and the session's went back to the client's pool; that with subscriptions
	// is closed.
	verdict.Eventually(t, "no subscription is left", func() bool {
		return !strings.Contains(fmt.Sprintf("%s", redistest.Do(t, srv, "CLIENT", "LIST")), "sub=1")
	})
	// And the next caller has the connections of those who have gone.
	connections := func() int { return strings.Count(fmt.Sprintf("%s", redistest.Do(t, srv, "CLIENT", "LIST")), "\n") }
	before := connections()
	for i := range 5 {
		again := New(client).(*lending.Node)
		echo(t, again, "again")
		again.Close()
		if after := connections(); after > before {
			t.Errorf("node %d: %d connections, want %d", i, after, before)
		}
	}
}
