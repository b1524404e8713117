package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// BlindRenewal renews its own lock only.
type BlindRenewal struct{ locks.BlindRenewal }

// Extend compares and renews in one step. The first refusal ends the watchdog.
func (BlindRenewal) Extend(r *redis.Server, c redis.Claim) bool {
	return r.Eval(redis.ExpireIfMine, c.Key, c.Token, c.TTL) == 1
}
