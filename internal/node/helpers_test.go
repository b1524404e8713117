package node

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/nodetest"
)

const generous = nodetest.Generous

var (
	soon       = nodetest.Soon
	want       = nodetest.Want
	eventually = nodetest.Eventually
)

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	return nodetest.Receive(t, what, c)
}

func poolOf(s *nodetest.Server) *redis.Pool {
	return &redis.Pool{
		MaxIdle: 4,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", s.Addr)
		},
	}
}

func echo(t *testing.T, n *Node, text string) {
	t.Helper()
	r, err := n.Do(t.Context(), soon(), "ECHO", text)
	if b, ok := r.([]byte); err != nil || !ok || string(b) != text {
		t.Fatalf("ECHO %s = %q, %v, want %q, nil", text, r, err, text)
	}
}
