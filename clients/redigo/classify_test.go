// Tests what an error reply means.
package redigonode

import (
	"errors"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/strategy"
)

// TestWhatAnErrorReplyMeans: it has changed nothing, unless it ends a script in the middle.
func TestWhatAnErrorReplyMeans(t *testing.T) {
	n := &node{}
	if _, err := n.answered([]any{struct{}{}}, nil); !errors.Is(err, strategy.ErrUnknown) {
		t.Errorf("an array with a struct in it: %v, want %v", err, strategy.ErrUnknown)
	}
	for words, want := range map[string]error{
		"NOPERM this user has no permissions":       strategy.ErrRefused,
		"MOVED 3999 127.0.0.1:6381":                 strategy.ErrRefused,
		"TRYAGAIN Multiple keys request":            strategy.ErrRefused,
		"ERR Error running script (call to f_0123)": strategy.ErrRefused,
		"ERR Script attempted to access a non local key in a cluster node script: 0123, on @user_script:142.":                         strategy.ErrUnknown, // Redis 7
		"ERR Error running script (call to f_0123): @user_script:9: Lua script attempted to access a non local key in a cluster node": strategy.ErrUnknown, // Redis 6
	} {
		if _, err := n.answered(nil, redis.Error(words)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", words, err, want)
		}
		if _, err := n.answered(redis.Error(words), nil); !errors.Is(err, want) { // one of several answers
			t.Errorf("%q: %v, want %v", words, err, want)
		}
	}
}
