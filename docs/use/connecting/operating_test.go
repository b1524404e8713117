package connecting

// Tests that docs/run/operating.md quotes compiled code, and that its command reports whether a server of redlock votes.

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

func TestOperatingQuotes(t *testing.T) {
	t.Parallel()
	from, err := quotes.Check("../../run/operating.md")
	if err != nil {
		t.Error(err)
	}
	if from["../use/connecting/service/main.go"] == 0 {
		t.Error("nothing is quoted from docs/use/connecting/service/main.go")
	}
}

// TestVotes runs what the page has redis-cli run.
func TestVotes(t *testing.T) {
	t.Parallel()
	var script []byte
	for _, file := range []string{"guard.lua", "check.lua"} {
		text, err := os.ReadFile("../../../redlock/" + file)
		if err != nil {
			t.Fatal(err)
		}
		script = append(script, text...)
	}
	server := redistest.Own(t, redistest.Config{})
	votes := func() any {
		return redistest.Do(t, server, "EVAL", script, 1, redlock.GuardKey, 10000)
	}
	if got, err := redis.Values(votes(), nil); err != nil || len(got) != 4 || fmt.Sprintf("%s", got[0]) != "unasked" {
		t.Errorf("a new server: %s, %v, want that the time does not run yet", got, err)
	}
	if err := locktest.OnNodes([]*redis.Pool{server.Pool()}, func(nodes []driver.Node) error { return redlock.Bootstrap(t.Context(), nodes) }); err != nil {
		t.Fatal(err)
	}
	if got := votes(); got != int64(1) {
		t.Errorf("a server that votes: %v, want 1", got)
	}
}
