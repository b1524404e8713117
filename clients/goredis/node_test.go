// A node at its edges: single sending, hooks, contexts, pools, sessions, names.
package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// TestSentOnce: whatever becomes of a reply, go-redis with its retries does not send the
// request again. The node does after READONLY, once.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"no reply":    "",
		"half of one": "$5\r\nab",
		"not a reply": "what?\r\n",
		"huge":        "$9223372036854775000\r\n",
		"loading":     "-LOADING it\r\n",
		"readonly":    "-READONLY it\r\n",
		"try again":   "-TRYAGAIN it\r\n",
		"moved":       "-MOVED 1 127.0.0.1:1\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
				if cmd[0] == "HELLO" {
					c.Plain(cmd)
					return
				}
				if c.Say("%s", reply); reply == "" || reply[0] != '-' {
					c.Close()
				}
			})
			n := nodeOf(t, clientOf(t, optionsOf(f)))
			kind := strategy.ErrUnknown
			if strings.HasPrefix(reply, "-") {
				kind = strategy.ErrRefused
			}
			_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
			want(t, "SET", err, kind)
			n = nodeOf(t, clientOf(t, optionsOf(f))) // or its connection may be the one that has just ended
			err = n.Session(t.Context(), soon(), "k", func(c driver.Conn) error {
				_, err := c.Do("SET", "k", "w")
				if _, again := c.Do("SET", "k", "x"); kind == strategy.ErrUnknown {
					want(t, "another on a connection that broke", again, strategy.ErrUnsent)
				}
				return err
			})
			want(t, "SET in a session", err, kind)
			once := 1
			if name == "readonly" {
				once = 2 // on another connection
			}
			if f.Seen("SET k v") != once || f.Seen("SET k w") != 1 {
				t.Errorf("the server has seen %q, want each command once", f.Log())
			}
			if kind == strategy.ErrUnknown && f.Seen("SET k x") != 0 {
				t.Error("a session went on on another connection")
			}
		})
	}
}

// againHook runs each command twice, as a hook of a user may that retries.
type againHook struct{}

func (againHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (againHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "set" && fmt.Sprint(cmd.Args()[0]) == "SET" {
			next(ctx, cmd) //nolint:errcheck // again
		}
		return next(ctx, cmd)
	}
}
func (againHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// dropHook passes nothing on.
type dropHook struct{ againHook }

func (dropHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return nil }
}

func TestHooks(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	again, dropping := clientOf(t, optionsOf(f)), clientOf(t, optionsOf(f))
	again.AddHook(againHook{})
	_, err := nodeOf(t, again).Do(t.Context(), soon(), "SET", "k", "v")
	want(t, "SET with a hook that retries", err, strategy.ErrUnknown)
	if got := f.Seen("SET k v"); got != 1 {
		t.Errorf("sent %d times, want once", got)
	}
	dropping.AddHook(dropHook{})
	_, err = nodeOf(t, dropping).Do(t.Context(), soon(), "SET", "k", "w")
	want(t, "SET with a hook that answers", err, strategy.ErrUnsent)
	if got := f.Seen("SET k w"); got != 0 {
		t.Errorf("sent %d times, want never", got)
	}
}

// TestContext: a ctx that ends, at each point of a call that has begun.
func TestContext(t *testing.T) {
	t.Parallel()
	cause := errors.New("enough")
	arrived, answer := make(chan string, 10), make(chan struct{})
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] == "SET" {
			arrived <- cmd[1]
			<-answer
		}
		c.Plain(cmd)
	})
	o := optionsOf(f)
	o.PoolSize = 1
	n := nodeOf(t, clientOf(t, o))
	set := func(ctx context.Context, due time.Time, key string) <-chan error {
		out := make(chan error, 1)
		go func() {
			_, err := n.Do(ctx, due, "SET", key, "v")
			out <- err
		}()
		return out
	}

	// Another has the only connection.
	first := set(t.Context(), soon(), "first")
	await(t, "the first", arrived)
	ctx, cancel := context.WithCancelCause(t.Context())
	waiting := set(ctx, soon(), "b")
	cancel(cause)
	want(t, "while it waits for a connection", await(t, "return", waiting), strategy.ErrUnsent, cause)
	want(t, "due while it waits", await(t, "return", set(t.Context(), time.Now().Add(20*time.Millisecond), "b")), strategy.ErrUnsent)
	answer <- struct{}{}
	if err := await(t, "return", first); err != nil {
		t.Errorf("the first = %v, want its reply", err)
	}

	// Between the connection and the request.
	ctx, cancel = context.WithCancelCause(t.Context())
	late := optionsOf(f)
	late.OnConnect = func(context.Context, *redis.Conn) error { cancel(cause); return nil }
	_, err := nodeOf(t, clientOf(t, late)).Do(ctx, soon(), "SET", "b", "v")
	want(t, "before it is written", err, strategy.ErrUnsent, cause)

	// Sent: the reply still counts.
	ctx, cancel = context.WithCancelCause(t.Context())
	sent := set(ctx, soon(), "c")
	await(t, "the request", arrived)
	cancel(cause)
	answer <- struct{}{}
	if err := await(t, "return", sent); err != nil {
		t.Errorf("answered after its ctx has ended = %v, want the reply", err)
	}

	// Sent, and never answered.
	began := time.Now()
	sent = set(t.Context(), began.Add(50*time.Millisecond), "d")
	await(t, "the request", arrived)
	want(t, "not answered", await(t, "return", sent), strategy.ErrUnknown, os.ErrDeadlineExceeded)
	if took := time.Since(began); took > nodetest.Generous/2 {
		t.Errorf("it took %v, due was in 50 ms", took)
	}
	close(answer)
	if f.Seen("SET b") > 0 {
		t.Errorf("the server has seen %q, want none of b", f.Log())
	}
}

