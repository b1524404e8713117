// Strategies on a node of redisc are held to the exported suite, on a cluster of three masters.
// Its requests go through clients/redigo, which package nodetest holds to the contract.
package rediscnode

import (
	"testing"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
)

func TestConformance(t *testing.T) {
	clienttest.ClusterConformance(t, func(addrs []string) (driver.Node, error) {
		return New(&redisc.Cluster{StartupNodes: addrs}), nil
	}, "fairqueue", "setnxgetset-watch")
}

func TestHeldLockMoves(t *testing.T) {
	clienttest.HeldLockMoves(t, func(t testing.TB, addrs []string) driver.Node { return open(t, addrs...) })
}

func TestManyRenewedTogether(t *testing.T) { clienttest.ManyRenewedTogether(t, open(t, addrs(t)...)) }

func TestReadme(t *testing.T) { clienttest.Readme(t) }
