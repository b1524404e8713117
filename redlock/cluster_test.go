// RedLock on the nodes of one Redis Cluster is refused.
package redlock_test

import (
	"errors"
	"strings"
	"testing"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// TestNodesOfACluster: the nodes of one cluster are refused, with the reason, by Check and by
// the first attempt, which leaves nothing.
func TestNodesOfACluster(t *testing.T) {
	t.Parallel()
	cl := redistest.OwnCluster(t, redistest.ClusterConfig{})
	var nodes []driver.Node
	for _, s := range cl.Servers() {
		nodes = append(nodes, redigonode.New(s.Pool()))
	}
	s, err := redlock.New(nodes, calm, unhurried)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	const why = "belongs to a Redis Cluster: RedLock takes servers that know nothing of each other"
	if err := s.Check(t.Context()); err == nil || strings.Count(err.Error(), why) != len(nodes) {
		t.Errorf("Check() = %v, want of each node that it %s", err, why)
	}
	_, err = s.NewLock(t.Name()).TryAcquire(t.Context())
	if !errors.Is(err, strategy.ErrRefused) || !errors.Is(err, strategy.ErrNoQuorum) || strings.Count(err.Error(), why) < 2 {
		t.Errorf("TryAcquire() = %v, want ErrRefused by most, as it %s", err, why)
	}
	for _, s := range cl.Servers() {
		if n := redistest.Do(t, s, "DBSIZE"); n != int64(0) {
			t.Errorf("DBSIZE = %v, want 0", n)
		}
	}
}
