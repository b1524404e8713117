// A Node whose server is in memory and whose time is virtual: what turns on a moment, or on what the
// server says at it.
package rueidisnode

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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

// A memory is a server in memory. It answers HOLD when the test does.
type memory struct {
	*nodetest.Server
	held  chan *nodetest.Conn
	asked atomic.Int32                 // commands, without the client's greetings
	dial  atomic.Pointer[func() error] // comes before each connection
}

// reply answers a command in the place of Plain, or says that it does not.
type reply func(c *nodetest.Conn, cmd string) bool

func newMemory(t *testing.T, replies ...reply) *memory {
	m := &memory{held: make(chan *nodetest.Conn, 100)}
	m.Server = nodetest.NewInMemory(t, func(c *nodetest.Conn, words []string) {
		m.asked.Add(1)
		cmd := strings.Join(words, " ")
		for _, r := range replies {
			if r(c, cmd) {
				return
			}
		}
		if words[0] == "HOLD" {
			m.held <- c
			return
		}
		c.Plain(words)
	})
	m.Protocol = 3
	return m
}

// says answers commands that begin so; none: it does not answer.
func says(prefix, resp string) reply {
	return func(c *nodetest.Conn, cmd string) bool {
		if !strings.HasPrefix(cmd, prefix) {
			return false
		}
		c.Say("%s", resp)
		return true
	}
}

// when has a reply only while on is true.
func when(on *atomic.Bool, r reply) reply {
	return func(c *nodetest.Conn, cmd string) bool { return on.Load() && r(c, cmd) }
}

func (m *memory) options() rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:  []string{m.Addr},
		DisableCache: true,
		Dialer:       net.Dialer{KeepAlive: time.Hour}, // no PING but the Node's
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if dial := m.dial.Load(); dial != nil {
				if err := (*dial)(); err != nil {
					return nil, err
				}
			}
			return m.Dial(ctx)
		},
	}
}

func (m *memory) node(t *testing.T) *lending.Node { return newNode(t, m.options()) }

// call is a Do in a goroutine.
func call(n *lending.Node, ctx context.Context, due time.Time, cmd, key string) <-chan error {
	out := make(chan error, 1)
	go func() {
		_, err := n.Do(ctx, due, cmd, key)
		out <- err
	}()
	return out
}

// lose has a command get no reply on the Node's connection.
func (m *memory) lose(t *testing.T, n *lending.Node) {
	t.Helper()
	_, err := n.Do(t.Context(), time.Now().Add(time.Millisecond), "HOLD", "lost")
	want(t, "a command without a reply", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
	<-m.held
}

func wantSeen(t *testing.T, m *memory, prefix string, n int) {
	t.Helper()
	if got := m.Seen(prefix); got != n {
		t.Errorf("the server saw %d of %s, want %d: %q", got, prefix, n, m.Log())
	}
}

func noError(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s = %v", what, err)
	}
}

// Who is alone reads for himself: it has the reply though its context has ended.
func TestLoneCallerStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
		n := m.node(t)
		echo(t, n, "before")
		synctest.Wait()
		for range 100 {
			echo(t, n, "x")
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := call(n, ctx, soon(), "HOLD", "k")
		c := receive(t, "HOLD", m.held)
		cancel()
		synctest.Wait()
		c.Say("+OK\r\n")
		noError(t, "HOLD", receive(t, "its end", got))
		// The reply is lost: it hears of both.
		cause := errors.New("enough")
		why, end := context.WithCancelCause(t.Context())
		got = call(n, why, soon(), "HOLD", "k")
		c = receive(t, "HOLD", m.held)
		end(cause)
		synctest.Wait()
		c.Close()
		want(t, "HOLD that is lost", receive(t, "its end", got), strategy.ErrUnknown, cause, lending.ErrLost)
	})
}

