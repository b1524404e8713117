// Package telemetry has the code that docs/run/telemetry.md shows, and tests that write the output
// there.
package telemetry

import (
	"log/slog"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockotel"
	"github.com/lockstrategies/locks/telemetry/lockslog"
)

// Open returns locks that tell the log, and the program's OpenTelemetry, what happens.
func Open(pool *redis.Pool, log *slog.Logger) (strategy.Strategy, error) {
	logs := lockslog.New(log, lockslog.Options{})
	telemetry, err := lockotel.New(lockotel.Options{Strategy: "luascript"})
	if err != nil {
		return nil, err
	}
	return luascript.New(redigonode.New(pool), strategy.Options{
		Observe: func(e strategy.Event) {
			logs(e)
			telemetry(e)
		},
	})
}
