// Faults of locks whose primary becomes a replica while connections live: see TestMutants. And a server that
// has such a replica.
package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/lockstrategies/locks/driver"
	"github.com/lockstrategies/locks/engine"
	"github.com/lockstrategies/locks/internal/memory"
	"github.com/lockstrategies/locks/strategy"
)

// movingMutants are locks that stay with a replica.
var movingMutants = []mutant{
	odd("says what a replica says", "ReplicaIsLeft", onGround(sluggish{reads: true})),
	odd("says what a replica says of a holder", "ReplicaIsLeft", onGround(sluggish{inspects: true})),
	odd("sleeps while its server becomes a replica", "ReplicaIsLeft", onGround(sluggish{sleeps: true})),
	odd("is refused by a replica for ever", "ReplicaIsLeft", onGround(sluggish{stays: true})),
	odd("trusts a replica that it holds the lock", "ReplicaIsLeft", onGround(sluggish{extends: true})),
}

type sluggish struct{ reads, inspects, sleeps, stays, extends bool }

// A ground is a server with a replica, which has what the server had at the last move.
type ground struct {
	memory.Server
	mu    sync.Mutex
	moves int
	had   map[string]strategy.HeldError // by key
}

func onGround(faults sluggish) func(*Subject) {
	return func(s *Subject) {
		s.OpenGround = func(context.Context) (*Ground, error) {
			g := &ground{}
			move := func(context.Context) error { g.move(); return nil }
			return &Ground{
				Open: func(o strategy.Options) (strategy.Strategy, error) {
					w := &way{to: g, sluggish: faults, at: g.count()}
					w.faulty = faulty{memory.Shares{Gated: memory.Gated{Server: &g.Server}}, onEach(w.asks, append([]memory.Op{acquire, extend, inspect, watch}, ends...)...)}
					return engine.New(w, o)
				},
				Moves: []Move{{"there", move}, {"back", move}},
				Close: func() error { return nil },
			}, nil
		}
	}
}

func (g *ground) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.moves
}

// move makes the primary a replica, where nobody hears anything from now on.
func (g *ground) move() {
	had := g.Holders()
	g.mu.Lock()
	g.moves, g.had = g.moves+1, had
	g.mu.Unlock()
	g.BreakWatches()
}

// A way is a contender's connections to a ground. The first request after a move, or a probe, finds out that the server is a
// replica, unless the way has a fault.
type way struct {
	faulty
	sluggish
	to *ground

	mu       sync.Mutex
	at       int // the move after which it is
	watchers []func(driver.Notification)
}

// left reports whether the way leads to the primary.
func (w *way) left() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at == w.to.count()
}

// leave makes it lead there.
func (w *way) leave() {
	w.mu.Lock()
	w.at = w.to.count()
	watchers := w.watchers
	w.watchers = nil
	w.mu.Unlock()
	for _, fn := range watchers {
		fn(driver.Notification{})
	}
}

// asks is what becomes of each request.
func (w *way) asks(m *move) (driver.Grant, error) {
	if !w.left() {
		w.to.mu.Lock()
		held, has := w.to.had[m.c.Key]
		w.to.mu.Unlock()
		switch {
		case w.reads && m.op == acquire && has:
			return driver.Grant{}, &strategy.HeldError{Name: m.c.Name, Holder: held.Holder, TTL: held.TTL}
		case w.inspects && m.op == inspect && has:
			m.info = strategy.Info{Held: true, Token: held.Holder, TTL: held.TTL}
			return driver.Grant{}, nil
		case w.extends && m.op == extend:
			return driver.Grant{}, m.Evict(m.ctx, m.c.Key)
		case w.stays:
			return driver.Grant{}, memory.Refused("READONLY")
		}
		w.leave()
	}
	if hears := m.hears; m.op == watch {
		w.mu.Lock()
		w.watchers = append(w.watchers, hears)
		w.mu.Unlock()
		m.hears = func(n driver.Notification) {
			if w.left() {
				hears(n)
			}
		}
	}
	return m.rightly()
}

func (w *way) Probe(context.Context, time.Time) uint64 {
	if !w.sleeps && !w.stays && !w.extends && !w.left() {
		w.leave()
	}
	return 0
}
