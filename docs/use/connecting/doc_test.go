package connecting

// Tests that the pages quote their code from files that are compiled, and that redis-cli says, as docs/run/operating.md has it,
// whether a server of redlock votes.

import (
	"fmt"
	"os"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/locktest"
	"github.com/lockstrategies/locks/internal/testkit/quotes"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/redlock"
)

// TestDocQuotes: what the pages say is code stands in a file that is compiled.
func TestDocQuotes(t *testing.T) {
	t.Parallel()
	for page, source := range map[string]string{
		"../connecting.md":       "connecting/service/main.go",
		"../errors.md":           "connecting/service/main.go",
		"../../run/operating.md": "../use/connecting/service/main.go",
	} {
		if from, err := quotes.Check(page); err != nil || from[source] == 0 {
			t.Errorf("%s quotes %v, want %s: %v", page, from, source, err)
		}
	}
}

// TestVotes runs what the page has redis-cli run.
func TestVotes(t *testing.T) {
	t.Parallel()
	var script []byte
	for _, file := range []string{"guard.lua", "check.lua"} {
		text, err := os.ReadFile("../../../redlock/" + file)
		redistest.Must(t, err)
		script = append(script, text...)
	}
	server := redistest.Own(t, redistest.Config{})
	votes := func() any {
		return redistest.Do(t, server, "EVAL", script, 1, redlock.GuardKey, 10000)
	}
	if got, err := redis.Values(votes(), nil); err != nil || len(got) != 4 || fmt.Sprintf("%s", got[0]) != "unasked" {
		t.Errorf("a new server: %s, %v, want that the time does not run yet", got, err)
	}
	redistest.Must(t, locktest.OnNodes([]*redis.Pool{server.Pool()}, func(nodes []driver.Node) error { return redlock.Bootstrap(t.Context(), nodes) }))
	if got := votes(); got != int64(1) {
		t.Errorf("a server that votes: %v, want 1", got)
	}
}
