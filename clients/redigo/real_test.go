// The node on real servers: frozen ones that thaw, killed connections, full sockets.
package redigonode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// The ghost: an acquire that timed out is read by the server after its undo, and
// leaves a key that nobody owns.
const (
	ghostTries = 6
	ghostOp    = 250 * time.Millisecond // the operation time-out
)

// needsKill skips a test that is about CLIENT KILL or ACL on a server without them.
func needsKill(t *testing.T, what string) {
	t.Helper()
	c := redistest.Shared(t).Pool().Get()
	defer c.Close()
	if _, err := c.Do("CLIENT", "KILL", "ID", 1, "ADDR", "0.0.0.0:0"); err != nil {
		t.Skipf("NOT PROVEN: %s: %v", what, err)
	}
}

func TestNoGhost(t *testing.T) {
	t.Parallel()
	needsKill(t, "that a thawed server holds no ghost")
	for name, g := range map[string]ghosts{
		"plain":           {},
		"AUTH and SELECT": {config: redistest.Config{Password: "s3cret", Database: 3}},
		"ready second":    {ready: true},
		"Unix socket":     {ready: true, socket: "a socket"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.start(t)
			for i := range ghostTries {
				if !g.n.Ordered() {
					t.Fatal("Ordered = false, want true")
				}
				if g.try(t, i) {
					t.Errorf("try %d: the key is there after its undo", i)
				}
			}
		})
	}
}

// The same by a schedule: the network delivers a request after its undo. Without the KILL that
// leaves a ghost, so the KILL is what prevents it.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	needsKill(t, "that the kill is what prevents ghosts")
	for name, ordered := range map[string]bool{"killed": true, "not killed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Own(t, redistest.Config{})
			verdict.Conclusive(t, func() verdict.Slow {
				redistest.Do(t, srv, "DEL", "k")
				dialled := make(chan *late, 100)
				n := newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
					c, err := net.Dial("tcp", srv.Addr())
					if err != nil {
						return nil, err
					}
					t.Cleanup(func() { c.Close() })
					l := &late{Conn: c, held: make(chan []byte, 10)}
					dialled <- l
					return redis.NewConn(l, 0, 0), nil
				}})
				n.unordered.Store(!ordered)
				echo(t, n, "warm")
				l := receive(t, "the first connection", dialled)
				l.holds.Store(true)
				_, err := n.Do(t.Context(), time.Now().Add(ghostOp), "SET", "k", "tok", "NX", "PX", 600_000)
				if errors.Is(err, strategy.ErrUnsent) {
					return verdict.Slowf("SET was not sent within %v", ghostOp)
				}
				want(t, "SET that is under way", err, strategy.ErrUnknown)
				if _, err := n.Eval(t.Context(), soon(), release, []string{"k"}, "tok"); err != nil {
					t.Fatalf("the undo = %v, want nil", err)
				}
				l.deliver(receive(t, "the SET", l.held))
				if ghost := redistest.Do(t, srv, "EXISTS", "k") == int64(1); ghost == ordered {
					t.Errorf("the key is there after its undo: %v, want %v", ghost, !ordered)
				}
				return ""
			})
		})
	}
}

// A late connection holds back what is written, also after its client has closed it.
type late struct {
	net.Conn
	holds atomic.Bool
	held  chan []byte
}

func (l *late) Write(b []byte) (int, error) {
	if !l.holds.Load() {
		return l.Conn.Write(b)
	}
	l.held <- bytes.Clone(b)
	return len(b), nil
}

// Close ends what the client does with it, and leaves the server's side open.
func (l *late) Close() error { return l.SetReadDeadline(time.Now()) }

// deliver returns once the server has answered, or has hung up.
func (l *late) deliver(b []byte) {
	l.SetDeadline(soon())
	if _, err := l.Conn.Write(b); err == nil {
		l.Read(make([]byte, 100))
	}
}

type ghosts struct {
	config redistest.Config
	socket string // a Unix socket's name; empty: TCP
	ready  bool   // a connection that is dialled already comes next

	srv           *redistest.Server
	n             *node
	network, addr string
	stock         chan net.Conn
}

