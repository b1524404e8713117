// Examples of each call, on a server in memory.
package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
)

// open stands for fairqueue.New and its siblings, and openOn, too: on a server that the example sees.
func open(o strategy.Options) strategy.Strategy { return openOn(new(lockstest.Memory), o) }

func openOn(server *lockstest.Memory, o strategy.Options) strategy.Strategy {
	locks, err := engine.New(server, o)
	if err != nil {
		log.Fatal(err)
	}
	return locks
}

// hold stands for TryAcquire of a lock that is free.
func hold(lock strategy.Lock) strategy.Lease {
	lease, err := lock.TryAcquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	return lease
}

// TryAcquire does not wait. Its error says how long the holder can still have the lock.
func ExampleLock_TryAcquire() {
	locks := open(strategy.Options{TTL: 10 * time.Second})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	defer lease.Release(context.Background())

	_, err := locks.NewLock("report").TryAcquire(context.Background())
	var held *strategy.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Name, "is held for up to", held.TTL.Round(time.Second))
	}
	// Output: report is held for up to 10s
}

// The first argument after ctx bounds the wait alone: the work may take longer. A caller that answers
// HTTP tells these three cases apart.
func ExampleDoWithin() {
	locks := open(strategy.Options{MaxHold: time.Minute})
	defer locks.Close()
	err := strategy.DoWithin(context.Background(), locks.NewLock("invoice/42"), 2*time.Second, func(ctx context.Context, lease strategy.Lease) error {
		fmt.Println("works until ctx ends, for a minute at most")
		return nil
	})
	switch {
	case err == nil:
		fmt.Println("200")
	case errors.Is(err, strategy.ErrHeld):
		fmt.Println("409: another request works on it")
	default:
		fmt.Println("503:", err)
	}
	// Output:
	// works until ctx ends, for a minute at most
	// 200
}

// KeepAlive renews a lock in the background, here for a minute at most.
func ExampleLease_KeepAlive() {
	locks := open(strategy.Options{TTL: 10 * time.Second})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	fmt.Println("bound:", lease.KeepAlive(time.Minute))
	fmt.Println("bound shorter than the TTL:", lease.KeepAlive(time.Second) != nil)
	fmt.Println("released:", lease.Release(context.Background()))
	// Output:
	// bound: <nil>
	// bound shorter than the TTL: true
	// released: <nil>
}

// The context of a lease is for the work: it ends with the lease.
func ExampleLease_Context() {
	locks := open(strategy.Options{})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	ctx, cancel := lease.Context(context.Background())
	defer cancel()
	fmt.Println("at work:", ctx.Err() == nil)
	lease.Release(context.Background())
	<-ctx.Done()
	fmt.Println("ended:", context.Cause(ctx))
	// Output:
	// at work: true
	// ended: lock released
}

// Extend moves the deadline: the servers count the TTL again.
func ExampleLease_Extend() {
	locks := open(strategy.Options{})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	before := lease.Deadline()
	if err := lease.Extend(context.Background()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("later:", lease.Deadline().After(before))
	// Output: later: true
}

// After ErrUnknown nobody knows whether the servers granted the lock. The engine removes what they
// may hold, so the caller just tries again.
func ExampleLock_TryAcquire_unknown() {
	var server lockstest.Memory
	locks := openOn(&server, strategy.Options{})
	defer locks.Close()
	lost := 1 // the reply to one request is lost
	server.Intercept(func(_ context.Context, r lockstest.Request, serve func() error) error {
		if err := serve(); err != nil || r.Op != lockstest.OpAcquire || lost == 0 {
			return err
		}
		lost--
		return lockstest.Unknown()
	})

	_, err := locks.NewLock("report").TryAcquire(context.Background())
	fmt.Println("unknown:", errors.Is(err, strategy.ErrUnknown))
	lease, err := locks.NewLock("report").Acquire(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("held now:", lease.Err() == nil)
	// Output:
	// unknown: true
	// held now: true
}

// Check says at the start of a program what is wrong with the servers.
func ExampleStrategy_Check() {
	locks := open(strategy.Options{})
	defer locks.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println(locks.Check(ctx))
	// Output: <nil>
}

// Operators see who holds a lock, and take it from that holder. A later holder keeps it.
func ExampleStrategy_ForceRelease() {
	locks := open(strategy.Options{Label: strategy.Holder{Host: "web-1", PID: 42, Label: "nightly"}.String()})
	defer locks.Close()
	ctx := context.Background()
	lease := hold(locks.NewLock("report"))

	seen, err := locks.Inspect(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	holder, _ := seen.Holder()
	fmt.Printf("held: %v, by %s on %s\n", seen.Held, holder.Label, holder.Host)
	fmt.Println("taken:", locks.ForceRelease(ctx, seen))
	fmt.Println("the holder finds out:", errors.Is(lease.Extend(ctx), strategy.ErrLost))
	fmt.Println("taken again:", errors.Is(locks.ForceRelease(ctx, seen), strategy.ErrLost))
	// Output:
	// held: true, by nightly on web-1
	// taken: <nil>
	// the holder finds out: true
	// taken again: true
}

// Inspect shows a lock without taking it.
func ExampleStrategy_Inspect() {
	locks := open(strategy.Options{})
	defer locks.Close()
	seen, err := locks.Inspect(context.Background(), "report")
	fmt.Println(seen.Key, "held:", seen.Held, err)
	// Output: lock:{report} held: false <nil>
}

// With gives other options on the same connections: here a longer TTL for slow work.
func ExampleStrategy_With() {
	locks := open(strategy.Options{TTL: 10 * time.Second})
	defer locks.Close()
	slow, err := locks.With(func(o *strategy.Options) { o.TTL = time.Minute })
	if err != nil {
		log.Fatal(err)
	}
	lease := hold(slow.NewLock("export"))
	fmt.Println("valid for more than 50 s:", time.Until(lease.Deadline()) > 50*time.Second)
	// Output: valid for more than 50 s: true
}

// Observe is called with each event: who waited, who got the lock, for how long.
func ExampleOptions_observe() {
	locks := open(strategy.Options{Observe: func(e strategy.Event) { fmt.Println(e.Kind, e.Name) }})
	defer locks.Close()
	lease := hold(locks.NewLock("report"))
	lease.Release(context.Background())
	// Output:
	// asked report
	// attempt report
	// acquired report
	// released report
}

// A log shows a short token, which tells holds apart. The whole token is enough to take the lock.
func ExampleShortToken() {
	fmt.Println(strategy.ShortToken("0198c0de-5c1f-7d3a-9a55-1b2c3d4e5f60:web-1/42"))
	// Output: …4e5f60:web-1/42
}

// A process names itself in its tokens, for the people who inspect the lock.
func ExampleThisProcess() {
	label := strategy.ThisProcess("nightly").String()
	fmt.Println(strings.HasSuffix(label, "/nightly"))
	// Output: true
}
