package locks

import "github.com/lockstrategies/locks/lab/exercises/redis"

// ForgetsElapsed is exercise 9: a RedLock. The servers answer slowly, and the client believes in its lock for too long.
type ForgetsElapsed struct{}

// Acquire makes the client the holder if most servers vote for it. It returns for how long that is certain, in
// milliseconds. After 0, which is a refusal, Release is called.
func (ForgetsElapsed) Acquire(servers []*redis.Server, c *redis.Claim) int {
	voted := redis.Ask(servers, func(r *redis.Server) bool {
		return r.Do("SET", c.Key, c.Token, "NX", "PX", c.TTL) == "OK"
	})
	if len(voted) <= len(servers)/2 {
		return 0
	}
	return c.TTL
}

// Extend starts the TTL again if most servers still keep the client's lock. It returns what Acquire does.
func (ForgetsElapsed) Extend(servers []*redis.Server, c *redis.Claim) int {
	voted := redis.Ask(servers, func(r *redis.Server) bool {
		return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
	})
	if len(voted) <= len(servers)/2 {
		return 0
	}
	return c.TTL
}

// Release gives the votes back, and reports whether most servers had one.
func (ForgetsElapsed) Release(servers []*redis.Server, c *redis.Claim) bool {
	freed := redis.Ask(servers, func(r *redis.Server) bool {
		return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
	})
	return len(freed) > len(servers)/2
}
