package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// Counter is exercise 11: a semaphore, which c.Permits may hold at a time. It runs out of permits.
type Counter struct{}

// Acquire takes a permit if one is free, and reports whether it has.
func (Counter) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		local taken = tonumber(redis.call('GET', KEYS[1]) or 0)
		if taken >= tonumber(ARGV[1]) then return 0 end
		redis.call('INCR', KEYS[1])
		return 1`, c.Key, c.Permits) == 1
}

// Extend starts the TTL of the client's permit again, and reports whether it still has one.
func (Counter) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Do("EXISTS", c.Key) == 1
}

// Release gives the client's permit back, and reports whether it had one.
func (Counter) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		if not redis.call('GET', KEYS[1]) then return 0 end
		if redis.call('DECR', KEYS[1]) == 0 then redis.call('DEL', KEYS[1]) end
		return 1`, c.Key) == 1
}
