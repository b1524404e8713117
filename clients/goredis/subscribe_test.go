// Answers to SUBSCRIBE that nobody has asked for, or that are none.
package goredisnode

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

func atRest(n *node) bool {
	all, rest := n.sub.Connections()
	return all == 1 && rest == 1
}

// TestReconnectIsABreak: should go-redis connect again all the same, as one of its versions
// might, the answer to its own SUBSCRIBE tells.
func TestReconnectIsABreak(t *testing.T) {
	t.Parallel()
	var conn atomic.Pointer[nodetest.Conn]
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) { conn.Store(c); c.Plain(cmd) })
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	h, _ := nodetest.Subscribe(t, n, "c")
	conn.Load().Plain([]string{"SUBSCRIBE", "c"}) // what a second one is answered
	if got := await(t, "the end", h.Ends); !strings.Contains(got.Error(), "nobody has asked for") {
		t.Errorf("heard %v, want that this was not asked for", got)
	}
}

// TestSubscribeIsMisunderstood: what is no answer, or another's, ends the connection.
func TestSubscribeIsMisunderstood(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		switch {
		case cmd[0] == "SUBSCRIBE" && cmd[1] == "another":
			c.Plain([]string{"SUBSCRIBE", "else"})
		case cmd[0] == "SUBSCRIBE" && cmd[1] == "hostile":
			c.Say("*1\r\n:1\r\n")
		default:
			c.Plain(cmd)
		}
	})
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	h, stop := nodetest.Subscribe(t, n, "c")
	_, err := n.Subscribe(t.Context(), "hostile", nil)
	want(t, "what is no answer", err, strategy.ErrUnknown)
	if !strings.Contains(err.Error(), "not a message of Redis") {
		t.Errorf("Subscribe = %v, want that this is not a message of Redis", err)
	}
	await(t, "the end of the others", h.Ends)
	stop()
	_, err = n.Subscribe(t.Context(), "another", nil)
	want(t, "the answer to another", err, strategy.ErrUnknown)
}
