package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// TwoCommands sets the key and its TTL in one command: no client dies in the middle of it.
type TwoCommands struct{ locks.TwoCommands }

// Acquire is one command.
func (TwoCommands) Acquire(r *redis.Server, c redis.Claim) bool {
	return r.Do("SET", c.Key, c.Token, "NX", "PX", c.TTL) == "OK"
}
