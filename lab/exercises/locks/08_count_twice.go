package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// CountTwice is exercise 8. The owner of the lock gets in again. An answer is lost, the request comes a second time, and
// the lock is free too early.
type CountTwice struct{}

// Acquire makes the client a holder if nobody else holds the lock, and reports whether it has.
func (CountTwice) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		local owner = redis.call('HGET', KEYS[1], 'owner')
		if owner and owner ~= ARGV[1] then return 0 end
		redis.call('HSET', KEYS[1], 'owner', ARGV[1])
		redis.call('HINCRBY', KEYS[1], 'count', 1)
		return redis.call('PEXPIRE', KEYS[1], ARGV[2])`, c.Key, c.Owner, c.TTL) == 1
}

// Extend starts the TTL again if the client's owner holds the lock, and reports whether it does.
func (CountTwice) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
		return redis.call('PEXPIRE', KEYS[1], ARGV[2])`, c.Key, c.Owner, c.TTL) == 1
}

// Release ends one hold, and reports whether there was one. The last one frees the lock.
func (CountTwice) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
		if redis.call('HINCRBY', KEYS[1], 'count', -1) == 0 then redis.call('DEL', KEYS[1]) end
		return 1`, c.Key, c.Owner) == 1
}
