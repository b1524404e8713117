// Tests how long a node trusts a connection for subscriptions, when it asks whether the connection lives, and
// how long it keeps it, in virtual time.
package goredisnode

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
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
				if !atRest(n) {
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

// TestReplicaIsLeftOnceASecond: subscriptions to a replica end with the first refusal, and, where new connections
// lead to one, too, a second later, however often it refuses meanwhile.
func TestReplicaIsLeftOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := inMemory(t, demoted)
		var got []int
		for _, pause := range []time.Duration{0, leaveEvery - 1, 1} {
			time.Sleep(pause)
			h, _ := nodetest.Subscribe(t, n, "c")
			want(t, "SET", set(t.Context(), n, soon()), strategy.ErrRefused)
			synctest.Wait()
			got = append(got, len(h.Ends))
		}
		if want := []int{1, 0, 1}; !slices.Equal(got, want) {
			t.Errorf("%v ends, want %v", got, want)
		}
	})
}

// TestFarewell: messages are heard by their channel; what a server says that nobody has asked for, before
// it hangs up, is no answer.
func TestFarewell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var conn atomic.Pointer[nodetest.Conn]
		n, _ := inMemory(t, func(c *nodetest.Conn, cmd []string) { conn.Store(c); c.Plain(cmd) })
		h, _ := nodetest.Subscribe(t, n, "c")
		conn.Load().Message("c", "ours")
		if got := await(t, "a message", h.Msgs); got != "ours" {
			t.Errorf("heard %q, want ours", got)
		}
		conn.Load().Message("else", "not ours")
		conn.Load().Say("-ERR farewell\r\n")
		synctest.Wait()
		if !h.Silent() {
			t.Error("the subscription has ended with the farewell, want with the connection")
		}
		conn.Load().Close()
		if end := await(t, "the end", h.Ends); !strings.Contains(end.Error(), "the connection ended") {
			t.Errorf("the end = %v, want that of the connection", end)
		}
	})
}

// TestCloseWaits: for a call under way, and until subscribers have heard of the end.
func TestCloseWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		n, _ := inMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] == "SET" {
				<-let
			}
			c.Plain(cmd)
		})
		go n.Do(t.Context(), soon(), "SET", "k", "v") //nolint:errcheck // it is to last
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- n.Close() }()
		synctest.Wait()
		if len(closed) > 0 {
			t.Error("Close has not waited")
		}
		close(let)
		if err := await(t, "Close", closed); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}

		n, _ = inMemory(t, (*nodetest.Conn).Plain)
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) { time.Sleep(time.Second) })
		redistest.Must(t, err)
		began := time.Now()
		if n.Close(); time.Since(began) != time.Second {
			t.Errorf("Close took %v, want a second until the subscriber has heard", time.Since(began))
		}
	})
}

// TestSubscribeToNobody: Subscribe reports why there is no connection, and that it has sent nothing.
func TestSubscribeToNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := inMemory(t, (*nodetest.Conn).Plain)
		why := errors.New("nobody there")
		n.to.(single).client.Options().Dialer = func(context.Context, string, string) (net.Conn, error) { return nil, why }
		began := time.Now()
		_, err := n.Subscribe(t.Context(), "c", nil)
		want(t, "Subscribe", err, strategy.ErrUnsent, why)
		if took := time.Since(began); took >= subscription.ConfirmLimit {
			t.Errorf("it took %v", took)
		}
	})
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
