package redistest

// Clusters of containers and of processes: a slot moves, and a replica takes over.

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// startCluster starts a cluster of containers, or of processes, or skips.
func startCluster(t *testing.T, k Kind, c ClusterConfig) *Cluster {
	t.Helper()
	cl, err := open(t, k).StartCluster(t.Context(), c)
	if errors.Is(err, ErrImpossible) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cl.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return cl
}

func eachRealKind(t *testing.T, test func(t *testing.T, k Kind)) {
	t.Parallel()
	for _, k := range []Kind{Docker, Process} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

func TestClusterMovesASlot(t *testing.T) {
	eachRealKind(t, func(t *testing.T, k Kind) {
		cl := startCluster(t, k, ClusterConfig{Masters: 2, Config: Config{User: "locker", Password: "secret"}})
		ctx := t.Context()
		const key, other = "{a}:1", "{a}:2"
		do := func(s *Server, cmd string, args ...any) (any, error) { return cl.Do(ctx, s, cmd, args...) }

		slot, err := cl.Slot(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		from, err := cl.Owner(ctx, slot)
		if err != nil {
			t.Fatal(err)
		}
		to, err := cl.Other(ctx, from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := do(from, "MSET", key, 1, other, 2); err != nil {
			t.Fatal(err)
		}
		said := func(err error, word string) {
			t.Helper()
			var said redis.Error
			if !errors.As(err, &said) || !strings.HasPrefix(said.Error(), word+" ") {
				t.Fatalf("%v, want %s", err, word)
			}
		}
		_, err = do(to, "GET", key)
		said(err, "MOVED")

		m, err := cl.BeginMove(ctx, slot, to)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Key(ctx, key); err != nil {
			t.Fatal(err)
		}
		_, err = do(from, "GET", key)
		said(err, "ASK")
		_, err = do(from, "MGET", key, other)
		said(err, "TRYAGAIN")
		if err := m.Keys(ctx); err != nil {
			t.Fatal(err)
		}
		if err := m.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		_, err = do(from, "GET", key)
		said(err, "MOVED")
		if got, err := redis.Strings(do(to, "MGET", key, other)); err != nil || got[0] != "1" || got[1] != "2" {
			t.Errorf("%v, %v, want both", got, err)
		}
		if owner, err := cl.OwnerOf(ctx, key); owner != to {
			t.Errorf("the slot is at %v (%v)", owner, err)
		}

		// It has the same role after a restart.
		if err := to.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		if err := cl.agreed(ctx, slot, to); err != nil {
			t.Error(err)
		}
	})
}

func TestClusterFailsOver(t *testing.T) {
	eachRealKind(t, func(t *testing.T, k Kind) {
		c := ClusterConfig{Replicas: 1}
		if k == Docker {
			c.Masters = 1 // containers take long to start
		}
		cl := startCluster(t, k, c)
		ctx := t.Context()
		master, err := cl.OwnerOf(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Do(ctx, master, "SET", "a", 1); err != nil {
			t.Fatal(err)
		}
		if err := cl.Stall(ctx, master); err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Do(ctx, master, "SET", "a", 2); err != nil {
			t.Fatal(err)
		}
		promoted, err := cl.FailOver(ctx, master)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := redis.Int(cl.Do(ctx, promoted, "GET", "a")); got != 1 {
			t.Errorf("%d, %v, want what the replica heard before it was stalled", got, err)
		}
		if _, err := cl.FailOver(ctx, promoted); err == nil || !strings.Contains(err.Error(), "no replica") {
			t.Errorf("a second time: %v", err)
		}
	})
}
