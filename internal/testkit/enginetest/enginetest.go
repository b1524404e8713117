// Package enginetest is what tests of engine and driver share. Their time is that of a synctest bubble:
// it moves only when everything waits, so times are exact.
package enginetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/strategy"
)

const (
	Name = "n"
	Key  = "lock:{n}" // of Name
	TTL  = 10 * time.Second
	Op   = time.Second // the default operation time-out for TTL

	Drift = 102 * time.Millisecond // driver.Drift(TTL)
	Valid = TTL - Drift            // from request to deadline
)

// Bubble runs a test on fake time. It ends when no goroutine is left in it. One that waits for ever is
// found by synctest; one that asks again and again without a pause is ended after ten minutes of real time. (A busy machine
// has needed more than one for what pauses.)
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	busy := time.AfterFunc(10*time.Minute, func() {
		panic(t.Name() + " is busy for ten minutes of real time, want that what it tests pauses")
	})
	defer busy.Stop()
	synctest.Test(t, f)
}

// Take acquires the lock called Name, which must be free.
func Take(t *testing.T, s strategy.Strategy) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(Name).TryAcquire(context.Background())
	if err != nil {
		t.Fatalf("TryAcquire of a free lock = %v", err)
	}
	return lease
}

// Release releases a lease that is held.
func Release(t *testing.T, lease strategy.Lease) {
	t.Helper()
	Is(t, "Release", lease.Release(context.Background()))
}

// Is checks that err is each of want; nil if there is none.
func Is(t *testing.T, call string, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil {
		t.Errorf("%s = %v, want nil", call, err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s = %v, want %v", call, err, w)
		}
	}
}

// IsNot checks that err is not one of those.
func IsNot(t *testing.T, call string, err error, unwanted ...error) {
	t.Helper()
	for _, w := range unwanted {
		if errors.Is(err, w) {
			t.Errorf("%s = %v, want no %v", call, err, w)
		}
	}
}

// Equal checks that got is want.
func Equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// Since checks how long ago start was.
func Since(t *testing.T, what string, start time.Time, want time.Duration) {
	t.Helper()
	Equal(t, what, time.Since(start), want)
}
