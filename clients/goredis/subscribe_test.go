package goredis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

func subscribe(t *testing.T, n *node, channel string) (heard, func()) {
	t.Helper()
	h := newHeard()
	stop, err := n.Subscribe(t.Context(), channel, h.fn)
	if err != nil {
		t.Fatalf("Subscribe(%s) = %v", channel, err)
	}
	return h, stop
}

func publish(t *testing.T, n *node, channel, msg string) int64 {
	t.Helper()
	r, err := n.Do(t.Context(), soon(), "PUBLISH", channel, msg)
	if err != nil {
		t.Fatalf("PUBLISH = %v", err)
	}
	return r.(int64)
}

func atRest(n *node) bool {
	n.sub.mu.Lock()
	defer n.sub.mu.Unlock()
	ln := n.line()
	return ln != nil && ln.connected && !ln.reading
}

// line is the only one. The lock is held.
func (n *node) line() *line {
	for _, ln := range n.sub.lines {
		return ln
	}
	return nil
}

func TestSubscriptionsHearTheirChannel(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		o := options(t, redistest.Shared(t).URL())
		o.Protocol = protocol
		n := nodeOf(t, clientOf(t, o))
		one, other := fmt.Sprint(t.Name(), protocol, ":one"), fmt.Sprint(t.Name(), protocol, ":other")
		a, stopA := subscribe(t, n, one)
		b, stopB := subscribe(t, n, one)
		c, stopC := subscribe(t, n, other)
		if got := publish(t, n, one, "1"); got != 1 {
			t.Errorf("%d subscribers, want 1 connection for all", got)
		}
		for _, h := range []heard{a, b} {
			if got := await(t, "a message", h.msgs); got != "1" {
				t.Errorf("heard %q, want 1", got)
			}
		}
		stopA()
		publish(t, n, one, "2")
		if got := await(t, "a message", b.msgs); got != "2" {
			t.Errorf("heard %q, want 2", got)
		}
		stopB()
		stopB() // once more changes nothing
		eventually(t, "the server forgets the channel", func() bool { return publish(t, n, one, "3") == 0 })
		publish(t, n, other, "4")
		if got := await(t, "a message", c.msgs); got != "4" {
			t.Errorf("heard %q, want 4", got)
		}
		if len(a.msgs)+len(b.msgs) > 0 {
			t.Error("a stopped subscription heard more")
		}
		stopC()
		// A new one on the connection at rest.
		eventually(t, "the reader ends", func() bool { return atRest(n) })
		n.sub.mu.Lock()
		line := n.line()
		n.sub.mu.Unlock()
		d, stopD := subscribe(t, n, one)
		publish(t, n, one, "5")
		if got := await(t, "a message", d.msgs); got != "5" {
			t.Errorf("heard %q, want 5", got)
		}
		if n.sub.mu.Lock(); n.line() != line {
			t.Error("another connection was made, want the one at rest")
		}
		n.sub.mu.Unlock()
		stopD()
	}
}

// Subscribing and stopping at random: whoever is subscribed hears.
func TestSubscriptionChurn(t *testing.T) {
	t.Parallel()
	n := to(t, redistest.Shared(t).URL())
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
				await(t, "own message", got)
				stop()
			}
		})
	}
	wg.Wait()
	eventually(t, "the reader ends", func() bool { return atRest(n) })
}

// TestBrokenSubscriptionEndsOnce: go-redis does not subscribe anew in secret.
func TestBrokenSubscriptionEndsOnce(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	a, _ := subscribe(t, n, "c")
	b, stop := subscribe(t, n, "c")
	stop()
	f.Cut()
	if got := await(t, "the end", a.msgs); !strings.Contains(got, "the connection ended") {
		t.Errorf("heard %q, want why it ended", got)
	}
	if got := f.Seen("SUBSCRIBE c"); got != 1 {
		t.Errorf("%d SUBSCRIBEs, want 1", got)
	}
	// Again on a new connection, which proves that the old one has said all it will.
	c, stop := subscribe(t, n, "c")
	stop()
	n.Close()
	if len(a.msgs)+len(b.msgs)+len(c.msgs) > 0 {
		t.Error("a subscription that had ended, or was stopped, heard more")
	}
	if got := f.Seen("SUBSCRIBE c"); got != 2 {
		t.Errorf("%d SUBSCRIBEs, want 2", got)
	}
}

// TestReconnectIsABreak: should go-redis connect anew all the same, as one of its versions
// might, the answer to its own SUBSCRIBE tells.
func TestReconnectIsABreak(t *testing.T) {
	t.Parallel()
	var conn atomic.Pointer[nodetest.Conn]
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) { conn.Store(c); c.Plain(cmd) })
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	h, _ := subscribe(t, n, "c")
	conn.Load().Plain([]string{"SUBSCRIBE", "c"}) // what a second one is answered
	if got := await(t, "the end", h.msgs); !strings.Contains(got, "nobody has asked for") {
		t.Errorf("heard %q, want that this was not asked for", got)
	}
}

