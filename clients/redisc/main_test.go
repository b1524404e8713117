// What all tests of redisc begin with: nodes of the shared cluster.
package rediscnode

import (
	"strings"
	"testing"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/internal/clienttest"
	"github.com/lockstrategies/locks/internal/nodetest"
	"github.com/lockstrategies/locks/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// open makes a Node that begins with the addresses; it ends with the test.
func open(t testing.TB, startup ...string) *Node {
	t.Helper()
	n, err := New(&redisc.Cluster{StartupNodes: startup})
	if err != nil {
		t.Fatal(err)
	}
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
