// A thousand callers at once on redigo, the client that the root module has; the other clients' modules have the same test.
package clienttest

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestBurst(t *testing.T) {
	Burst(t, func(t *testing.T, addr string) driver.Node {
		pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
		t.Cleanup(func() { pool.Close() })
		return redigonode.New(pool)
	})
}
