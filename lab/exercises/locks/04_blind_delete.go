package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// BlindDelete is exercise 4. A holder that is late takes the lock from the next one.
type BlindDelete struct{}

// Acquire makes the client the holder if nobody holds the lock, and reports whether it has.
func (BlindDelete) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Do("SET", c.Key, c.Token, "NX", "PX", c.TTL) == "OK"
}

// Extend starts the TTL again if the client holds the lock, and reports whether it does.
func (BlindDelete) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
}

// Release frees the lock if the client holds it, and reports whether it did.
func (BlindDelete) Release(r *redis.Server, c redis.Claim) bool {
	return r.Do("DEL", c.Key) == 1
}
