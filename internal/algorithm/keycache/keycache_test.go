// The cache of the names of locks, and the times that it boxes.
package keycache

import (
	"slices"
	"testing"
	"time"
)

// TestMilliseconds: each claim gets its own, whatever the one before it brought.
func TestMilliseconds(t *testing.T) {
	var m Milliseconds
	for _, d := range []time.Duration{0, time.Hour, time.Hour, time.Minute, 0} {
		if got := m.Of(d); got != d.Milliseconds() {
			t.Errorf("Of(%v) = %v, want %v", d, got, d.Milliseconds())
		}
		if last := m.last.Load(); last == nil || last.d != d {
			t.Errorf("after Of(%v) it remembers %v", d, last)
		}
	}
}

// TestCache: a lock keeps its names, whatever other locks come, and gets its own.
func TestCache(t *testing.T) {
	c := New("queue", "fence")
	first := c.Of("lock:{a}")
	if again := c.Of("lock:{a}"); again != first {
		t.Error("the names of one key were made twice")
	}
	if want := []string{"lock:{a}", "lock:{a}:queue", "lock:{a}:fence"}; !slices.Equal(first.Keys, want) || first.Channel() != "lock:{a}:free" {
		t.Errorf("the names of lock:{a} = %q, %v", first.Keys, first.Free)
	}
	for i := range 10_000 { // far more than there are slots
		key := "lock:{" + string(rune('b'+i)) + "}"
		if l := c.Of(key); l.Keys[0] != key {
			t.Fatalf("the names of %q = %v", key, l.Keys)
		}
	}
}
