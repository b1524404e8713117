package rueidisnode

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/nodetest"
)

var nodeSubject = nodetest.Subject{
	Open: func(t *testing.T, opts nodetest.Options) driver.Node {
		o, err := rueidis.ParseURL(opts.URL)
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
	Package:   "clients/rueidis",
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
