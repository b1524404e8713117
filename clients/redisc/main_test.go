// What all tests of redisc begin with: nodes of the shared cluster.
package rediscnode

import (
	"strings"
	"testing"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/internal/testkit/nodetest"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// open makes a Node that begins with the addresses; it ends with the test.
func open(t testing.TB, startup ...string) *node {
	t.Helper()
	n := New(&redisc.Cluster{StartupNodes: startup}).(*node)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

var (
	soon  = nodetest.Soon
	addrs = clienttest.Addrs
)

// key is one in the slot of the test's name.
func key(t testing.TB, suffix ...string) string {
	return "{" + t.Name() + "}" + strings.Join(suffix, "")
}
