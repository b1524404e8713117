package locks

import (
	"time"

	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// VotersOnly is exercise 10: a RedLock. All have released, and still nobody gets the lock.
type VotersOnly struct{}

// Acquire makes the client the holder if most servers vote for it. It returns for how long that is certain, in
// milliseconds. After 0, which is a refusal, Release is called.
func (VotersOnly) Acquire(servers []*redis.Server, c *redis.Claim) int {
	start := time.Now()
	c.Voted = redis.Ask(servers, func(r *redis.Server) bool {
		return r.Do("SET", c.Key, c.Token, "NX", "PX", c.TTL) == "OK"
	})
	if len(c.Voted) <= len(servers)/2 {
		return 0
	}
	return valid(c, start)
}

// Extend starts the TTL again if most servers still keep the client's lock. It returns what Acquire does.
func (VotersOnly) Extend(servers []*redis.Server, c *redis.Claim) int {
	start := time.Now()
	voted := redis.Ask(servers, func(r *redis.Server) bool {
		return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
	})
	if len(voted) <= len(servers)/2 {
		return 0
	}
	return valid(c, start)
}

// Release gives the votes back, and reports whether most servers had one.
func (VotersOnly) Release(servers []*redis.Server, c *redis.Claim) bool {
	var voters []*redis.Server
	for _, i := range c.Voted {
		voters = append(voters, servers[i])
	}
	freed := redis.Ask(voters, func(r *redis.Server) bool {
		return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
	})
	return len(freed) > len(servers)/2
}

// valid is the TTL, less what asking has taken, less what clocks may run apart.
func valid(c *redis.Claim, start time.Time) int {
	elapsed, drift := int(time.Since(start).Milliseconds()), c.TTL/100+2
	return c.TTL - elapsed - drift
}
