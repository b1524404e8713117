package lockstest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// In a test t is the test's.
func Example() {
	t := &strict{}
	defer t.end()

	locks := lockstest.New(t)
	ctx := context.Background()
	work := func(ctx context.Context, _ strategy.Lease) error { return context.Cause(ctx) }

	release := locks.Hold("invoice/42")
	err := strategy.DoWithin(ctx, locks.NewLock("invoice/42"), 0, work)
	fmt.Println("another process has the lock:", errors.Is(err, strategy.ErrHeld))
	release()

	err = strategy.Do(ctx, locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		locks.Lose("invoice/42")
		return work(ctx, lease)
	})
	fmt.Println("the work has lost the lock:", errors.Is(err, strategy.ErrLost))

	locks.FailNext(lockstest.Unreachable)
	err = strategy.Do(ctx, locks.NewLock("invoice/42"), work)
	fmt.Println("no server was reached:", errors.Is(err, strategy.ErrUnsent))
	// Output:
	// another process has the lock: true
	// the work has lost the lock: true
	// no server was reached: true
}

// Memory stands in for a server in tests of code that uses locks, and fails on
// request.
func ExampleMemory() {
	ctx := context.Background()
	var server lockstest.Memory
	shop, err := engine.New(&server, strategy.Options{})
	if err != nil {
		panic(err)
	}
	defer shop.Close()

	lease, err := shop.NewLock("till").TryAcquire(ctx)
	fmt.Println(err)
	_, err = shop.NewLock("till").TryAcquire(ctx)
	fmt.Println(errors.Is(err, strategy.ErrHeld))

	server.Intercept(func(context.Context, lockstest.Request, func() error) error {
		return lockstest.Unsent()
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
	var server lockstest.Memory
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
