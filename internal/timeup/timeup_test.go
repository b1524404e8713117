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
	}{
		{"neither", t.Context(), now.Add(time.Hour), nil},
		{"late", t.Context(), now, []error{Err, os.ErrDeadlineExceeded}},
		{"cancelled", over, now.Add(time.Hour), []error{gone}},
		{"both", over, now, []error{gone, Err}},
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
			if late := !c.due.After(now); errors.Is(why, Err) != late {
				t.Errorf("Why() = %v: it says that the time is over: %v, want %v", why, !late, late)
			}
		})
	}
}
