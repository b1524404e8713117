// A cluster of two masters in memory: which of them is asked, how often, and what is left when one is lost.
package rueidisnode

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// Keys of the first and of the second master.
const ofFirst, ofSecond = "bar", "foo"

const slots = "*2\r\n*3\r\n:0\r\n:8191\r\n*2\r\n+a\r\n:1\r\n*3\r\n:8192\r\n:16383\r\n*2\r\n+b\r\n:1\r\n"

// twoMasters is a cluster's Node. The replies come in the place of the masters' own.
func twoMasters(t *testing.T, with rueidis.ClientOption, replies ...reply) (n *lending.Node, first, second *memory) {
	master := func(id string) *memory {
		return newMemory(t, append(replies, says("CLUSTER SLOTS", slots), says("CLUSTER MYID", "+"+id+"\r\n"), says("EXISTS", ":0\r\n"))...)
	}
	first, second = master("first"), master("second")
	with.InitAddress, with.DisableCache = []string{"a:1"}, true
	if with.Dialer.KeepAlive == 0 {
		with.Dialer = first.options().Dialer
	}
	with.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		m := map[string]*memory{"a:1": first, "b:1": second}[addr]
		return m.options().DialCtxFn(ctx, addr, d, c)
	}
	t.Cleanup(func() { time.Sleep(time.Minute) }) // the client looks for new masters a little longer
	n = New(clusterClientOf(t, with)).(*lending.Node)
	t.Cleanup(func() { n.Close() })
	return n, first, second
}

// A request or session that has a key goes to the key's master at once, and nothing goes to the other master.
func TestMasterOfTheKeyIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, first, second := twoMasters(t, rueidis.ClientOption{BlockingPoolSize: 2})
		script := driver.NewScript("one", "return 1")
		for range 10 {
			for key, m := range map[string]*memory{ofFirst: first, ofSecond: second} {
				other := map[*memory]*memory{first: second, second: first}[m]
				asked := other.asked.Load()
				_, err := n.Do(t.Context(), soon(), "SET", key, "v")
				noError(t, "SET", err)
				_, err = n.Eval(t.Context(), soon(), script, []string{key})
				noError(t, "Eval", err)
				noError(t, "Session", n.Session(t.Context(), soon(), key, func(c driver.Conn) error {
					_, err := c.Do("GET", key)
					return err
				}))
				if other.asked.Load() != asked {
					t.Fatalf("another master was asked about %s: %q", key, other.Log())
				}
			}
		}
		noError(t, "Session without a key", n.Session(t.Context(), soon(), "", func(c driver.Conn) error {
			_, err := c.Do("ECHO", "x")
			return err
		}))
		_, err := n.Do(t.Context(), soon(), "TIME", "")
		noError(t, "TIME", err)
		_, err = n.Eval(t.Context(), soon(), script, nil)
		noError(t, "Eval without keys", err)
		asked := first.asked.Load() + second.asked.Load()
		if returns := n.Probe(t.Context(), soon()); returns != 0 || first.asked.Load()+second.asked.Load() != asked {
			t.Errorf("Probe = %d, want 0, and nobody asked", returns)
		}
		wantSeen(t, first, "PING", 0)
		wantSeen(t, second, "PING", 0)
	})
}

