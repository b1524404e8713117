package solutions

import (
	"time"

	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// ForgetsElapsed counts from before the first request.
type ForgetsElapsed struct{ locks.ForgetsElapsed }

// Acquire takes off what asking has taken. The servers began to count when they voted, some of them long ago.
func (l ForgetsElapsed) Acquire(servers []*redis.Server, c *redis.Claim) int {
	start := time.Now()
	return valid(l.ForgetsElapsed.Acquire(servers, c), start)
}

// Extend does, too.
func (l ForgetsElapsed) Extend(servers []*redis.Server, c *redis.Claim) int {
	start := time.Now()
	return valid(l.ForgetsElapsed.Extend(servers, c), start)
}

// valid is the TTL, less what has passed since, less what clocks may run apart; of a refusal, 0 or less.
func valid(ttl int, start time.Time) int {
	elapsed, drift := int(time.Since(start).Milliseconds()), ttl/100+2
	return ttl - elapsed - drift
}
