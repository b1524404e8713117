// Examples of the suite and of Memory.
package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// In a test file this would be func TestConformance(t *testing.T); Run makes a
// subtest of each property.
func ExampleRun() {
	_ = func(t *testing.T) {
		var server conformance.Memory // yours: the protocol under test, and its server
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
	var server conformance.Memory
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

// Memory stands in for a server in tests of code that uses locks, and fails on
// request.
func ExampleMemory() {
	ctx := context.Background()
	var server conformance.Memory
	shop, err := engine.New(&server, strategy.Options{})
	if err != nil {
		panic(err)
	}
	defer shop.Close()

	lease, err := shop.NewLock("till").TryAcquire(ctx)
	fmt.Println(err)
	_, err = shop.NewLock("till").TryAcquire(ctx)
	fmt.Println(errors.Is(err, strategy.ErrHeld))

	server.Intercept(func(context.Context, conformance.Request, func() error) error {
		return conformance.Unsent()
	})
	fmt.Println(errors.Is(lease.Extend(ctx), strategy.ErrUnsent), lease.Err())
	// Output:
	// <nil>
	// true
	// true <nil>
}

// Memory also stands in for a server of locks that several may hold.
func ExampleMemory_Semaphore() {
	ctx := context.Background()
	var server conformance.Memory
	shop, err := server.Semaphore(2, strategy.Options{})
	if err != nil {
		panic(err)
	}
	defer shop.Close()

	tills := shop.NewLock("tills")
	for range 3 {
		_, err := tills.TryAcquire(ctx)
		fmt.Println(err == nil, errors.Is(err, strategy.ErrHeld))
	}
	fmt.Println(shop.SetPermits(ctx, "tills", 3))
	_, err = tills.TryAcquire(ctx)
	fmt.Println(err)
	// Output:
	// true false
	// true false
	// false true
	// <nil>
	// <nil>
}
