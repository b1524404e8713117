// A node at its edges: single sending, hooks, contexts, pools, sessions, names.
package goredisnode

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// A hook has each command of a client, and sends it on by next, or not.
type hook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// onSet is a hook that does something before it passes a SET on.
func onSet(do func()) hook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "set" {
			do()
		}
		return next(ctx, cmd)
	}
}

// counts is a hook that counts commands.
func counts(n *atomic.Int64) hook {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		n.Add(1)
		return next(ctx, cmd)
	}
}

func TestHooks(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	again, dropping := clientOf(t, optionsOf(f)), clientOf(t, optionsOf(f))
	again.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error { // as a user's may that retries
		if cmd.Name() == "set" {
			next(ctx, cmd) //nolint:errcheck // again
		}
		return next(ctx, cmd)
	}))
	_, err := nodeOf(t, again).Do(t.Context(), soon(), "SET", "k", "v")
	want(t, "SET with a hook that retries", err, strategy.ErrUnknown)
	if got := f.Seen("SET k v"); got != 1 {
		t.Errorf("sent %d times, want once", got)
	}
	dropping.AddHook(hook(func(context.Context, redis.Cmder, redis.ProcessHook) error { return nil }))
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
	sent = set(t.Context(), began.Add(2*time.Second), "d")
	await(t, "the request", arrived)
	want(t, "not answered", await(t, "return", sent), strategy.ErrUnknown, os.ErrDeadlineExceeded)
	if took := time.Since(began); took > nodetest.Generous/2 {
		t.Errorf("it took %v, due was in 2 s", took)
	}
	close(answer)
	if f.Seen("SET b") > 0 {
		t.Errorf("the server has seen %q, want none of b", f.Log())
	}
}

// TestConnectTogether: sessions and commands that connect at the same time, of a client and of one that is derived from it,
// share no option of the client without its lock. The race detector is the judge.
func TestConnectTogether(t *testing.T) {
	t.Parallel()
	for range 20 {
		o := options(t, redistest.Shared(t).URL())
		client := clientOf(t, o)
		derived := NewDerived(client).(*node)
		n := nodeOf(t, client)
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				var err error
				switch i % 4 {
				case 0:
					err = client.Exists(t.Context(), t.Name()).Err()
				case 1:
					_, err = derived.Do(t.Context(), soon(), "EXISTS", t.Name())
				case 2:
					_, err = n.Do(t.Context(), soon(), "EXISTS", t.Name())
				default:
					err = n.Session(t.Context(), soon(), t.Name(), func(c driver.Conn) error { return second(c.Do("EXISTS", t.Name())) })
				}
				if err != nil {
					t.Errorf("caller %d = %v, want nil", i, err)
				}
			})
		}
		callers.Wait()
		derived.Close()
	}
}

// TestSession: its connection goes back to the pool, and nothing is sent on it once the session is over.
func TestSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		for range 3 {
			var kept driver.Conn
			redistest.Must(t, n.Session(t.Context(), soon(), "k", func(c driver.Conn) error { kept = c; return second(c.Do("WATCH", "k")) }))
			_, err := kept.Do("SET", "k", "v")
			want(t, "a command after the session", err, strategy.ErrUnsent)
			if !strings.Contains(err.Error(), "the session is over") {
				t.Errorf("a command after the session = %v, want that it is over", err)
			}
			redistest.Must(t, second(n.Do(t.Context(), soon(), "GET", "k")))
		}
		if f.Dialled() != 1 || f.Seen("SET") > 0 {
			t.Errorf("%d connections, and the server has seen %q, want 1: none was closed", f.Dialled(), f.Log())
		}
	})
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
		var err error
		for begun := false; !begun; { // on a slow machine the time may be over before fn begins
			err = n.Session(t.Context(), time.Now().Add(100*time.Millisecond), "k", func(c driver.Conn) error {
				begun = true
				c.Do("MULTI") //nolint:errcheck // what follows tells
				if last == "SET" {
					c.Do("SET", "k", "v") //nolint:errcheck // it is not answered
				}
				return nil
			})
		}
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
	redistest.Must(t, err)
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
