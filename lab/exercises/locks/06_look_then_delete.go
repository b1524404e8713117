package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// LookThenDelete is exercise 6. It compares its own token, and still deletes another's lock now and then.
type LookThenDelete struct{}

// Acquire makes the client the holder if nobody holds the lock, and reports whether it has.
func (LookThenDelete) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Do("SET", c.Key, c.Token, "NX", "PX", c.TTL) == "OK"
}

// Extend starts the TTL again if the client holds the lock, and reports whether it does.
func (LookThenDelete) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
}

// Release frees the lock if the client holds it, and reports whether it did.
func (LookThenDelete) Release(r *redis.Server, c redis.Claim) bool {
	if r.Do("GET", c.Key) != c.Token {
		return false
	}
	return r.Do("DEL", c.Key) == 1
}