// A caller who leaves a queue or a batch gets an error that says why, once, and the others get their replies.
func TestCallersLeaveABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
		n := m.node(t)
		echo(t, n, "before")
		alone := call(n, t.Context(), soon(), "HOLD", "1")
		c := receive(t, "HOLD", m.held)
		once := func(what string, err, kind error) {
			t.Helper()
			want(t, what, err, kind, os.ErrDeadlineExceeded)
			if got := strings.Count(err.Error(), "no answer in time"); got != 1 {
				t.Errorf("%s = %v, want one reason", what, err)
			}
		}
		queued := call(n, t.Context(), time.Now().Add(time.Second), "HOLD", "2")
		once("the caller that leaves the queue", receive(t, "its end", queued), strategy.ErrUnsent)
		ctx, cancel := context.WithCancel(t.Context())
		leaver := call(n, ctx, soon(), "HOLD", "3")
		synctest.Wait()
		late, stays := call(n, t.Context(), time.Now().Add(time.Second), "HOLD", "4"), call(n, t.Context(), soon(), "HOLD", "5")
		synctest.Wait()
		c.Say("+OK\r\n")
		noError(t, "the caller that is alone", receive(t, "its end", alone))
		for range 3 {
			receive(t, "HOLD", m.held)
		}
		cancel()
		want(t, "the caller that leaves the batch", receive(t, "its end", leaver), strategy.ErrUnknown, context.Canceled)
		once("the late caller in the batch", receive(t, "its end", late), strategy.ErrUnknown)
		// What they have left may still happen: a session waits for it.
		began := make(chan bool, 1)
		session := make(chan error, 1)
		go func() {
			session <- n.Session(t.Context(), soon(), "k", func(driver.Conn) error { began <- true; return nil })
		}()
		synctest.Wait()
		if len(began) > 0 {
			t.Error("a session has overtaken those who left")
		}
		c.Say("+OK\r\n+OK\r\n+OK\r\n")
		noError(t, "who stays", receive(t, "its end", stays))
		noError(t, "the session", receive(t, "its end", session))
		wantSeen(t, m, "HOLD 2", 0)
		wantSeen(t, m, "PING", 1)
		synctest.Wait()
		noError(t, "the next session", n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }))
		wantSeen(t, m, "PING", 1) // nothing is left to wait for
		if m.Dialled() != 3 {
			t.Errorf("%d connections, want the client's own, the pipe and one for sessions", m.Dialled())
		}
	})
}

// A connection whose reply comes too late is not used again.
func TestLateReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
		n := m.node(t)
		echo(t, n, "before")
		lost := call(n, t.Context(), time.Now().Add(time.Millisecond), "HOLD", "k")
		c := receive(t, "HOLD", m.held)
		want(t, "HOLD", receive(t, "its end", lost), strategy.ErrUnknown)
		c.Say("+OK\r\n")
		synctest.Wait()
		echo(t, n, "after")
		if got := m.Dialled(); got != 3 {
			t.Errorf("%d connections, want the client's own, the pipe's, and another", got)
		}
	})
}

// A connection is trusted for a second, and then asked; also one of an idle caller.
func TestRestedConnectionIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
		n := m.node(t)
		for i, after := range []time.Duration{0, lending.ProbeAfter - 1, lending.ProbeAfter, 0, 2 * lending.ProbeAfter} {
			time.Sleep(after)
			echo(t, n, "x")
			synctest.Wait()
			wantSeen(t, m, "PING", []int{0, 0, 1, 1, 2}[i])
		}
	})
}

