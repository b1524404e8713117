package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	syncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/luascript"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/reentrant"
	"github.com/lockstrategies/locks/strategy"
)

// The code that docs/use/migrating.md quotes. None of it runs: the locks are tested in migrate_test.go.
var _ = []any{
	withRedsync, insteadOfRedsync, insteadOfRedsyncQuorum, withBSM, insteadOfBSM, withRueidislock, insteadOfRueidislock,
	insteadOfGoZero, insteadOfRedisPy, insteadOfRedisson, insteadOfLockTake, sharedKey,
}

var (
	work  func(context.Context) error
	store func(ctx context.Context, fence uint64) error
)

func withRedsync(ctx context.Context, pool *redis.Pool) error {
	rs := redsync.New(syncredigo.NewPool(pool))
	mutex := rs.NewMutex("invoice/42", redsync.WithExpiry(10*time.Second))
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.Unlock()
	return work(ctx)
}

func insteadOfRedsync(ctx context.Context, pool *redis.Pool) error {
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	defer locks.Close()
	return strategy.Do(ctx, locks.NewLock("invoice/42"), func(ctx context.Context, _ strategy.Lease) error {
		return work(ctx)
	})
}

func insteadOfRedsyncQuorum(ctx context.Context, pools []*redis.Pool) error {
	var nodes []driver.Node
	for _, pool := range pools {
		nodes = append(nodes, redigonode.New(pool))
	}
	locks, err := redlock.New(nodes, strategy.Options{TTL: 10 * time.Second})
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.NewLock("invoice/42").Acquire(ctx)
	if err != nil {
		return err
	}
	return errors.Join(work(ctx), lease.Release(ctx))
}

func withBSM(ctx context.Context, locker *redislock.Client) error {
	lock, err := locker.Obtain(ctx, "invoice/42", 10*time.Second, &redislock.Options{Metadata: "web-1"})
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil // somebody else is at it
	}
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	return work(ctx)
}

func insteadOfBSM(ctx context.Context, pool *redis.Pool) error {
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: 10 * time.Second, Label: "web-1"})
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.NewLock("invoice/42").TryAcquire(ctx)
	if errors.Is(err, strategy.ErrHeld) {
		return nil // somebody else is at it: err says who, and for how long
	}
	if err != nil {
		return err
	}
	return errors.Join(work(ctx), lease.Release(ctx))
}

func withRueidislock(ctx context.Context) error {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{"localhost:6379"}},
		KeyValidity:  10 * time.Second,
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	ctx, cancel, err := locker.WithContext(ctx, "invoice/42")
	if err != nil {
		return err
	}
	defer cancel()
	return work(ctx)
}

func insteadOfRueidislock(ctx context.Context, locks strategy.Strategy) error {
	lease, err := locks.NewLock("invoice/42").Acquire(ctx)
	if err != nil {
		return err
	}
	if err := lease.KeepAlive(time.Hour); err != nil { // rueidislock renews without a limit: that is 0
		return errors.Join(err, lease.Release(ctx))
	}
	held, cancel := lease.Context(ctx) // ends if the lock is lost; context.Cause says that
	defer cancel()
	return errors.Join(work(held), lease.Release(ctx))
}

func insteadOfGoZero(ctx context.Context, locks strategy.Strategy) error {
	lease, err := locks.NewLock("invoice/42").TryAcquire(ctx)
	if errors.Is(err, strategy.ErrHeld) {
		return nil // Acquire's (false, nil)
	}
	if err != nil {
		return err
	}
	return errors.Join(work(ctx), lease.Release(ctx)) // ErrLost is Release's (false, nil)
}

func insteadOfRedisPy(ctx context.Context, pool *redis.Pool) error {
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: 10 * time.Second, Key: func(name string) string { return name }})
	if err != nil {
		return err
	}
	defer locks.Close()
	return strategy.DoWithin(ctx, locks.NewLock("invoice/42"), 5*time.Second, func(ctx context.Context, _ strategy.Lease) error {
		return work(ctx)
	})
}

func insteadOfRedisson(ctx context.Context, pool *redis.Pool) error {
	locks, err := reentrant.New(redigonode.New(pool), strategy.Options{TTL: 30 * time.Second})
	if err != nil {
		return err
	}
	defer locks.Close()
	lock := locks.NewLock("invoice/42")
	return strategy.Do(ctx, lock, func(ctx context.Context, outer strategy.Lease) error {
		return strategy.Do(ctx, lock, func(ctx context.Context, inner strategy.Lease) error { // ctx names the owner
			fence, _ := inner.Fence() // outer's, too
			return store(ctx, fence)
		})
	})
}

func insteadOfLockTake(ctx context.Context, pool *redis.Pool, key string, ttl time.Duration) error {
	locks, err := luascript.New(redigonode.New(pool), strategy.Options{TTL: ttl, Key: func(name string) string { return name }})
	if err != nil {
		return err
	}
	defer locks.Close()
	lease, err := locks.NewLock(key).TryAcquire(ctx) // LockTake: ErrHeld is its false
	if err != nil {
		return err
	}
	err = lease.Extend(ctx)               // LockExtend: ErrLost is its false
	info, err2 := locks.Inspect(ctx, key) // LockQuery: info.Token
	fmt.Println(info.Token)
	err3 := lease.Release(ctx) // LockRelease: ErrLost is its false
	return errors.Join(err, err2, err3)
}

func sharedKey(pool *redis.Pool) (strategy.Strategy, error) {
	return luascript.New(redigonode.New(pool), strategy.Options{
		TTL: 8 * time.Second,
		Key: func(name string) string { return name }, // what the other library calls it, to the byte
	})
}
