// A subscription lies at the master of its slot, or ends: on a cluster in memory.
package rediscnode

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/strategy"
)

// publish has a server tell a message to all who listen at it.
func (f *fake) publish(addr, channel, msg string) {
	f.mu.Lock()
	c := f.listening[addr]
	f.mu.Unlock()
	c.Message(channel, msg)
	synctest.Wait()
}

// noted is how many subscriptions the Node keeps in mind.
func (f *fake) noted() int {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	return len(f.subs)
}

// TestSubscriptionEnds: a subscription ends by stop, with its connection, with the Node, or when any reply
// shows that its slot has moved. Unless stop ended it, fn hears of the end once. Nothing is left of it, and the
// caller may call stop after that.
func TestSubscriptionEnds(t *testing.T) {
	forbidden := say{to: "a:1 CLUSTER", reply: "-NOPERM no", times: ever}
	for name, c := range map[string]struct {
		says    []say
		end     func(t *testing.T, f *fake, stop func())
		is      []error // kinds of the error that fn gets; nil: it gets none
		at      string  // whose error that is
		cut     bool    // its connection ends
		another bool    // so does one of another slot
	}{
		"stop": {end: func(t *testing.T, f *fake, stop func()) { stop() }},
		"its connection breaks": {end: func(t *testing.T, f *fake, stop func()) { f.servers["a:1"].Cut() },
			is: []error{strategy.ErrUnknown}, at: "memory:1", cut: true, another: true},
		"Close": {end: func(t *testing.T, f *fake, stop func()) { f.Close() },
			is: []error{strategy.ErrUnknown, strategy.ErrClosed}, at: "memory:1", cut: true, another: true},
		"the cluster tells": {is: []error{strategy.ErrUnknown, errMoved}, at: "a:1", end: func(t *testing.T, f *fake, stop func()) {
			f.tell("0-8191 a:1, 8192-16383 b:1")
			f.ask(t)
		}},
		"its server is gone": {is: []error{strategy.ErrUnknown, errMoved}, at: "a:1", cut: true, another: true, end: func(t *testing.T, f *fake, stop func()) {
			f.tell("0-16383 b:1")
			f.ask(t)
		}},
		"its server is a replica now": {is: []error{strategy.ErrUnknown}, at: "memory:1", cut: true, another: true, end: func(t *testing.T, f *fake, stop func()) {
			f.wantGet(t, keyOf(1))
			f.tell("0-16383 b:1 a:1")
			f.say(say{to: "a:1 HELLO", reply: "*2\r\n$4\r\nrole\r\n$7\r\nreplica", times: ever})
			f.log()
			for range 3 {
				f.Probe(t.Context(), soon())
			}
			f.ask(t) // what the probe has asked already
			_, stopAgain := nodetest.Subscribe(t, f, keyOf(1))
			stopAgain()
			synctest.Wait()
			if got, want := f.log(), "a:1 CLUSTER SLOTS, b:1 SUBSCRIBE "+keyOf(1)+", b:1 UNSUBSCRIBE "+keyOf(1); got != want {
				t.Errorf("the servers were asked %s, want %s", got, want)
			}
		}},
		"a server redirects a request of its slot": {says: []say{forbidden}, is: []error{strategy.ErrUnknown, errMoved}, at: "a:1", end: func(t *testing.T, f *fake, stop func()) {
			f.say(say{to: "a:1 GET", reply: "-MOVED " + slotOf(keyOf(1)) + " b:1", times: 1})
			f.wantGet(t, keyOf(1))
		}},
	} {
		bubbled(t, name, func(t *testing.T, f *fake) {
			f.say(c.says...)
			h, stop := nodetest.Subscribe(t, f, keyOf(1))
			other, stopOther := nodetest.Subscribe(t, f, keyOf(0))
			f.publish("a:1", keyOf(1), "one")
			if f.noted() != 2 {
				t.Errorf("%d subscriptions are noted, want 2", f.noted())
			}
			c.end(t, f, stop)
			synctest.Wait()
			if got := nodetest.Receive(t, "a message", h.Msgs); got != "one" {
				t.Errorf("heard %q, want one", got)
			}
			wantEnd(t, h, c.is, c.at)
			if len(other.Ends) > 0 != c.another {
				t.Errorf("the other subscription has heard %d ends, want an end: %v", len(other.Ends), c.another)
			}
			if left := len(f.when("a:1 UNSUBSCRIBE " + keyOf(1))); !c.cut && left != 1 {
				t.Errorf("the server has seen %d UNSUBSCRIBEs, want one", left)
			}
			stop()
			stopOther()
			wantEnd(t, h, nil, "")
			if f.noted() != 0 {
				t.Errorf("%d subscriptions are noted at the end, want none", f.noted())
			}
		})
	}
}