// What a server says to a new connection: what will pass is no reason to give up the order.
func TestGreetings(t *testing.T) {
	const info, kill = "CLIENT INFO", "CLIENT KILL ID 1 ADDR 0.0.0.0:0"
	for _, c := range []struct {
		to, says string
		kind     error // nil: the request goes on
		ordered  bool
		name     string
	}{
		{"", "", nil, true, "memory:1"},
		{info, "-LOADING x\r\n", strategy.ErrUnsent, true, driver.Unnamed},
		{info, "-BUSY x\r\n", strategy.ErrUnsent, true, driver.Unnamed},
		{info, "-MASTERDOWN x\r\n", strategy.ErrUnsent, true, driver.Unnamed},
		{info, "-ERR max number of clients reached\r\n", strategy.ErrUnsent, true, driver.Unnamed},
		{info, "-NOAUTH x\r\n", strategy.ErrUnsent, true, driver.Unnamed},
		{info, "-DENIED x\r\n", strategy.ErrUnsent, true, driver.Unnamed},
		{kill, "-LOADING x\r\n", strategy.ErrUnsent, true, driver.Unnamed},
		{info, "-NOPERM x\r\n", nil, false, driver.Unnamed},
		{info, "-ERR unknown subcommand\r\n", nil, false, driver.Unnamed},
		{info, "+id=7\r\n", nil, false, driver.Unnamed},
		{info, "+addr=a:1\r\n", nil, false, driver.Unnamed},
		{info, "+id=7 addr=a:1 laddr=\r\n", nil, true, driver.Unnamed},
		{kill, "-NOPERM x\r\n", nil, false, "memory:1"},
		{"HELLO", "*1\r\n+proto\r\n", nil, true, "memory:1"},
	} {
		t.Run(c.to+c.says, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemory(t, func(conn *nodetest.Conn, cmd string) bool {
					return c.to != "" && says(c.to, c.says)(conn, cmd)
				})
				o := m.options()
				o.InitAddress = []string{"a:1"}
				n := lendingNode(t, sentinel{newClient(t, o)})
				_, err := n.Do(t.Context(), soon(), "ECHO", "x")
				if c.kind == nil {
					noError(t, "ECHO", err)
				} else {
					want(t, "ECHO", err, c.kind)
				}
				if n.Ordered() != c.ordered || n.Name() != c.name {
					t.Errorf("Ordered() = %v, Name() = %s, want %v, %s", n.Ordered(), n.Name(), c.ordered, c.name)
				}
				synctest.Wait()
				if kept := m.Open() == 2; kept != (c.kind == nil) { // with the client's own
					t.Errorf("%d connections are open", m.Open())
				}
			})
		})
	}
}

// Where there is no order a new connection is asked for a sign of life alone.
func TestGreetingWithoutOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var loading atomic.Bool
		loading.Store(true)
		m := newMemory(t, when(&loading, says("HELLO", "-MASTERDOWN x\r\n")))
		n := m.node(t)
		n.Unordered.Store(true)
		_, err := n.Do(t.Context(), soon(), "ECHO", "x")
		want(t, "ECHO of a server that is loading", err, strategy.ErrUnsent)
		synctest.Wait()
		loading.Store(false)
		echo(t, n, "x")
		if got := m.asked.Load(); got != 4 { // HELLO, and PING as the client closes that connection; HELLO, ECHO
			t.Errorf("the server was asked %d commands, want 4", got)
		}
		// Without order the Node kills no connection on which the server did not answer a command.
		m.lose(t, n)
		noError(t, "a session", n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }))
		echo(t, n, "x")
		wantSeen(t, m, "CLIENT KILL", 0)
	})
}

// A new connection that is not answered is given up after five seconds, which is no end of a caller's context.
func TestGreetingIsNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t, says("CLIENT INFO", ""))
		for what, ask := range map[string]func(n *lending.Node) error{
			"Do":        func(n *lending.Node) error { _, err := n.Do(t.Context(), soon(), "ECHO", "x"); return err },
			"Session":   func(n *lending.Node) error { return n.Session(t.Context(), soon(), "k", nil) },
			"Subscribe": func(n *lending.Node) error { _, err := n.Subscribe(t.Context(), "c", nil); return err },
		} {
			began := time.Now()
			err := ask(m.node(t))
			want(t, what, err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
			if took := time.Since(began); took != lending.BringLimit || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s = %v after %v, want a time-out of the Node's after %v", what, err, took, lending.BringLimit)
			}
		}
	})
}

// A client whose connections all die gets no new ones for ever.
func TestNotOneConnectionLives(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t, func(c *nodetest.Conn, cmd string) bool { c.Close(); return true })
		n := m.node(t)
		before := m.Dialled()
		_, err := n.Do(t.Context(), soon(), "ECHO", "x")
		want(t, "ECHO", err, strategy.ErrUnsent)
		if got := m.Dialled() - before; got != lending.MaxDead+1 {
			t.Errorf("%d connections, want %d", got, lending.MaxDead+1)
		}
		// Who has left needs none.
		before = m.Dialled()
		ctx, cancel := context.WithCancel(t.Context())
		refuse := func() error { cancel(); return nil }
		m.dial.Store(&refuse)
		err = n.Session(ctx, soon(), "k", nil)
		want(t, "Session", err, strategy.ErrUnsent, context.Canceled)
		synctest.Wait()
		if got := m.Dialled() - before; got != 1 {
			t.Errorf("%d connections for a caller who has left, want 1", got)
		}
	})
}

