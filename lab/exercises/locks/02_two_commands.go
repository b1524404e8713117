package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// TwoCommands is exercise 2. A client dies while it acquires, and the lock stays for ever.
type TwoCommands struct{}

// Acquire makes the client the holder if nobody holds the lock, and reports whether it has.
func (TwoCommands) Acquire(r *redis.Server, c redis.Claim) bool {
	if r.Do("SETNX", c.Key, c.Token) != 1 {
		return false
	}
	return r.Do("PEXPIRE", c.Key, c.TTL) == 1
}

// Extend starts the TTL again if the client holds the lock, and reports whether it does.
func (TwoCommands) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
}

// Release frees the lock if the client holds it, and reports whether it did.
func (TwoCommands) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
}
