package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// NoTTL is exercise 1. A holder dies, and its lock stays for ever.
type NoTTL struct{}

// Acquire makes the client the holder if nobody holds the lock, and reports whether it has.
func (NoTTL) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Do("SETNX", c.Key, c.Token) == 1
}

// Extend starts the TTL again if the client holds the lock, and reports whether it does.
func (NoTTL) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
}

// Release frees the lock if the client holds it, and reports whether it did.
func (NoTTL) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
}
