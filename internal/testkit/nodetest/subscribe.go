package nodetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// Any number listen to one channel, on one connection; a listener that has stopped hears nothing more.
func subscriptionHearsItsChannel(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		n := s.Open(t, Options{URL: redistest.Shared(t).URL(), Protocol: protocol})
		one, other := t.Name()+":one", t.Name()+":other"
		a, stopA := Subscribe(t, n, one)
		b, stopB := Subscribe(t, n, one)
		c, stopC := Subscribe(t, n, other)
		if got := Publish(t, n, one, "1\x00\r\n"); got != 1 {
			t.Errorf("%d subscribers, want 1 connection for all", got)
		}
		a.hears(t, "1\x00\r\n")
		b.hears(t, "1\x00\r\n")
		stopA()
		Publish(t, n, one, "2")
		b.hears(t, "2")
		stopB()
		stopB() // once more changes nothing
		verdict.Eventually(t, "the server forgets the channel", func() bool { return Publish(t, n, one, "3") == 0 })
		Publish(t, n, other, "4")
		c.hears(t, "4")
		if !a.Silent() || !b.Silent() {
			t.Error("a stopped subscription heard more")
		}
		stopC()
		s.rest(t, n)
		d, stopD := Subscribe(t, n, one)
		defer stopD()
		Publish(t, n, one, "5")
		d.hears(t, "5")
	})
}

// Subscribing and stopping at random: each subscriber hears.
func subscriptionChurn(t *testing.T, s Subject) {
	n := s.shared(t)
	channel := func(c int) string { return fmt.Sprint(t.Name(), c%3) }
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if err := hearsItself(t.Context(), n, channel(c), fmt.Sprint(c, "-", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for c := range 3 {
		verdict.Eventually(t, "no channel is left", func() bool { return Publish(t, n, channel(c), "late") == 0 })
	}
	s.rest(t, n)
}

// hearsItself subscribes, and hears what it publishes.
func hearsItself(ctx context.Context, n driver.Node, channel, token string) error {
	heard, ended := make(chan struct{}), make(chan error, 1)
	var once sync.Once
	stop, err := n.Subscribe(ctx, channel, func(msg []byte, err error) {
		if err != nil {
			ended <- err
		}
		if string(msg) == token {
			once.Do(func() { close(heard) })
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	if _, err := n.Do(ctx, Soon(), "PUBLISH", channel, token); err != nil {
		return err
	}
	select {
	case <-heard:
		return nil
	case err := <-ended:
		return err
	case <-time.After(Generous):
		return fmt.Errorf("%s was not heard", token)
	}
}

// A subscription that breaks ends once, and another is available; nothing subscribes again behind
// its listener's back.
func brokenSubscriptionEndsOnce(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		var at atomic.Pointer[Conn]
		n, f := s.on(t, protocol, func(c *Conn, cmd []string) {
			if cmd[0] == "SUBSCRIBE" {
				at.Store(c)
			}
			c.Plain(cmd)
		})
		a, _ := Subscribe(t, n, "c")
		b, stop := Subscribe(t, n, "c")
		stop()
		for i := range 3 {
			f.Cut()
			end := Receive(t, "the end", a.Ends)
			Want(t, "the end", end, strategy.ErrUnknown)
			wantWords(t, "the end", end, s.Lost)
			if got := f.Seen("SUBSCRIBE c"); got != i+1 {
				t.Errorf("%d SUBSCRIBEs, want %d", got, i+1)
			}
			// Another, on a new connection.
			c, _ := Subscribe(t, n, "c")
			at.Load().Message("c", "later")
			c.hears(t, "later")
			if !a.Silent() || !b.Silent() {
				t.Error("a subscription that had ended, or was stopped, heard more")
			}
			a = c
		}
		if got := f.on("SUBSCRIBE"); got != 4 {
			t.Errorf("subscribed on %d connections, want 4", got)
		}
	})
}

// A server that says nothing any more is found out.
func silentSubscriptionEnds(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		var pings atomic.Int32
		f := NewServer(t, func(c *Conn, cmd []string) {
			if cmd[0] != "PING" || !c.listens() || pings.Add(1) < 3 {
				c.Plain(cmd)
			}
		})
		f.Protocol = protocol
		n := s.Open(t, Options{URL: f.URL(), Protocol: protocol, PingEvery: 10 * time.Millisecond, PongLimit: 3 * time.Second})
		h, _ := Subscribe(t, n, "c")
		Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown)
		if pings.Load() < 3 {
			t.Errorf("ended after %d PINGs, of which 2 were answered", pings.Load())
		}
	})
}

