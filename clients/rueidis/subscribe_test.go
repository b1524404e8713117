// Subscribe while its connection is being dialled, and what a server in memory can do to it at each moment.
package rueidisnode

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// subscribing is a Subscribe in a goroutine.
func subscribing(n *lending.Node, ctx context.Context, channel string, fn func([]byte, error)) <-chan error {
	out := make(chan error, 1)
	go func() {
		_, err := n.Subscribe(ctx, channel, fn)
		out <- err
	}()
	return out
}

func never(t *testing.T) func([]byte, error) {
	return func(msg []byte, err error) { t.Errorf("fn was called with %q, %v", msg, err) }
}

// A server that does not answer SUBSCRIBE: its connection is closed after five seconds, and a caller that waits behind
// it has sent nothing.
func TestSubscribeIsNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var silent atomic.Bool
		silent.Store(true)
		m := newMemory(t, when(&silent, says("SUBSCRIBE", "")))
		o := m.options()
		o.BlockingPoolSize = 1
		n := newNode(t, o)
		first := subscribing(n, t.Context(), "a", never(t))
		time.Sleep(time.Second)
		second := subscribing(n, t.Context(), "b", never(t))
		began := time.Now()
		want(t, "Subscribe", receive(t, "its end", first), strategy.ErrUnknown, os.ErrDeadlineExceeded)
		want(t, "Subscribe behind it", receive(t, "its end", second), strategy.ErrUnsent, os.ErrDeadlineExceeded)
		if took := time.Since(began); took != subscription.ConfirmLimit-time.Second {
			t.Errorf("that took %v", took)
		}
		silent.Store(false)
		time.Sleep(subscription.ConfirmLimit) // until the client has closed the connection
		h, stop := nodetest.Subscribe(t, n, "b")
		stop()
		if !h.Silent() {
			t.Error("a new subscription has heard something")
		}
	})
}

// A connection at rest carries the next subscription, however long that takes; one whose subscriptions have
// ended is closed.
func TestConnectionForSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var replica atomic.Bool
		m := newMemory(t, when(&replica, says("SET", "-READONLY x\r\n")))
		n := m.node(t)
		var last nodetest.Heard
		for range 3 {
			h, stop := nodetest.Subscribe(t, n, "c")
			stop()
			time.Sleep(time.Minute)
			last, _ = nodetest.Subscribe(t, n, "d")
			if !h.Silent() {
				t.Error("a listener that has stopped hears something")
			}
		}
		wantSeen(t, m, "SUBSCRIBE c", 3)
		wantSeen(t, m, "SUBSCRIBE d", 1)
		wantSeen(t, m, "EXISTS", 0) // that is a cluster's
		if m.Dialled() != 2 {
			t.Errorf("%d connections, want the client's own and one", m.Dialled())
		}
		replica.Store(true)
		_, err := n.Do(t.Context(), soon(), "SET", "k")
		want(t, "SET", err, strategy.ErrRefused)
		want(t, "the end", receive(t, "it", last.Ends), strategy.ErrUnknown, subscription.ErrReplaced)
		time.Sleep(time.Minute)
		if m.Open() != 2 {
			t.Errorf("%d connections are open, want the client's own, and that for requests", m.Open())
		}
		noError(t, "a session", n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }))
	})
}
