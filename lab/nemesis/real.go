package nemesis

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockstrategies/locks/internal/testkit/rig"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/stage"
	"github.com/lockstrategies/locks/lab/wait"
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

// Slow is what a history calls a time in which the machine kept whole servers and
// processes waiting: a fault of nobody's making, in which no lock has to be available.
const Slow = "slow machine"

// watch writes down when the machine is slow: when what takes a millisecond takes half of
// what a contender has patience for, or a sleep that much longer than it should.
func (g *real) watch(ctx context.Context, a *arena) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		const nap = 20 * time.Millisecond
		for i := 0; ; i = (i + 1) % len(g.Nodes) {
			start := history.Now()
			awake := wait.For(ctx, nap)
			select {
			case a.states[i] <- struct{}{}: // nothing is wrong there
				if awake {
					g.Nodes[i].Do(ctx, "SET", "nemesis:watch", "", "PX", ttl.Milliseconds()) // an error takes its time, too
				}
				<-a.states[i]
			default:
			}
			if !awake {
				return
			}
			if end := history.Now(); end-start > nap+opTimeout/2 {
				a.faults.Add(history.Op{Kind: history.KindFault, Value: Slow, Note: Slow, Start: start, End: end})
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
