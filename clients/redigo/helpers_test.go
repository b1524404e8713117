// All tests of package node use these helpers.
package redigonode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

const generous = nodetest.Generous

var (
	soon = nodetest.Soon
	want = nodetest.Want
	echo = nodetest.Echo
)

var release = driver.NewScript("release",
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	return nodetest.Receive(t, what, c)
}

// bubble runs a test in a bubble: its time takes no time. Servers in it are in memory. It fails if
// somebody has waited for as long as is generous.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		defer func() {
			if took := time.Since(start); took >= generous {
				t.Errorf("this took %v of the bubble's time, want less than %v", took, generous)
			}
		}()
		test(t)
	})
}

// bubbled is bubble in a subtest.
func bubbled(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, test) })
}

func newNode(t testing.TB, pool *redis.Pool) *node {
	t.Helper()
	n := New(pool).(*node)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	})
	return n
}

// nodeOn is a node of a server in memory.
func nodeOn(t *testing.T, serve func(c *nodetest.Conn, cmd []string)) (*node, *nodetest.Server) {
	t.Helper()
	f := nodetest.NewInMemory(t, serve)
	return newNode(t, poolOf(f)), f
}

func poolOf(s *nodetest.Server) *redis.Pool {
	return &redis.Pool{
		MaxIdle: 4,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			nc, err := s.Dial(ctx)
			if err != nil {
				return nil, err
			}
			return redis.NewConn(nc, 0, 0), nil
		},
	}
}

// dial is a Dial that knows no context.
func dial(s *nodetest.Server) (redis.Conn, error) { return poolOf(s).DialContext(context.Background()) }

// A hooked connection has these called, where they are set, in the place of its own methods.
type hooked struct {
	redis.ConnWithTimeout
	send  func(c redis.ConnWithTimeout, cmd string, args ...any) error
	flush func(c redis.ConnWithTimeout) error
	close func(c redis.ConnWithTimeout) error
}

func (h *hooked) Send(cmd string, args ...any) error {
	if h.send == nil {
		return h.ConnWithTimeout.Send(cmd, args...)
	}
	return h.send(h.ConnWithTimeout, cmd, args...)
}

func (h *hooked) Flush() error {
	if h.flush == nil {
		return h.ConnWithTimeout.Flush()
	}
	return h.flush(h.ConnWithTimeout)
}

func (h *hooked) Close() error {
	if h.close == nil {
		return h.ConnWithTimeout.Close()
	}
	return h.close(h.ConnWithTimeout)
}

// hook is a pool whose connections are hooked.
func hook(f *nodetest.Server, hooks func(h *hooked)) *redis.Pool {
	return &redis.Pool{Dial: func() (redis.Conn, error) {
		c, err := dial(f)
		if err != nil {
			return nil, err
		}
		h := &hooked{ConnWithTimeout: c.(redis.ConnWithTimeout)}
		hooks(h)
		return h, nil
	}}
}

// locked runs f with the pipe's lock.
func locked(n *node, f func(p *pipe)) {
	n.pipe.mu.Lock()
	defer n.pipe.mu.Unlock()
	f(&n.pipe)
}

// age makes the node's connection look unused for d.
func age(n *node, d time.Duration) {
	locked(n, func(p *pipe) { p.wire.lastReply, p.wire.born = time.Now().Add(-d), p.wire.born.Add(-d) })
}

// lend opens an empty session.
func lend(ctx context.Context, n *node, due time.Time) error {
	return n.Session(ctx, due, "k", func(driver.Conn) error { return nil })
}

// begin calls a command, and gives its outcome to the channel: a reply is one, too.
func begin(n *node, ctx context.Context, due time.Time, cmd, key string) <-chan error {
	c := make(chan error, 1)
	go func() { c <- outcome(n.Do(ctx, due, cmd, key)) }()
	return c
}

// outcome is that of a call as one value.
func outcome(reply any, err error) error {
	if err == nil {
		return fmt.Errorf("reply %q", reply)
	}
	return err
}

// wantReply fails the test unless that reply is the outcome.
func wantReply(t *testing.T, out <-chan error, text string) {
	t.Helper()
	if err, own := receive(t, "a return", out), fmt.Sprintf("reply %q", text); err.Error() != own {
		t.Errorf("the outcome is %v, want %s", err, own)
	}
}

// wantFailed ends the test unless the outcome is an error of these kinds.
func wantFailed(t *testing.T, what string, out <-chan error, kinds ...error) {
	t.Helper()
	want(t, what, receive(t, what+": its return", out), kinds...)
}

// holding is a node of a server in memory that answers HOLD when told to.
func holding(t *testing.T) (n *node, f *nodetest.Server, held chan *nodetest.Conn) {
	t.Helper()
	held = make(chan *nodetest.Conn, 100)
	n, f = nodeOn(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] == "HOLD" {
			held <- c
			return
		}
		c.Plain(cmd)
	})
	return n, f, held
}

// hold calls HOLD.
func hold(n *node, ctx context.Context, due time.Time) <-chan error {
	return begin(n, ctx, due, "HOLD", "k")
}

// leaveBehind has a call leave before its reply: that is in flight then, and nobody waits.
func leaveBehind(t *testing.T, n *node, held chan *nodetest.Conn) *nodetest.Conn {
	t.Helper()
	first := hold(n, t.Context(), soon())
	c := receive(t, "first HOLD", held)
	ctx, cancel := context.WithCancel(t.Context())
	second := hold(n, ctx, soon())
	receive(t, "second HOLD", held)
	cancel()
	receive(t, "second's return", second)
	c.Bulk("first")
	receive(t, "first's return", first)
	return c
}

func wantSeen(t *testing.T, f *nodetest.Server, want ...string) {
	t.Helper()
	if got := f.Log(); !slices.Equal(got, want) {
		t.Fatalf("server saw\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func wantDials(t *testing.T, f *nodetest.Server, dials int) {
	t.Helper()
	if got := f.Dialled(); got != dials {
		t.Errorf("%d connections, want %d", got, dials)
	}
}
