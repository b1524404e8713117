// Tests what a node sends, what it makes of each kind of reply, and what its errors say when no reply comes.
package goredisnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/client"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// TestNewAllows: -1 is go-redis' word for no limit of its own.
func TestNewAllows(t *testing.T) {
	t.Parallel()
	nodeOf(t, clientOf(t, &redis.Options{ContextTimeoutEnabled: true, ReadTimeout: -1}))
	nodeOf(t, clientOf(t, &redis.Options{ContextTimeoutEnabled: true, WriteTimeout: -1}))
}

// TestErrorReplies: in a transaction other commands took effect next to one that was refused.
func TestErrorReplies(t *testing.T) {
	for reply, want := range map[string]error{
		"GET -OOM no":                              strategy.ErrRefused,
		"GET *2\r\n:1\r\n-ERR no":                  strategy.ErrUnknown,
		"GET *2\r\n:1\r\n*1\r\n-ERR no":            strategy.ErrUnknown,
		"EXEC *2\r\n:1\r\n-ERR no":                 strategy.ErrUnknown,
		"EXEC -OOM no":                             strategy.ErrUnknown,
		"exec -OOM no":                             strategy.ErrUnknown,
		"EXEC -EXECABORT Transaction discarded no": strategy.ErrRefused,
		"EXEC -ERR no EXEC without MULTI":          strategy.ErrRefused,
	} {
		t.Run(reply, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				cmd, raw, _ := strings.Cut(reply, " ")
				n, f := inMemory(t, func(c *nodetest.Conn, cmd []string) {
					if cmd[0] == "HELLO" {
						c.Plain(cmd)
						return
					}
					c.Say("%s\r\n", raw)
				})
				f.Protocol = 3
				err := n.Session(t.Context(), soon(), "k", func(c driver.Conn) error { return second(c.Do(cmd)) })
				nodetest.Want(t, cmd, err, want)
				if !strings.Contains(err.Error(), " no") || strings.Contains(raw, "*") != strings.Contains(err.Error(), "element 1") {
					t.Errorf("%s = %v, want the server's words, and which element", cmd, err)
				}
				if got := f.Log(); len(got) != 1 || got[0] != "1 "+strings.ToUpper(cmd) {
					t.Errorf("the server has seen %q, want %s alone", got, cmd)
				}
			})
		})
	}
}

// TestNotAgain: a node writes a command neither twice nor after its caller has left, and its error says why.
func TestNotAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		n.to.(single).client.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "set" {
				return errors.New("later")
			}
			return next(ctx, cmd)
		}))
		_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
		want(t, "SET", err, strategy.ErrUnsent)
		if !strings.Contains(err.Error(), "later") {
			t.Errorf("SET = %v, want the hook's words", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		c, err := n.begin(ctx, soon())
		redistest.Must(t, err)
		defer c.done()
		for progress, words := range map[int32]error{queued: nil, sending: errNotAgain, dropped: errNotAgain} {
			cmd := newCommand(c, "GET", []any{nil, "k"})
			cmd.progress.Store(progress)
			if text, err := (*verb)(cmd).MarshalBinary(); err != words || (err == nil) != (string(text) == "GET") {
				t.Errorf("in state %d: %q, %v, want %v", progress, text, err, words)
			}
		}
		enough := errors.New("enough")
		cancel(enough)
		cmd := newCommand(c, "GET", []any{nil, "k"})
		if text, err := (*verb)(cmd).MarshalBinary(); err != enough || text != nil || cmd.progress.Load() != queued {
			t.Errorf("when its caller has left: %q, %v, in state %d, want %v", text, err, cmd.progress.Load(), enough)
		}
		if f.Seen("SET") != 0 {
			t.Error("SET was sent")
		}
	})
}

// TestWhy: what ended a call comes first; what says the same in other words is left out.
func TestWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, _ := inMemory(t, (*nodetest.Conn).Plain)
		other := errors.New("other")
		for _, c := range []struct {
			user, due bool // which has ended
			err       error
			want      string
		}{
			{false, false, other, "other"},
			{false, false, context.Canceled, "context canceled"},
			{true, false, other, "enough: other"},
			{true, false, fmt.Errorf("dial: %w", context.Canceled), "enough"},
			{true, false, fmt.Errorf("dial: %w", context.DeadlineExceeded), "enough"},
			{false, true, context.DeadlineExceeded, "no answer in time"},
			{false, true, other, "no answer in time: other"},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			due := time.Now()
			if c.user {
				cancel(errors.New("enough"))
			}
			if !c.due {
				due = soon()
			}
			call := &call{n: n, user: ctx, due: due}
			if got := call.why(c.err); got.Error() != c.want || !c.user && !c.due && got != c.err {
				t.Errorf("why of %+v = %v", c, got)
			}
			cancel(nil)
		}
		n.Close()
		call := &call{n: n, user: t.Context(), due: soon()}
		if got := call.why(other); !errors.Is(got, strategy.ErrClosed) || !errors.Is(got, other) {
			t.Errorf("why after Close = %v, want %v, and %v", got, strategy.ErrClosed, other)
		}
	})
}

