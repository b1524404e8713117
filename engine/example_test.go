package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// Any algorithm will do; here it is a lock server in memory. In production it is
// luascript.New(node, strategy.Options{}) or the New of another strategy.
func ExampleNew() {
	var server lockstest.Memory
	locks, err := engine.New(&server, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx := context.Background()
	lease, err := locks.NewLock("invoice/42").TryAcquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, err = locks.NewLock("invoice/42").TryAcquire(ctx)
	fmt.Println("a second contender:", errors.Is(err, strategy.ErrHeld))
	fmt.Println("released:", lease.Release(ctx) == nil)
	// Output:
	// a second contender: true
	// released: true
}
