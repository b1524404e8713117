package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// SharedToken is exercise 5. It compares before it deletes, and a late holder still takes the lock from the next one.
type SharedToken struct{}

const machine = "web-1"

// Acquire makes the client the holder if nobody holds the lock, and reports whether it has.
func (SharedToken) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Do("SET", c.Key, machine, "NX", "PX", c.TTL) == "OK"
}

// Extend starts the TTL again if the client holds the lock, and reports whether it does.
func (SharedToken) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.ExpireIfMine, c.Key, machine, c.TTL) == 1
}

// Release frees the lock if the client holds it, and reports whether it did.
func (SharedToken) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.DeleteIfMine, c.Key, machine) == 1
}
