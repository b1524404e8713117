// Package telemetry has the code that docs/run/telemetry.md shows, and tests that write the output
// there.
package telemetry

import (
	"log/slog"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockotel"
	"github.com/lockstrategies/locks/telemetry/lockslog"
)

// Open returns locks that tell the log, and the program's OpenTelemetry, what happens.
func Open(node driver.Node, log *slog.Logger) (strategy.Strategy, error) {
	logs := lockslog.New(log, lockslog.Options{})
	telemetry, err := lockotel.New(lockotel.Options{Strategy: "fairqueue"})
	if err != nil {
		return nil, err
	}
	return fairqueue.New(node, strategy.Options{
		Observe: func(e strategy.Event) {
			logs(e)
			telemetry(e)
		},
	})
}
