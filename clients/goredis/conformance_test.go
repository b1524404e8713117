package goredis

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/redistest"
	"github.com/lockstrategies/locks/internal/subjects"
	"github.com/lockstrategies/locks/strategy"
)

// subject is the suite's subject of v, on nodes of ours.
func subject(t *testing.T, v subjects.Variant, servers []*redistest.Server) conformance.Subject {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL())
	}
	for i := range v.Dead { // tcpmux and compressnet, if anything
		urls = append(urls, "redis://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(i+1)))
	}
	open := func(o strategy.Options, on func([]driver.Node) driver.Protocol, around func(int, driver.Node) driver.Node) (strategy.Strategy, error) {
		var nodes []driver.Node
		for i, url := range urls {
			n, err := owned(redis.NewClient(options(t, url)))
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, around(i, n))
		}
		return engine.New(on(nodes), o)
	}
	plainly := func(_ int, n driver.Node) driver.Node { return n }
	s := v.Subject(servers)
	s.Name += "-goredis"
	s.Open = func(o strategy.Options) (strategy.Strategy, error) { return open(o, v.On, plainly) }
	s.OpenGated = func(o strategy.Options, g conformance.Gate) (strategy.Strategy, error) {
		return open(o, v.On, func(_ int, n driver.Node) driver.Node { return conformance.GateNode(n, g) })
	}
	s.OpenSkewed = func(o strategy.Options, ahead time.Duration) (strategy.Strategy, error) {
		on := v.On
		if v.Skewed != nil {
			on = func(nodes []driver.Node) driver.Protocol { return v.Skewed(nodes, ahead) }
		}
		return open(o, on, plainly)
	}
	s.OpenNodes = func(o strategy.Options, gates []conformance.Gate) (strategy.Strategy, error) {
		return open(o, v.On, func(i int, n driver.Node) driver.Node { return conformance.GateNode(n, gates[i]) })
	}
	return s
}

// TestConformance holds the suite on all strategies.
func TestConformance(t *testing.T) {
	for _, v := range subjects.All() {
		if v.Aside && v.Name != "redlock-fenced" {
			continue
		}
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
