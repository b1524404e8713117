package nemesis

import (
	"context"
	"slices"

	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/stage"
)

// real is a Ground of real servers and processes.
type real struct {
	*rig.Rig
	store *contender.Store
}

// OnRig is the ground of a rig, which a run resets first.
func OnRig(r *rig.Rig) Ground { return &real{Rig: r} }

func (g *real) Open(ctx context.Context, c Config) (servers []Server, store string, err error) {
	if err := g.Reset(ctx); err != nil {
		return nil, "", err
	}
	if slices.Contains(c.Faults, "restart") {
		for _, n := range g.Nodes {
			if err := n.Persist(ctx, "always"); err != nil {
				return nil, "", err
			}
		}
	}
	if c.Variant.Guarded {
		if err := stage.Bootstrap(ctx, g.Rig); err != nil { // their former clients are gone
			return nil, "", err
		}
	}
	if g.store, err = contender.OpenStore(); err != nil {
		return nil, "", err
	}
	for _, n := range g.Nodes {
		servers = append(servers, n)
	}
	return servers, g.store.Addr(), nil
}

func (g *real) Ways() (ways []Way) {
	for _, n := range g.Nodes {
		ways = append(ways, n.Link())
	}
	return ways
}

func (g *real) Start(ctx context.Context, ways []Way, s contender.Setup) (Process, error) {
	for _, w := range ways {
		s.Addrs = append(s.Addrs, w.(*rig.Link).Addr())
	}
	return contender.Start(ctx, s)
}

func (g *real) Close() error {
	if g.store == nil {
		return nil
	}
	return g.store.Close()
}

// Ping writes, as locks do.
func (g *real) Ping(ctx context.Context, server int) {
	g.Nodes[server].Do(ctx, "SET", "nemesis:watch", "", "PX", ttl.Milliseconds()) // an error takes its time, too
}
