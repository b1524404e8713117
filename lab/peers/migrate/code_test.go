package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// The code that docs/use/migrating.md quotes. None of it runs: the locks are tested in migrate_test.go.
var _ = []any{insteadOfBSM, insteadOfRedsync, insteadOfRedsyncQuorum, sharedKey}

var work func(context.Context) error

func insteadOfBSM(ctx context.Context, node driver.Node) error {
	locks, err := luascript.New(node, strategy.Options{TTL: 10 * time.Second, Label: "web-1"})
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.NewLock("invoice/42").TryAcquire(ctx)
	if errors.Is(err, strategy.ErrHeld) {
		return nil // ErrNotObtained: err says who holds the lock, and for how long
	}
	if err != nil {
		return err
	}
	return errors.Join(work(ctx), lease.Release(ctx))
}

func insteadOfRedsync(ctx context.Context, node driver.Node) error {
	locks, err := luascript.New(node, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	defer locks.Close()
	return strategy.Do(ctx, locks.NewLock("invoice/42"), func(ctx context.Context, _ strategy.Lease) error {
		return work(ctx)
	})
}

func insteadOfRedsyncQuorum(nodes []driver.Node) (strategy.Strategy, error) {
	locks, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
	return locks, err
}

func sharedKey(node driver.Node) (strategy.Strategy, error) {
	return luascript.New(node, strategy.Options{
		TTL: 8 * time.Second,
		Key: func(name string) string { return name }, // the other library's key, to the byte
	})
}
