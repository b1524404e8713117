package fairqueue

import (
	"github.com/lockstrategies/locks/internal/algorithm/keycache"
	"github.com/lockstrategies/locks/internal/algorithm/queue"
)

// The keys of a lock are the lock, its queue and its fence counter. The counter is there without fences, too:
// a successor may want a fence. Proven says that an acquire has found that this user may release; a release
// that fails resets it.

func queueKey(l *keycache.Lock) string   { return l.Keys[1] }
func counterKey(l *keycache.Lock) string { return l.Keys[2] }

// lineChannel is where a line hears of direct grants.
func lineChannel(l *keycache.Lock, line string) string { return queue.Channel(queueKey(l), line) }
