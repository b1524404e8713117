package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lab/election"
	"github.com/lockstrategies/locks/strategy"
)

// A server in memory stands for fairqueue.New(pool, strategy.Options{RetryOnError: true}).
func ExampleLead() {
	locks, err := engine.New(&conformance.Memory{}, strategy.Options{RetryOnError: true})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx, stop := context.WithCancel(context.Background())
	terms := 0
	err = election.Lead(ctx, locks.NewLock("leader"), func(ctx context.Context, lease strategy.Lease) error {
		_, fenced := lease.Fence()
		fmt.Println("leading, with a number for what is written:", fenced)
		if terms++; terms == 2 {
			stop() // the process gets the signal to end
		}
		return nil // resigns; ctx ends when it must
	})
	fmt.Println("ended by its context:", errors.Is(err, context.Canceled))
	// Output:
	// leading, with a number for what is written: true
	// leading, with a number for what is written: true
	// ended by its context: true
}
