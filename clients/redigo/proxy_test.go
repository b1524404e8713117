// What a proxy may do to a Node: it hangs up on commands that it does not know, or refuses them.
package redigonode

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// A proxy that does not know CLIENT and HELLO is of use, without order; who has hung up once is asked again.
func TestProxy(t *testing.T) {
	t.Parallel()
	unknown := func(_ *nodetest.Conn, cmd []string) bool { return cmd[0] == "CLIENT" || cmd[0] == "HELLO" }
	never := func(*nodetest.Conn, []string) bool { return false }
	for name, c := range map[string]struct {
		hangsUp, refuses func(c *nodetest.Conn, cmd []string) bool
		kind             error // nil: it answers
		ordered          bool
		dials            int
	}{
		"hangs up":               {unknown, never, nil, false, 3},
		"hangs up once":          {func(c *nodetest.Conn, cmd []string) bool { return c.ID == 1 }, never, nil, true, 3},
		"hangs up on everything": {func(*nodetest.Conn, []string) bool { return true }, never, strategy.ErrUnsent, true, 2},
		"refuses":                {never, unknown, nil, false, 1},
	} {
		bubbled(t, name, func(t *testing.T) {
			n, f := nodeOn(t, func(conn *nodetest.Conn, cmd []string) {
				switch {
				case c.hangsUp(conn, cmd):
					conn.Close()
				case c.refuses(conn, cmd):
					conn.Say("-ERR unsupported command\r\n")
				default:
					conn.Plain(cmd)
				}
			})
			if _, err := n.Do(t.Context(), soon(), "ECHO", "x"); c.kind != nil {
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
			if synctest.Wait(); f.Open() != 1 {
				t.Errorf("%d connections are open, want 1", f.Open())
			}
			before := n.Probe(t.Context(), soon())
			if got := n.Probe(t.Context(), soon()); got != before {
				t.Errorf("Probe = %d, want %d as before: it loses no connection", got, before)
			}
			if err := doing(n, t.Context(), soon(), "GET"); err != nil {
				t.Errorf("Session = %v, want nil", err)
			}
			_, stop := nodetest.Subscribe(t, n, "c")
			stop()
			f.Cut()
			if got := n.Probe(t.Context(), soon()); got != before+1 {
				t.Errorf("Probe = %d after a loss, want %d", got, before+1)
			}
			echo(t, n, "again")
			wantDials(t, f, c.dials+3) // a session's, a subscription's, and one in place of the lost
			if _, err := n.Do(t.Context(), soon(), "CLIENT", "LIST"); name == "hangs up" && !strings.Contains(err.Error(), "perhaps a proxy that does not know CLIENT") {
				t.Errorf("CLIENT LIST = %v, want it to tell of the proxy", err)
			}
		})
	}
}
