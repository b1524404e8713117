package rediskit_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/enginetest"
)

// The tests of this package share these helpers; many of them serve those of engine, too.

const (
	name = enginetest.Name
	key  = enginetest.Key
	ms   = time.Millisecond
	ttl  = enginetest.TTL
	op   = enginetest.Op
)

var (
	bg = context.Background()

	bubble = enginetest.Bubble
	is     = enginetest.Is
	isNot  = enginetest.IsNot
)

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	enginetest.Equal(t, what, got, want)
}
