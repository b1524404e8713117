// What Inspect costs the server.
package rwlock_test

import (
	"testing"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/rwlock"
	"github.com/lockstrategies/locks/strategy"
)

func BenchmarkInspect(b *testing.B) {
	locktest.BenchmarkInspect(b, "read:", func(s *redistest.Server) (strategy.Strategy, error) {
		return rwlock.New(redigonode.New(s.Pool()), strategy.Options{})
	})
}
