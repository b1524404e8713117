package rueidisnode

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// TestConformance holds the whole suite on all strategies, and all their variants, over this
// client.
func TestConformance(t *testing.T) {
	for _, v := range subjects.All() {
		servers, err := redistest.TryNodes(t, v.Servers)
		if err != nil {
			t.Run(v.Name, func(t *testing.T) { redistest.Must(t, err) })
			continue
		}
		if _, err := subjects.Bootstrap(t.Context(), []subjects.Variant{v}, servers); err != nil {
			t.Fatal(err)
		}
		conformance.Run(t, subject(t, v, servers))
	}
}

// subject is the variant's own, but that its nodes are ours.
func subject(t *testing.T, v subjects.Variant, servers []*redistest.Server) conformance.Subject {
	var clients []rueidis.Client
	for _, s := range servers {
		clients = append(clients, newClient(t, optionsOf(t, s)))
	}
	for i := range v.Dead { // nobody answers there
		clients = append(clients, newClient(t, rueidis.ClientOption{InitAddress: []string{fmt.Sprintf("127.0.0.1:%d", i+1)}}))
	}
	open := func(o strategy.Options, on func([]driver.Node) driver.Protocol, around func(i int, n driver.Node) driver.Node) (strategy.Strategy, error) {
		var nodes []driver.Node
		for i, c := range clients {
			n, err := New(c)
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, around(i, n))
		}
		return engine.New(on(nodes), o)
	}
	bare := func(_ int, n driver.Node) driver.Node { return n }
	s := v.Subject(servers)
	s.Open = func(o strategy.Options) (strategy.Strategy, error) { return open(o, v.On, bare) }
	s.OpenGated = func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
		return open(o, v.On, func(_ int, n driver.Node) driver.Node { return conformance.GateNode(n, g) })
	}
	s.OpenNodes = func(o strategy.Options, gates []conformance.Gate) (strategy.Strategy, error) {
		return open(o, v.On, func(i int, n driver.Node) driver.Node { return conformance.GateNode(n, gates[i]) })
	}
	s.OpenSkewed = func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
		on := v.On
		if v.Skewed != nil {
			on = func(nodes []driver.Node) driver.Protocol { return v.Skewed(nodes, ahead) }
		}
		return open(o, on, bare)
	}
	return s
}
