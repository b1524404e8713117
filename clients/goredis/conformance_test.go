// A node of go-redis is held to the contract of driver.Node, and strategies on it to the
// exported suite, on one server and on a cluster.
package goredisnode

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
)

var nodeSubject = nodetest.Subject{
	Open: func(t *testing.T, opts nodetest.Options) driver.Node {
		o := options(t, opts.URL)
		o.Protocol = opts.Protocol
		n := nodeOf(t, clientOf(t, o))
		if opts.PingEvery > 0 {
			n.sub.PingEvery, n.sub.PongLimit = opts.PingEvery, opts.PongLimit
		}
		return n
	},
	Connect:    func(t *testing.T, f *nodetest.Server) driver.Node { return nodeIn(t, f) },
	Protocols:  []int{2, 3},
	Lost:       "the connection ended",
	Subscriber: func(n driver.Node) *subscription.Subscriber { return n.(*node).sub },
	Farewells:  true,
	Package:    "clients/goredis",
}

func TestNode(t *testing.T) {
	t.Parallel()
	nodetest.Run(t, nodeSubject)
}

func TestNodeInMemory(t *testing.T) { nodetest.InMemory(t, nodeSubject) }

// TestNodeDerived holds the Nodes of NewDerived to the same contract.
func TestNodeDerived(t *testing.T) {
	t.Parallel()
	derived := nodeSubject
	derived.Open = func(t *testing.T, opts nodetest.Options) driver.Node {
		o := options(t, opts.URL)
		o.Protocol, o.ContextTimeoutEnabled = opts.Protocol, false
		n := NewDerived(clientOf(t, o)).(*node)
		closeWith(t, n)
		if opts.PingEvery > 0 {
			n.sub.PingEvery, n.sub.PongLimit = opts.PingEvery, opts.PongLimit
		}
		return n
	}
	nodetest.Run(t, derived)
}

func TestNodeDemoted(t *testing.T) {
	t.Parallel()
	nodetest.Demoted(t, nodeSubject)
}

func TestClosedAtRest(t *testing.T) {
	t.Parallel()
	nodetest.ClosedAtRest(t, nodeSubject)
}

func TestNoAccess(t *testing.T) {
	t.Parallel()
	nodetest.NoAccessSendsNothing(t, nodeSubject)
}

// Not parallel: it looks at all goroutines of the process.
func TestNothingIsLeftRunning(t *testing.T) { nodetest.NothingIsLeftRunning(t, nodeSubject) }

func TestConformance(t *testing.T) {
	clienttest.Conformance(t, func(url string) (driver.Node, error) {
		return owned(redis.NewClient(options(t, url))), nil
	})
}

func TestClusterConformance(t *testing.T) {
	clienttest.ClusterConformance(t, func(addrs []string) (driver.Node, error) {
		return owned(redis.NewClusterClient(clusterOptions(addrs))), nil
	}, "fairqueue")
}

func TestHeldLockMoves(t *testing.T) {
	clienttest.HeldLockMoves(t, func(t testing.TB, addrs []string) driver.Node { return nodeOf(t, clusterClient(t, addrs)) })
}

func TestManyRenewedTogether(t *testing.T) {
	clienttest.ManyRenewedTogether(t, nodeOf(t, clusterClient(t, clienttest.Addrs(t))))
}

func TestBurst(t *testing.T) {
	t.Parallel()
	clienttest.Burst(t, func(t *testing.T, addr string) driver.Node {
		return nodeOf(t, clientOf(t, &redis.Options{Addr: addr, ContextTimeoutEnabled: true}))
	})
}

func TestReadme(t *testing.T) { clienttest.Readme(t) }