// TestSaid: a node passes on go-redis' words. It adds that a connection ended before the reply, and leaves
// out the arguments of an unknown command.
func TestSaid(t *testing.T) {
	t.Parallel()
	other := errors.New("ERR no")
	for _, c := range []struct {
		err  error
		lost bool // the connection is
		want string
	}{
		{other, false, "ERR no"},
		{io.EOF, true, "the connection ended before the reply: EOF"},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), true, "the connection ended before the reply: read: unexpected EOF"},
		{errors.New("ERR user said HELLO 3 AUTH user s3cret"), false, "ERR user said HELLO 3 AUTH user (password)"},
		{errors.New("ERR unknown command `AUTH`, with args beginning with: `user` `s3cret`"), false, "ERR unknown command `AUTH`"},
	} {
		got := client.Discreet(lost(c.err), "s3cret")
		if got.Error() != c.want || (c.lost || c.err == other) != errors.Is(got, c.err) {
			t.Errorf("the node reports %v as %v, want %s", c.err, got, c.want)
		}
	}
}

// TestHungUp: only where the other side has ended a connection, another is made to hear why.
func TestHungUp(t *testing.T) {
	t.Parallel()
	reset := os.NewSyscallError("read", syscall.ECONNRESET)
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.New("ERR no"), false},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, false},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, false},
		{&net.OpError{Op: "read", Err: reset}, true},
		{reset, true},
		{fmt.Errorf("greeting: %w", io.EOF), true},
	} {
		if got := hungUp(c.err); got != c.want {
			t.Errorf("hungUp(%v) = %v", c.err, got)
		}
	}
}

// TestProbeCounts: only an answered HELLO counts what has ended, a refused one, too.
func TestProbeCounts(t *testing.T) {
	for words, want := range map[string]uint64{"*0\r\n": 0, "-LOADING it\r\n": 0, "": 7} {
		t.Run(words, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n, _ := inMemory(t, func(c *nodetest.Conn, cmd []string) { c.Say("%s", words) })
				n.returns = 7
				for range 2 {
					if got := n.Probe(t.Context(), time.Now().Add(time.Second)); got != want {
						t.Errorf("Probe = %d, want %d", got, want)
					}
				}
			})
		})
	}
}

// TestWarms: where calls have run out of time, one connection is made behind them, once more if that has
// failed; but none where there is one that is idle.
func TestWarms(t *testing.T) {
	t.Run("command", func(t *testing.T) {
		warms(t, func(t *testing.T, n *node, due time.Time) error {
			return second(n.Do(t.Context(), due, "SET", "k", "v"))
		})
	})
	t.Run("session", func(t *testing.T) {
		warms(t, func(t *testing.T, n *node, due time.Time) error {
			return n.Session(t.Context(), due, "k", func(c driver.Conn) error { return second(c.Do("SET", "k", "v")) })
		})
	})
}

func warms(t *testing.T, send func(t *testing.T, n *node, due time.Time) error) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		f.Protocol = 3
		call := func() error { return send(t, n, time.Now().Add(100*time.Millisecond)) }
		warming := func() int {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(n.warming)
		}
		f.Greet = 2 * warmLimit
		for range 10 {
			want(t, "SET", call(), strategy.ErrUnsent)
		}
		if got := warming(); got != 1 {
			t.Errorf("%d connections are being made, want 1", got)
		}
		time.Sleep(4 * warmLimit)
		synctest.Wait()
		if got := warming(); got != 0 {
			t.Errorf("%d connections are being made after %v, want none", got, 4*warmLimit)
		}
		f.Greet = time.Second
		for range 5 {
			want(t, "SET", call(), strategy.ErrUnsent)
		}
		time.Sleep(warmLimit)
		if err := call(); err != nil {
			t.Errorf("SET = %v, want nil on the connection that was made", err)
		}
		if got := f.Seen("PING"); got != 1 {
			t.Errorf("%d PINGs, want 1", got)
		}
	})
}

// TestDoesNotWarm: an idle connection is enough.
func TestDoesNotWarm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n, f := inMemory(t, (*nodetest.Conn).Plain)
		n.to.(single).client.AddHook(onSet(func() { time.Sleep(2 * time.Second) }))
		idle(t, n, 2)
		_, err := n.Do(t.Context(), time.Now().Add(time.Second), "SET", "k", "v")
		want(t, "SET", err, strategy.ErrUnsent)
		synctest.Wait()
		if got := f.Seen("PING"); got != 0 {
			t.Errorf("%d PINGs, want none", got)
		}
	})
}

// TestCallLeavesNothing: what belongs to a call that has ended, its Node does not keep.
func TestCallLeavesNothing(t *testing.T) {
	t.Parallel()
	n := to(t, "redis://127.0.0.1:1")
	left := ended(t, n)
	runtime.GC()
	if left.Value() != nil {
		t.Error("the context of a call that has ended is still there")
	}
}

// bounded is a context that has a deadline of its own, so that a call needs no timer, which may stay a while.
type boundedContext struct {
	context.Context
	deadline time.Time
}

func (c *boundedContext) Deadline() (time.Time, bool) { return c.deadline, true }

// ended is the context of a call that has ended.
//
//go:noinline
func ended(t *testing.T, n *node) weak.Pointer[boundedContext] {
	ctx := &boundedContext{context.Background(), time.Now().Add(time.Second)}
	c, err := n.begin(ctx, soon())
	redistest.Must(t, err)
	c.done()
	if c.ctx.Err() == nil {
		t.Error("the call's context has not ended with it")
	}
	return weak.Make(ctx)
}
