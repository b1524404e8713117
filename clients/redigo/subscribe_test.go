// The node's link for subscriptions: what they do to the link, and the server that it leads to.
package redigonode

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

// A server answers a PING in another way where nothing is subscribed any more.
func TestPongAtRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := dial(nodetest.NewInMemory(t, (*nodetest.Conn).Plain))
		if err != nil {
			t.Fatal(err)
		}
		l := listener{conn: c.(redis.ConnWithTimeout)}
		defer l.Close()
		for _, r := range []*subscription.Request{{Cmd: subscription.Ping}, {Cmd: subscription.Subscribe, Channel: "c"}, {Cmd: subscription.Ping}} {
			_, err := l.Write([]*subscription.Request{r})
			if e, failed := l.Read(0); errors.Join(err, failed) != nil || e.Cmd != r.Cmd || e.Channel != r.Channel {
				t.Errorf("%s is answered %+v, %v, want an event of it", r.Cmd, e, errors.Join(err, failed))
			}
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
