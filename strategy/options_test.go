// Tests what options are called.
package strategy_test

import (
	"fmt"
	"testing"

	"github.com/lockstrategies/locks/strategy"
)

func TestNamesOfOptions(t *testing.T) {
	t.Parallel()
	for option, want := range map[fmt.Stringer]string{
		strategy.WaitBest: "best", strategy.WaitPoll: "poll", strategy.WaitNotification: "notification", strategy.WaitQueue: "queue", strategy.Wait(7): "Wait(7)",
	} {
		if got := option.String(); got != want {
			t.Errorf("String() of %T(%[1]d) = %q, want %q", option, got, want)
		}
	}
}
