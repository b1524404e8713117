// Subscribe while its connection is being dialled, and what a server in memory can do to it at each moment.
package rueidisnode

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// subscribing is a Subscribe in a goroutine.
func subscribing(n *node, ctx context.Context, channel string, fn func([]byte, error)) <-chan error {
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

// Who subscribes while the connection is being made leaves unsent: with its context, after five seconds, or
// at Close. A connection that comes later than that is closed.
func TestSubscribeWaitsForItsConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t, says("SET", "-READONLY x\r\n"))
		n := m.node(t)
		refused := func(err error) { want(t, "SET", err, strategy.ErrRefused) }
		_, err := n.Do(t.Context(), soon(), "SET", "k")
		refused(err) // by a replica where nobody listens
		let := make(chan bool)
		wait := func() error { <-let; return nil }
		m.dial.Store(&wait)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		left, stays := subscribing(n, ctx, "a", never(t)), subscribing(n, t.Context(), "b", never(t))
		synctest.Wait()
		_, err = n.Do(t.Context(), soon(), "SET", "k")
		refused(err) // and where somebody is about to
		began := time.Now()
		cancel(cause)
		want(t, "Subscribe of who leaves", receive(t, "its end", left), strategy.ErrUnsent, cause)
		want(t, "Subscribe", receive(t, "its end", stays), strategy.ErrUnsent, os.ErrDeadlineExceeded)
		if took := time.Since(began); took != subscription.ConfirmLimit {
			t.Errorf("Subscribe took %v, want %v", took, subscription.ConfirmLimit)
		}
		last := subscribing(n, t.Context(), "c", never(t))
		synctest.Wait()
		n.Close()
		want(t, "Subscribe at Close", receive(t, "its end", last), strategy.ErrUnsent, strategy.ErrClosed)
		close(let)
		time.Sleep(time.Minute)
		if m.Open() != 1 || m.Seen("SUBSCRIBE") != 0 {
			t.Errorf("%d connections are open, want the client's own: %q", m.Open(), m.Log())
		}
	})
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

// A caller who leaves Subscribe hears nothing after that, not even a message that came before. The Node takes
// the SUBSCRIBE back, unless another caller stays on the channel.
func TestSubscribeIsTakenBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := make(chan *nodetest.Conn, 10)
		m := newMemory(t, func(c *nodetest.Conn, cmd string) bool {
			held := cmd == "SUBSCRIBE c"
			if held {
				asked <- c
			}
			return held
		})
		n := m.node(t)
		begun, let := make(chan bool, 10), make(chan bool)
		slow := func([]byte, error) { begun <- true; <-let }
		first := subscribing(n, t.Context(), "c", slow)
		c := receive(t, "SUBSCRIBE", asked)
		ctx, cancel := context.WithCancel(t.Context())
		second := subscribing(n, ctx, "c", never(t))
		alone := subscribing(n, ctx, "d", never(t))
		synctest.Wait()
		c.Message("c", "x") // for both, of whom the first is slow
		receive(t, "a message", begun)
		cancel()
		want(t, "Subscribe of who leaves", receive(t, "its end", second), strategy.ErrUnknown, context.Canceled)
		want(t, "Subscribe that is not sent", receive(t, "its end", alone), strategy.ErrUnsent, context.Canceled)
		close(let)
		synctest.Wait()
		c.Plain([]string{"SUBSCRIBE", "c"})
		noError(t, "Subscribe of who stays", receive(t, "its end", first))
		synctest.Wait()
		if got := m.Log(); !slices.Equal(got, []string{"2 SUBSCRIBE c", "2 SUBSCRIBE d", "2 UNSUBSCRIBE d", "2 PING"}) { // the PING is the client's
			t.Errorf("the server saw %q", got)
		}
	})
}

// A connection at rest carries the next subscription, however long that takes; one whose subscriptions have
// ended is closed.
func TestConnectionForSubscriptions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
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
		n.leaveSubscriptions()
		want(t, "the end", receive(t, "it", last.Ends), strategy.ErrUnknown, subscription.ErrReplaced)
		time.Sleep(time.Minute)
		if m.Open() != 1 {
			t.Errorf("%d connections are open, want the client's own", m.Open())
		}
		noError(t, "a session", n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }))
	})
}