// TestPoolExhausted: locks share the pool with the rest of the program.
func TestPoolExhausted(t *testing.T) {
	t.Parallel()
	o := options(t, redistest.Shared(t).URL())
	o.PoolSize = 1
	client := clientOf(t, o)
	locks := clienttest.Strategy(t, fairqueue.On(nodeOf(t, client)), strategy.Options{TTL: time.Minute, OpTimeout: 200 * time.Millisecond})
	var lease strategy.Lease
	verdict.Eventually(t, "the lock is had", func() (ok bool) { // on a busy machine that takes longer
		var err error
		lease, err = locks.NewLock(t.Name()).TryAcquire(t.Context())
		return err == nil
	})
	kept := client.Conn()
	if err := kept.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	want(t, "Extend without a connection", lease.Extend(t.Context()), strategy.ErrUnsent)
	_, err := locks.NewLock(t.Name() + "2").TryAcquire(t.Context())
	want(t, "TryAcquire without a connection", err, strategy.ErrUnsent)
	kept.Close()
	verdict.Eventually(t, "it is extended", func() bool { return lease.Extend(t.Context()) == nil })
	verdict.Eventually(t, "it is released", func() bool {
		err := lease.Release(t.Context())
		return err == nil || errors.Is(err, strategy.ErrReleased)
	})
}

// TestConnectTogether: sessions and commands that connect at the same time share no option of the
// client without its lock. The race detector is the judge.
func TestConnectTogether(t *testing.T) {
	t.Parallel()
	for range 20 {
		n := to(t, redistest.Shared(t).URL())
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				ask := func() error {
					_, err := n.Do(t.Context(), soon(), "EXISTS", t.Name())
					return err
				}
				if i%2 == 0 {
					ask = func() error {
						return n.Session(t.Context(), soon(), t.Name(), func(c driver.Conn) error {
							_, err := c.Do("EXISTS", t.Name())
							return err
						})
					}
				}
				if err := ask(); err != nil {
					t.Errorf("caller %d = %v, want nil", i, err)
				}
			})
		}
		callers.Wait()
	}
}

// TestSlowGreeting: a connection that takes longer to make than a call may take is made behind
// the calls, which would otherwise never get through.
func TestSlowGreeting(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	f.Greet = 300 * time.Millisecond
	const op = 100 * time.Millisecond
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	_, err := n.Do(t.Context(), time.Now().Add(op), "SET", "k", "v")
	want(t, "the first", err, strategy.ErrUnsent, os.ErrDeadlineExceeded)
	verdict.Eventually(t, "a call gets through", func() bool {
		_, err := n.Do(t.Context(), time.Now().Add(op), "SET", "k", "v")
		return err == nil
	})

	n = nodeOf(t, clientOf(t, optionsOf(f)))
	verdict.Eventually(t, "a session gets through", func() bool {
		return n.Session(t.Context(), time.Now().Add(op), "k", func(c driver.Conn) error {
			_, err := c.Do("SET", "k", "v")
			return err
		}) == nil
	})
}

