// Package simulate is the ground of a nemesis in memory, on virtual time: package testing/synctest gives the clock. All
// of the module is real, from the contenders' calls to the scripts: the engine, the algorithm, its node and the node's
// connections. The network is imitated, and the servers are embedded ones (miniredis), whose data, clock and processes
// the nemesis breaks.
//
// An hour takes a few minutes, and what a process does never depends on a machine that is slow. A seed decides what
// breaks, and what each contender does. It does not decide which of two goroutines runs first that are ready at the
// same moment, so a run that failed may take some tries to fail again.
package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	redigonode "github.com/lockstrategies/locks/clients/redigo"
	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/lab/contender"
	"github.com/lockstrategies/locks/lab/history"
	"github.com/lockstrategies/locks/lab/nemesis"
	"github.com/lockstrategies/locks/lab/wait"
	"github.com/lockstrategies/locks/redlock"
	"github.com/lockstrategies/locks/strategy"
)

// A Ground is for one run, in one bubble.
type Ground struct {
	Observe func(strategy.Event) // gets the events of all processes, if not nil
	Left    []string             // after the run: what is left with the servers of locks that nobody uses any more
	Late    []history.Violation  // deadlines that were later than the server's expiry

	config  nemesis.Config
	servers []*Server
	store   *contender.Store
	links   uint64 // how many there are
	began   time.Duration
	stop    context.CancelFunc

	mu        sync.Mutex
	processes []*process
}

var _ nemesis.Ground = (*Ground)(nil)

// Open makes the servers. Those of a quorum have been vouched for by an operator.
func (g *Ground) Open(ctx context.Context, c nemesis.Config) (servers []nemesis.Server, store string, err error) {
	g.config, g.store = c, contender.NewStore()
	for i := range c.Variant.Servers {
		s := newServer(i)
		s.persists = slices.Contains(c.Faults, "restart")
		g.servers, servers = append(g.servers, s), append(servers, s)
	}
	if c.Variant.Guarded {
		err = g.bootstrap(ctx)
	}
	ctx, g.stop = context.WithCancel(ctx)
	if g.began = history.Now(); c.Variant.Servers == 1 && !strings.HasPrefix(c.Variant.Package, "setnx") { // whose renewals are two steps
		go g.watch(ctx)
	}
	return servers, "the store in memory", err
}

// watch looks often whether the server keeps each lock for as long as its holders believe.
func (g *Ground) watch(ctx context.Context) {
	for wait.For(ctx, lookEach) {
		for _, name := range g.config.Locks() {
			believed := g.deadlines(name)
			kept, ok := g.servers[0].ends(strategy.DefaultKey(name))
			if after := g.deadlines(name); !ok || len(after) < len(believed) {
				continue // one of them has ended meanwhile
			}
			slices.SortFunc(believed, func(a, b time.Time) int { return b.Compare(a) })
			slices.SortFunc(kept, func(a, b time.Time) int { return b.Compare(a) })
			for i, d := range believed {
				if i < len(kept) && !d.After(kept[i]) {
					continue
				}
				until, now := "nothing of it", history.Now()-g.began
				if i < len(kept) {
					until = fmt.Sprintf("it only until %v from then", time.Until(kept[i]))
				}
				op := history.Op{Client: "server 1", Kind: history.KindLost, Key: name, Hold: "-", Start: now, End: now}
				g.Late = append(g.Late, history.Violation{
					Property: "Deadline", Ops: []history.Op{op},
					Sentence: fmt.Sprintf("a holder believes that it has %q until %v from now, and the server keeps %s", name, time.Until(d), until),
				})
			}
		}
	}
}

// lookEach is how often watch looks. A grant that a message told of counts as it was made for longer.
const lookEach = 3 * time.Millisecond

// deadlines are those of all who believe that they hold a lock.
func (g *Ground) deadlines(name string) (all []time.Time) {
	g.mu.Lock()
	processes := slices.Clone(g.processes)
	g.mu.Unlock()
	for _, p := range processes {
		all = append(all, p.Deadlines(name)...)
	}
	return all
}

func (g *Ground) bootstrap(ctx context.Context) error {
	var nodes []driver.Node
	for _, way := range g.Ways() {
		defer way.Close()
		n := nodeOf(way)
		if err := n.Use(); err != nil {
			return err
		}
		defer n.Close()
		nodes = append(nodes, n)
	}
	return redlock.Bootstrap(ctx, nodes)
}

func (g *Ground) Ways() (ways []nemesis.Way) {
	for _, s := range g.servers {
		g.links++
		ways = append(ways, s.Link(g.config.Seed, g.links))
	}
	return ways
}

// dialLimit is that of contenders of processes of their own.
const dialLimit = 2 * time.Second

func nodeOf(w nemesis.Way) driver.Node { return redigonode.New(poolOf(w)) }

func poolOf(w nemesis.Way) *redis.Pool {
	l := w.(*Link)
	return &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) {
		c, err := l.Dial()
		if err != nil {
			return nil, err
		}
		return redis.NewConn(c, dialLimit, dialLimit), nil
	}}
}

// Start starts a contender in this process.
func (g *Ground) Start(_ context.Context, ways []nemesis.Way, s contender.Setup) (nemesis.Process, error) {
	p := &process{}
	var nodes []driver.Node
	for _, w := range ways {
		l := w.(*Link)
		l.birth()
		p.links = append(p.links, l)
		nodes = append(nodes, nodeOf(l))
	}
	store := g.store
	if s.Store == "" {
		store = nil
	}
	var err error
	if p.Local, err = contender.Open(s, g.config.Variant.On(nodes), store, g.Observe); err == nil {
		g.mu.Lock()
		g.processes = append(g.processes, p)
		g.mu.Unlock()
	}
	return p, err
}

// Close looks what is left, and ends the servers.
func (g *Ground) Close() (err error) {
	if g.stop != nil {
		g.stop()
	}
	if _, keeps := g.config.Variant.Except["ExpiryLeavesNothing"]; !keeps {
		time.Sleep(lapse)
		err = g.leftovers()
	}
	for _, s := range g.servers {
		s.Close()
	}
	return err
}

// lapse is how long all that a run leaves behind lasts: the entries of those who died in a queue, above all.
const lapse = 5 * time.Minute

func (g *Ground) leftovers() error {
	var pools []*redis.Pool
	for _, way := range g.Ways() {
		p := poolOf(way)
		defer p.Close()
		pools = append(pools, p)
	}
	look := g.config.Variant.SubjectOn(pools).Leftovers
	for _, name := range g.config.Locks() {
		left, err := look(context.Background(), strategy.DefaultKey(name))
		if err != nil {
			return err
		}
		g.Left = append(g.Left, left...)
	}
	return nil
}

// A process is a contender whose network stops with it.
type process struct {
	*contender.Local
	links []*Link
}

func (p *process) Work(_ context.Context, w contender.Workload) error { return p.Local.Work(w) }
func (p *process) Rest(context.Context) error                         { return p.Local.Rest() }
func (p *process) Ops() ([]history.Op, error)                         { return p.Local.Ops(), nil }

// Pause stops what it sends and gets, and its callers where they next do something. Its timers go on.
func (p *process) Pause(context.Context) error {
	p.Local.Pause()
	for _, l := range p.links {
		l.pause(true)
	}
	return nil
}

func (p *process) Thaw() error {
	for _, l := range p.links {
		l.pause(false)
	}
	p.Local.Thaw()
	return nil
}

func (p *process) Kill() error {
	for _, l := range p.links {
		l.die()
	}
	p.Local.Kill()
	return nil
}
