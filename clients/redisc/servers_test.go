// How long a server and a subscription are of use: until the slots, the cluster or the Node leave them. On a
// cluster in memory.
package rediscnode

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// TestClustersRefused: settings that cannot be used are an error of the strategy's New.
func TestClustersRefused(t *testing.T) {
	for want, cluster := range map[string]*redisc.Cluster{
		"the *redisc.Cluster is nil": nil,
		"has no StartupNodes":        {},
		`"b" is no address`:          {StartupNodes: []string{"a:1", "b"}},
	} {
		if err := New(cluster).Use(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v).Use() = %v, want an error with %q", cluster, err, want)
		}
	}
}

// TestRetired: a server that the cluster has no more is hung up on, whatever it was used for before.
func TestRetired(t *testing.T) {
	asks := []say{{to: "b:1 GET", reply: "-ASK 7629 a:1", times: ever}, {to: "b:1 EXISTS", reply: "-ASK 7629 a:1", times: ever}}
	for name, c := range map[string]struct {
		layout string
		says   []say
		use    call
	}{
		"asked for the layout": {"0-16383 b:1", nil, getK},
		"request":              {"0-16383 a:1", nil, getK},
		"request asked once":   {"0-16383 b:1", asks, getK},
		"session":              {"0-16383 a:1", nil, session("GET k")},
		"session asked once":   {"0-16383 b:1", asks, session("GET k")},
		"probe": {"0-16383 a:1", nil, func(ctx context.Context, f *fake, due time.Time) (any, error) {
			f.wantGet(f.t, "k")
			f.Probe(ctx, due)
			return nil, nil
		}},
		"subscription": {"0-16383 a:1", nil, func(ctx context.Context, f *fake, due time.Time) (any, error) {
			return f.Subscribe(ctx, "k", func([]byte, error) {})
		}},
	} {
		bubbled(t, name, func(t *testing.T, f *fake) {
			f.say(c.says...)
			f.tell(c.layout)
			if _, err := c.use(t.Context(), f, soon()); err != nil {
				t.Fatal(err)
			}
			f.tell("0-16383 c:1")
			f.ask(t)
			synctest.Wait()
			if open := f.servers["a:1"].Open(); open > 0 {
				t.Errorf("%d connections are left to a server that has gone", open)
			}
			f.wantGet(t, "k")
			f.tell("0-16383 a:1") // it is back
			f.ask(t)
			f.wantGet(t, "k")
		})
	}
}

// TestRetiredInUse: a caller that waits for the answer of a server that is gone gets it.
func TestRetiredInUse(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.say(say{to: "a:1 GET", reply: "+late", times: 1, after: time.Second})
		answered := make(chan string)
		go func() {
			reply, err := f.get("k")
			answered <- fmt.Sprintf("%s %v", reply, err)
		}()
		synctest.Wait()
		f.tell("0-16383 b:1")
		f.say(say{to: "a:1 CLUSTER", reply: hangUp, times: ever}) // its connection for requests is busy
		f.node.mu.Lock()
		f.apply(&report{addrs: []string{"b:1"}})
		f.node.mu.Unlock()
		if got := <-answered; got != "late <nil>" {
			t.Errorf("GET: %s, want late <nil>", got)
		}
	})
}

// TestKept: a server that the cluster still has is kept, with its connections, and with the slots of which
// nobody says whose they are. A slot whose server has gone is nobody's.
func TestKept(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.tell("0-8191 a:1, 8192-16383 b:1")
		f.wantGet(t, keyOf(0))
		f.wantGet(t, keyOf(1))
		dialled := f.servers["a:1"].Dialled()
		f.tell("0-0 a:1")
		f.ask(t)
		synctest.Wait()
		f.wantGet(t, keyOf(0))
		if now := f.servers["a:1"].Dialled(); now != dialled {
			t.Errorf("%d more connections were made, want those that there are", now-dialled)
		}
		if _, err := f.get(keyOf(1)); !errors.Is(err, strategy.ErrUnsent) || !strings.Contains(err.Error(), "no node of the cluster") {
			t.Errorf("GET of a slot whose server has gone: %v, want ErrUnsent, as it is nobody's", err)
		}
		if !f.Ordered() {
			t.Error("no slot has changed its server, and the order is lost")
		}
	})
}

// TestNeighbours: the Node asks a server that a startup node has named when the startup node does not tell. It
// asks each server once.
func TestNeighbours(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.tell("0-16383 b:1 a:1")
		f.wantGet(t, "k")
		f.say(say{to: "a:1 CLUSTER", reply: "-ERR no", times: ever}, say{to: "b:1 CLUSTER", reply: "-ERR no", times: 1})
		f.log()
		if err := f.inquire(t.Context(), soon()); err == nil {
			t.Error("nobody has told, and that is no error")
		}
		if got, want := f.log(), "b:1 CLUSTER SLOTS, a:1 CLUSTER SLOTS"; got != want {
			t.Errorf("asked were %s, want %s", got, want)
		}
		f.ask(t)
	})
}