// TRYAGAIN is asked again every 10 ms, until there is no time for that, the caller leaves, or Close.
func TestTryAgain(t *testing.T) {
	again := func(t *testing.T) (*lending.Node, *memory, *atomic.Bool) {
		var on atomic.Bool
		on.Store(true)
		n, first, _ := twoMasters(t, rueidis.ClientOption{}, when(&on, says("GET", "-TRYAGAIN x\r\n")), says("LPOP", "-WRONGTYPE x\r\n"))
		return n, first, &on
	}
	refused := func(t *testing.T, err error) {
		t.Helper()
		want(t, "GET", err, strategy.ErrRefused)
		if !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("GET = %v, want the server's words", err)
		}
	}
	tests := map[string]func(t *testing.T){
		"until due": func(t *testing.T) {
			n, m, _ := again(t)
			began := time.Now()
			_, err := n.Do(t.Context(), began.Add(55*time.Millisecond), "GET", ofFirst)
			refused(t, err)
			if took := time.Since(began); took != 50*time.Millisecond {
				t.Errorf("GET took %v, want 50ms", took)
			}
			wantSeen(t, m, "GET "+ofFirst, 6)
		},
		"due at the next": func(t *testing.T) {
			n, _, _ := again(t)
			_, err := n.Do(t.Context(), time.Now().Add(lending.TryAgainAfter), "GET", ofFirst)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("GET = %v, want that its time is up", err)
			}
		},
		"answered": func(t *testing.T) {
			n, m, on := again(t)
			time.AfterFunc(25*time.Millisecond, func() { on.Store(false) })
			_, err := n.Do(t.Context(), soon(), "GET", ofFirst)
			noError(t, "GET", err)
			wantSeen(t, m, "GET "+ofFirst, 4)
		},
		"the caller leaves": func(t *testing.T) {
			n, m, _ := again(t)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(25*time.Millisecond, cancel)
			_, err := n.Do(ctx, soon(), "GET", ofFirst)
			refused(t, err)
			wantSeen(t, m, "GET "+ofFirst, 3)
		},
		"Close": func(t *testing.T) {
			n, m, _ := again(t)
			time.AfterFunc(25*time.Millisecond, func() { n.Close() })
			_, err := n.Do(t.Context(), soon(), "GET", ofFirst)
			refused(t, err)
			wantSeen(t, m, "GET "+ofFirst, 3)
		},
		"other refusals": func(t *testing.T) {
			n, m, _ := again(t)
			_, err := n.Do(t.Context(), soon(), "LPOP", ofFirst)
			want(t, "LPOP", err, strategy.ErrRefused)
			wantSeen(t, m, "LPOP "+ofFirst, 1)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { bubble(t, test) })
	}
}

// A routed command that is not answered.
func TestRoutedCommandIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, first, second := twoMasters(t, rueidis.ClientOption{})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := n.Do(ctx, soon(), "HOLD", ofFirst)
		want(t, "HOLD of who leaves", err, strategy.ErrUnknown, cause)
		time.AfterFunc(time.Second, first.Cut)
		_, err = n.Do(t.Context(), soon(), "HOLD", ofFirst)
		want(t, "HOLD that is cut off", err, strategy.ErrUnknown, lending.ErrLost)
		began := time.Now()
		_, err = n.Do(t.Context(), began.Add(time.Second), "HOLD", ofFirst)
		want(t, "HOLD that is due", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		if errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("HOLD = %v after %v", err, time.Since(began))
		}
		refuse := func() error { return errDial }
		second.dial.Store(&refuse)
		second.Cut()
		n.Do(t.Context(), soon(), "SET", ofSecond) // by it the client learns that
		_, err = n.Do(t.Context(), soon(), "SET", ofSecond)
		want(t, "SET where nobody is", err, strategy.ErrUnsent, errDial)
	})
}

// Close ends a routed command, and nothing is sent any more.
func TestCloseOfARoutedNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, first, _ := twoMasters(t, rueidis.ClientOption{AlwaysPipelining: true}) // then the client can be interrupted
		got := call(n, t.Context(), soon(), "HOLD", ofFirst)
		receive(t, "HOLD", first.held)
		synctest.Wait()
		began := time.Now()
		n.Close()
		if took := time.Since(began); took >= lending.CloseGrace {
			t.Errorf("Close took %v", took)
		}
		want(t, "HOLD at Close", receive(t, "its end", got), strategy.ErrUnknown, strategy.ErrClosed)
		asked := first.asked.Load()
		_, err := n.Do(t.Context(), soon(), "SET", ofFirst)
		want(t, "SET after Close", err, strategy.ErrUnsent, strategy.ErrClosed)
		_, err = n.Subscribe(t.Context(), ofFirst, nil)
		want(t, "Subscribe after Close", err, strategy.ErrUnsent, strategy.ErrClosed)
		synctest.Wait()
		if first.asked.Load() != asked {
			t.Errorf("after Close the server was asked: %q", first.Log())
		}
	})
}

