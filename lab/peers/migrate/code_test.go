package migrate

import (
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/strategy"
)

// The code that docs/use/migrating.md quotes. None of it runs: the locks are tested in migrate_test.go.
var _ = sharedKey

func sharedKey(node driver.Node) (strategy.Strategy, error) {
	return luascript.New(node, strategy.Options{
		TTL: 8 * time.Second,
		Key: func(name string) string { return name }, // the other library's key, to the byte
	})
}
