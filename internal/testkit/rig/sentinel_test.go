package rig

// Tests that Sentinels promote the replica that the rig names, and one after the master died.

import (
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestSentinels: they promote the replica that the rig names, while the old master goes on, and
// then is made a replica with its connections; and they promote a replica that has not heard of
// the last write, once the master is dead.
func TestSentinels(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := NewSentinels(t, 2, redistest.Config{User: "app", Password: "secret"})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	first, err := s.Master(ctx)
	must(err)
	old, err := first.Pool().DialContext(ctx)
	must(err)
	defer old.Close()

	second, err := s.Promote(ctx)
	must(err)
	if second == first {
		t.Fatal("Promote: the master is who it was")
	}
	if _, err := old.Do("SET", "split", 1); err != nil {
		t.Errorf("SET at the old master = %v, want that it goes on", err)
	}
	redistest.Do(t, second, "SET", "known", 1)
	must(s.Demote(ctx, first, second))
	if _, err := old.Do("SET", "split", 2); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		t.Errorf("SET at the replica that it is now = %v, want READONLY", err)
	}

	must(s.Heard(ctx, second))
	must(s.Stall(ctx))
	redistest.Do(t, second, "SET", "unknown", 1)
	third, err := s.FailOver(ctx)
	must(err)
	if third == second || !second.Dead() {
		t.Errorf("FailOver: the master is %s, and %s dead: %v; want another, and that it is", third.Addr(), second.Addr(), second.Dead())
	}
	there, err := redis.Values(redistest.Do(t, third, "MGET", "known", "unknown", "split"), nil)
	must(err)
	if there[0] == nil || there[1] != nil || there[2] != nil {
		t.Errorf("after the fail-over known, unknown, split = %s, want the first alone", there)
	}
}