// Each master has one connection for all its channels, and is asked every three seconds about them.
func TestMastersAreAskedAboutChannels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var moved, forbids, silent atomic.Bool
		n, first, second := twoMasters(t, rueidis.ClientOption{BlockingPoolSize: 3}, // one each for subscriptions, the question where, and one more
			when(&moved, says("EXISTS "+ofFirst, "-MOVED 5061 b:1\r\n")), when(&forbids, says("EXISTS", "-NOPERM x\r\n")), when(&silent, says("EXISTS", "")))
		h, _ := nodetest.Subscribe(t, n, ofFirst)
		time.Sleep(time.Second)
		same, stop := nodetest.Subscribe(t, n, "x{"+ofFirst+"}")
		other, _ := nodetest.Subscribe(t, n, ofSecond)
		for range 10 { // each asks where that is, and gives that connection back
			_, stop := nodetest.Subscribe(t, n, ofFirst)
			stop()
		}
		if conns, _ := n.Sub.Connections(); conns != 2 {
			t.Errorf("%d connections, want one to each master", conns)
		}
		exists := func(when string, firsts, seconds int) {
			t.Helper()
			synctest.Wait()
			wantSeen(t, first, "EXISTS "+ofFirst, firsts)
			wantSeen(t, second, "EXISTS", seconds)
		}
		time.Sleep(lending.CheckSlotsEvery - 1 - time.Second)
		exists("before", 0, 0)
		time.Sleep(time.Nanosecond)
		exists("three seconds after the first", 1, 0)
		wantSeen(t, first, "EXISTS x", 1)
		time.Sleep(lending.CheckSlotsEvery)
		exists("three more", 2, 1)
		forbids.Store(true)
		time.Sleep(lending.CheckSlotsEvery)
		exists("where that is forbidden", 3, 2)
		forbids.Store(false)
		if !h.Silent() || !same.Silent() || !other.Silent() {
			t.Error("a subscription has ended")
		}
		moved.Store(true)
		time.Sleep(lending.CheckSlotsEvery)
		synctest.Wait()
		want(t, "the end of the subscription that has moved", receive(t, "it", h.Ends), strategy.ErrUnknown, subscription.ErrMoved)
		if !same.Silent() || !other.Silent() {
			t.Error("another subscription has ended")
		}
		wantSeen(t, first, "UNSUBSCRIBE "+ofFirst, 1)
		stop()
		before := first.Seen("EXISTS")
		time.Sleep(3 * lending.CheckSlotsEvery)
		if first.Seen("EXISTS") != before {
			t.Error("a server is asked about no channel")
		}
		if other.Silent() {
			silent.Store(true)
		}
		began := time.Now()
		err := receive(t, "the end", other.Ends)
		want(t, "the end at a silent server", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		if took := time.Since(began); took > lending.CheckSlotsEvery+subscription.ConfirmLimit {
			t.Errorf("a silent server was found out after %v", took)
		}
		again, _ := nodetest.Subscribe(t, n, "x{"+ofFirst+"}") // as the connection has stayed
		time.Sleep(lending.CheckSlotsEvery)
		synctest.Wait()
		if first.Seen("EXISTS") != before+1 {
			t.Errorf("%d EXISTS for a new subscription, want 1", first.Seen("EXISTS")-before)
		}
		n.Close()
		want(t, "the end at Close", receive(t, "it", again.Ends), strategy.ErrUnknown, strategy.ErrClosed)
		asked := first.asked.Load()
		time.Sleep(2 * lending.CheckSlotsEvery)
		if first.asked.Load() != asked {
			t.Error("a server is asked after Close")
		}
	})
}

// To a server that does not tell who it is, the Node makes a connection for each channel. When a server refuses
// for a moment to tell, Subscribe fails.
func TestMasterDoesNotTellWhoItIs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var busy atomic.Bool
		n, first, second := twoMasters(t, rueidis.ClientOption{}, when(&busy, says("CLUSTER MYID", "-BUSY x\r\n")), says("CLUSTER MYID", "-NOPERM x\r\n"))
		for range 2 {
			nodetest.Subscribe(t, n, ofFirst)
			nodetest.Subscribe(t, n, "x{"+ofFirst+"}")
		}
		if conns, _ := n.Sub.Connections(); conns != 2 {
			t.Errorf("%d connections for two channels", conns)
		}
		busy.Store(true)
		asked := func() int { return first.Seen("CLUSTER MYID") + second.Seen("CLUSTER MYID") }
		before := asked()
		_, err := n.Subscribe(t.Context(), "y{"+ofFirst+"}", nil)
		want(t, "Subscribe at a busy server", err, strategy.ErrUnsent)
		synctest.Wait()
		if got := asked() - before; got != 1 {
			t.Errorf("a busy cluster was asked %d times, want 1", got)
		}
	})
}
