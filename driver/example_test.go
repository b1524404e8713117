// A complete algorithm as an example, which the conformance suite judges.
package driver_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/driver/rediskit"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// mutex is a complete small algorithm: a key with the holder's token and a TTL.
type mutex struct {
	driver.Node        // one Redis
	driver.Unsupported // Adopt, Check
}

// Each script is one step. GETEX reads as GET does, but a replica, which may know an old holder, refuses it.
var (
	acquire = driver.NewScript("acquire", `
		local holder = redis.call('GETEX', KEYS[1])
		if holder then return {holder, redis.call('PTTL', KEYS[1])} end
		return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1`)
	extend = driver.NewScript("extend", `
		local holder = redis.call('GETEX', KEYS[1])
		if holder ~= ARGV[1] then return holder end
		return redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ARGV[2]))`)
	release = driver.NewScript("release", `
		local holder = redis.call('GETEX', KEYS[1])
		if holder ~= ARGV[1] then return holder end
		return redis.call('DEL', KEYS[1])`)
	inspect = driver.NewScript("inspect", `
		local holder = redis.call('GETEX', KEYS[1])
		return holder and {holder, redis.call('PTTL', KEYS[1])} or 1`)
)

// Acquire sets the key if it does not exist.
func (m mutex) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, rediskit.Run(ctx, m, c, acquire, c.Token, c.TTL.Milliseconds())
}

// Extend starts the TTL again if the key has the token.
func (m mutex) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	return driver.Grant{}, rediskit.Run(ctx, m, c, extend, c.Token, c.TTL.Milliseconds())
}

// Release deletes the key if it has the token.
func (m mutex) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return driver.Outcome{}, rediskit.Run(ctx, m, c, release, c.Token)
}

// Undo is Release, and certain of it.
func (m mutex) Undo(ctx context.Context, c driver.Claim) error {
	return rediskit.Undone(m, c, rediskit.Run(ctx, m, c, release, c.Token))
}

// ForceRelease is Release.
func (m mutex) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	return m.Release(ctx, c)
}

// Inspect reads the key.
func (m mutex) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	var held *strategy.HeldError
	if err := rediskit.Run(ctx, m, c, inspect); !errors.As(err, &held) {
		return strategy.Info{}, err // nil: nobody holds it
	}
	return strategy.Info{Held: true, Token: held.Holder, TTL: held.TTL}, nil
}

// url is redis://localhost:6379 in your program; here it is the tests' server.
var url string

// An algorithm of sixty lines is a lock with waiting, renewal, deadlines, undo and events.
func Example() {
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
	locks, err := engine.New(mutex{Node: redigonode.New(pool)}, strategy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	err = strategy.Do(context.Background(), locks.NewLock("invoice/42"), func(ctx context.Context, lease strategy.Lease) error {
		_, err := locks.NewLock("invoice/42").TryAcquire(ctx)
		fmt.Println("held by another:", errors.Is(err, strategy.ErrHeld))
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// held by another: true
	// error: <nil>
}