func frozenServerEndsSubscriptions(t *testing.T, s Subject) {
	srv := redistest.Own(t, redistest.Config{})
	n := s.Open(t, Options{URL: srv.URL(), PingEvery: 50 * time.Millisecond, PongLimit: 3 * time.Second})
	h, _ := Subscribe(t, n, "c")
	redistest.Skip(t, srv.Freeze(t.Context()), "that silence ends a subscription")
	Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown)
	if err := srv.Thaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, stop := Subscribe(t, n, "c")
	stop()
}

func subscribeIsBoundedByItsContext(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		asked := make(chan *Conn, 10)
		var stuck atomic.Pointer[Conn] // what comes behind is not answered either: a server keeps the order
		n, f := s.on(t, protocol, func(c *Conn, cmd []string) {
			switch {
			case cmd[0] == "SUBSCRIBE" && cmd[1] == "never":
				stuck.Store(c)
				asked <- c
			case stuck.Load() != c:
				c.Plain(cmd)
			}
		})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		out := make(chan error, 1)
		go func() {
			_, err := n.Subscribe(ctx, "never", never(t))
			out <- err
		}()
		c := Receive(t, "SUBSCRIBE", asked)
		cancel(cause)
		Want(t, "Subscribe", Receive(t, "return", out), strategy.ErrUnknown, cause)
		verdict.Eventually(t, "what was asked for is taken back, or its connection closed", func() bool {
			return f.Seen("UNSUBSCRIBE never") > 0 || c.ended()
		})
		c.Close() // or the next would wait until its silence is noticed
		verdict.Eventually(t, "another is subscribed", func() bool {
			stop, err := n.Subscribe(t.Context(), "c", never(t))
			if err == nil {
				stop()
			}
			return err == nil
		})
	})
}

// A refusal has the server's words, and ends nobody else's subscription.
func subscribeIsRefused(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		var at atomic.Pointer[Conn]
		n, _ := s.on(t, protocol, func(c *Conn, cmd []string) {
			switch {
			case cmd[0] == "SUBSCRIBE" && cmd[1] == "forbidden":
				c.Say("-NOPERM no permissions to access a channel\r\n")
				return
			case cmd[0] == "SUBSCRIBE":
				at.Store(c)
			}
			c.Plain(cmd)
		})
		h, stop := Subscribe(t, n, "c")
		defer stop()
		_, err := n.Subscribe(t.Context(), "forbidden", never(t))
		Want(t, "a channel that is forbidden", err, strategy.ErrRefused)
		wantWords(t, "a channel that is forbidden", err, "NOPERM")
		at.Load().Message("c", "on")
		h.hears(t, "on")
		if !h.Silent() {
			t.Error("a refusal ended another's subscription")
		}
	})
}

func subscribeToADeadServer(t *testing.T, s Subject) {
	n, srv := s.exclusive(t)
	h, _ := Subscribe(t, n, "c")
	redistest.Skip(t, srv.Kill(t.Context()), "what a subscription to a dead server is")
	Want(t, "the end", Receive(t, "the end", h.Ends), strategy.ErrUnknown)
	_, err := n.Subscribe(t.Context(), "c", never(t))
	Want(t, "Subscribe to a dead server", err, strategy.ErrUnsent)
	if os.IsTimeout(err) {
		t.Errorf("Subscribe = %v, want the reason", err)
	}
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, stop := Subscribe(t, n, "c")
	stop()
}

// Waiters come in bursts: the connection is kept for the next.
func subscribeWhereOneIsIdle(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		n, f := s.on(t, protocol, (*Conn).Plain)
		_, stop := Subscribe(t, n, "c")
		stop()
		s.rest(t, n)
		_, stop = Subscribe(t, n, "c")
		stop()
		if got := f.on("SUBSCRIBE"); got != 1 {
			t.Errorf("subscribed on %d connections, want 1: the one at rest", got)
		}
	})
}

// A connection that died at rest is no reason to fail.
func subscribeAfterADeathAtRest(t *testing.T, s Subject) {
	s.each(t, func(t *testing.T, protocol int) {
		n, f := s.on(t, protocol, (*Conn).Plain)
		_, stop := Subscribe(t, n, "c")
		stop()
		s.rest(t, n)
		f.Cut()
		_, stop = Subscribe(t, n, "c")
		stop()
		if got := f.on("SUBSCRIBE"); got != 2 {
			t.Errorf("subscribed on %d connections, want 2", got)
		}
	})
}

func stopWaitsForFn(t *testing.T, s Subject) {
	n := s.shared(t)
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
	Publish(t, n, t.Name(), "x")
	Receive(t, "a call of fn", entered)
	stopped := make(chan struct{})
	go func() {
		stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Error("stop did not wait for fn")
	case <-time.After(20 * time.Millisecond): // a stop that waits passes however slow the machine is
	}
	close(let)
	Receive(t, "the return of stop", stopped)
	if !over {
		t.Error("fn had not returned when stop did")
	}
}
