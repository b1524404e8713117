package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/multilock"
	"github.com/lockstrategies/locks/strategy"
)

// New locks both accounts or neither. It sorts them, so two transfers in opposite directions cannot deadlock. Each part has
// a fence of its own, for the store that it protects.
func ExampleNew() {
	var server lockstest.Memory
	locks, err := engine.New(&server, strategy.Options{}) // fairqueue.New(node, strategy.Options{}) in your program
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	both, err := multilock.New(locks.NewLock("account/7"), locks.NewLock("account/2"))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	err = strategy.Do(ctx, both, func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("locked:", lease.Name())
		_, err := locks.NewLock("account/7").TryAcquire(ctx)
		fmt.Println("a second contender for one:", errors.Is(err, strategy.ErrHeld))
		for _, part := range multilock.Parts(lease) {
			fence, fenced := part.Fence()
			fmt.Println(part.Name(), "has a fence:", fenced && fence > 0)
		}
		return nil
	})
	fmt.Println("error:", err)

	if _, err := locks.NewLock("account/2").TryAcquire(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = both.TryAcquire(ctx)
	var held *strategy.HeldError
	if errors.As(err, &held) {
		fmt.Println("held by another:", held.Name)
	}
	// Output:
	// locked: account/2, account/7
	// a second contender for one: true
	// account/2 has a fence: true
	// account/7 has a fence: true
	// error: <nil>
	// held by another: account/2
}
