package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// lead campaigns for the lock, and leads while it holds it. After a loss it campaigns again.
func lead(ctx context.Context, l strategy.Lock, reign func(context.Context, strategy.Lease) error) error {
	for {
		if err := strategy.Do(ctx, l, reign); !errors.Is(err, strategy.ErrLost) {
			return err
		}
	}
}

// A lock that is kept alive is an election. A waiter campaigns, the holder leads, a release resigns.
// The fence is the number of the term: it rises from leader to leader. docs/election.md says more.
func Example_election() {
	var server conformance.Memory // stands for fairqueue.New(pool, …)
	locks, err := engine.New(&server, strategy.Options{RetryOnError: true})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	var last uint64
	err = lead(context.Background(), locks.NewLock("leader"), func(ctx context.Context, lease strategy.Lease) error {
		term, _ := lease.Fence()
		fmt.Println("leads, by a greater number than before:", term > last)
		if last != 0 {
			return nil // resigns
		}
		last = term
		server.Evict(ctx, "lock:{leader}") // as an operator might
		lease.Extend(ctx)                  // finds that; so does the next renewal in the background
		<-ctx.Done()                       // the term is over
		return context.Cause(ctx)
	})
	fmt.Println("resigned:", err)
	// Output:
	// leads, by a greater number than before: true
	// leads, by a greater number than before: true
	// resigned: <nil>
}
