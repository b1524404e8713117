package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// Counter keeps the holders, not their number: a sorted set, in which each permit has its end by the server's clock.
type Counter struct{ locks.Counter }

// free drops the permits whose holders are dead.
const free = `
	local time = redis.call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)
	redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
	`

// Acquire counts the permits that are taken.
func (Counter) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Eval(free+`
		if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
		return redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])`, c.Key, c.Token, c.Permits, c.TTL) == 1
}

// Extend gives a permit that is there a new end.
func (Counter) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(free+`
		if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
		redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
		return 1`, c.Key, c.Token, c.TTL) == 1
}

// Release takes its own permit out of the set.
func (Counter) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(free+`return redis.call('ZREM', KEYS[1], ARGV[1])`, c.Key, c.Token) == 1
}