// TestSession: its connection goes back clean, and only the session's while it lasts.
func TestSession(t *testing.T) {
	t.Parallel()
	o := options(t, redistest.Shared(t).URL())
	o.PoolSize = 1
	client := clientOf(t, o)
	n := nodeOf(t, client)
	key := t.Name()
	redistest.Do(t, redistest.Shared(t), "SET", key, "other")
	var kept driver.Conn
	for _, leave := range [][]any{{"WATCH", key}, {"MULTI"}} {
		err := n.Session(t.Context(), soon(), key, func(c driver.Conn) error {
			kept = c
			_, err := c.Do(leave[0].(string), leave[1:]...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := kept.Do("PING")
	want(t, "a command after the session", err, strategy.ErrUnsent)
	if !strings.Contains(err.Error(), "the session is over") {
		t.Errorf("a command after the session = %v, want that it is over", err)
	}
	for range 3 {
		if got, err := n.Do(t.Context(), soon(), "GET", key); err != nil || string(got.([]byte)) != "other" {
			t.Errorf("GET = %s, %v, want other", got, err)
		}
	}
	if stats := client.PoolStats(); stats.TotalConns != 1 {
		t.Errorf("%d connections, want 1: none was closed, none is left", stats.TotalConns)
	}
}

// TestSessionUnclean: a connection that cannot be cleaned, or of which a command was not
// answered, is not given to others.
func TestSessionUnclean(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"DISCARD", "SET"} {
		var lent sync.Map // the connections that a session has had
		f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
			switch _, unclean := lent.Load(c); {
			case cmd[0] == "MULTI":
				lent.Store(c, true)
				c.Plain(cmd)
			case unclean && cmd[0] == "GET":
				c.Say("-ERR in the middle of something\r\n")
			case cmd[0] == "DISCARD":
				c.Say("-NOPERM it\r\n")
			case cmd[0] != "SET":
				c.Plain(cmd)
			}
		})
		o := optionsOf(f)
		o.PoolSize = 1
		n := nodeOf(t, clientOf(t, o))
		err := n.Session(t.Context(), time.Now().Add(100*time.Millisecond), "k", func(c driver.Conn) error {
			c.Do("MULTI") //nolint:errcheck // what follows tells
			if last == "SET" {
				c.Do("SET", "k", "v") //nolint:errcheck // it is not answered
			}
			return nil
		})
		if err != nil {
			t.Errorf("Session = %v, want what fn returns", err)
		}
		if _, err := n.Do(t.Context(), soon(), "GET", "k"); err != nil {
			t.Errorf("after %s: GET = %v, want a new connection", last, err)
		}
	}
}

// TestClose: it ends what waits, lets nothing begin, and leaves the client open.
func TestClose(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}, 10), make(chan struct{})
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] == "SET" {
			arrived <- struct{}{}
			<-answer
		}
		c.Plain(cmd)
	})
	o := optionsOf(f)
	o.PoolSize = 1
	client := clientOf(t, o)
	n := New(client).(*node)
	heard := make(chan error, 10)
	stop, err := n.Subscribe(t.Context(), "c", func(_ []byte, err error) { heard <- err })
	if err != nil {
		t.Fatal(err)
	}
	sent, waiting := make(chan error, 1), make(chan error, 1)
	go func() { _, err := n.Do(t.Context(), soon(), "SET", "a", "v"); sent <- err }()
	await(t, "the first", arrived)
	go func() { _, err := n.Do(t.Context(), soon(), "SET", "b", "v"); waiting <- err }()
	verdict.Eventually(t, "the other waits", func() bool { return client.PoolStats().PendingRequests > 0 })
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	want(t, "the caller that waits for a connection", await(t, "return", waiting), strategy.ErrUnsent, strategy.ErrClosed)
	want(t, "the subscriber", await(t, "the end", heard), strategy.ErrUnknown, strategy.ErrClosed)
	close(answer)
	if err := await(t, "return", sent); err != nil {
		t.Errorf("what was sent = %v, want its reply", err)
	}
	if err := await(t, "return", closed); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if err := n.Close(); err != nil {
		t.Errorf("Close again = %v, want nil", err)
	}
	stop()
	if err := client.Get(t.Context(), "a").Err(); err != nil {
		t.Errorf("the client's GET = %v, want it open", err)
	}
}

// TestUnixSocket: the address is the client's matter.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "redis.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := redistest.Shared(t)
	var piped sync.WaitGroup
	piped.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			piped.Go(func() { io.Copy(far, near); far.Close() })  //nolint:errcheck // until either ends
			piped.Go(func() { io.Copy(near, far); near.Close() }) //nolint:errcheck // until either ends
		}
	})
	t.Cleanup(func() { ln.Close(); piped.Wait() })
	o := options(t, s.URL())
	o.Network, o.Addr = "unix", ln.Addr().String()
	locks, err := fairqueue.New(nodeOf(t, clientOf(t, o)), strategy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	err = strategy.Do(t.Context(), locks.NewLock(t.Name()), func(context.Context, strategy.Lease) error { return nil })
	if err != nil {
		t.Errorf("Do = %v, want nil", err)
	}
}

// TestName: errors say whose they are.
func TestName(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	if got := to(t, s.URL()).Name(); got != s.Addr() {
		t.Errorf("Name() = %s, want %s", got, s.Addr())
	}
}

// TestSentinelNames: several masters behind Sentinels are several servers, though go-redis
// knows no address of theirs.
func TestSentinelNames(t *testing.T) {
	t.Parallel()
	var nodes []driver.Node
	for _, master := range []string{"a", "b", "c"} {
		nodes = append(nodes, nodeOf(t, failoverClient(t, master, []string{"127.0.0.1:1"})))
	}
	if _, err := redlock.New(nodes, strategy.Options{}); err != nil {
		t.Errorf("New = %v, want nil", err)
	}
}

func failoverClient(t *testing.T, master string, sentinels []string) *redis.Client {
	t.Helper()
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: master, SentinelAddrs: sentinels, ContextTimeoutEnabled: true,
	})
	closeWith(t, c)
	return c
}