func (g *ghosts) start(t *testing.T) {
	if g.socket != "" {
		g.srv, g.addr = redistest.OwnSocket(t, g.socket, g.config)
		g.network = "unix"
	} else {
		g.srv = redistest.Own(t, g.config)
		g.network, g.addr = "tcp", g.srv.Addr()
	}
	g.stock = make(chan net.Conn, 1)
	g.n = newNode(t, &redis.Pool{Dial: func() (redis.Conn, error) {
		select {
		case c := <-g.stock:
			return redis.NewConn(c, 0, 0), nil
		default:
		}
		if g.network == "unix" {
			return redis.Dial(g.network, g.addr)
		}
		return redis.DialURL(g.srv.URL())
	}})
	if _, err := g.n.Eval(t.Context(), soon(), release, []string{"k"}, "tok"); err != nil { // the server knows the script from now on
		t.Fatal(err)
	}
}

// try acquires on a frozen server, undoes that as the engine does, and reports
// whether the key is there when it must not be.
func (g *ghosts) try(t *testing.T, i int) bool {
	t.Helper()
	ctx := t.Context()
	key := fmt.Sprintf("ghost:%d", i)
	if _, err := g.n.Do(ctx, soon(), "GET", key); err != nil {
		t.Fatal(err)
	}
	var second *noting
	if g.ready {
		second = g.secondConnection(t)
	}
	redistest.Skip(t, g.srv.Freeze(ctx), "no ghost keys after a freeze")
	if g.ready {
		// An empty line gets no answer, but puts this connection first in the line of
		// those that the server finds readable when it thaws.
		fmt.Fprint(second.Conn, "\r\n")
	}
	_, err := g.n.Do(ctx, time.Now().Add(ghostOp), "SET", key, "tok", "NX", "PX", 5000)
	want(t, "SET on a frozen server", err, strategy.ErrUnknown)

	begun, undone := make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(undone)
		g.undo(ctx, key, begun)
	}()
	for range 1 + i%2 { // the thaw comes in the first undo, which is when it is worst, or in the second
		receive(t, "an undo", begun)
	}
	if g.ready && i%2 == 0 {
		receive(t, "a request on the second connection", second.wrote)
	}
	if err := g.srv.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	receive(t, "the end of the undo", undone)
	// The bytes that lay in a socket at the thaw have been read by the time another connection has had an answer.
	redistest.Do(t, g.srv, "PING")
	return redistest.Do(t, g.srv, "EXISTS", key) == int64(1)
}

// undo deletes the token if it is there, until the server says that it is not.
func (g *ghosts) undo(ctx context.Context, key string, begun chan<- struct{}) {
	for {
		begun <- struct{}{}
		if _, err := g.n.Eval(ctx, time.Now().Add(ghostOp), release, []string{key}, "tok"); err == nil || ctx.Err() != nil {
			return
		}
	}
}

// A noting connection tells when something was written.
type noting struct {
	net.Conn
	wrote chan struct{}
}

func (n *noting) Write(b []byte) (int, error) {
	defer func() {
		select {
		case n.wrote <- struct{}{}:
		default: // it has told
		}
	}()
	return n.Conn.Write(b)
}

func (g *ghosts) secondConnection(t *testing.T) *noting {
	t.Helper()
	for len(g.stock) > 0 {
		(<-g.stock).Close()
	}
	c, err := net.Dial(g.network, g.addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "PING\r\n") // the server has accepted it
	if _, err := c.Read(make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	second := &noting{c, make(chan struct{}, 1)}
	g.stock <- second
	return second
}

// echoes calls ECHO with values of its own, from many callers, and fails the test
// if one gets another's. Errors are given to judge.
func echoes(t *testing.T, n *node, callers, calls int, around func(call func(ctx context.Context)), judge func(error)) {
	t.Helper()
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range calls {
				value := fmt.Sprintf("%d-%d", c, i)
				around(func(ctx context.Context) {
					r, err := n.Do(ctx, soon(), "ECHO", value)
					if err != nil {
						judge(err)
					} else if b, ok := r.([]byte); !ok || string(b) != value {
						t.Errorf("ECHO %s = %q", value, r)
					}
				})
			}
		})
	}
	wg.Wait()
}