// A server that is lost is dialled once for each request.
func TestDeadServerIsDialledOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
		n := m.node(t)
		dials := 0
		refuse := func() error { dials++; return errDial }
		m.dial.Store(&refuse)
		_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
		want(t, "SET to a dead server", err, strategy.ErrUnsent, errDial)
		if dials != 1 {
			t.Errorf("%d dials, want 1", dials)
		}
	})
}

// The Node has the server kill a connection that it has given up before it sends anything else, whatever the
// server replies to that.
func TestKillOfWhatWasGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		says    string
		kind    error // of the request behind it
		ordered bool
	}{
		"done":      {":1\r\n", nil, true},
		"none":      {":0\r\n", nil, true},
		"passing":   {"-BUSY x\r\n", strategy.ErrUnsent, true},
		"forbidden": {"-NOPERM x\r\n", nil, false},
		"no reply":  {"", strategy.ErrUnsent, true},
	} {
		for _, by := range []string{"Do", "Session"} {
			t.Run(name+" of "+by, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var on atomic.Bool
					on.Store(true)
					m := newMemory(t, func(conn *nodetest.Conn, cmd string) bool {
						return on.Load() && !strings.Contains(cmd, "0.0.0.0:0") && says("CLIENT KILL", c.says)(conn, cmd)
					})
					o := m.options()
					o.BlockingPoolSize = 3 // what is not closed is missed
					n := newNode(t, o)
					for range 4 {
						on.Store(false)
						echo(t, n, "before")
						if by == "Do" {
							m.lose(t, n)
						} else {
							n.Session(t.Context(), time.Now().Add(time.Millisecond), "k", func(c driver.Conn) error {
								_, err := c.Do("HOLD", "lost")
								want(t, "a command without a reply", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
								<-m.held
								return nil
							})
						}
						on.Store(true)
						before := m.Seen("CLIENT KILL")
						_, err := n.Do(t.Context(), time.Now().Add(lending.BringLimit+time.Second), "SET", "k")
						if c.kind == nil {
							noError(t, "SET behind it", err)
						} else {
							want(t, "SET behind it", err, c.kind)
						}
						if n.Ordered() != c.ordered {
							t.Errorf("Ordered() = %v, want %v", n.Ordered(), c.ordered)
						}
						if got := m.Seen("CLIENT KILL") - before; got != 1 {
							t.Errorf("%d KILLs, want 1", got)
						}
						synctest.Wait()
						if !c.ordered {
							return
						}
					}
				})
			})
		}
	}
}

// Probe tells of each connection that took the place of one that was lost, or led to a replica, once, and asks nothing more
// than it must.
func TestProbeCounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var replicas atomic.Int32
		m := newMemory(t, func(c *nodetest.Conn, cmd string) bool {
			return c.ID <= int(replicas.Load()) && says("HELLO", "*2\r\n+role\r\n+replica\r\n")(c, cmd)
		})
		n := m.node(t)
		wantReturns := func(what string, returns uint64, pings int) {
			t.Helper()
			if got := n.Probe(t.Context(), soon()); got != returns {
				t.Errorf("%s: Probe = %d, want %d", what, got, returns)
			}
			wantSeen(t, m, "PING", pings)
		}
		wantReturns("at first", 0, 0)
		m.Cut()
		wantReturns("after a loss", 1, 0)
		time.Sleep(2 * lending.ProbeAfter) // the pipe has another look at its connection
		wantReturns("once more", 1, 1)
		time.Sleep(2 * lending.ProbeAfter)
		m.Cut()
		synctest.Wait()
		wantReturns("after a death at rest", 2, 1)
		if m.lose(t, n); n.Probe(t.Context(), soon()) != 3 {
			t.Error("a lost reply does not count")
		}
		if replicas.Store(int32(m.Dialled())); n.Probe(t.Context(), soon()) != 4 {
			t.Error("a connection to a replica does not count")
		}
	})
}

