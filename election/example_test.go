package election_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstrategies/locks/election"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// A server in memory stands for Redis.
func ExampleElection_Lead() {
	options := strategy.Options{MaxHold: 40 * time.Second, Label: strategy.ThisProcess("").String()}
	locks, err := engine.New(&lockstest.Memory{}, options) // fairqueue.New(node, options) in your program
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	ctx, stop := context.WithCancel(context.Background()) // signal.NotifyContext in your program
	const every = time.Millisecond
	runs := 0
	work := func(_ context.Context, term strategy.Lease) error {
		if runs == 2 {
			return nil // a tick had come, too
		}
		_, fenced := term.Fence()
		fmt.Println("the leader works, with a number:", fenced)
		if runs++; runs == 2 {
			stop() // the process gets the signal to end
		}
		return nil
	}
	leaders, err := locks.With(func(o *strategy.Options) {
		o.RetryOnError = true // candidates wait through an outage of Redis
		o.MaxHold = 0         // a term may last for ever
	})
	if err != nil {
		log.Fatal(err)
	}
	reign := func(ctx context.Context, term strategy.Lease) error {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done(): // the lock is lost, or the process ends
				return nil
			case <-tick.C:
				if err := work(ctx, term); err != nil { // gives term.Fence() to each write
					return err // resigns, and ends Lead
				}
			}
		}
	}
	err = election.New(leaders, "scheduler").Lead(ctx, reign)
	fmt.Println("ended by its context:", errors.Is(err, context.Canceled))
	// Output:
	// the leader works, with a number: true
	// the leader works, with a number: true
	// ended by its context: true
}

func ExampleElection_Campaign() {
	locks, err := engine.New(&lockstest.Memory{}, strategy.Options{RetryOnError: true, Label: "web-1"})
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
