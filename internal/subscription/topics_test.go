// A listener hears nothing after its end, and topics end with their last listener.
package subscription

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

var errCut = errors.New("connection lost")

func TestNothingAfterTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*listener){
		"stopped":           (*listener).silence,
		"stopped and ended": func(l *listener) { l.silence(); l.call(nil, errCut) },
		"ended":             func(l *listener) { l.call(nil, errCut) },
		"ended twice":       func(l *listener) { l.call(nil, errCut); l.call(nil, errCut) },
	} {
		var calls []string
		l := listenerOf(func(msg []byte, err error) { calls = append(calls, fmt.Sprint(string(msg), err)) })
		l.call([]byte("one"), nil)
		end(l)
		l.call([]byte("late"), nil)
		want := "one<nil>"
		if strings.HasPrefix(name, "ended") {
			want += ", connection lost"
		}
		if got := strings.Join(calls, ", "); got != want {
			t.Errorf("%s: heard %s, want %s", name, got, want)
		}
	}
}

// TestSilenceWaits: for a call under way.
func TestSilenceWaits(t *testing.T) {
	t.Parallel()
	begun, goOn, silent := make(chan bool), make(chan bool), make(chan bool)
	var ended atomic.Bool
	l := listenerOf(func([]byte, error) {
		close(begun)
		<-goOn
		ended.Store(true)
	})
	go l.call(nil, nil)
	<-begun
	go func() {
		l.silence()
		silent <- ended.Load()
	}()
	for range 100 {
		runtime.Gosched() // time for a silence that would not wait
	}
	close(goOn)
	if !<-silent {
		t.Error("silence did not wait for the call")
	}
}

// heard is what a listener's Subscribe has reported so far.
func heard(l *listener) string {
	select {
	case err := <-l.ready:
		return fmt.Sprint(err)
	default:
		return "waits"
	}
}

func unheard() *listener { return listenerOf(func([]byte, error) {}) }

func is(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTopics(t *testing.T) {
	t.Parallel()
	t.Run("joined", func(t *testing.T) {
		ts, first, second := topics{}, unheard(), unheard()
		topic, fresh := ts.join("a", first)
		is(t, "the first is to subscribe", fresh, true)
		same, fresh := ts.join("a", second)
		is(t, "the second is to subscribe", fresh, false)
		is(t, "they have one topic", same, topic)
		is(t, "before the confirmation the first", heard(first), "waits")
		ts.confirm(topic, nil)
		is(t, "the first", heard(first), "<nil>")
		is(t, "the second", heard(second), "<nil>")
	})
	t.Run("joined late", func(t *testing.T) {
		ts, first, second := topics{}, unheard(), unheard()
		topic, _ := ts.join("a", first)
		ts.confirm(topic, nil)
		walked := topic.listeners
		ts.join("a", second)
		is(t, "the later listener", heard(second), "<nil>")
		is(t, "listeners that somebody walks", len(walked), 1)
	})
	t.Run("parted", func(t *testing.T) {
		ts, first, second := topics{}, unheard(), unheard()
		topic, _ := ts.join("a", first)
		ts.join("a", second)
		walked := topic.listeners
		is(t, "the first parts, and it is over", ts.part(topic, first), false)
		is(t, "it parts again, and it is over", ts.part(topic, first), false)
		is(t, "listeners that somebody walks stay", slices.Equal(walked, []*listener{first, second}), true)
		is(t, "the last parts, and it is over", ts.part(topic, second), true)
		is(t, "topics", len(ts), 0)
	})
	t.Run("refused", func(t *testing.T) {
		ts, first := topics{}, unheard()
		topic, _ := ts.join("a", first)
		ts.confirm(topic, errCut)
		is(t, "the refused listener", heard(first), "connection lost")
		is(t, "topics", len(ts), 0)
		is(t, "who was refused parts, and it is over", ts.part(topic, first), false)
	})
	t.Run("followed", func(t *testing.T) {
		ts, first, second := topics{}, unheard(), unheard()
		topic, _ := ts.join("a", first)
		ts.part(topic, first)
		next, fresh := ts.join("a", second)
		is(t, "the next listener has to subscribe", fresh, true)
		is(t, "it has another topic", next != topic, true)
		ts.confirm(topic, errCut) // late, of the one before
		is(t, "the next topic stays", ts["a"], next)
	})
	t.Run("ended", func(t *testing.T) {
		ts, lives, waits := topics{}, unheard(), unheard()
		confirmed, _ := ts.join("lives", lives)
		ts.confirm(confirmed, nil)
		asked, _ := ts.join("waits", waits)
		asked.written = true
		_, live := ts.leave(func(string) bool { return true }, func(t *topic) error { return fmt.Errorf("%s: written %v", t.channel, t.written) })
		is(t, "who was subscribed is returned", slices.Equal(live, []*listener{lives}), true)
		is(t, "who was subscribed", heard(lives), "<nil>")
		is(t, "who waits", heard(waits), "waits: written true")
		ts.confirm(asked, nil) // late
		is(t, "the listener that waited hears more", heard(waits), "waits")
	})
	// Some channels are left as all are at the end; the others stay.
	t.Run("left", func(t *testing.T) {
		ts, lives, waits, stays := topics{}, unheard(), unheard(), unheard()
		moved, _ := ts.join("moved", lives)
		ts.confirm(moved, nil)
		asked, _ := ts.join("moved too", waits)
		stay, _ := ts.join("stays", stays)
		left, live := ts.leave(func(channel string) bool { return channel != "stays" }, func(*topic) error { return errCut })
		is(t, "topics that are left", len(left), 2)
		is(t, "who was subscribed is returned", slices.Equal(live, []*listener{lives}), true)
		is(t, "who was subscribed", heard(lives), "<nil>")
		is(t, "who waits", heard(waits), "connection lost")
		is(t, "who stays", heard(stays), "waits")
		is(t, "who was subscribed parts, and it is over", ts.part(moved, lives), false)
		ts.confirm(asked, nil) // late
		is(t, "the listener that waited hears more", heard(waits), "waits")
		is(t, "topics that stay", len(ts) == 1 && ts["stays"] == stay, true)
	})
}
