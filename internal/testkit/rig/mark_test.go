package rig

// Marks in an append-only file, and power losses behind them.

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

// TestMarks: a power loss leaves what the server says to have synced, and no more.
func TestMarks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	farm, err := redistest.ForTests(t).Having(ctx, "redis-8.0", "WAITAOF")
	redistest.Skip(t, err, "what a power loss leaves of a file that is synced every second, by the server's own word")
	r, err := Open(ctx, farm, 1, redistest.Config{})
	redistest.Skip(t, err, "what a power loss leaves of a file that is synced every second, by the server's own word")
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Node: r.Nodes[0], t: t, rig: r, link: r.Nodes[0].Link()}
	if _, err := w.Mark(ctx); err == nil {
		t.Error("Mark of a server without a file = nil, want an error")
	}
	mark := func() *Mark {
		t.Helper()
		m, err := w.Mark(ctx)
		w.must(err)
		return m
	}
	synced := func(m *Mark, within time.Duration) bool {
		t.Helper()
		is, err := m.Synced(within)
		w.must(err)
		return is
	}
	w.must(w.Persist(ctx, "everysec"))
	truly, err := w.SyncsTruly(ctx)
	w.must(err)
	if !truly {
		redistest.Skip(t, redistest.ErrImpossible, "what a power loss leaves, for the server confirms what it has not synced")
	}
	for try := 0; ; try++ {
		behind := fmt.Sprint("behind-", try) // what an earlier try has written is before the marks of this one
		w.says("SET", "before", "token")
		first := mark()
		if !synced(first, patience) { // so the next second begins now
			t.Fatal("nothing is synced")
		}
		w.says("SET", behind, "token")
		second := mark()
		err := w.PowerLossBehind(ctx, first, second)
		if errors.Is(err, ErrStale) && try < 20 { // the machine was too slow
			w.want("token", "GET", behind)
			continue
		}
		w.must(err)
		w.want("token", "GET", "before")
		w.want("nil", "GET", behind)
		if err := w.PowerLossBehind(ctx, first, nil); err == nil || errors.Is(err, ErrStale) {
			t.Errorf("PowerLossBehind a mark of another run = %v, want another error", err)
		}
		break
	}

	first := mark()
	w.says("SET", "behind", "token")
	second := mark()
	w.says("SET", "last", "token")
	if !synced(second, patience) {
		t.Fatal("nothing is synced")
	}
	if err := w.PowerLossBehind(ctx, first, second); !errors.Is(err, ErrStale) {
		t.Errorf("PowerLossBehind a mark though the next is synced = %v, want ErrStale", err)
	}
	w.want("OK", "SET", "goes", "on")
	w.must(w.PowerLossBehind(ctx, second, nil))
	w.want("token", "GET", "behind")
	w.want("nil", "GET", "last")
	w.want("nil", "GET", "goes")
}