// TestDeadAtRest: a connection that died while nobody used it costs a dial, and no error.
func TestDeadAtRest(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, (*nodetest.Conn).Plain)
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	_, stop := subscribe(t, n, "c")
	stop()
	eventually(t, "the reader ends", func() bool { return atRest(n) })
	f.Cut()
	_, stop = subscribe(t, n, "c")
	stop()
}

func TestSilentSubscriptionEnds(t *testing.T) {
	t.Parallel()
	var pings atomic.Int32
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		if cmd[0] != "PING" || pings.Add(1) < 3 {
			c.Plain(cmd)
		}
	})
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	n.sub.pingEvery, n.sub.pongLimit = 10*time.Millisecond, 200*time.Millisecond
	h, _ := subscribe(t, n, "c")
	if got := await(t, "the end", h.msgs); !strings.HasPrefix(got, "error") {
		t.Errorf("heard %q, want an error", got)
	}
	if pings.Load() < 3 {
		t.Errorf("ended after %d PINGs, of which 2 were answered", pings.Load())
	}
}

func TestSubscribeFails(t *testing.T) {
	t.Parallel()
	f := nodetest.NewServer(t, func(c *nodetest.Conn, cmd []string) {
		switch {
		case cmd[0] == "SUBSCRIBE" && cmd[1] == "never":
		case cmd[0] == "SUBSCRIBE" && cmd[1] == "forbidden":
			c.Say("-NOPERM no permissions to access a channel\r\n")
		case cmd[0] == "SUBSCRIBE" && cmd[1] == "another":
			c.Plain([]string{"SUBSCRIBE", "else"})
		case cmd[0] == "SUBSCRIBE" && cmd[1] == "hostile":
			c.Say("*1\r\n:1\r\n")
		default:
			c.Plain(cmd)
		}
	})
	n := nodeOf(t, clientOf(t, optionsOf(f)))
	h, stop := subscribe(t, n, "c")
	_, err := n.Subscribe(t.Context(), "forbidden", nil)
	want(t, "a channel that is forbidden", err, strategy.ErrRefused)
	if len(h.msgs) > 0 {
		t.Error("a refusal ended another's subscription")
	}
	_, err = n.Subscribe(t.Context(), "hostile", nil)
	want(t, "what is no answer", err, strategy.ErrUnknown)
	await(t, "the end of the others", h.msgs)
	stop()
	_, err = n.Subscribe(t.Context(), "another", nil)
	want(t, "the answer to another", err, strategy.ErrUnknown)

	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	out := make(chan error, 1)
	go func() {
		_, err := n.Subscribe(ctx, "never", nil)
		out <- err
	}()
	eventually(t, "it is asked for", func() bool { return f.Seen("SUBSCRIBE never") == 1 })
	cancel(cause)
	want(t, "not answered", await(t, "return", out), strategy.ErrUnknown, cause)
}

// TestStopWaits: after stop, nothing of fn is seen.
func TestStopWaits(t *testing.T) {
	t.Parallel()
	n := to(t, redistest.Shared(t).URL())
	var inside atomic.Bool
	entered, leave := make(chan struct{}), make(chan struct{})
	stop, err := n.Subscribe(t.Context(), t.Name(), func([]byte, error) {
		inside.Store(true)
		close(entered)
		<-leave
		inside.Store(false)
	})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, n, t.Name(), "1")
	await(t, "the message", entered)
	seen := make(chan bool, 1)
	go func() { stop(); seen <- inside.Load() }()
	eventually(t, "stop has begun", func() bool {
		n.sub.mu.Lock()
		defer n.sub.mu.Unlock()
		return n.line().topics[t.Name()].Listeners()[0].Over()
	})
	close(leave)
	if await(t, "the return of stop", seen) {
		t.Error("stop returned while fn ran")
	}
}

// TestStopInside: stop may be called by fn itself, and then this call was the last.
func TestStopInside(t *testing.T) {
	t.Parallel()
	n := to(t, redistest.Shared(t).URL())
	var calls atomic.Int32
	ready, called := make(chan func(), 1), make(chan struct{})
	stop, err := n.Subscribe(t.Context(), t.Name(), func([]byte, error) {
		if calls.Add(1) == 1 {
			(<-ready)()
			close(called)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ready <- stop
	publish(t, n, t.Name(), "1")
	publish(t, n, t.Name(), "2")
	await(t, "the return of stop", called)
	eventually(t, "the reader ends", func() bool { return atRest(n) })
	if got := calls.Load(); got != 1 {
		t.Errorf("fn was called %d times, want 1", got)
	}
}
