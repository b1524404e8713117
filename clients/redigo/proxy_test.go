// What a proxy may do to a Node: it hangs up on commands that it does not know.
package redigonode

import (
	"strings"
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// A proxy that hangs up on CLIENT and HELLO is of use, without order; who has hung up once is asked again.
func TestProxyThatHangsUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hangsUp func(c *nodetest.Conn, cmd []string) bool
		kind    error // nil: it answers
		ordered bool
		dials   int
	}{
		"on what it does not know": {func(_ *nodetest.Conn, cmd []string) bool { return cmd[0] == "CLIENT" || cmd[0] == "HELLO" }, nil, false, 3},
		"once":                     {func(c *nodetest.Conn, cmd []string) bool { return c.ID == 1 }, nil, true, 3},
		"on everything":            {func(*nodetest.Conn, []string) bool { return true }, strategy.ErrUnsent, true, 2},
	} {
		bubbled(t, name, func(t *testing.T) {
			f := nodetest.NewInMemory(t, func(conn *nodetest.Conn, cmd []string) {
				if c.hangsUp(conn, cmd) {
					conn.Close()
					return
				}
				conn.Plain(cmd)
			})
			n := newNode(t, poolOf(f))
			_, err := n.Do(t.Context(), soon(), "ECHO", "x")
			if c.kind != nil {
				want(t, "Do", err, c.kind, errHungUp)
			} else if err != nil {
				t.Fatalf("Do = %v, want nil", err)
			}
			if n.Ordered() != c.ordered || f.Dialled() != c.dials {
				t.Errorf("Ordered = %v after %d dials, want %v after %d", n.Ordered(), f.Dialled(), c.ordered, c.dials)
			}
			if c.kind != nil {
				return
			}
			before := n.Probe(t.Context(), soon())
			if got := n.Probe(t.Context(), soon()); got != before {
				t.Errorf("Probe = %d, want %d as before: it loses no connection", got, before)
			}
			if err := n.Session(t.Context(), soon(), "k", func(c driver.Conn) error { _, err := c.Do("GET", "k"); return err }); err != nil {
				t.Errorf("Session = %v, want nil", err)
			}
			_, stop := nodetest.Subscribe(t, n, "c")
			stop()
			f.Cut()
			if got := n.Probe(t.Context(), soon()); got != before+1 {
				t.Errorf("Probe = %d after a loss, want %d", got, before+1)
			}
			echo(t, n, "again")
			if want := c.dials + 3; f.Dialled() != want { // a session's, a subscription's, and one in place of the lost
				t.Errorf("%d dials, want %d", f.Dialled(), want)
			}
		})
	}
}

// A proxy that answers with an error what it does not know is of use at once.
func TestProxyThatRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "CLIENT" || cmd[0] == "HELLO" {
				c.Say("-ERR unsupported command '%s'\r\n", strings.ToLower(cmd[0]))
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		echo(t, n, "x")
		before := n.Probe(t.Context(), soon())
		if got := n.Probe(t.Context(), soon()); got != before || n.Ordered() || f.Dialled() != 1 {
			t.Errorf("Probe = %d, Ordered = %v, %d dials, want %d, false, 1", got, n.Ordered(), f.Dialled(), before)
		}
	})
}
