package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// LookThenDelete leaves no gap between the look and the deletion.
type LookThenDelete struct{ locks.LookThenDelete }

// Release compares and deletes in one step.
func (LookThenDelete) Release(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
}
