// The node of redigo is held to the contract of driver.Node.
package redigonode

import (
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var nodeSubject = nodetest.Subject{
	Open: func(t *testing.T, o nodetest.Options) driver.Node {
		pool := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.DialURL(o.URL) }}
		t.Cleanup(func() { pool.Close() })
		n := newNode(t, pool)
		if o.PingEvery > 0 {
			n.sub.PingEvery, n.sub.PongLimit = o.PingEvery, o.PongLimit
		}
		return n
	},
	Connect: func(t *testing.T, f *nodetest.Server) driver.Node {
		pool := poolOf(f)
		pool.MaxIdle = 12
		return newNode(t, pool)
	},
	Ordered:    true,
	Lost:       "connection lost",
	Subscriber: func(n driver.Node) *subscription.Subscriber { return n.(*node).sub },
	Package:    "clients/redigo",
}

func TestNode(t *testing.T) {
	t.Parallel()
	nodetest.Run(t, nodeSubject)
}

func TestLateRequest(t *testing.T) {
	t.Parallel()
	nodetest.LateRequest(t, nodeSubject)
}

func TestNodeInMemory(t *testing.T) { nodetest.InMemory(t, nodeSubject) }

func TestClosedAtRest(t *testing.T) {
	t.Parallel()
	nodetest.ClosedAtRest(t, nodeSubject)
}

func TestNoAccess(t *testing.T) {
	t.Parallel()
	nodetest.NoAccessSendsNothing(t, nodeSubject)
}

func TestDemoted(t *testing.T) {
	t.Parallel()
	nodetest.Demoted(t, nodeSubject)
}

// Not parallel: it looks at all goroutines of the process.
func TestNothingIsLeftRunning(t *testing.T) { nodetest.NothingIsLeftRunning(t, nodeSubject) }
