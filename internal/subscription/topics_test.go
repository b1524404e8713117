// A listener hears nothing after its end, and topics end with their last listener.
package subscription

import (
	"errors"
	"fmt"
	"runtime"
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

// TestLateForATopic: a topic that has been left is out of reach of what comes late: a confirmation, or the parting of a listener. So is
// the one that has taken its place.
func TestLateForATopic(t *testing.T) {
	t.Parallel()
	ts, l, next := topics{}, listenerOf(nil), listenerOf(nil)
	left, _ := ts.join("a", l)
	ts.leave(func(string) bool { return true }, func(*topic) error { return errCut })
	if err := <-l.ready; err != errCut || len(ts) != 0 {
		t.Errorf("who waited hears %v, and %d topics are left, want %v, and none", err, len(ts), errCut)
	}
	if _, fresh := ts.join("a", next); !fresh {
		t.Error("the next listener need not subscribe")
	}
	ts.confirm(left, nil)
	ts.confirm(left, errCut)
	if ts.part(left, l) || len(l.ready) > 0 || len(next.ready) > 0 || len(ts) != 1 {
		t.Errorf("what comes late is heard, or %d topics are there, want one", len(ts))
	}
}