func ownContext(t *testing.T) func(func(context.Context)) {
	return func(call func(context.Context)) { call(t.Context()) }
}

func TestCancellationsMixNothingUp(t *testing.T) {
	t.Parallel()
	var dials atomic.Int32
	pool := plainPool(t, redistest.Shared(t), 0)
	dial := pool.Dial
	pool.Dial = func() (redis.Conn, error) { dials.Add(1); return dial() }
	n := newNode(t, pool)
	if _, err := n.Do(t.Context(), soon(), "PING", ""); err != nil {
		t.Fatal(err)
	}
	var cancelled atomic.Int32
	echoes(t, n, 64, 200, func(call func(context.Context)) {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
		defer cancel()
		call(ctx)
	}, func(err error) {
		cancelled.Add(1)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, strategy.ErrRefused) {
			t.Errorf("ECHO = %v, want the context's end", err)
		}
	})
	if cancelled.Load() == 0 {
		t.Error("no call was cancelled: nothing was tested")
	}
	if got := dials.Load(); got != 1 {
		t.Errorf("%d connections, want 1: cancellation costs none", got)
	}
}

func TestKillStorm(t *testing.T) {
	t.Parallel()
	needsKill(t, "that a node outlives a storm of kills")
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, plainPool(t, srv, 0))
	echo(t, n, "before the storm")
	stop := make(chan struct{})
	var killers sync.WaitGroup
	kills := 0
	kill := func() {
		conn := srv.Pool().Get()
		defer conn.Close()
		k, err := redis.Int(conn.Do("CLIENT", "KILL", "TYPE", "normal"))
		if err != nil {
			t.Error(err)
		}
		kills += k
	}
	kill() // one at least
	killers.Go(func() {
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for {
			select {
			case <-stop:
				return
			case <-pause.C:
				kill()
			}
		}
	})
	var failed atomic.Int32
	echoes(t, n, 32, 400, ownContext(t), func(err error) {
		failed.Add(1)
		if !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
			t.Errorf("ECHO = %v, want unsent or unknown", err)
		}
	})
	close(stop)
	killers.Wait()
	t.Logf("%d connections killed, %d calls failed", kills, failed.Load())
	if kills == 0 {
		t.Error("nothing was killed")
	}
	verdict.Eventually(t, "a call gets through", func() bool { // the last kill may not have been noticed yet, and have met a dial, too
		_, err := n.Do(t.Context(), soon(), "PING", "")
		return err == nil
	})
	echo(t, n, "after the storm")
	if !n.Ordered() {
		t.Error("Ordered = false, want true")
	}
}

// A batch that does not fit into the socket holds up the writer, but nobody longer
// than until due.
func TestWedge(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, plainPool(t, srv, 0))
	echo(t, n, "warm")
	redistest.Skip(t, srv.Freeze(t.Context()), "leaving when due though the socket is full")
	const op, callers = 300 * time.Millisecond, 10
	big := bytes.Repeat([]byte("x"), 4<<20) // the sockets' buffers grow to several MiB
	var wg sync.WaitGroup
	start := time.Now().Add(100 * time.Millisecond) // copying takes its time, too
	for i := range callers {
		wg.Go(func() {
			_, err := n.Do(t.Context(), start.Add(op), "SET", fmt.Sprint("wedge:", i), big)
			if late := time.Since(start) - op; late > 10*time.Second { // ten callers copying 4 MiB each take their time
				t.Errorf("call %d returned %v after its due time", i, late)
			}
			if !errors.Is(err, strategy.ErrUnknown) && !errors.Is(err, strategy.ErrUnsent) {
				t.Errorf("call %d = %v, want unknown or unsent", i, err)
			}
		})
	}
	wg.Wait()
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	echo(t, n, "thawed")
}
