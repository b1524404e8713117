package goredis

import (
	"testing"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/nodetest"
)

var nodeSubject = nodetest.Subject{
	Open: func(t *testing.T, opts nodetest.Options) driver.Node {
		o := options(t, opts.URL)
		o.Protocol = opts.Protocol
		n := nodeOf(t, clientOf(t, o))
		if opts.PingEvery > 0 {
			n.sub.pingEvery, n.sub.pongLimit = opts.PingEvery, opts.PongLimit
		}
		return n
	},
	Protocols: []int{2, 3},
	Lost:      "the connection ended",
	AtRest:    func(n driver.Node) bool { return atRest(n.(*node)) },
	Package:   "clients/goredis",
}

func TestNode(t *testing.T) {
	t.Parallel()
	nodetest.Run(t, nodeSubject)
}

// Not parallel: it looks at all goroutines of the process.
func TestNothingIsLeftRunning(t *testing.T) { nodetest.NothingIsLeftRunning(t, nodeSubject) }
