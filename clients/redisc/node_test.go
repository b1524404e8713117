// A node of redisc from its beginning: nonsense, and a strategy on a real cluster.
package rediscnode

import (
	"testing"

	"github.com/mna/redisc"

	"github.com/lockstrategies/locks/fairqueue"
	"github.com/lockstrategies/locks/internal/testkit/clienttest"
	"github.com/lockstrategies/locks/strategy"
)

func TestNewRefusesNonsense(t *testing.T) {
	for _, c := range []*redisc.Cluster{nil, {}, {StartupNodes: []string{"redis"}}, {StartupNodes: []string{"redis:6379", ""}}} {
		if err := New(c).Use(); err == nil {
			t.Errorf("New(%v).Use() = nil, want an error", c)
		}
	}
}

// TestBasics: a strategy on a cluster, from one of its nodes' addresses.
func TestBasics(t *testing.T) {
	n := open(t, addrs(t)[2])
	s := clienttest.Must[strategy.Strategy](t)(fairqueue.New(n, strategy.Options{}))
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d"} { // in several slots, of all masters
		l := clienttest.Must[strategy.Lease](t)(s.NewLock(t.Name() + name).TryAcquire(t.Context()))
		if err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !n.Ordered() {
		t.Error("nothing has moved, and the order is lost")
	}
}
