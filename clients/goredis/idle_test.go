// Tests how long a node trusts a connection for subscriptions, when it asks whether the connection lives, and
// how long it keeps it, in virtual time.
package goredisnode

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestRestIsLimited: a connection at rest is used again within a minute of its last word, and not after.
func TestRestIsLimited(t *testing.T) {
	for rest, conns := range map[time.Duration]int{idleLimit: 1, idleLimit + 1: 2} {
		t.Run(rest.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n, f := inMemory(t, (*nodetest.Conn).Plain)
				_, stop := nodetest.Subscribe(t, n, "c")
				time.Sleep(2 * idleLimit) // it lives, as each PING shows
				_, other := nodetest.Subscribe(t, n, "d")
				stop()
				other()
				synctest.Wait()
				if !nodetest.AtRest(n.sub) {
					t.Fatal("the connection is not at rest after the last subscription")
				}
				pings := f.Seen("PING")
				time.Sleep(rest)
				if got := f.Seen("PING"); got != pings {
					t.Errorf("%d PINGs at rest, want none", got-pings)
				}
				h, stop := nodetest.Subscribe(t, n, "c")
				defer stop()
				if got := f.Dialled(); got != conns {
					t.Errorf("%d connections in all, want %d", got, conns)
				}
				time.Sleep(idleLimit)
				if got := f.Open(); got != 1 || !h.Silent() {
					t.Errorf("%d connections are open, want 1, and its subscription there", got)
				}
			})
		})
	}
}

// TestNeverConnected: who reads hears why a connection for subscriptions was not made, and that it was closed before.
func TestNeverConnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := inMemory(t, (*nodetest.Conn).Plain)
		client, why := n.to.(single).client, errors.New("nobody there")
		client.Options().Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, why }
		dial := func() subscription.Reader {
			conn, err := (&listening{n}).Dial(t.Context(), &subscription.Link{Server: client})
			redistest.Must(t, err)
			return conn.(subscription.Reader)
		}
		c := dial()
		_, written := c.Write([]*subscription.Request{{Cmd: subscription.Subscribe, Channel: "c"}})
		_, read := c.Read(time.Second)
		for what, err := range map[string]error{"Write": written, "Read": read} {
			if !errors.Is(err, subscription.ErrNotSent) || !errors.Is(err, why) {
				t.Errorf("%s = %v, want %v, and %v", what, err, subscription.ErrNotSent, why)
			}
		}
		c.Close()
		c = dial()
		ended := make(chan error, 1)
		go func() { _, err := c.Read(time.Second); ended <- err }()
		synctest.Wait()
		c.Close()
		if err := await(t, "the end", ended); err == nil {
			t.Error("Read = nil after Close, want an error")
		}
	})
}
