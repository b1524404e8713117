package rueidisnode

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/rig"
	"github.com/lockstrategies/locks/strategy"
)

// heard collects what a subscription was told.
type heard struct{ msgs chan string }

func subscribe(t *testing.T, n *Node, channel string) (heard, func()) {
	t.Helper()
	h := heard{make(chan string, 100)}
	stop, err := n.Subscribe(t.Context(), channel, func(msg []byte, err error) {
		if err != nil {
			h.msgs <- "error: " + err.Error()
			return
		}
		h.msgs <- string(msg)
	})
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
	for name, change := range map[string]func(*rueidis.ClientOption){
		"RESP3": func(*rueidis.ClientOption) {},
		"RESP2": func(o *rueidis.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := optionsOf(t, redistest.Shared(t))
			change(&o)
			n := newNode(t, o)
			one, other := t.Name()+":one", t.Name()+":other"
			a, stopA := subscribe(t, n, one)
			b, stopB := subscribe(t, n, one)
			c, stopC := subscribe(t, n, other)
			if got := publish(t, n, one, "1\x00\r\n"); got != 1 {
				t.Errorf("%d subscribers, want 1 connection for all", got)
			}
			for _, h := range []heard{a, b} {
				if got := receive(t, "a message", h.msgs); got != "1\x00\r\n" {
					t.Errorf("heard %q, want 1, 0, CR, LF", got)
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
			d, stopD := subscribe(t, n, one)
			defer stopD()
			publish(t, n, one, "5")
			if got := receive(t, "a message", d.msgs); got != "5" {
				t.Errorf("heard %q, want 5", got)
			}
		})
	}
}

// Subscribing and stopping at random: whoever is subscribed hears.
func TestSubscriptionChurn(t *testing.T) {
	t.Parallel()
	n := shared(t)
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
				if _, err := n.Do(t.Context(), soon(), "PUBLISH", channel, token); err != nil {
					t.Error(err)
				}
				select {
				case <-got:
				case <-time.After(generous):
					t.Errorf("%s was not heard", token)
				}
				stop()
			}
		})
	}
	wg.Wait()
	eventually(t, "no channel is left", func() bool {
		reply, err := n.Do(t.Context(), soon(), "PUBSUB", "CHANNELS", t.Name()+"*")
		return err == nil && len(reply.([]any)) == 0
	})
}

// A subscription that breaks ends once, and another can be had; nothing subscribes anew behind
// its listener's back.
func TestBrokenSubscriptionEndsOnce(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1, redistest.Config{})
	n := newNode(t, rueidis.ClientOption{InitAddress: []string{r.Nodes[0].Link().Addr()}})
	const channel = "c"
	for i := range 3 {
		h, stop := subscribe(t, n, channel)
		if err := r.Nodes[0].KillClients(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, "the end", h.msgs); !strings.HasPrefix(got, "error: ") || !strings.Contains(got, "connection lost") {
			t.Errorf("heard %q, want that the connection was lost", got)
		}
		again, stopAgain := subscribe(t, n, channel)
		if _, err := r.Nodes[0].Do(t.Context(), "PUBLISH", channel, "later"); err != nil {
			t.Fatal(err)
		}
		if got := receive(t, "a message", again.msgs); got != "later" {
			t.Errorf("heard %q, want later", got)
		}
		if len(h.msgs) > 0 {
			t.Errorf("%d: the broken subscription heard %q", i, <-h.msgs)
		}
		stop()
		stopAgain()
	}
}

func TestSubscribeIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	r := rig.New(t, 1, redistest.Config{})
	for _, warm := range []bool{false, true} {
		link := r.Nodes[0].Link()
		n := newNode(t, rueidis.ClientOption{InitAddress: []string{link.Addr()}})
		if warm {
			_, stop := subscribe(t, n, "other")
			defer stop()
		}
		link.Hold(rig.Both)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := n.Subscribe(ctx, "c", func([]byte, error) { t.Error("fn was called") })
		kind := strategy.ErrUnsent
		if warm {
			kind = strategy.ErrUnknown
		}
		want(t, fmt.Sprintf("warm %v: Subscribe without an answer", warm), err, kind, context.DeadlineExceeded)
		link.Heal()
		eventually(t, "a subscription after that", func() bool {
			stop, err := n.Subscribe(t.Context(), "c", func([]byte, error) {})
			if err == nil {
				stop()
			}
			return err == nil
		})
	}
}

// A server that stands still is found out by the client's own pings.
func TestSilentSubscriptionEnds(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	o := optionsOf(t, srv)
	o.Dialer.KeepAlive, o.ConnWriteTimeout = 50*time.Millisecond, 200*time.Millisecond
	n := newNode(t, o)
	h, stop := subscribe(t, n, "c")
	defer stop()
	redistest.Skip(t, srv.Freeze(t.Context()), "that a silent subscription ends")
	if got := receive(t, "the end", h.msgs); !strings.HasPrefix(got, "error: ") {
		t.Errorf("heard %q, want the end", got)
	}
}

func TestStopWaitsForFn(t *testing.T) {
	t.Parallel()
	n := shared(t)
	entered, let := make(chan struct{}), make(chan struct{})
	var over bool // guarded by what is tested
	stop, err := n.Subscribe(t.Context(), t.Name(), func([]byte, error) {
		close(entered)
		<-let
		over = true
	})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, n, t.Name(), "x")
	receive(t, "a call of fn", entered)
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Error("stop did not wait for fn")
	case <-time.After(20 * time.Millisecond):
	}
	close(let)
	receive(t, "stop", stopped)
	if !over {
		t.Error("fn had not returned when stop did")
	}

	// From inside fn, and for one that shares its channel.
	var stopSelf func()
	calls := make(chan string, 10)
	ready := make(chan struct{})
	stopSelf, err = n.Subscribe(t.Context(), t.Name()+"2", func(msg []byte, err error) {
		<-ready
		stopSelf()
		calls <- string(msg)
	})
	if err != nil {
		t.Fatal(err)
	}
	other, stopOther := subscribe(t, n, t.Name()+"2")
	defer stopOther()
	close(ready)
	publish(t, n, t.Name()+"2", "1")
	publish(t, n, t.Name()+"2", "2")
	for _, wanted := range []string{"1", "2"} {
		if got := receive(t, "the other's message", other.msgs); got != wanted {
			t.Errorf("heard %q, want %q", got, wanted)
		}
	}
	if len(calls) != 1 {
		t.Errorf("fn was called %d times after it had stopped itself, want once", len(calls))
	}
}

func TestSubscribeToADeadServer(t *testing.T) {
	t.Parallel()
	srv := redistest.Own(t, redistest.Config{})
	n := newNode(t, optionsOf(t, srv))
	h, _ := subscribe(t, n, "c")
	redistest.Skip(t, srv.Kill(t.Context()), "what a subscription to a dead server is")
	receive(t, "the end", h.msgs)
	_, err := n.Subscribe(t.Context(), "c", func([]byte, error) { t.Error("fn was called") })
	want(t, "Subscribe to a dead server", err, strategy.ErrUnsent)
	if err != nil && os.IsTimeout(err) {
		t.Errorf("Subscribe = %v, want the reason", err)
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, stop := subscribe(t, n, "c")
	stop()
}
