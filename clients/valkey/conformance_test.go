// Code generated from clients/rueidis by generated_test.go. DO NOT EDIT.

// A Node of valkey-go is held to the contract of driver.Node, and strategies on it to the exported
// suite, on one server and on a cluster.
package valkeynode

import (
	"context"
	"sync"
	"testing"

	"github.com/valkey-io/valkey-go"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/clienttest"
	"github.com/lockstrategies/locks/internal/nodetest"
)

var nodeSubject = nodetest.Subject{
	Open: func(t *testing.T, opts nodetest.Options) driver.Node {
		o, err := valkey.ParseURL(opts.URL)
		if err != nil {
			t.Fatal(err)
		}
		o.AlwaysRESP2 = opts.Protocol == 2
		// The client's cache cannot be in RESP2, nor without CLIENT, which a user may lack.
		o.DisableCache = o.AlwaysRESP2 || o.Username != ""
		if opts.PingEvery > 0 {
			o.Dialer.KeepAlive, o.ConnWriteTimeout = opts.PingEvery, opts.PongLimit
		}
		return newNode(t, o)
	},
	Protocols: []int{2, 3},
	Ordered:   true,
	Lost:      "connection lost",
	AtRest:    func(n driver.Node) bool { return atRest(n.(*Node)) },
	Reads:     true,
	Package:   "clients/valkey",
}

func atRest(n *Node) bool {
	n.sub.mu.Lock()
	defer n.sub.mu.Unlock()
	h := n.sub.lines[""]
	return h != nil && h.reused && !h.writing
}

func TestNode(t *testing.T) {
	t.Parallel()
	nodetest.Run(t, nodeSubject)
}

// Not parallel: it looks at all goroutines of the process.
func TestNothingIsLeftRunning(t *testing.T) { nodetest.NothingIsLeftRunning(t, nodeSubject) }

func TestConformance(t *testing.T) {
	var mu sync.Mutex
	clients := map[string]valkey.Client{} // by URL: each has goroutines, which no strategy has left
	clienttest.Conformance(t, func(url string) (driver.Node, error) {
		mu.Lock()
		defer mu.Unlock()
		if clients[url] == nil {
			o, err := valkey.ParseURL(url)
			if err != nil {
				return nil, err
			}
			clients[url] = newClient(t, o)
		}
		return New(clients[url])
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
	clienttest.ClusterConformance(t, func([]string) (driver.Node, error) { return New(client) }, "fairqueue")
}

func TestHeldLockMoves(t *testing.T) {
	// A session is refused with MOVED until the client has looked for the new master: see Session.
	clienttest.HeldLockMoves(t, func(t testing.TB, addrs []string) driver.Node { return clusterNode(t, addrs) }, "setnxgetset-watch")
}

func TestManyRenewedTogether(t *testing.T) {
	clienttest.ManyRenewedTogether(t, clusterNode(t, clienttest.Addrs(t)))
}

func TestReadme(t *testing.T) { clienttest.Readme(t) }
