package lockstest_test

import (
	"context"
	"errors"
	"fmt"

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

	letGo := locks.Hold("invoice/42")
	err := strategy.DoWithin(ctx, 0, locks.NewLock("invoice/42"), work)
	fmt.Println("another process has the lock:", errors.Is(err, strategy.ErrHeld))
	letGo()

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
