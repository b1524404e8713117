// The Node by itself: names, replies, arguments, shared packets, Close.
package rueidisnode

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

func TestNewWantsAClient(t *testing.T) {
	if err := New(nil).Use(); err == nil || !strings.Contains(err.Error(), "rueidis.NewClient") {
		t.Errorf("New(nil).Use() = %v, want an error that says how to make a client", err)
	}
}

func TestNameIsTheAddress(t *testing.T) {
	s := redistest.Shared(t)
	if got := shared(t).Name(); got != s.Addr() {
		t.Errorf("Name() = %s, want %s", got, s.Addr())
	}
	n := shared(t)
	n.fixed = "" // as with Sentinel
	if got := n.Name(); got != driver.Unnamed {
		t.Errorf("Name() = %s before the first request, want %s", got, driver.Unnamed)
	}
	echo(t, n, "x")
	if got := n.Name(); !strings.Contains(got, ":") {
		t.Errorf("Name() = %s after the first request, want the server's own address", got)
	}
}

// A map of the client's comes in the order of the keys.
func TestMapsAreSorted(t *testing.T) {
	t.Parallel()
	reply, err := shared(t).Do(t.Context(), soon(), "EVAL", "redis.setresp(3) return {map = {b = 2, a = {double = 1.5}}}", 0)
	if wanted := []any{[]byte("a"), []byte("1.5"), []byte("b"), int64(2)}; err != nil || !reflect.DeepEqual(reply, wanted) {
		t.Errorf("a map = %q, %v, want %q", reply, err, wanted)
	}
}

type shout string

func (s shout) String() string { return strings.ToUpper(string(s)) }

func TestArguments(t *testing.T) {
	t.Parallel()
	n := shared(t)
	script := driver.NewScript("args", "return {KEYS[1], KEYS[2], unpack(ARGV)}")
	reply, err := n.Eval(t.Context(), soon(), script, []string{"{k}1", "{k}2"},
		"s", []byte("b\x00"), 7, int64(-8), 0.25, true, false, nil, shout("loud"), 250*time.Millisecond)
	const wanted = `[{k}1 {k}2 s b` + "\x00" + ` 7 -8 0.25 1 0  LOUD 250ms]`
	if got := fmt.Sprintf("%s", reply); err != nil || got != wanted {
		t.Errorf("arguments = %q, %v, want %q", got, err, wanted)
	}
	for _, cmd := range []string{"", "SUBSCRIBE", "psubscribe", "UNSUBSCRIBE"} {
		_, err := n.Do(t.Context(), soon(), cmd, "k")
		want(t, "Do "+cmd, err, strategy.ErrUnsent)
	}
	// No key, and an empty one.
	if reply, err := n.Do(t.Context(), soon(), "PING", ""); err != nil || fmt.Sprintf("%s", reply) != "PONG" {
		t.Errorf("PING = %s, %v", reply, err)
	}
	if reply, err := n.Do(t.Context(), soon(), "EVAL", "return ARGV[1]", 1, "", "x"); err != nil || fmt.Sprintf("%s", reply) != "x" {
		t.Errorf("EVAL with an empty key = %s, %v", reply, err)
	}
}

// Callers who come together travel together.
func TestCallersShareAPacket(t *testing.T) {
	t.Parallel()
	var s spy
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, s.options(optionsOf(t, srv)))
	echo(t, n, "first")
	redistest.Skip(t, srv.Freeze(t.Context()), "that callers share a packet")
	line := s.last()
	var wg sync.WaitGroup
	wg.Go(func() { n.Do(t.Context(), soon(), "ECHO", "alone") })
	verdict.Eventually(t, "the first is sent", func() bool { return strings.Contains(saidOn(line), "alone") })
	for i := range 10 {
		wg.Go(func() {
			text := fmt.Sprint("crowd", i)
			if reply, err := n.Do(t.Context(), soon(), "ECHO", text); err != nil || fmt.Sprintf("%s", reply) != text {
				t.Errorf("ECHO %s = %s, %v", text, reply, err)
			}
		})
	}
	verdict.Eventually(t, "ten wait", func() bool {
		n.pipe.mu.Lock()
		defer n.pipe.mu.Unlock()
		return len(n.pipe.queue) == 10
	})
	if strings.Contains(saidOn(line), "crowd") {
		t.Error("the crowd was sent before the one before it was answered")
	}
	ctx := context.Background()
	if err := srv.Thaw(ctx); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if s.dialled() != 2 { // the client's own, and the pipe's
		t.Errorf("%d connections, want 2", s.dialled())
	}
}

func saidOn(c *spied) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.String()
}

// A login that fails is no session.
func TestWrongPassword(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{Password: "s3cret"})
	n := newNode(t, rueidis.ClientOption{InitAddress: []string{srv.Addr()}, Password: "wr0ng"})
	err := n.Session(t.Context(), soon(), "k", func(driver.Conn) error { t.Error("fn was called"); return nil })
	want(t, "Session with a wrong password", err, strategy.ErrUnsent)
}

// Close ends what is under way and gives back what was lent; the client stays the user's.
func TestClose(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	client := newClient(t, optionsOf(t, srv))
	n := New(client).(*node)
	echo(t, n, "before")
	h, _ := nodetest.Subscribe(t, n, "c")
	redistest.Skip(t, srv.Freeze(t.Context()), "what Close does to calls under way")
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := n.Do(t.Context(), soon(), "ECHO", "sent"); first <- err }()
	verdict.Eventually(t, "one is sent", func() bool { n.pipe.mu.Lock(); defer n.pipe.mu.Unlock(); return len(n.pipe.flight) == 1 })
	go func() { _, err := n.Do(t.Context(), soon(), "ECHO", "queued"); second <- err }()
	verdict.Eventually(t, "one is queued", func() bool { n.pipe.mu.Lock(); defer n.pipe.mu.Unlock(); return len(n.pipe.queue) == 1 })
	began := time.Now()
	if err := n.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if took := time.Since(began); took > generous/2 {
		t.Errorf("Close took %v", took)
	}
	want(t, "what was sent", receive(t, "its end", first), strategy.ErrUnknown, strategy.ErrClosed)
	want(t, "what was queued", receive(t, "its end", second), strategy.ErrUnsent, strategy.ErrClosed)
	receive(t, "the subscription's end", h.Ends)
	if err := n.Close(); err != nil {
		t.Errorf("second Close = %v", err)
	}
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Errorf("PING by the user's client after Close = %v", err)
	}
}

// As many connections are the server's as before.
func TestConnectionsAreGivenBack(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	client := newClient(t, optionsOf(t, srv))
	n := New(client).(*node)
	echo(t, n, "first")
	_, stop := nodetest.Subscribe(t, n, t.Name())
	stop()
	if err := n.Session(t.Context(), soon(), "k", func(c driver.Conn) error { return nil }); err != nil {
		t.Error(err)
	}
	n.Close()
	// The pipe and the session's went back to the client's pool; that with subscriptions
	// is closed.
	verdict.Eventually(t, "no subscription is left", func() bool {
		return !strings.Contains(fmt.Sprintf("%s", redistest.Do(t, srv, "CLIENT", "LIST")), "sub=1")
	})
	// And the next caller has the connections of those who have gone.
	connections := func() int { return strings.Count(fmt.Sprintf("%s", redistest.Do(t, srv, "CLIENT", "LIST")), "\n") }
	before := connections()
	for i := range 5 {
		again := New(client).(*node)
		echo(t, again, "again")
		again.Close()
		if after := connections(); after > before {
			t.Errorf("node %d: %d connections, want %d", i, after, before)
		}
	}
}
