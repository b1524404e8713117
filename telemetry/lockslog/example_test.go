package lockslog_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/lockstest"
	"github.com/lockstrategies/locks/strategy"
	"github.com/lockstrategies/locks/telemetry/lockslog"
)

// A lock that somebody takes away while it is held. In your program the strategy is
// luascript.New(node, …) or another; here the server is one in memory.
func ExampleNew() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: exampleOutput})
	var server lockstest.Memory
	locks, err := engine.New(&server, strategy.Options{
		Observe: lockslog.New(slog.New(handler), lockslog.Options{}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, _ strategy.Lease) error {
		return server.Evict(ctx, "lock:{invoice/42}")
	})
	fmt.Println("lost:", errors.Is(err, strategy.ErrLost))
	// Output:
	// level=ERROR msg="lock released" lock=invoice/42 token=…xxxxxx held=1ms error="lock \"invoice/42\": lost: the key is gone"
	// lost: true
}

// Acquired and released are of interest here, renewals are not.
func ExampleOptions() {
	handler := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: exampleOutput})
	var server lockstest.Memory
	locks, err := engine.New(&server, strategy.Options{
		Observe: lockslog.New(slog.New(handler), lockslog.Options{
			Level: func(e strategy.Event) slog.Level {
				switch e.Kind {
				case strategy.EventAcquired, strategy.EventReleased:
					return max(slog.LevelInfo, lockslog.DefaultLevel(e))
				case strategy.EventRenewed:
					return lockslog.Never
				}
				return lockslog.DefaultLevel(e)
			},
		}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(context.Context, strategy.Lease) error {
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// level=INFO msg="lock acquired" lock=invoice/42 token=…xxxxxx attempt=1 waited=1ms
	// level=INFO msg="lock released" lock=invoice/42 token=…xxxxxx held=1ms
}

// exampleOutput puts what is the same each time in the place of what is not.
func exampleOutput(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.TimeKey:
		return slog.Attr{}
	case "token":
		return slog.String(a.Key, "…xxxxxx")
	case "waited", "held":
		return slog.String(a.Key, "1ms")
	}
	return a
}
