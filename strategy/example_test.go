package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// fn's context ends when the lock is lost. context.Cause says why.
func ExampleDo() {
	var server lockstest.Memory
	locks := openOn(&server, strategy.Options{})
	defer locks.Close()

	err := strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		server.Evict(ctx, "lock:{invoice/42}") // as an operator might
		lease.Extend(ctx)                      // finds that; so does the next renewal in the background
		<-ctx.Done()
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output:
	// lock "invoice/42": lost: the key is gone
}

// A store that remembers the greatest fence it has seen refuses a holder that was
// paused past its deadline.
func ExampleLease_Fence() {
	var server lockstest.Memory
	locks := openOn(&server, strategy.Options{})
	defer locks.Close()

	var greatest uint64 // the store's
	write := func(l strategy.Lease) bool {
		fence, ok := l.Fence()
		if !ok || fence < greatest {
			return false
		}
		greatest = fence
		return true
	}

	ctx := context.Background()
	paused := hold(locks.NewLock("report"))
	server.Evict(ctx, "lock:{report}") // its TTL ran out while it was paused
	next := hold(locks.NewLock("report"))
	fmt.Println("the next holder writes:", write(next))
	fmt.Println("the paused one wakes up and writes:", write(paused))
	// Output:
	// the next holder writes: true
	// the paused one wakes up and writes: false
}

// A lock passes from one process to another with its token, without being free in
// between.
func ExampleStrategy_Adopt() {
	var server lockstest.Memory
	here := openOn(&server, strategy.Options{})
	defer here.Close()
	there := openOn(&server, strategy.Options{})
	defer there.Close()

	ctx := context.Background()
	lease := hold(here.NewLock("upload"))
	token, err := lease.Detach() // send it along with the job
	if err != nil {
		log.Fatal(err)
	}

	adopted, err := there.Adopt(ctx, "upload", token)
	fmt.Println("adopted:", err == nil)
	_, err = there.Adopt(ctx, "upload", token)
	fmt.Println("a second adoption is refused:", errors.Is(err, strategy.ErrLost))
	fmt.Println("released:", adopted.Release(ctx) == nil)
	// Output:
	// adopted: true
	// a second adoption is refused: true
	// released: true
}