// wantEnd checks what a subscription has heard since it was looked at: one error of these kinds, from the server at. Where
// no kinds are wanted, nothing.
func wantEnd(t *testing.T, h nodetest.Heard, is []error, at string) {
	t.Helper()
	if is != nil {
		end := nodetest.Receive(t, "the end", h.Ends)
		nodetest.Want(t, "the end", end, is...)
		var failed *strategy.ServerError
		if errors.As(end, &failed); failed.Node != at {
			t.Errorf("told by %s, want %s", failed.Node, at)
		}
	}
	if !h.Silent() {
		t.Errorf("heard %d messages and %d ends behind its end, want nothing", len(h.Msgs), len(h.Ends))
	}
}

// TestStopWaits: stop waits for fn, while fn hears of a move.
func TestStopWaits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		goOn, told, stopped := make(chan bool), false, false
		stop, err := f.Subscribe(t.Context(), "k", func([]byte, error) { told = true; <-goOn })
		if err != nil {
			t.Fatal(err)
		}
		f.tell("0-16383 b:1")
		f.ask(t)
		synctest.Wait()
		go func() { stop(); stopped = true }()
		if synctest.Wait(); !told || stopped {
			t.Errorf("fn has heard: %v, stop has returned while fn runs: %v, want true, false", told, stopped)
		}
		close(goOn)
		if synctest.Wait(); !stopped {
			t.Error("stop has not returned after fn")
		}
	})
}

// TestMovedMeanwhile: a slot that moves while it is subscribed to is subscribed to where it is then.
func TestMovedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.say(say{to: "a:1 SUBSCRIBE", after: time.Second, times: 1})
		go func() {
			f.get("k") //nolint:errcheck // it makes sure that all is known
			f.tell("0-16383 b:1")
			f.inquire(t.Context(), soon()) //nolint:errcheck // what follows shows what came of it
		}()
		h, stop := nodetest.Subscribe(t, f, "k")
		synctest.Wait()
		f.publish("b:1", "k", "here")
		if got := nodetest.Receive(t, "a message", h.Msgs); got != "here" || !h.Silent() {
			t.Errorf("heard %q, and %d ends, want here alone", got, len(h.Ends))
		}
		if f.servers["a:1"].Open() > 0 {
			t.Error("a:1 has gone, and is still connected to")
		}
		stop()
	})
}

// TestSubscribedTooLate: what was subscribed to where it is no more is ended there.
func TestSubscribedTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.say(say{to: "a:1 CLUSTER", reply: "-NOPERM no", times: ever}, say{to: "a:1 GET", reply: movedB, after: time.Second / 2, times: 1})
		f.say(say{to: "a:1 SUBSCRIBE", after: time.Second, times: 1})
		go f.get("k") //nolint:errcheck // MOVED
		_, stop := nodetest.Subscribe(t, f, "k")
		defer stop()
		synctest.Wait()
		if n := len(f.when("a:1 UNSUBSCRIBE k")); n != 1 {
			t.Errorf("a:1 has seen %d UNSUBSCRIBEs, want one", n)
		}
		if n := len(f.when("b:1 SUBSCRIBE k")); n != 1 {
			t.Errorf("b:1 was subscribed to %d times, want once", n)
		}
	})
}

// TestBrokenAndMoved: once fn has heard of the end, Subscribe does not make the subscription again, though its
// slot has moved.
func TestBrokenAndMoved(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		f.tell("0-16383 b:1")
		f.ask(t)
		var told []error
		sub := &subscription{n: f.node, slot: redisc.Slot("k"), addr: "a:1", fn: func(_ []byte, err error) { told = append(told, err) }, told: make(chan struct{})}
		sub.hear(nil, errors.New("broken"))
		if !f.note(sub) || len(told) != 1 {
			t.Errorf("it is to be made again, want it over: fn has heard %v", told)
		}
		if f.noted() != 0 {
			t.Error("it is noted, though it is over")
		}
	})
}

// TestMovedWhileClosing: from when Close has begun it is Close that tells subscriptions of their end.
func TestMovedWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake) {
		h, _ := nodetest.Subscribe(t, f, "k")
		f.node.mu.Lock()
		f.closed = true
		f.node.mu.Unlock()
		f.moved(redisc.Slot("k"), "b:1")
		synctest.Wait()
		if !h.Silent() {
			t.Error("told before Close does")
		}
		f.Close() //nolint:errcheck // it has none
		wantEnd(t, h, []error{strategy.ErrUnknown, strategy.ErrClosed}, "memory:1")
	})
}
