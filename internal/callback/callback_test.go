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
		c.Silence() // would wait for ever
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

// heard is what a listener's Subscribe was told so far.
func heard(l *Listener) string {
	select {
	case err := <-l.Ready():
		return fmt.Sprint(err)
	default:
		return "waits"
	}
}

func TestTopics(t *testing.T) {
	t.Parallel()
	listener := func() *Listener { return Listen(func([]byte, error) {}) }
	first, second, third := listener(), listener(), listener()
	ts := Topics{}
	is := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}

	topic, fresh := ts.Join("a", first)
	is("the first is to subscribe", fresh, true)
	same, fresh := ts.Join("a", second)
	is("the second is to subscribe", fresh, false)
	is("one topic", same, topic)
	is("before the confirmation the first", heard(first), "waits")
	ts.Confirm(topic, nil)
	is("the first", heard(first), "<nil>")
	is("the second", heard(second), "<nil>")
	before := topic.Listeners()
	ts.Join("a", third)
	is("who comes later", heard(third), "<nil>")
	is("listeners that somebody walks", len(before), 2)

	is("the first parts, and it is over", ts.Part(topic, first), false)
	is("listeners that somebody walks", slices.Equal(before, []*Listener{first, second}), true)
	is("the first parts twice, and it is over", ts.Part(topic, first), false)
	is("the second parts, and it is over", ts.Part(topic, second), false)
	is("the third parts, and it is over", ts.Part(topic, third), true)
	next, fresh := ts.Join("a", first)
	is("who comes after the last is to subscribe", fresh, true)
	is("another topic", next != topic, true)

	ts.Confirm(topic, errLost) // late, of the one before
	is("the next topic stays", ts["a"], next)
	ts.Confirm(next, errLost)
	is("who is refused", heard(first), "connection lost")
	is("topics after a refusal", len(ts), 0)
	is("who was refused parts, and it is over", ts.Part(next, first), false)
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
		t.Errorf("who waits is told %q", got)
	}
}
