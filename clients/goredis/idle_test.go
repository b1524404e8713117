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

// TestPings: a connection with subscriptions is asked every three seconds, until it ends.
func TestPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] != "PING" {
				c.Plain(cmd)
			}
		})
		n.sub.PongLimit = time.Hour
		h, _ := nodetest.Subscribe(t, n, "c")
		time.Sleep(10 * subscription.PingEvery)
		synctest.Wait()
		if got := f.Seen("PING"); got != 10 || !h.Silent() {
			t.Errorf("%d PINGs, and not silent, want 10", got)
		}
		f.Cut()
		await(t, "the end", h.Ends)
		time.Sleep(10 * subscription.PingEvery)
		if got := f.Seen("PING"); got != 10 {
			t.Errorf("%d PINGs after the end, want none", got-10)
		}
	})
}

// TestSilenceEnds: a server that does not answer a PING within two seconds is given up.
func TestSilenceEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := inMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] != "PING" {
				c.Plain(cmd)
			}
		})
		h, _ := nodetest.Subscribe(t, n, "c")
		began := time.Now()
		want(t, "the end", await(t, "the end", h.Ends), strategy.ErrUnknown)
		if took := time.Since(began); took != subscription.PingEvery+subscription.PongLimit {
			t.Errorf("the end came after %v, want %v", took, subscription.PingEvery+subscription.PongLimit)
		}
	})
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

// TestSubscribeWithoutAnAnswer: on a connection that has answered since it was idle, a SUBSCRIBE that is not
// answered may have taken effect; on one that has not, another connection is tried. So it is when the
// server speaks before it hangs up.
func TestSubscribeWithoutAnAnswer(t *testing.T) {
	for _, answered := range []bool{true, false} {
		t.Run(map[bool]string{true: "answered", false: "stale"}[answered], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mute atomic.Bool
				n, f := inMemory(t, func(c *nodetest.Conn, cmd []string) {
					if mute.Load() && cmd[0] == "SUBSCRIBE" && c.ID == 1 {
						return
					}
					c.Plain(cmd)
				})
				_, stop := nodetest.Subscribe(t, n, "c")
				stop()
				synctest.Wait()
				if answered {
					nodetest.Subscribe(t, n, "c")
				}
				mute.Store(true)
				out := make(chan error, 1)
				go func() {
					_, err := n.Subscribe(t.Context(), "d", func([]byte, error) {})
					out <- err
				}()
				synctest.Wait()
				f.Cut()
				if err := await(t, "the return", out); answered {
					want(t, "Subscribe", err, strategy.ErrUnknown)
				} else if err != nil {
					t.Errorf("Subscribe = %v, want nil on another connection", err)
				}
				if got, want := f.Dialled(), map[bool]int{true: 1, false: 2}[answered]; got != want {
					t.Errorf("%d connections, want %d", got, want)
				}
			})
		})
	}
}

// TestSubscribeRunsOut: a caller whose time ends learns what is known of his SUBSCRIBE, and hears nothing of
// it later.
func TestSubscribeRunsOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var conn atomic.Pointer[nodetest.Conn]
		n, f := inMemory(t, func(c *nodetest.Conn, cmd []string) { conn.Store(c) })
		n.sub.PongLimit = time.Hour
		began := time.Now()
		_, err := n.Subscribe(t.Context(), "c", func([]byte, error) { t.Error("fn was called") })
		want(t, "Subscribe that is not answered", err, strategy.ErrUnknown)
		if took := time.Since(began); took != subscription.ConfirmLimit || !strings.Contains(err.Error(), "no answer in time") || strings.Contains(err.Error(), "deadline exceeded: ") {
			t.Errorf("after %v: %v, want after %v that there was no answer in time", took, err, subscription.ConfirmLimit)
		}
		synctest.Wait()
		if f.Seen("UNSUBSCRIBE c") != 1 {
			t.Errorf("the server has seen %q, want it taken back", f.Log())
		}
		conn.Load().Plain([]string{"SUBSCRIBE", "c"})
		conn.Load().Message("c", "late")
		conn.Load().Plain([]string{"PING"})
		conn.Load().Plain([]string{"UNSUBSCRIBE", "c"})
		synctest.Wait()
		if !atRest(n) {
			t.Error("the connection is not at rest when all is answered")
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

// TestCloseWaits: for a call under way.
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
	})
}

// TestCloseBetween: a Subscribe that began before Close, and comes after it to the connection.
func TestCloseBetween(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		c, err := n.begin(t.Context(), soon())
		if err != nil {
			t.Fatal(err)
		}
		n.sub.Close()
		_, err = n.Subscribe(t.Context(), "c", nil)
		want(t, "Subscribe", err, strategy.ErrUnsent, strategy.ErrClosed)
		c.done()
		if f.Dialled() > 0 {
			t.Error("it has connected")
		}
	})
}

// TestCloseEndsStale: Close does not send a caller that waits on a connection that was idle to another one.
func TestCloseEndsStale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, func(c *nodetest.Conn, cmd []string) {
			if cmd[0] != "SUBSCRIBE" || cmd[1] != "never" {
				c.Plain(cmd)
			}
		})
		_, stop := nodetest.Subscribe(t, n, "c")
		stop()
		synctest.Wait()
		out := make(chan error, 1)
		go func() {
			_, err := n.Subscribe(context.WithoutCancel(t.Context()), "never", nil)
			out <- err
		}()
		synctest.Wait()
		n.Close()
		want(t, "Subscribe", await(t, "the return", out), strategy.ErrUnknown, strategy.ErrClosed)
		if f.Dialled() != 1 {
			t.Errorf("%d connections, want 1", f.Dialled())
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

// TestLateReader: one who learns late that his connection has ended leaves the next one alone.
func TestLateReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var conn atomic.Pointer[nodetest.Conn]
		n, f := inMemory(t, func(c *nodetest.Conn, cmd []string) {
			switch cmd[0] {
			case "SUBSCRIBE":
				conn.Store(c)
			case "SET":
				c.Say("-READONLY it\r\n")
				return
			}
			c.Plain(cmd)
		})
		let := make(chan struct{})
		stop, err := n.Subscribe(t.Context(), "c", func([]byte, error) { <-let })
		if err != nil {
			t.Fatal(err)
		}
		conn.Load().Message("c", "m")
		_, err = n.Do(t.Context(), soon(), "SET", "k", "v")
		want(t, "SET", err, strategy.ErrRefused)
		h, _ := nodetest.Subscribe(t, n, "c")
		close(let)
		stop()
		synctest.Wait()
		nodetest.Subscribe(t, n, "d")
		if got := f.Log(); got[len(got)-2] != "4 SUBSCRIBE c" || got[len(got)-1] != "4 SUBSCRIBE d" || !h.Silent() {
			t.Errorf("the server has seen %q, want the subscriptions on one connection", got)
		}
	})
}

// TestSubscribeBehindADial: a caller that comes while the connection is being made has sent nothing when it leaves.
func TestSubscribeBehindADial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		o := n.to.(single).client.Options()
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(time.Second)
			return dial(ctx, network, addr)
		}
		first := make(chan error, 1)
		go func() {
			_, err := n.Subscribe(context.Background(), "a", func([]byte, error) {})
			first <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := n.Subscribe(ctx, "b", nil)
		want(t, "Subscribe", err, strategy.ErrUnsent, context.DeadlineExceeded)
		if err := await(t, "the first", first); err != nil {
			t.Errorf("the first = %v, want nil", err)
		}
		if got := f.Dialled(); got != 1 {
			t.Errorf("%d connections, want 1", got)
		}
	})
}
