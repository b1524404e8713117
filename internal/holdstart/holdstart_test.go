// From when a maximum hold counts.
package holdstart

import (
	"context"
	"testing"
	"time"
)

func TestStart(t *testing.T) {
	granted, last := time.Unix(1, 0), time.Unix(2, 0)
	if got := From(context.Background()).Of(granted); got != granted {
		t.Errorf("alone it begins at %v, want at its grant", got)
	}
	ctx, s := With(context.Background())
	if got := From(ctx).Of(granted); !got.IsZero() {
		t.Errorf("before the last grant it begins at %v, want not yet", got)
	}
	inner, part := With(ctx)
	part.Begin(granted)
	if got := From(inner).Of(granted); !got.IsZero() {
		t.Errorf("after the last grant of a part it begins at %v, want not yet", got)
	}
	s.Begin(last)
	for _, ctx := range []context.Context{ctx, inner} {
		if got := From(ctx).Of(granted); got != last {
			t.Errorf("after the last grant it begins at %v, want at that", got)
		}
	}
}
