package locktest

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/verdict"
	"github.com/lockstrategies/locks/strategy"
)

// FencesExpire fails the test unless the fence counter of a lock expires FenceTTL after the time that its
// number says, and fences rise all the same. The counter is a string.
func FencesExpire(t *testing.T, open func(*testing.T, *redistest.Server, strategy.Options) strategy.Strategy) {
	s := redistest.Shared(t)
	counterOf := func(name string) string { return driver.SiblingKey(strategy.DefaultKey(name), "fence") }
	left := func(t *testing.T, name string) time.Duration {
		t.Helper()
		ms, err := redis.Int64(redistest.Do(t, s, "PTTL", counterOf(name)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(ms) * time.Millisecond
	}
	store := func(t *testing.T, name string, ahead time.Duration) uint64 { // for ever, as versions before Options.FenceTTL did
		t.Helper()
		now, err := redis.Int64s(redistest.Do(t, s, "TIME"), nil)
		if err != nil {
			t.Fatal(err)
		}
		n := now[0]*1e6 + now[1] + ahead.Microseconds()
		redistest.Do(t, s, "SET", counterOf(name), n)
		return uint64(n)
	}

	t.Run("gone", func(t *testing.T) {
		locks, name := open(t, s, strategy.Options{TTL: 200 * time.Millisecond, OpTimeout: 190 * time.Millisecond, FenceTTL: 400 * time.Millisecond}), Unique(t)
		var last uint64
		for range 2 {
			verdict.Eventually(t, "the lock is granted before its short TTL ends", func() bool {
				lease, err := locks.NewLock(name).TryAcquire(t.Context())
				if err != nil {
					return false
				}
				fence := Fence(t, lease)
				if fence <= last {
					t.Errorf("Fence() = %d after %d, whose counter has expired", fence, last)
				}
				last = fence
				return lease.Release(t.Context()) == nil
			})
			verdict.Eventually(t, "the counter has expired, and Inspect says so", func() bool {
				info, err := locks.Inspect(t.Context(), name)
				return err == nil && info.Fence == 0 && redistest.Do(t, s, "EXISTS", counterOf(name)) == int64(0)
			})
		}
	})

	// A server whose clock was an hour ahead, and was set back: a TTL from now on would let the counter go
	// while its number is still greater than the time.
	t.Run("ahead of the clock", func(t *testing.T) {
		const ahead, day = time.Hour, 24 * time.Hour
		locks, name := open(t, s, strategy.Options{FenceTTL: day}), Unique(t)
		stored := store(t, name, ahead)
		lease := Try(t, locks, name)
		if fence := Fence(t, lease); fence != stored+1 {
			t.Errorf("Fence() = %d after %d", fence, stored)
		}
		if got := left(t, name); got <= day || got > day+ahead {
			t.Errorf("the counter lasts for %v, want %v less the time since it was stored", got, day+ahead)
		}
		token, err := lease.Detach()
		if err != nil {
			t.Fatal(err)
		}
		stored = store(t, name, 2*ahead)
		if lease, err = locks.Adopt(t.Context(), name, token); err != nil {
			t.Fatal(err)
		}
		if fence := Fence(t, lease); fence != stored+1 {
			t.Errorf("Fence() after Adopt = %d after %d", fence, stored)
		}
		if got := left(t, name); got <= day+ahead || got > day+2*ahead {
			t.Errorf("the counter lasts for %v after Adopt, want %v less the time since it was stored", got, day+2*ahead)
		}
		Release(t, lease)
	})

	t.Run("for ever", func(t *testing.T) {
		locks, name := open(t, s, strategy.Options{FenceTTL: -1}), Unique(t)
		Release(t, Try(t, locks, name))
		if got := left(t, name); got >= 0 {
			t.Errorf("the counter lasts for %v, want for ever", got)
		}
		redistest.Do(t, s, "DEL", counterOf(name))
	})
}
