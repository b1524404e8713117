// A Node of rueidis is held to the contract of driver.Node, and strategies on it to the exported
// suite, on one server and on a cluster.
package rueidisnode

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/clients/internal/lending"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/subscription"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

var nodeSubject = nodetest.Subject{
	Open: func(t *testing.T, opts nodetest.Options) driver.Node {
		o, err := rueidis.ParseURL(opts.URL)
		redistest.Must(t, err)
		o.AlwaysRESP2 = opts.Protocol == 2
		// The client's cache cannot be in RESP2, nor without CLIENT, which a user may lack.
		o.DisableCache = o.AlwaysRESP2 || o.Username != ""
		if opts.PingEvery > 0 {
			o.Dialer.KeepAlive, o.ConnWriteTimeout = opts.PingEvery, opts.PongLimit
		}
		return newNode(t, o)
	},
	Connect:    func(t *testing.T, f *nodetest.Server) driver.Node { return newNode(t, (&memory{Server: f}).options()) },
	Protocols:  []int{2, 3},
	Ordered:    true,
	Lost:       "connection lost",
	Subscriber: func(n driver.Node) *subscription.Subscriber { return n.(*lending.Node).Sub },
	Noticed:    func(n driver.Node) bool { return n.(*lending.Node).Noticed() },
	Reads:      true,
	Crashes:    true,
	Package:    "clients/internal/lending",
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

func TestNodeDemoted(t *testing.T) {
	t.Parallel()
	nodetest.Demoted(t, nodeSubject)
}

// In RESP2 the client tells nobody that a connection has ended.
func TestClosedAtRest(t *testing.T) {
	t.Parallel()
	s := nodeSubject
	s.Protocols = []int{3}
	nodetest.ClosedAtRest(t, s)
}

func TestNoAccess(t *testing.T) {
	t.Parallel()
	nodetest.NoAccessSendsNothing(t, nodeSubject)
}

// Not parallel: it looks at all goroutines of the process.
func TestNothingIsLeftRunning(t *testing.T) { nodetest.NothingIsLeftRunning(t, nodeSubject) }

func TestConformance(t *testing.T) {
	var mu sync.Mutex
	clients := map[string]rueidis.Client{} // by URL: each has goroutines, which no strategy has left
	clienttest.Conformance(t, func(url string) (driver.Node, error) {
		mu.Lock()
		defer mu.Unlock()
		if clients[url] == nil {
			o, err := rueidis.ParseURL(url)
			if err != nil {
				return nil, err
			}
			clients[url] = newClient(t, o)
		}
		return New(clients[url]), nil
	})
}

func TestClusterConformance(t *testing.T) {
	client := clusterClient(t, clienttest.Addrs(t))
	// The client's pipelines get goroutines when they are first shared, and keep them: no
	// strategy has left those. A context that can be cancelled makes that so.
	for addr, c := range client.Nodes() {
		ctx, cancel := context.WithCancel(t.Context())
		if err := c.Do(ctx, c.B().Ping().Build()).Error(); err != nil {
			t.Fatalf("PING %s = %v", addr, err)
		}
		cancel()
	}
	clienttest.ClusterConformance(t, func(addrs []string) (driver.Node, error) {
		if slices.Equal(addrs, clienttest.Addrs(t)) {
			return New(client), nil
		}
		return New(clusterClient(t, addrs)), nil // of a cluster of a trial's own
	}, "fairqueue")
}

func TestHeldLockMoves(t *testing.T) {
	// A session is refused with MOVED until the client has looked for the new master: see Session.
	clienttest.HeldLockMoves(t, func(t testing.TB, addrs []string) driver.Node { return clusterNode(t, addrs) }, "setnxgetset-watch")
}

func TestManyRenewedTogether(t *testing.T) {
	clienttest.ManyRenewedTogether(t, clusterNode(t, clienttest.Addrs(t)))
}

func TestBurst(t *testing.T) {
	t.Parallel()
	clienttest.Burst(t, func(t *testing.T, addr string) driver.Node {
		client := clienttest.Must[rueidis.Client](t)(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}}))
		t.Cleanup(client.Close)
		return New(client)
	})
}

func TestReadme(t *testing.T) { clienttest.Readme(t) }
