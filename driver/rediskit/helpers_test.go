package rediskit_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/testkit/enginetest"
	"github.com/lockstrategies/locks/strategy"
)

// The tests of this package share these helpers; many of them serve those of engine, too.

const (
	name  = enginetest.Name
	key   = enginetest.Key
	ms    = time.Millisecond
	ttl   = enginetest.TTL
	valid = enginetest.Valid
	op    = enginetest.Op
)

var (
	bg = context.Background()

	bubble  = enginetest.Bubble
	take    = enginetest.Take
	release = enginetest.Release
	is      = enginetest.Is
	isNot   = enginetest.IsNot
	since   = enginetest.Since
)

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	enginetest.Equal(t, what, got, want)
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
