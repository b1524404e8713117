// Tests an answer to SUBSCRIBE that does not confirm it.
package goredisnode

import (
	"strings"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// TestSubscribeIsMisunderstood: what is no answer ends the connection.
func TestSubscribeIsMisunderstood(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] == "SUBSCRIBE" && cmd[1] == "hostile" {
			c.Say("*1\r\n:1\r\n")
			return
		}
		c.Plain(cmd)
	})
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	h, _ := nodetest.Subscribe(t, n, "c")
	_, err := n.Subscribe(t.Context(), "hostile", nil)
	want(t, "what is no answer", err, strategy.ErrUnknown)
	if !strings.Contains(err.Error(), "not a message of Redis") {
		t.Errorf("Subscribe = %v, want that this is not a message of Redis", err)
	}
	await(t, "the end of the others", h.Ends)
}
