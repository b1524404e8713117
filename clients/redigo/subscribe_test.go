// The node's link for subscriptions: what they do to the link, and the server that it leads to.
package redigonode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

func atRest(n *node) bool {
	all, rest := n.sub.Connections()
	return all == 1 && rest == 1
}

func TestSubscribeIsBounded(t *testing.T) {
	t.Parallel()
	bubbled(t, "while dialling", func(t *testing.T) {
		let, f := make(chan struct{}), nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) { <-let; return dial(f) }})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := n.Subscribe(ctx, "c", func([]byte, error) {})
		want(t, "Subscribe while dialling", err, strategy.ErrUnsent, context.DeadlineExceeded)
		close(let)
		_, stop := nodetest.Subscribe(t, n, "c")
		stop()
	})
	bubbled(t, "by the end of the line", func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		n := newNode(t, hook(f, func(h *hooked) {
			h.send = func(c redis.ConnWithTimeout, cmd string, args ...any) error {
				if cmd == "SUBSCRIBE" {
					return io.ErrClosedPipe
				}
				return c.Send(cmd, args...)
			}
		}))
		start := time.Now()
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
		want(t, "Subscribe", err, strategy.ErrUnknown, io.ErrClosedPipe)
		if took := time.Since(start); took > 0 {
			t.Errorf("Subscribe failed after %v, want at once", took)
		}
	})
}

// A server answers a PING in another way where nothing is subscribed any more.
func TestPongAtRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			switch cmd[0] {
			case "UNSUBSCRIBE": // it comes late
			case "PING":
				c.Plain([]string{"UNSUBSCRIBE", "c"})
				c.Say("+PONG\r\n")
			default:
				c.Plain(cmd)
			}
		})
		_, stop := nodetest.Subscribe(t, n, "c")
		stop()
		time.Sleep(n.sub.PingEvery + time.Second)
		if !atRest(n) || f.Seen("PING") != 1 || f.Open() != 1 {
			t.Errorf("%d PINGs, %d connections, at rest: %v, want 1, 1, true", f.Seen("PING"), f.Open(), atRest(n))
		}
	})
}

// A line ends when requests go to another server than its own: it may lead to a replica that nobody asks
// any more.
func TestLineFollowsRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server := "old:1"
		n, _ := nodeOn(t, func(c *nodetest.Conn, cmd []string) {
			if strings.Join(cmd, " ") == "CLIENT INFO" {
				c.Bulk(fmt.Sprintf("id=%d addr=client:%d laddr=%s fd=8 name=\n", c.ID, c.ID, server))
				return
			}
			c.Plain(cmd)
		})
		h, stop := nodetest.Subscribe(t, n, "c")
		defer stop()
		again := func(at string) {
			t.Helper()
			server = at
			locked(n, func(p *pipe) {
				if p.wire != nil {
					p.giveUp(p.wire, io.EOF)
				}
			})
			echo(t, n, "x")
			synctest.Wait()
		}
		again("old:1")
		again("old:1")
		if !h.Silent() {
			t.Fatal("the line has ended, though requests go to its server")
		}
		again("new:1")
		if err := receive(t, "the end", h.Ends); !errors.Is(err, subscription.ErrReplaced) {
			t.Errorf("the end = %v, want %v", err, subscription.ErrReplaced)
		}
	})
}
