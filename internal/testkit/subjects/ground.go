package subjects

import (
	"context"
	"errors"

	"github.com/gomodule/redigo/redis"

	"github.com/lockstrategies/locks/conformance"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/internal/testkit/redistest"
	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/strategy"
)

// Ground is the OpenGround of the variant's subject, on servers of the farm: the first one has a replica. open opens the
// variant on the servers that the links lead to, each contender by links of its own. nil: the farm has no servers that may be
// broken, or the variant's servers are no majority any more when one of them does not vote: one of RedLock that was promoted.
func (v Variant) Ground(farm *redistest.Farm, open func(links []*rig.Link, o strategy.Options) (strategy.Strategy, error)) func(context.Context) (*conformance.Ground, error) {
	if kind := farm.Kind(); kind == redistest.Embedded || kind == redistest.Given || v.Guarded && 2*(v.Servers-1) <= v.Servers+v.Dead {
		return nil
	}
	return func(ctx context.Context) (*conformance.Ground, error) {
		r, err := rig.Open(ctx, farm, v.Servers, redistest.Config{})
		if err != nil {
			return nil, err
		}
		servers := make([]*redistest.Server, v.Servers)
		for i, n := range r.Nodes {
			servers[i] = n.Server()
		}
		moved := r.Nodes[0]
		_, err = Bootstrap(ctx, []Variant{v}, servers)
		if err == nil {
			err = moved.Replicate(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		move := func(change func(context.Context) error) func(context.Context) error {
			return func(ctx context.Context) error {
				if err := moved.Replicate(ctx); err != nil {
					return err
				}
				if err := change(ctx); err != nil {
					return err
				}
				return moved.StallReplica(ctx)
			}
		}
		return &conformance.Ground{
			Open: func(o strategy.Options) (strategy.Strategy, error) {
				links := make([]*rig.Link, v.Servers)
				for i, n := range r.Nodes {
					links[i] = n.Link()
				}
				return open(links, o)
			},
			Moves: []conformance.Move{
				{Name: "the address is repointed", Do: move(moved.Repoint)},
				{Name: "FAILOVER", Do: move(moved.HandOver)},
			},
			Close: r.Close,
		}, nil
	}
}

// ground is Ground on redigo.
func (v Variant) ground(farm *redistest.Farm) func(context.Context) (*conformance.Ground, error) {
	return v.Ground(farm, func(links []*rig.Link, o strategy.Options) (strategy.Strategy, error) {
		pools := make([]*redis.Pool, len(links))
		for i, l := range links {
			pools[i] = l.Pool()
		}
		return v.open(pools, o, v.On, func(_ int, n driver.Node) driver.Node { return n })
	})
}
