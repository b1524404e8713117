package solutions

import (
	"github.com/lockstrategies/locks/lab/exercises/locks"
	"github.com/lockstrategies/locks/lab/exercises/redis"
)

// VotersOnly asks all servers to delete: a vote whose answer was lost counts, too.
type VotersOnly struct{ locks.VotersOnly }

// Release asks each server, whatever it seemed to say.
func (VotersOnly) Release(servers []*redis.Server, c *redis.Claim) bool {
	freed := redis.Ask(servers, func(r *redis.Server) bool {
		return r.Eval(redis.DeleteIfMine, c.Key, c.Token) == 1
	})
	return len(freed) > len(servers)/2
}
