// The node's line for subscriptions: taking back, limits, failed dials.
package node

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/nodetest"
	"github.com/lockstrategies/locks/internal/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func atRest(n *Node) bool {
	n.sub.mu.Lock()
	defer n.sub.mu.Unlock()
	return n.sub.line != nil && n.sub.line.conn != nil && !n.sub.line.reading
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
		f := nodetest.NewInMemory(t, func(*nodetest.Conn, []string) {})
		n := newNode(t, poolOf(f))
		start := time.Now()
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
		want(t, "Subscribe", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		if took := time.Since(start); took < confirmLimit-pongLimit {
			t.Errorf("Subscribe gave up after %v, want about %v", took, confirmLimit)
		}
	})
}

func TestSubscriptionLineObeysThePoolsLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := nodetest.NewInMemory(t, (*nodetest.Conn).Plain)
		pool := poolOf(f)
		pool.IdleTimeout = time.Minute
		n := newNode(t, pool)
		_, stop := nodetest.Subscribe(t, n, "c")
		stop()
		verdict.Eventually(t, "the reader ends", func() bool { return atRest(n) })
		n.sub.mu.Lock()
		n.sub.line.used = time.Now().Add(-2 * time.Minute)
		n.sub.mu.Unlock()
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
