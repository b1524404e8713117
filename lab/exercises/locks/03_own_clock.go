package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// OwnClock is exercise 3. The value says when the lock ends. Two clients hold the lock.
type OwnClock struct{}

// Acquire makes the client the holder if nobody holds the lock, and reports whether it has.
func (OwnClock) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		local ends = redis.call('HGET', KEYS[1], 'ends')
		if ends and tonumber(ends) > tonumber(ARGV[2]) then return 0 end
		redis.call('HSET', KEYS[1], 'token', ARGV[1], 'ends', ARGV[3])
		return 1`, c.Key, c.Token, c.Now, c.Now+c.TTL) == 1
}

// Extend starts the TTL again if the client holds the lock, and reports whether it does.
func (OwnClock) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
		redis.call('HSET', KEYS[1], 'ends', ARGV[2])
		return 1`, c.Key, c.Token, c.Now+c.TTL) == 1
}

// Release frees the lock if the client holds it, and reports whether it did.
func (OwnClock) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
		return redis.call('DEL', KEYS[1])`, c.Key, c.Token) == 1
}
