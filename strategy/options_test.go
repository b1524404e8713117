// Tests what options are called, and how long the default pauses are.
package strategy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

func TestNamesOfOptions(t *testing.T) {
	t.Parallel()
	for option, want := range map[fmt.Stringer]string{
		strategy.WaitBest: "best", strategy.WaitPoll: "poll", strategy.WaitNotification: "notification", strategy.WaitQueue: "queue", strategy.Wait(7): "Wait(7)",
		strategy.HandOverBest: "best", strategy.HandOverNone: "none", strategy.HandOver(-1): "HandOver(-1)",
	} {
		if got := option.String(); got != want {
			t.Errorf("String() of %T(%[1]d) = %q, want %q", option, got, want)
		}
	}
}

func TestDefaultBackoff(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for attempt, want := range map[int]time.Duration{
		-1 << 63: 2 * ms, -1: 2 * ms, 0: 2 * ms, 1: 2 * ms, 2: 4 * ms, 3: 8 * ms, 7: 128 * ms, 8: 250 * ms, 9: 250 * ms, 100: 250 * ms, 1<<63 - 1: 250 * ms,
	} {
		if got := strategy.DefaultBackoff(attempt); got != want {
			t.Errorf("DefaultBackoff(%d) = %v, want %v", attempt, got, want)
		}
	}
}
