// Why a time-out or a context ended a request, also if a deadline has passed and no timer has run.
package timeup

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// late is a context whose timer does not run: its deadline passes, and neither Err nor Done tells.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

func TestWhy(t *testing.T) {
	cause := errors.New("gone")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	now := time.Now()
	passed := late{t.Context(), now}
	for _, c := range []struct {
		name string
		ctx  context.Context
		due  time.Time
		want []error
		says string
	}{
		{"neither", t.Context(), now.Add(time.Hour), nil, ""},
		{"late", t.Context(), now, []error{Err, os.ErrDeadlineExceeded}, Err.Error()},
		{"cancelled", over, now.Add(time.Hour), []error{cause}, "gone"},
		{"both", over, now, []error{cause, Err}, "gone, and " + Err.Error()},
		{"not yet", late{t.Context(), now.Add(time.Hour)}, now.Add(time.Hour), nil, ""},
		{"the deadline alone", passed, now.Add(time.Hour), []error{context.DeadlineExceeded}, "context deadline exceeded"},
		{"the deadline, and late", passed, now, []error{context.DeadlineExceeded, Err}, "context deadline exceeded, and " + Err.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			why := Why(c.ctx, c.due)
			if (why == nil) != (c.want == nil) {
				t.Fatalf("Why() = %v, want %v", why, c.want)
			}
			for _, want := range c.want {
				if !errors.Is(why, want) {
					t.Errorf("Why() = %v, want it to be %v, too", why, want)
				}
			}
			unread := errors.New("unread")
			if err := With(c.ctx, c.due, unread); !errors.Is(err, unread) || why != nil && err.Error() != c.says+": unread" || why == nil && err != unread {
				t.Errorf("With(unread) = %v, want it, after the reason %q", err, c.says)
			}
			if why != nil && why.Error() != c.says {
				t.Errorf("Why() says %q, want %q", why, c.says)
			}
			for _, same := range append(c.want, Err) { // what was waited for has ended for the same reason
				if err := With(c.ctx, c.due, same); why != nil && err.Error() != c.says {
					t.Errorf("With(%v) = %v, want %q alone", same, err, c.says)
				}
			}
		})
	}
}

// TestEnded: a context is over from its deadline on. Ended reports its cause as soon as its timer has run, and does
// not wait for that in vain.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		background := context.Background()
		cause := errors.New("gone")
		now := time.Now()
		cancelled, cancel := context.WithCancelCause(background)
		cancel(cause)
		plain, stop := context.WithCancel(background)
		stop()
		timed, done := context.WithDeadlineCause(background, now.Add(2*time.Second), cause)
		defer done()
		for _, c := range []struct {
			name    string
			ctx     context.Context
			want    string // empty: it is not over
			elapsed time.Duration
		}{
			{"without a deadline", background, "", 0},
			{"not yet", late{background, now.Add(1)}, "", 0},
			{"cancelled", cancelled, "context canceled: gone", 0},
			{"without a cause of its own", plain, "context canceled", 0},
			{"at its deadline", late{background, now}, "context deadline exceeded", timerDelay},
			{"its timer runs soon", late{timed, now.Add(2*time.Second - timerDelay/2)}, "context deadline exceeded: gone", timerDelay / 2},
		} {
			if at, ok := c.ctx.Deadline(); ok && c.want != "" {
				time.Sleep(time.Until(at))
			}
			start := time.Now()
			if over := Over(c.ctx); over != (c.want != "") {
				t.Errorf("%s: Over = %v, want %v", c.name, over, c.want != "")
			}
			err := Ended(c.ctx)
			if took := time.Since(start); took != c.elapsed {
				t.Errorf("%s: Ended took %v, want %v", c.name, took, c.elapsed)
			}
			if (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
				t.Errorf("%s: Ended = %v, want %q", c.name, err, c.want)
			}
		}
	})
}