// A connection that died at rest is closed, not kept: the client's pool has room for one.
func TestDeadConnectionLeavesThePool(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var silent atomic.Bool
		m := newMemory(t, when(&silent, says("", "")))
		o := m.options()
		o.BlockingPoolSize = 1
		n := newNode(t, o)
		echo(t, n, "before")
		time.Sleep(2 * lending.ProbeAfter)
		silent.Store(true)
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "ECHO", "x")
		want(t, "ECHO of a silent server", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
		time.Sleep(2 * lending.BringLimit)
		silent.Store(false)
		echo(t, n, "after")
	})
}

// Close: what is under way ends at once, and nothing stays open.
func TestCloseInMemory(t *testing.T) {
	closes := func(t *testing.T, n *lending.Node, within time.Duration) {
		t.Helper()
		began := time.Now()
		noError(t, "Close", n.Close())
		if took := time.Since(began); took != within {
			t.Errorf("Close took %v, want %v", took, within)
		}
	}
	dialling := func(ask func(t *testing.T, n *lending.Node) <-chan error) func(t *testing.T, m *memory, n *lending.Node) {
		return func(t *testing.T, m *memory, n *lending.Node) {
			let := make(chan bool)
			wait := func() error { <-let; return nil }
			m.dial.Store(&wait)
			waits := ask(t, n)
			synctest.Wait()
			closes(t, n, lending.CloseGrace)
			want(t, "what waits for a connection", receive(t, "its end", waits), strategy.ErrUnsent, strategy.ErrClosed)
			close(let)
			time.Sleep(time.Second)
			synctest.Wait()
			if m.Open() != 1 {
				t.Errorf("%d connections are open, want the client's own", m.Open())
			}
		}
	}
	for name, test := range map[string]func(t *testing.T, m *memory, n *lending.Node){
		"of a new Node": func(t *testing.T, m *memory, n *lending.Node) { closes(t, n, 0) },
		"at rest": func(t *testing.T, m *memory, n *lending.Node) {
			echo(t, n, "x")
			nodetest.Subscribe(t, n, "c")
			closes(t, n, 0)
			synctest.Wait()
			if m.Open() != 1 {
				t.Errorf("%d connections are open, want the client's own", m.Open())
			}
		},
		"with calls": func(t *testing.T, m *memory, n *lending.Node) {
			echo(t, n, "x")
			sent := call(n, t.Context(), soon(), "HOLD", "sent")
			receive(t, "HOLD", m.held)
			queued := call(n, t.Context(), soon(), "HOLD", "queued")
			synctest.Wait()
			dialled := m.Dialled()
			m.Serve(func(*nodetest.Conn, []string) {}) // nor does it answer when the client closes the connection
			began := time.Now()
			noError(t, "Close", n.Close())
			want(t, "what was sent", receive(t, "its end", sent), strategy.ErrUnknown, strategy.ErrClosed)
			want(t, "what was queued", receive(t, "its end", queued), strategy.ErrUnsent, strategy.ErrClosed)
			synctest.Wait()
			if took := time.Since(began); took > lending.CloseGrace {
				t.Errorf("Close took %v", took)
			}
			if m.Seen("HOLD queued") != 0 || m.Dialled() != dialled {
				t.Error("what was queued was sent, or a connection made for it")
			}
		},
		"with a dial": dialling(func(t *testing.T, n *lending.Node) <-chan error {
			return call(n, t.Context(), soon(), "ECHO", "x")
		}),
		"with a dial for a subscription": dialling(func(t *testing.T, n *lending.Node) <-chan error {
			return subscribing(n, t.Context(), "c", never(t))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemory(t)
				test(t, m, m.node(t))
			})
		})
	}
}

