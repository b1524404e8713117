// Tests that what a Node has given up does nothing later, when servers freeze or the network is slow.
package rueidisnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

var release = driver.NewScript("release", `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

// The ghost: an acquire that timed out is read by the server after its undo, and leaves a key
// that nobody owns.
const (
	ghostTries = 4
	ghostOp    = 250 * time.Millisecond // the operation time-out
)

func TestNoGhost(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]*ghosts{
		"plain":           {},
		"AUTH and SELECT": {config: redistest.Config{Password: "s3cret", Database: 3}},
		"ready second":    {ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.start(t)
			for i := range ghostTries {
				if g.try(t, i) {
					t.Errorf("try %d: the key is there after its undo", i)
				}
				if !g.n.Ordered() {
					t.Fatal("Ordered = false, want true")
				}
			}
		})
	}
}

// An acquire that a slow network brings after its undo was answered on another connection finds
// its own connection dead. Without the KILL it takes the lock, which shows that this test can fail.
func TestLateBytesFindTheirConnectionDead(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{true, false} {
		srv := redistest.Own(t, redistest.Config{})
		var s spy
		n := newNode(t, s.options(optionsOf(t, srv)))
		n.unordered.Store(!ordered)
		echo(t, n, "before")
		old := s.last()
		old.hold()
		_, err := n.Do(t.Context(), time.Now().Add(50*time.Millisecond), "SET", "k", "tok", "NX", "PX", 60000)
		want(t, "SET that is stuck on its way", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
		reply, err := n.Eval(t.Context(), soon(), release, []string{"k"}, "tok")
		if err != nil || reply != int64(0) {
			t.Fatalf("undo = %v, %v, want 0: nothing is there yet", reply, err)
		}
		old.deliver()
		echo(t, n, "after")
		if got, ghost := redistest.Do(t, srv, "EXISTS", "k"), map[bool]int64{true: 0, false: 1}[ordered]; got != ghost {
			t.Errorf("ordered %v: EXISTS = %v after the late SET, want %d", ordered, got, ghost)
		}
		if n.Ordered() != ordered {
			t.Errorf("Ordered = %v, want %v", n.Ordered(), ordered)
		}
	}
}

type ghosts struct {
	config redistest.Config
	ready  bool // a connection that is there already comes next

	srv *redistest.Server
	spy spy
	n   *node
}

func (g *ghosts) start(t *testing.T) {
	g.srv = redistest.Own(t, g.config)
	g.n = newNode(t, g.spy.options(optionsOf(t, g.srv)))
}

// try acquires on a frozen server, undoes that as the engine does, and reports whether the
// key is there when it must not be.
func (g *ghosts) try(t *testing.T, i int) bool {
	t.Helper()
	ctx := t.Context()
	key := fmt.Sprintf("ghost:%d", i)
	if _, err := g.n.Do(ctx, soon(), "GET", key); err != nil {
		t.Fatal(err)
	}
	if g.ready { // the client's pool has one more
		before := g.spy.dialled()
		if err := g.n.Session(ctx, soon(), key, func(c driver.Conn) error { _, err := c.Do("PING"); return err }); err != nil {
			t.Fatal(err)
		}
		verdict.Eventually(t, "the session's connection is back", func() bool { return g.spy.dialled() >= before })
	}
	redistest.Skip(t, g.srv.Freeze(ctx), "no ghost keys after a freeze")
	if g.ready {
		// An empty line gets no answer, but puts the connection first in the line of those
		// that the server finds readable when it thaws.
		g.spy.mu.Lock()
		for _, c := range g.spy.conns {
			c.Conn.Write([]byte("\r\n"))
		}
		g.spy.mu.Unlock()
	}
	var err error
	verdict.Eventually(t, "a SET is sent to the frozen server", func() bool {
		_, err = g.n.Do(ctx, time.Now().Add(ghostOp), "SET", key, "tok", "NX", "PX", 5000)
		return !errors.Is(err, strategy.ErrUnsent) // a machine that is slow sends nothing in time
	})
	want(t, "SET on a frozen server", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)

	begun, undone := make(chan struct{}, 1000), make(chan struct{})
	go func() {
		defer close(undone)
		for {
			begun <- struct{}{}
			if g.undo(ctx, key) == nil || ctx.Err() != nil {
				return
			}
		}
	}()
	for range 1 + i%2 { // the thaw comes in the first undo, which is when it is worst, or in the second
		receive(t, "an undo", begun)
	}
	redistest.Must(t, g.srv.Thaw(ctx))
	receive(t, "the end of the undo", undone)
	// The bytes that lay in a socket at the thaw have been read by the time another connection has had an answer.
	redistest.Do(t, g.srv, "PING")
	return redistest.Do(t, g.srv, "EXISTS", key) == int64(1)
}

func (g *ghosts) undo(ctx context.Context, key string) error {
	_, err := g.n.Eval(ctx, time.Now().Add(ghostOp), release, []string{key}, "tok")
	return err
}

func TestDeadServerIsDialledOnce(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	var s spy
	n := newNode(t, s.options(optionsOf(t, srv)))
	echo(t, n, "before")
	redistest.Skip(t, srv.Kill(t.Context()), "how often a dead server is dialled")
	n.Do(t.Context(), soon(), "SET", "k", "v") // it may have left before that was known
	tried := func() int { s.mu.Lock(); defer s.mu.Unlock(); return s.tries }
	before := tried()
	_, err := n.Do(t.Context(), soon(), "SET", "k", "v")
	want(t, "SET to a dead server", err, strategy.ErrUnsent)
	if got := tried() - before; got != 1 {
		t.Errorf("%d dials for a request to a dead server, want 1", got)
	}
}
