// All tests of package node use these helpers.
package redigonode

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

const generous = nodetest.Generous

var (
	soon = nodetest.Soon
	want = nodetest.Want
)

func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	return nodetest.Receive(t, what, c)
}

// bubble runs a test in a bubble: its time takes no time. Servers in it are in memory. It fails if
// somebody has waited for as long as is generous.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		defer func() {
			if took := time.Since(start); took >= generous {
				t.Errorf("this took %v of the bubble's time, want less than %v", took, generous)
			}
		}()
		test(t)
	})
}

// bubbled is bubble in a subtest.
func bubbled(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, test) })
}

func poolOf(s *nodetest.Server) *redis.Pool {
	return &redis.Pool{
		MaxIdle: 4,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			nc, err := s.Dial(ctx)
			if err != nil {
				return nil, err
			}
			return redis.NewConn(nc, 0, 0), nil
		},
	}
}

// dial is a Dial that knows no context.
func dial(s *nodetest.Server) (redis.Conn, error) { return poolOf(s).DialContext(context.Background()) }

func echo(t *testing.T, n *node, text string) {
	t.Helper()
	r, err := n.Do(t.Context(), soon(), "ECHO", text)
	if b, ok := r.([]byte); err != nil || !ok || string(b) != text {
		t.Fatalf("ECHO %s = %q, %v, want %q, nil", text, r, err, text)
	}
}
