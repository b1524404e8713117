package conformance_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// In a test file this would be func TestConformance(t *testing.T); Run makes a
// subtest of each property.
func ExampleRun() {
	_ = func(t *testing.T) {
		var server lockstest.Memory // yours: the protocol under test, and its server
		conformance.Run(t, conformance.Subject{
			Name:   "mylock",
			Open:   func(o strategy.Options) (strategy.Strategy, error) { return engine.New(&server, o) },
			Evict:  server.Evict,
			Fenced: true,
		})
	}
	// Output:
}

// A program can ask what a lock guarantees.
func ExampleCheck() {
	var server lockstest.Memory
	subject := conformance.Subject{
		Name: "memory",
		Open: func(o strategy.Options) (strategy.Strategy, error) { return engine.New(&server, o) },
	}
	for _, p := range conformance.Properties()[:3] {
		r := conformance.Check(context.Background(), subject, p)
		fmt.Printf("%s: %s (%s)\n", p.Name, r.Status, p.Clause)
	}
	// Output:
	// Exclusive: kept (While one contender holds a lock, every other is refused.)
	// TryDoesNotWait: kept (TryAcquire answers while the lock is held: it does not wait for it.)
	// ReleaseFrees: kept (A lock that was released can be taken at once, by anybody.)
}
