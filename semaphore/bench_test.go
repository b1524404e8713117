// What Inspect costs the server.
package semaphore_test

import (
	"testing"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/semaphore"
	"github.com/lockstrategies/locks/strategy"
)

func BenchmarkInspect(b *testing.B) {
	locktest.BenchmarkInspect(b, "permit:", func(s *redistest.Server) (strategy.Strategy, error) {
		return semaphore.New(redigonode.New(s.Pool()), 1000, strategy.Options{})
	})
}
