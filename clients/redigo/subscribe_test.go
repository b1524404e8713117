// The node's link for subscriptions: taking back, limits, failed dials.
package redigonode

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func atRest(n *node) bool {
	all, rest := n.sub.Connections()
	return all == 1 && rest == 1
}

// A caller that leaves takes back what it has asked for, and the connection stays.
func TestSubscribeIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		got := make(chan struct{}, 10)
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "SUBSCRIBE" {
				got <- struct{}{}
				return
			}
			c.Plain(cmd)
		})
		n := newNode(t, poolOf(f))
		ctx, cancel := context.WithCancel(t.Context())
		out := make(chan error, 1)
		go func() {
			_, err := n.Subscribe(ctx, "never", func([]byte, error) { t.Error("fn was called") })
			out <- err
		}()
		receive(t, "SUBSCRIBE", got)
		cancel()
		receive(t, "return", out)
		verdict.Eventually(t, "what was asked for is taken back", func() bool {
			return slices.Contains(f.Log(), "1 UNSUBSCRIBE never")
		})
	})
}

func TestSubscribeWhileDialling(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		let := make(chan struct{})
		pool := poolOf(f)
		dial := pool.DialContext
		pool.DialContext = nil
		pool.Dial = func() (c redis.Conn, err error) { <-let; return dial(context.Background()) }
		n := newNode(t, pool)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := n.Subscribe(ctx, "c", func([]byte, error) {})
		want(t, "Subscribe while dialling", err, strategy.ErrUnsent, context.DeadlineExceeded)
		close(let)
		_, stop := nodetest.Subscribe(t, n, "c")
		stop()
	})
}

func TestSubscribeHasALimitOfItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "CLIENT" {
				c.Plain(cmd)
			}
		})
		n := newNode(t, poolOf(f))
		start := time.Now()
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
		want(t, "Subscribe", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		if took := time.Since(start); took < subscription.ConfirmLimit-subscription.PongLimit {
			t.Errorf("Subscribe gave up after %v, want about %v", took, subscription.ConfirmLimit)
		}
	})
}

func TestSubscriptionLineObeysThePoolsLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		pool.IdleTimeout = 10 * time.Second
		n := newNode(t, pool)
		_, stop := nodetest.Subscribe(t, n, "c")
		stop()
		verdict.Eventually(t, "the reader ends", func() bool { return atRest(n) })
		time.Sleep(pool.IdleTimeout + 1)
		_, stop = nodetest.Subscribe(t, n, "c")
		stop()
		if f.Dialled() != 2 {
			t.Errorf("%d connections, want 2", f.Dialled())
		}
	})
}

func TestFailedSubscriptionDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		reason := errors.New("no route")
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		pool.DialContext = nil
		pool.Dial = func() (redis.Conn, error) { return nil, reason }
		n := newNode(t, pool)
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
		want(t, "Subscribe", err, strategy.ErrUnsent, reason)
	})
}

// A server answers a PING in another way where nothing is subscribed any more.
func TestPongAtRest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, func(c *nodetest.Conn, cmd []string) {
			switch cmd[0] {
			case "UNSUBSCRIBE": // it comes late
			case "PING":
				c.Plain([]string{"UNSUBSCRIBE", "c"})
				c.Say("+PONG\r\n")
			default:
				c.Plain(cmd)
			}
		})
		n := newNode(t, poolOf(f))
		_, stop := nodetest.Subscribe(t, n, "c")
		stop()
		time.Sleep(n.sub.PingEvery + time.Second)
		if !atRest(n) || f.Seen("PING") != 1 || f.Open() != 1 {
			t.Errorf("%d PINGs, %d connections, at rest: %v, want 1, 1, true", f.Seen("PING"), f.Open(), atRest(n))
		}
	})
}