// Tests what a session does with its connection when commands fail.
func TestSessionsConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
		o := m.options()
		o.BlockingPoolSize = 2 // one is the pipe's
		n := newNode(t, o)
		echo(t, n, "x")
		in := func(fn func(c driver.Conn) error) {
			t.Helper()
			noError(t, "Session", n.Session(t.Context(), soon(), "k", fn))
			synctest.Wait()
		}
		ping := func(c driver.Conn) error { _, err := c.Do("ECHO", "x"); return err }
		in(ping)
		dialled := m.Dialled()
		var kept driver.Conn
		in(func(c driver.Conn) error { kept = c; return ping(c) })
		if m.Dialled() != dialled {
			t.Error("a clean connection was not lent again")
		}
		asked := m.asked.Load()
		_, err := kept.Do("SET", "k")
		want(t, "a command after the session", err, strategy.ErrUnsent)
		if m.asked.Load() != asked || !strings.Contains(err.Error(), "over") {
			t.Errorf("a command after the session = %v, and was sent: %v", err, m.asked.Load() != asked)
		}
		for range 3 {
			in(func(c driver.Conn) error {
				closed := make(chan bool)
				go func() { (<-m.held).Close(); close(closed) }()
				_, err := c.Do("HOLD", "k")
				want(t, "a command that is lost", err, strategy.ErrUnknown, lending.ErrLost)
				<-closed
				_, err = c.Do("SET", "k")
				want(t, "a command after that", err, strategy.ErrUnsent, lending.ErrLost)
				return nil
			})
		}
		in(ping)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		err = n.Session(ctx, soon(), "k", func(c driver.Conn) error {
			go func() { d := <-m.held; cancel(cause); d.Close() }()
			_, err := c.Do("HOLD", "k")
			return err
		})
		want(t, "a lost command of a caller that has left", err, strategy.ErrUnknown, cause, lending.ErrLost)
	})
}

// A session after a lost reply waits for an answer, which may be a refusal.
func TestSessionSettles(t *testing.T) {
	for name, c := range map[string]struct {
		to, says string
		want     error
	}{
		"refused":    {"PING", "-NOPERM x\r\n", nil},
		"no reply":   {"PING", "", strategy.ErrUnsent},
		"not killed": {"CLIENT KILL ID 2", "-BUSY x\r\n", strategy.ErrUnsent},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := newMemory(t, says(c.to, c.says))
				n := m.node(t)
				echo(t, n, "x")
				m.lose(t, n)
				begun := false
				err := n.Session(t.Context(), time.Now().Add(time.Second), "k", func(driver.Conn) error { begun = true; return nil })
				if c.want == nil {
					noError(t, "Session", err)
				} else {
					want(t, "Session", err, c.want)
				}
				if begun != (c.want == nil) {
					t.Errorf("begun = %v", begun)
				}
			})
		})
	}
}

// A session that waits for the client ends with its caller, at due, or with Close.
func TestSessionWaitsForAConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t)
		o := m.options()
		o.BlockingPoolSize = 1
		client := newClient(t, o)
		n := New(client).(*lending.Node)
		n.Session(t.Context(), soon(), "k", func(driver.Conn) error {
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			err := n.Session(ctx, soon(), "k", nil)
			want(t, "Session of who leaves", err, strategy.ErrUnsent, cause)
			if n.Silent.Recent() {
				t.Error("connections count as silent after a caller has left early")
			}
			began := time.Now()
			err = n.Session(t.Context(), began.Add(time.Second), "k", nil)
			want(t, "Session that is due", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
			if errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second || !n.Silent.Recent() {
				t.Errorf("Session = %v after %v, and connections count as silent: %v", err, time.Since(began), n.Silent.Recent())
			}
			go n.Close()
			err = n.Session(t.Context(), soon(), "k", nil)
			want(t, "Session at Close", err, strategy.ErrUnsent, strategy.ErrClosed)
			return nil
		})
		synctest.Wait()
		// All of them have given back what came too late.
		n = New(client).(*lending.Node)
		noError(t, "Session", n.Session(t.Context(), soon(), "k", func(driver.Conn) error { return nil }))
		n.Close()
	})
}

