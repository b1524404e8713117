package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// BlindDelete deletes the key only if it has its own token.
type BlindDelete struct{ locks.BlindDelete }

// Release compares and deletes in one step.
func (BlindDelete) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
}
