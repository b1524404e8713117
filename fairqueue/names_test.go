// The cache of the names of keys, and what it keeps next to them.
package fairqueue

import (
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
)

// TestFenceTTL: each claim gets its own, whatever the one before it brought.
func TestFenceTTL(t *testing.T) {
	n := newNames("lock:{a}")
	for _, d := range []time.Duration{0, time.Hour, time.Hour, time.Minute, 0} {
		if got := n.fenceTTL(driver.Claim{FenceTTL: d}); got != d.Milliseconds() {
			t.Errorf("fenceTTL() of %v = %v", d, got)
		}
	}
}

// TestCache: a lock keeps its names, whatever other locks come, and gets its own.
func TestCache(t *testing.T) {
	var c cache
	first := c.of("lock:{a}")
	if again := c.of("lock:{a}"); again != first {
		t.Error("the names of one key were made twice")
	}
	if first.keys[0] != "lock:{a}" || first.keys[1] != "lock:{a}:queue" || first.keys[2] != "lock:{a}:fence" || first.freed != "lock:{a}:free" {
		t.Errorf("the names of lock:{a} = %v, %v", first.keys, first.freed)
	}
	for i := range 10_000 { // far more than there are slots
		key := "lock:{" + string(rune('b'+i)) + "}"
		if n := c.of(key); n.keys[0] != key {
			t.Fatalf("the names of %q = %v", key, n.keys)
		}
	}
}
