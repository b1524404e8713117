// Why a time-out or a context ended a request.
package timeup

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func TestWhy(t *testing.T) {
	gone := errors.New("gone")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	now := time.Now()
	for _, c := range []struct {
		name string
		ctx  context.Context
		due  time.Time
		want []error
		says string
	}{
		{"neither", t.Context(), now.Add(time.Hour), nil, ""},
		{"late", t.Context(), now, []error{Err, os.ErrDeadlineExceeded}, Err.Error()},
		{"cancelled", over, now.Add(time.Hour), []error{gone}, "gone"},
		{"both", over, now, []error{gone, Err}, "gone, and " + Err.Error()},
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
		})
	}
}
