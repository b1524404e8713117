package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// BlindRenewal is exercise 7. A watchdog calls Extend. Its client has lost the lock, and it goes on for ever.
type BlindRenewal struct{}

// Acquire makes the client the holder if nobody holds the lock, and reports whether it has.
func (BlindRenewal) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Do("SET", c.Key, c.Token, "NX", "PX", c.TTL) == "OK"
}

// Extend starts the TTL again if the client holds the lock, and reports whether it does.
func (BlindRenewal) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Do("PEXPIRE", c.Key, c.TTL) == 1
}

// Release frees the lock if the client holds it, and reports whether it did.
func (BlindRenewal) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
}