// A session that meets an old connection to what is a replica now begins on a new one. Where that leads to a replica,
// too, the session does not begin, and asks for no more connections. Subscriptions end.
func TestSessionAtAReplica(t *testing.T) {
	for name, c := range map[string]struct {
		info    string // what CLIENT INFO says; empty: as usual
		before  bool   // there was a session on the connection before
		stays   bool   // new connections lead to a replica, too
		dialled int    // connections in all
	}{
		"new":                                {"", false, true, 3},
		"given back":                         {"", true, false, 4},
		"given back, CLIENT INFO is refused": {"-NOPERM x\r\n", true, false, 4},
		"given back, and stays":              {"", true, true, 4},
		"old, and not lent before":           {"+id=7 addr=a:1 age=5\r\n", false, false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var demoted atomic.Bool
				m := newMemory(t, func(conn *nodetest.Conn, cmd string) bool {
					role := "master"
					if demoted.Load() && (c.stays || conn.ID <= 3) { // the client's own, the subscription's, and one more
						role = "replica"
					}
					// The id is the same for all, as a server that restarts gives each once more.
					return says("HELLO", "*4\r\n+id\r\n:7\r\n+role\r\n+"+role+"\r\n")(conn, cmd) ||
						c.info != "" && says("CLIENT INFO", c.info)(conn, cmd)
				})
				n := m.node(t)
				h, _ := nodetest.Subscribe(t, n, "c")
				begun := 0
				session := func() error {
					return n.Session(t.Context(), soon(), "k", func(driver.Conn) error { begun++; return nil })
				}
				if c.before {
					noError(t, "Session", session())
					synctest.Wait()
				}
				demoted.Store(true)
				begun = 0
				err, begins := session(), 1
				if c.stays {
					want(t, "Session", err, strategy.ErrRefused)
					begins = 0
				} else {
					noError(t, "Session", err)
				}
				want(t, "the subscription's end", receive(t, "it", h.Ends), strategy.ErrUnknown, subscription.ErrReplaced)
				synctest.Wait()
				if begun != begins || m.Dialled() != c.dialled || m.Open() != begins+1 { // that of the session is idle
					t.Errorf("fn was called %d times, and %d of %d connections are open, want %d, %d of %d",
						begun, m.Open(), m.Dialled(), begins, begins+1, c.dialled)
				}
			})
		})
	}
}

// What only raw RESP has.
func TestRawReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMemory(t, func(c *nodetest.Conn, cmd string) bool {
			raw, ok := strings.CutPrefix(cmd, "SAY ")
			if ok {
				c.Say("%s", raw)
			}
			return ok
		})
		n := m.node(t)
		for raw, wanted := range map[string]string{
			"%1\r\n+a\r\n:1\r\n":            "[[97] 1] <nil>",
			"+abc:d\r\n":                    "[97 98 99 58 100] <nil>",
			",0.5\r\n":                      "[48 46 53] <nil>",
			"=5\r\ntxt:x\r\n":               "[120] <nil>",
			"#f\r\n":                        "0 <nil>",
			"#t\r\n":                        "1 <nil>",
			"_\r\n":                         "<nil> <nil>",
			"%1\r\n:1\r\n:2\r\n":            "unknown",
			"%1\r\n+a\r\n-ERR x\r\n":        "unknown",
			"%1\r\n+a\r\n*1\r\n-ERR x\r\n":  "unknown",
			"*2\r\n:1\r\n-READONLY x\r\n":   "unknown",
			"*1\r\n%1\r\n+a\r\n-ERR x\r\n":  "unknown",
			"-ERR x\r\n":                    "refused",
			"*1\r\n*2\r\n+x\r\n:3\r\n":      "[[[120] 3]] <nil>",
			"%2\r\n+b\r\n:1\r\n+a\r\n_\r\n": "[[97] <nil> [98] 1] <nil>",
			"~1\r\n#t\r\n":                  "[1] <nil>",
			"(12345678901234567890123\r\n":  "[49 50 51 52 53 54 55 56 57 48 49 50 51 52 53 54 55 56 57 48 49 50 51] <nil>",
		} {
			got, err := n.Do(t.Context(), soon(), "SAY", raw)
			said := fmt.Sprint(got, " ", err)
			for kind, name := range map[error]string{strategy.ErrUnknown: "unknown", strategy.ErrRefused: "refused"} {
				if errors.Is(err, kind) {
					said = name
				}
			}
			if said != wanted {
				t.Errorf("%q = %s (%v), want %s", raw, said, err, wanted)
			}
		}
	})
}
