// Examples of how a wait, a hold and a release can end, and of the small functions.
package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// ctx bounds the wait. It does not bound the hold. A wait that its deadline ends says both: the lock was held, and the time was
// over. HeldError names the holder.
func ExampleLock_Acquire() {
	locks := open(strategy.Options{Label: "web-1"})
	defer locks.Close()
	first := hold(locks.NewLock("report"))
	defer first.Release(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := locks.NewLock("report").Acquire(ctx)
	fmt.Println("held by another:", errors.Is(err, strategy.ErrHeld))
	fmt.Println("the wait is over:", errors.Is(err, context.DeadlineExceeded))
	var held *strategy.HeldError
	if errors.As(err, &held) {
		fmt.Println("the holder is known:", held.Holder == first.Token())
	}
	// Output:
	// held by another: true
	// the wait is over: true
	// the holder is known: true
}

// At the end of the maximum hold the lease is lost, and its contexts end: a worker that hangs does
// not keep the lock for ever.
func ExampleLease_KeepAlive_bound() {
	locks := open(strategy.Options{TTL: 100 * time.Millisecond})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	ctx, cancel := lease.Context(context.Background())
	defer cancel()
	if err := lease.KeepAlive(100 * time.Millisecond); err != nil {
		log.Fatal(err)
	}
	<-ctx.Done() // a worker that does not return by itself
	fmt.Println(context.Cause(ctx))
	// Output: lock "report": lost: its deadline came: the maximum hold is over
}

// Lost is for workers that select. Err says why.
func ExampleLease_Lost() {
	var server lockstest.Memory
	locks := openOn(&server, strategy.Options{})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	server.Evict(context.Background(), "lock:{report}") // as an operator might
	lease.Extend(context.Background())                  // finds that
	select {
	case <-lease.Lost():
		fmt.Println(lease.Err())
	case <-time.After(time.Minute):
		fmt.Println("the work is done")
	}
	// Output: lock "report": lost: the key is gone
}

// The error of Release says whether the work was protected until its end.
func ExampleLease_Release() {
	locks := open(strategy.Options{})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	switch err := lease.Release(context.Background()); {
	case err == nil:
		fmt.Println("held until now, and free")
	case errors.Is(err, strategy.ErrLost):
		fmt.Println("lost before: another holder may have worked at the same time")
	default:
		fmt.Println("not confirmed: the engine repeats the release")
	}
	// Output: held until now, and free
}

// After ErrUnknown the release was sent, and its reply was lost. The lease is over for the caller.
// The engine repeats the release in the background, so nobody waits for the TTL.
func ExampleLease_Release_unknown() {
	var server lockstest.Memory
	locks := openOn(&server, strategy.Options{})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	lost := 1 // one release does not arrive
	server.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
		if r.Op != lockstest.OpRelease || lost == 0 {
			return serve()
		}
		lost--
		return lockstest.Unknown()
	})

	err := lease.Release(context.Background())
	fmt.Println("unknown:", errors.Is(err, strategy.ErrUnknown))
	fmt.Println("the lease:", lease.Err())
	next, err := locks.NewLock("report").Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("free again, and held by the next:", next.Err() == nil)
	// Output:
	// unknown: true
	// the lease: lock released
	// free again, and held by the next: true
}

// The owner that a context names may re-enter, if the strategy is reentrant. Every other owner is refused. Other strategies ignore
// the owner. Here the server in memory stands for reentrant.New.
func ExampleWithOwner() {
	var server lockstest.Memory
	server.Reentrant = true
	locks := openOn(&server, strategy.Options{})
	defer locks.Close()
	lock := locks.NewLock("customer")
	order7 := strategy.WithOwner(context.Background(), "order/7")
	order8 := strategy.WithOwner(context.Background(), "order/8")

	outer, err := lock.TryAcquire(order7)
	if err != nil {
		log.Fatal(err)
	}
	inner, err := lock.TryAcquire(order7)
	fmt.Println("order/7 is in again:", err == nil)
	_, err = lock.TryAcquire(order8)
	fmt.Println("order/8 is refused:", errors.Is(err, strategy.ErrHeld))
	outer.Release(order7)
	_, err = lock.TryAcquire(order8)
	fmt.Println("the lock is held until the last release:", errors.Is(err, strategy.ErrHeld))
	inner.Release(order7)
	_, err = lock.TryAcquire(order8)
	fmt.Println("order/8 has it now:", err == nil)
	// Output:
	// order/7 is in again: true
	// order/8 is refused: true
	// the lock is held until the last release: true
	// order/8 has it now: true
}

// A context that names no owner gives the empty text. Its acquisition is an owner of its own.
func ExampleOwnerFrom() {
	fmt.Printf("%q\n", strategy.OwnerFrom(context.Background()))
	fmt.Printf("%q\n", strategy.OwnerFrom(strategy.WithOwner(context.Background(), "order/7")))
	// Output:
	// ""
	// "order/7"
}

// Inspect reads the label that the holder's process set.
func ExampleInfo_Holder() {
	label := strategy.Holder{Host: "web-1", PID: 42, Label: "nightly"}.String()
	holder, ok := strategy.Info{Label: label}.Holder()
	fmt.Println(ok, holder.Host, holder.PID, holder.Label)
	_, ok = strategy.Info{Label: "blue"}.Holder() // not a label of that form
	fmt.Println(ok)
	// Output:
	// true web-1 42 nightly
	// false
}

// The braces keep all keys of a lock in one slot of a Redis Cluster.
func ExampleDefaultKey() {
	fmt.Println(strategy.DefaultKey("invoice/42"))
	fmt.Println(strategy.DefaultKey("}"))
	// Output:
	// lock:{invoice/42}
	// lock:{%7D}
}