// TestOneInquiry: all who want to know share one question, and the next comes a while later.
func TestOneInquiry(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		const slow = time.Second
		f.say(say{to: "a:1 CLUSTER", reply: slots("0-16383 b:1"), times: 1, after: slow})
		got := make(chan error)
		for range 3 {
			go func() {
				_, err := f.get("k")
				got <- err
			}()
		}
		for range 3 {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		f.say(say{to: "b:1 GET", reply: "-MOVED 7629 a:1", times: 1}) // which asks for the rest
		f.wantGet(t, "k")
		<-time.After(time.Second)
		if at := append(f.when("a:1 CLUSTER"), f.when("b:1 CLUSTER")...); fmt.Sprint(at) != fmt.Sprint([]time.Duration{0, slow + askEvery}) {
			t.Errorf("CLUSTER SLOTS was asked at %v, want once for all, and %v after the answer", at, askEvery)
		}
	})
}

// TestOthersAreLeftAlone: when one has told of the cluster, the others that were asked are left alone.
func TestOthersAreLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.wantGet(t, "k")
		if at := nodetest.Receive(t, "the end of the dial", f.hung); at != askNext {
			t.Errorf("the dial to a server that is silent was given up after %v, want %v", at, askNext)
		}
	}, "hang:1", "a:1")
}

// TestProbeCounts: Probe asks each server in use once, and adds up how often they were away. If one was, it asks for
// the layout.
func TestProbeCounts(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.tell("0-8191 a:1, 8192-16383 b:1")
		f.wantGet(t, keyOf(0))
		f.wantGet(t, keyOf(1))
		asked := f.masters()
		for _, s := range asked {
			s.users.Done()
		}
		if len(asked) != 2 {
			t.Errorf("Probe asks %d times, want each of two servers once", len(asked))
		}
		for want := range uint64(3) {
			f.log()
			if got := f.Probe(t.Context(), soon()); got != want {
				t.Errorf("Probe = %d, want %d", got, want)
			}
			<-time.After(askEvery)
			synctest.Wait()
			if asked := strings.Contains(f.log(), "CLUSTER SLOTS"); asked != (want > 0) {
				t.Errorf("Probe = %d, and it has asked for the layout: %v", want, asked)
			}
			f.servers[[]string{"a:1", "b:1", "c:1"}[want]].Cut()
			synctest.Wait()
		}
	})
}

// TestClosedForAll: a Node that is closed is so for servers, too, that it has not used yet, and begins
// no inquiry.
func TestClosedForAll(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.tell("0-8191 a:1, 8192-16383 b:1")
		f.wantGet(t, keyOf(0))
		f.Close() //nolint:errcheck // it has none
		for half := range 2 {
			_, err := f.get(keyOf(half))
			nodetest.Want(t, "GET", err, strategy.ErrUnsent, strategy.ErrClosed)
		}
		<-time.After(time.Second)
		if err := f.inquire(t.Context(), soon()); !errors.Is(err, strategy.ErrClosed) {
			t.Errorf("an inquiry = %v, want ErrClosed", err)
		}
		synctest.Wait()
		if asked := f.node.layout.asked.Sub(f.start); asked != 0 {
			t.Errorf("an inquiry has ended after %v, want none after Close", asked)
		}
	})
}

// TestCloseEndsAll: with the last user no connection is left, the pool's neither; what is awaited ends; a session is
// awaited.
func TestCloseEndsAll(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		if err := errors.Join(f.Use(), f.Use(), f.Close()); err != nil {
			t.Error(err)
		}
		f.wantGet(t, "k")
		f.ask(t)
		goOn, ended, closed, inquired := make(chan bool), false, false, make(chan error, 1)
		go func() {
			f.Session(t.Context(), soon(), "k", func(driver.Conn) error { <-goOn; return nil }) //nolint:errcheck // fn returns none
			ended = true
		}()
		synctest.Wait()
		at := f.elapsed()
		go func() { inquired <- f.inquire(t.Context(), soon()) }() // it pauses
		synctest.Wait()
		go func() { f.Close(); closed = true }() //nolint:errcheck // it has none
		if err := <-inquired; !errors.Is(err, strategy.ErrClosed) || f.elapsed() != at {
			t.Errorf("an inquiry under way ends with %v after %v, want ErrClosed at once", err, f.elapsed()-at)
		}
		if synctest.Wait(); closed {
			t.Error("Close has not waited for the session")
		}
		close(goOn)
		if synctest.Wait(); !ended || !closed || f.servers["a:1"].Open() > 0 {
			t.Errorf("session over: %v, closed: %v, %d connections are left, want true, true, 0", ended, closed, f.servers["a:1"].Open())
		}
		if err := f.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	})
}
