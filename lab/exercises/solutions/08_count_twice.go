package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// CountTwice keeps the holds, not their number: a request that comes twice finds that it was done.
type CountTwice struct{ locks.CountTwice }

// Acquire adds a field for its hold. A second time changes nothing.
func (CountTwice) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		local owner = redis.call('HGET', KEYS[1], 'owner')
		if owner and owner ~= ARGV[1] then return 0 end
		redis.call('HSET', KEYS[1], 'owner', ARGV[1], ARGV[2], 1)
		return redis.call('PEXPIRE', KEYS[1], ARGV[3])`, c.Key, c.Owner, "hold:"+c.Token, c.TTL) == 1
}

// Extend is for a hold that is there. No promise that is played asks for it: but a hold that was released, or lost, must
// not make the owner's others last longer.
func (CountTwice) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
		return redis.call('PEXPIRE', KEYS[1], ARGV[2])`, c.Key, "hold:"+c.Token, c.TTL) == 1
}

// Release deletes the field of its hold. A second time finds none. The last hold leaves the owner alone in the hash.
func (CountTwice) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(`
		local held = redis.call('HDEL', KEYS[1], ARGV[1])
		if redis.call('HLEN', KEYS[1]) == 1 then redis.call('DEL', KEYS[1]) end
		return held`, c.Key, "hold:"+c.Token) == 1
}
