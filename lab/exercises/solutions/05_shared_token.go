package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// SharedToken writes a token that no other client has, and no other attempt.
type SharedToken struct{ locks.SharedToken }

// Acquire writes it.
func (SharedToken) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Do("SET", c.Key, c.Token, "NX", "PX", c.TTL) == "OK"
}

// Extend compares it.
func (SharedToken) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
}

// Release compares it.
func (SharedToken) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
}
