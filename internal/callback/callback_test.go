// A callback's subscriber hears nothing after the end, and topics end with their last subscriber.
package callback

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

var errLost = errors.New("connection lost")

func TestNothingAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Callback){
		"stopped":           (*Callback).Silence,
		"stopped and ended": func(c *Callback) { c.Silence(); c.Call(nil, errLost) },
		"ended":             func(c *Callback) { c.Call(nil, errLost) },
		"ended twice":       func(c *Callback) { c.Call(nil, errLost); c.Call(nil, errLost) },
	} {
		var calls []string
		c := Of(func(msg []byte, err error) { calls = append(calls, fmt.Sprint(string(msg), err)) })
		c.Call([]byte("one"), nil)
		if c.Over() {
			t.Errorf("%s: it is over before that", name)
		}
		end(c)
		c.Call([]byte("late"), nil)
		want := "one<nil>"
		if strings.HasPrefix(name, "ended") {
			want += ", connection lost"
		}
		if got := strings.Join(calls, ", "); got != want || !c.Over() {
			t.Errorf("%s: heard %s, over %v, want %s and true", name, got, c.Over(), want)
		}
	}
}

// TestSilenceWaits: for a call of another goroutine, and not for its own.
func TestSilenceWaits(t *testing.T) {
	t.Parallel()
	begun, goOn, silent := make(chan bool), make(chan bool), make(chan bool)
	var ended atomic.Bool
	var c *Callback
	c = Of(func([]byte, error) {
		if !deep(1000) {
			t.Error("deep inside of a call insideCall = false, want true: Silence would wait for ever")
		}
		c.Silence()
		close(begun)
		<-goOn
		ended.Store(true)
	})
	go c.Call(nil, nil)
	<-begun
	go func() {
		c.Silence()
		silent <- ended.Load()
	}()
	for range 100 {
		runtime.Gosched() // time for a Silence that would not wait
	}
	close(goOn)
	if !<-silent {
		t.Error("Silence did not wait for the call")
	}
}

// deep is insideCall on a stack with so many more frames.
func deep(frames int) bool {
	if frames == 0 {
		return insideCall()
	}
	return deep(frames - 1)
}

// heard is what a listener's Subscribe has reported so far.
func heard(l *Listener) string {
	select {
	case err := <-l.Ready():
		return fmt.Sprint(err)
	default:
		return "waits"
	}
}

func listener() *Listener { return Listen(func([]byte, error) {}) }

func is(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTopics(t *testing.T) {
	t.Parallel()
	t.Run("joined", func(t *testing.T) {
		ts, first, second := Topics{}, listener(), listener()
		topic, fresh := ts.Join("a", first)
		is(t, "the first is to subscribe", fresh, true)
		same, fresh := ts.Join("a", second)
		is(t, "the second is to subscribe", fresh, false)
		is(t, "they have one topic", same, topic)
		is(t, "before the confirmation the first", heard(first), "waits")
		ts.Confirm(topic, nil)
		is(t, "the first", heard(first), "<nil>")
		is(t, "the second", heard(second), "<nil>")
	})
	t.Run("joined late", func(t *testing.T) {
		ts, first, second := Topics{}, listener(), listener()
		topic, _ := ts.Join("a", first)
		ts.Confirm(topic, nil)
		walked := topic.Listeners()
		ts.Join("a", second)
		is(t, "the later listener", heard(second), "<nil>")
		is(t, "listeners that somebody walks", len(walked), 1)
	})
	t.Run("parted", func(t *testing.T) {
		ts, first, second := Topics{}, listener(), listener()
		topic, _ := ts.Join("a", first)
		ts.Join("a", second)
		walked := topic.Listeners()
		is(t, "the first parts, and it is over", ts.Part(topic, first), false)
		is(t, "it parts again, and it is over", ts.Part(topic, first), false)
		is(t, "listeners that somebody walks stay", slices.Equal(walked, []*Listener{first, second}), true)
		is(t, "the last parts, and it is over", ts.Part(topic, second), true)
		is(t, "topics", len(ts), 0)
	})
	t.Run("refused", func(t *testing.T) {
		ts, first := Topics{}, listener()
		topic, _ := ts.Join("a", first)
		ts.Confirm(topic, errLost)
		is(t, "the refused listener", heard(first), "connection lost")
		is(t, "topics", len(ts), 0)
		is(t, "who was refused parts, and it is over", ts.Part(topic, first), false)
	})
	t.Run("followed", func(t *testing.T) {
		ts, first, second := Topics{}, listener(), listener()
		topic, _ := ts.Join("a", first)
		ts.Part(topic, first)
		next, fresh := ts.Join("a", second)
		is(t, "the next listener has to subscribe", fresh, true)
		is(t, "it has another topic", next != topic, true)
		ts.Confirm(topic, errLost) // late, of the one before
		is(t, "the next topic stays", ts["a"], next)
	})
}

func TestTopicsEnd(t *testing.T) {
	t.Parallel()
	ts := Topics{}
	lives, waits := Listen(nil), Listen(nil)
	confirmed, _ := ts.Join("lives", lives)
	ts.Confirm(confirmed, nil)
	asked, _ := ts.Join("waits", waits)
	asked.Written = true
	live := ts.End(func(t *Topic) error { return fmt.Errorf("%s: written %v", t.Channel, t.Written) })
	if !slices.Equal(live, []*Listener{lives}) || heard(lives) != "<nil>" {
		t.Errorf("%d live on, want the one that was confirmed, once", len(live))
	}
	if got := heard(waits); got != "waits: written true" {
		t.Errorf("the waiting listener hears %q", got)
	}
	ts.Confirm(asked, nil) // late
	is(t, "the listener that waited hears more", heard(waits), "waits")
}

// TestTopicsLeave: some channels are left as all are at the end; the others stay.
func TestTopicsLeave(t *testing.T) {
	t.Parallel()
	ts := Topics{}
	lives, waits, stays := listener(), listener(), listener()
	moved, _ := ts.Join("moved", lives)
	ts.Confirm(moved, nil)
	asked, _ := ts.Join("moved too", waits)
	topic, _ := ts.Join("stays", stays)
	left, live := ts.Leave(func(channel string) bool { return channel != "stays" }, func(*Topic) error { return errLost })
	is(t, "topics that are left", len(left), 2)
	is(t, "who was subscribed is returned", slices.Equal(live, []*Listener{lives}), true)
	is(t, "who was subscribed", heard(lives), "<nil>")
	is(t, "who waits", heard(waits), "connection lost")
	is(t, "who stays", heard(stays), "waits")
	is(t, "who was subscribed parts, and it is over", ts.Part(moved, lives), false)
	ts.Confirm(asked, nil) // late
	is(t, "the listener that waited hears more", heard(waits), "waits")
	is(t, "topics that stay", len(ts) == 1 && ts["stays"] == topic, true)
}
