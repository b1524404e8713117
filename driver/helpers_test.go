package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/strategy"
)

// In this package time is that of a synctest bubble, where a test needs any.

const (
	name  = "n"
	key   = "lock:{n}" // of name
	ms    = time.Millisecond
	ttl   = 10 * time.Second // the default
	valid = ttl - 102*ms     // from request to deadline
	op    = time.Second      // the default operation time-out for ttl
)

var bg = context.Background()

// bubble runs a test on fake time. It ends when no goroutine is left in it.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, f)
}

// open makes a strategy, and closes it after the test.
func open(t *testing.T, p driver.Protocol, o strategy.Options) strategy.Strategy {
	t.Helper()
	s, err := engine.New(p, o)
	if err != nil {
		t.Fatalf("New(%+v) = %v", o, err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// take acquires the lock called name, which must be free.
func take(t *testing.T, s strategy.Strategy) strategy.Lease {
	t.Helper()
	lease, err := s.NewLock(name).TryAcquire(bg)
	if err != nil {
		t.Fatalf("TryAcquire of a free lock = %v", err)
	}
	return lease
}

func release(t *testing.T, lease strategy.Lease) {
	t.Helper()
	is(t, "Release", lease.Release(bg))
}

// is checks that err is each of want; nil if there is none.
func is(t *testing.T, call string, err error, want ...error) {
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

// isNot checks that err is none of those.
func isNot(t *testing.T, call string, err error, unwanted ...error) {
	t.Helper()
	for _, w := range unwanted {
		if errors.Is(err, w) {
			t.Errorf("%s = %v, want no %v", call, err, w)
		}
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// since checks how long ago start was.
func since(t *testing.T, what string, start time.Time, want time.Duration) {
	t.Helper()
	equal(t, what, time.Since(start), want)
}
