package conformance

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// A History is what happened in one trial, in order: every call on a lock with its
// result, and what was done to the servers.
type History []Event

// An Event is one line of a [History].
type Event struct {
	At    time.Duration // since the trial began
	Text  string        // "B.TryAcquire() = <nil>"
	Times int           // how often in a row; then At is the first
}

// String lists the events, one to a line.
func (h History) String() string {
	var b strings.Builder
	for i, e := range h {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%10v  %s", e.At.Round(10*time.Microsecond), e.Text)
		if e.Times > 1 {
			fmt.Fprintf(&b, "  (%d times)", e.Times)
		}
	}
	return b.String()
}

// maxHistory keeps the history of a long contention readable: what came first says
// how it was set up, and what came last how it ended.
const maxHistory = 60

// recorder writes a History. It is safe for concurrent use.
type recorder struct {
	observe func(Event) // nil: nobody looks

	mu      sync.Mutex
	began   time.Time
	last    time.Time // of the latest event
	events  History
	dropped int
}

func (r *recorder) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = time.Now()
	e := Event{At: time.Since(r.began), Text: text, Times: 1}
	if r.observe != nil {
		r.observe(e)
	}
	if n := len(r.events); n > 0 && r.events[n-1].Text == text {
		r.events[n-1].Times++
		return
	}
	if len(r.events) == maxHistory {
		copy(r.events[maxHistory/2:], r.events[maxHistory/2+1:])
		r.events = r.events[:maxHistory-1]
		r.dropped++
	}
	r.events = append(r.events, e)
}

// quiet is for how long nothing has happened.
func (r *recorder) quiet() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.IsZero() {
		return time.Since(r.began)
	}
	return time.Since(r.last)
}

func (r *recorder) history() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := append(History(nil), r.events...)
	if r.dropped > 0 {
		gap := Event{At: h[maxHistory/2-1].At, Text: fmt.Sprintf("… %d events left out …", r.dropped), Times: 1}
		h = append(h[:maxHistory/2], append(History{gap}, h[maxHistory/2:]...)...)
	}
	return h
}
