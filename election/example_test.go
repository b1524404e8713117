package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// A server in memory stands for Redis.
func ExampleElection_Lead() {
	options := strategy.Options{RetryOnError: true, Label: strategy.ThisProcess("").String()}
	locks, err := engine.New(&conformance.Memory{}, options) // fairqueue.New(pool, options) in your program
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx, stop := context.WithCancel(context.Background())
	terms := 0
	err = election.New(locks, "scheduler").Lead(ctx, func(ctx context.Context, term strategy.Lease) error {
		_, numbered := term.Fence()
		fmt.Println("leading, with a number for each write:", numbered)
		if terms++; terms == 2 {
			stop() // the process gets the signal to end
		}
		return nil // resigns; if ctx ends, the term is over
	})
	fmt.Println("ended by its context:", errors.Is(err, context.Canceled))
	// Output:
	// leading, with a number for each write: true
	// leading, with a number for each write: true
	// ended by its context: true
}

func ExampleElection_Campaign() {
	locks, err := engine.New(&conformance.Memory{}, strategy.Options{RetryOnError: true, Label: "web-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	ctx := context.Background()

	e := election.New(locks, "scheduler")
	term, err := e.Campaign(ctx) // waits until this process leads
	if err != nil {
		log.Fatal(err)
	}
	leader, err := e.Leader(ctx)
	fmt.Println(leader.Held, leader.Label, err)

	if err := term.Release(ctx); err != nil { // resigns
		log.Fatal(err)
	}
	leader, err = e.Leader(ctx)
	fmt.Println(leader.Held, err)
	// Output:
	// true web-1 <nil>
	// false <nil>
}
