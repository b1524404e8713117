package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/nodetest"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/strategy"
)

// heard collects what a subscription was told.
type heard struct{ msgs chan string }

func newHeard() heard { return heard{make(chan string, 100)} }

func (h heard) fn(msg []byte, err error) {
	if err != nil {
		h.msgs <- "error: " + err.Error()
		return
	}
	h.msgs <- string(msg)
}

func subscribe(t *testing.T, n *Node, channel string) (heard, func()) {
	t.Helper()
	h := newHeard()
	stop, err := n.Subscribe(t.Context(), channel, h.fn)
	if err != nil {
		t.Fatalf("Subscribe(%s) = %v", channel, err)
	}
	return h, stop
}

func publish(t *testing.T, n *Node, channel, msg string) int64 {
	t.Helper()
	r, err := n.Do(t.Context(), soon(), "PUBLISH", channel, msg)
	if err != nil {
		t.Fatalf("PUBLISH = %v", err)
	}
	return r.(int64)
}

func TestSubscriptionsHearTheirChannel(t *testing.T) {
	t.Parallel()
	n := newNode(t, plainPool(t, redistest.Shared(t), 0))
	one, other := t.Name()+":one", t.Name()+":other"
	a, stopA := subscribe(t, n, one)
	b, stopB := subscribe(t, n, one)
	c, stopC := subscribe(t, n, other)
	if got := publish(t, n, one, "1"); got != 1 {
		t.Errorf("%d subscribers, want 1 connection for all", got)
	}
	for _, h := range []heard{a, b} {
		if got := receive(t, "a message", h.msgs); got != "1" {
			t.Errorf("heard %q, want 1", got)
		}
	}
	stopA()
	publish(t, n, one, "2")
	if got := receive(t, "a message", b.msgs); got != "2" {
		t.Errorf("heard %q, want 2", got)
	}
	stopB()
	stopB() // once more changes nothing
	eventually(t, "the server forgets the channel", func() bool { return publish(t, n, one, "3") == 0 })
	publish(t, n, other, "4")
	if got := receive(t, "a message", c.msgs); got != "4" {
		t.Errorf("heard %q, want 4", got)
	}
	if len(a.msgs)+len(b.msgs) > 0 {
		t.Error("a stopped subscription heard more")
	}
	stopC()
	// A new one on the connection at rest.
	eventually(t, "the reader ends", func() bool { return atRest(n) })
	d, stopD := subscribe(t, n, one)
	defer stopD()
	publish(t, n, one, "5")
	if got := receive(t, "a message", d.msgs); got != "5" {
		t.Errorf("heard %q, want 5", got)
	}
}

func atRest(n *Node) bool {
	n.sub.mu.Lock()
	defer n.sub.mu.Unlock()
	return n.sub.line != nil && n.sub.line.conn != nil && !n.sub.line.reading
}

// Subscribing and stopping at random: whoever is subscribed hears.
func TestSubscriptionChurn(t *testing.T) {
	t.Parallel()
	n := newNode(t, plainPool(t, redistest.Shared(t), 0))
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			channel := fmt.Sprint(t.Name(), c%3)
			for i := range 50 {
				token := fmt.Sprint(c, "-", i)
				got := make(chan struct{})
				var once sync.Once
				stop, err := n.Subscribe(t.Context(), channel, func(msg []byte, err error) {
					if err != nil {
						t.Error(err)
					}
					if string(msg) == token {
						once.Do(func() { close(got) })
					}
				})
				if err != nil {
					t.Error(err)
					return
				}
				publish(t, n, channel, token)
				receive(t, "own message", got)
				stop()
			}
		})
	}
	wg.Wait()
	eventually(t, "the reader ends", func() bool { return atRest(n) })
}

func TestBrokenSubscriptionEndsOnce(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	n := newNode(t, poolOf(f))
	a, _ := subscribe(t, n, "c")
	b, stop := subscribe(t, n, "c")
	stop()
	f.Cut()
	if got := receive(t, "the end", a.msgs); !strings.Contains(got, "connection lost") {
		t.Errorf("heard %q, want why it ended", got)
	}
	// Again on a new connection, which proves that the old one has said all it will.
	c, stop := subscribe(t, n, "c")
	stop()
	n.Close()
	if len(a.msgs)+len(b.msgs)+len(c.msgs) > 0 {
		t.Error("a subscription that had ended, or was stopped, heard more")
	}
}

func TestSilentSubscriptionEnds(t *testing.T) {
	t.Parallel()
	var pings atomic.Int32
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] == "PING" {
			if pings.Add(1) < 3 {
				c.Say("*2\r\n$4\r\npong\r\n$0\r\n\r\n")
			}
			return
		}
		c.Plain(cmd)
	})
	n := newNode(t, poolOf(f))
	n.sub.pingEvery, n.sub.pongLimit = 10*time.Millisecond, 200*time.Millisecond
	h, _ := subscribe(t, n, "c")
	if got := receive(t, "the end", h.msgs); !strings.HasPrefix(got, "error") {
		t.Errorf("heard %q, want an error", got)
	}
	if pings.Load() < 3 {
		t.Errorf("ended after %d PINGs, of which 2 were answered", pings.Load())
	}
}

func TestSubscribeIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	got := make(chan struct{}, 10)
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] == "SUBSCRIBE" && cmd[1] == "never" {
			got <- struct{}{}
			return
		}
		c.Plain(cmd)
	})
	n := newNode(t, poolOf(f))
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	out := make(chan error, 1)
	go func() {
		_, err := n.Subscribe(ctx, "never", func([]byte, error) { t.Error("fn was called") })
		out <- err
	}()
	receive(t, "SUBSCRIBE", got)
	cancel(cause)
	want(t, "Subscribe", receive(t, "return", out), strategy.ErrUnknown, cause)
	eventually(t, "what was asked for is taken back", func() bool {
		return slices.Contains(f.Log(), "1 UNSUBSCRIBE never")
	})

	// While dialling nothing was sent.
	let := make(chan struct{})
	pool := poolOf(f)
	dial := pool.DialContext
	pool.DialContext = nil
	pool.Dial = func() (c redis.Conn, err error) { <-let; return dial(context.Background()) }
	n = newNode(t, pool)
	ctx, cancelNow := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancelNow()
	_, err := n.Subscribe(ctx, "c", func([]byte, error) {})
	want(t, "Subscribe while dialling", err, strategy.ErrUnsent, context.DeadlineExceeded)
	close(let)
	_, stop := subscribe(t, n, "c")
	stop()
}

func TestSubscribeHasALimitOfItsOwn(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, func(*nodetest.Conn, []string) {})
	n := newNode(t, poolOf(f))
	start := time.Now()
	_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
	want(t, "Subscribe", err, strategy.ErrUnknown, os.ErrDeadlineExceeded)
	if took := time.Since(start); took < confirmLimit-pongLimit {
		t.Errorf("Subscribe gave up after %v, want about %v", took, confirmLimit)
	}
}

// A connection that died at rest is no reason to fail.
func TestSubscribeAfterADeathAtRest(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	n := newNode(t, poolOf(f))
	_, stop := subscribe(t, n, "c")
	stop()
	eventually(t, "the reader ends", func() bool { return atRest(n) })
	f.Cut()
	_, stop = subscribe(t, n, "c")
	stop()
	if f.Dialled() != 2 {
		t.Errorf("%d connections, want 2", f.Dialled())
	}
}

func TestSubscriptionLineObeysThePoolsLimits(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	pool := poolOf(f)
	pool.IdleTimeout = time.Minute
	n := newNode(t, pool)
	_, stop := subscribe(t, n, "c")
	stop()
	eventually(t, "the reader ends", func() bool { return atRest(n) })
	n.sub.mu.Lock()
	n.sub.line.used = time.Now().Add(-2 * time.Minute)
	n.sub.mu.Unlock()
	_, stop = subscribe(t, n, "c")
	stop()
	if f.Dialled() != 2 {
		t.Errorf("%d connections, want 2", f.Dialled())
	}
}

func TestFailedSubscriptionDial(t *testing.T) {
	t.Parallel()
	reason := errors.New("no route")
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	pool := poolOf(f)
	pool.DialContext = nil
	pool.Dial = func() (redis.Conn, error) { return nil, reason }
	n := newNode(t, pool)
	_, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
	want(t, "Subscribe", err, strategy.ErrUnsent, reason)
}

func TestStopWaitsForFn(t *testing.T) {
	t.Parallel()
	n := newNode(t, plainPool(t, redistest.Shared(t), 0))
	channel := t.Name()
	in, let := make(chan struct{}), make(chan struct{})
	var running atomic.Bool
	stop, err := n.Subscribe(t.Context(), channel, func([]byte, error) {
		running.Store(true)
		close(in)
		<-let
		running.Store(false)
	})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, n, channel, "x")
	receive(t, "fn", in)
	stopped := make(chan bool, 1)
	go func() { stop(); stopped <- running.Load() }()
	select {
	case <-stopped:
		t.Fatal("stop returned while fn ran")
	case <-time.After(20 * time.Millisecond):
	}
	close(let)
	if receive(t, "stop", stopped) {
		t.Error("fn was running when stop had returned")
	}

	// From inside, it is the last call.
	calls := make(chan struct{}, 10)
	ready := make(chan func(), 1)
	stop, err = n.Subscribe(t.Context(), channel, func([]byte, error) {
		stop := <-ready
		stop()
		calls <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	ready <- stop
	publish(t, n, channel, "1")
	publish(t, n, channel, "2")
	receive(t, "the call that stops", calls)
	h, stop := subscribe(t, n, channel)
	defer stop()
	publish(t, n, channel, "3")
	receive(t, "a later message", h.msgs)
	if len(calls) > 0 {
		t.Error("fn was called after it had stopped itself")
	}
}

func TestSubscriptionsOnAFrozenServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, plainPool(t, srv, 0))
	n.sub.pingEvery, n.sub.pongLimit = 50*time.Millisecond, 300*time.Millisecond
	h, _ := subscribe(t, n, "c")
	redistest.Skip(t, srv.Freeze(t.Context()), "that silence ends a subscription")
	if got := receive(t, "the end", h.msgs); !strings.HasPrefix(got, "error") {
		t.Errorf("heard %q, want an error", got)
	}
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, stop := subscribe(t, n, "c")
	stop()
}
