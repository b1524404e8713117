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
	{name: "says what a replica says", killed: []string{"ReplicaIsLeft"}, claims: onGround(sluggish{reads: true})},
	{name: "says what a replica says of a holder", killed: []string{"ReplicaIsLeft"}, claims: onGround(sluggish{inspects: true})},
	{name: "sleeps while its server becomes a replica", killed: []string{"ReplicaIsLeft"}, claims: onGround(sluggish{sleeps: true})},
	{name: "is refused by a replica for ever", killed: []string{"ReplicaIsLeft"}, claims: onGround(sluggish{stays: true})},
	{name: "trusts a replica that it holds the lock", killed: []string{"ReplicaIsLeft"}, claims: onGround(sluggish{extends: true})},
}

// sluggish are the faults.
type sluggish struct{ reads, inspects, sleeps, stays, extends bool }

// A ground is a server with a replica, which has what the server had at the last move.
type ground struct {
	*memory.Server
	mu    sync.Mutex
	moves int
	had   map[string]strategy.HeldError // by key
}

func onGround(faults sluggish) func(*Subject) {
	return func(s *Subject) {
		s.OpenGround = func(context.Context) (*Ground, error) {
			g := &ground{Server: &memory.Server{}}
			move := func(context.Context) error { g.move(); return nil }
			return &Ground{
				Open: func(o strategy.Options) (strategy.Strategy, error) {
					return engine.New(&way{ground: g, sluggish: faults, at: g.count()}, o)
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
	*ground
	sluggish

	mine     sync.Mutex
	at       int // the move after which it is
	watchers []func(driver.Notification)
}

// left reports whether the way leads to the primary.
func (w *way) left() bool {
	w.mine.Lock()
	defer w.mine.Unlock()
	return w.at == w.count()
}

// leave makes it lead there.
func (w *way) leave() {
	w.mine.Lock()
	w.at = w.count()
	watchers := w.watchers
	w.watchers = nil
	w.mine.Unlock()
	for _, fn := range watchers {
		fn(driver.Notification{})
	}
}

// asks is what each request begins with.
func (w *way) asks() error {
	if w.left() {
		return nil
	}
	if w.stays {
		return memory.Refused("READONLY")
	}
	w.leave()
	return nil
}

// replica returns what it says of a key; nil: nothing.
func (w *way) replica(key string) *strategy.HeldError {
	w.ground.mu.Lock()
	defer w.ground.mu.Unlock()
	if held, ok := w.had[key]; ok {
		return &held
	}
	return nil
}

func (w *way) Acquire(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if held := w.replica(c.Key); w.reads && !w.left() && held != nil {
		return driver.Grant{}, &strategy.HeldError{Name: c.Name, Holder: held.Holder, TTL: held.TTL}
	}
	if err := w.asks(); err != nil {
		return driver.Grant{}, err
	}
	return w.Server.Acquire(ctx, c)
}

func (w *way) Extend(ctx context.Context, c driver.Claim) (driver.Grant, error) {
	if w.extends && !w.left() {
		w.Evict(ctx, c.Key)
		return driver.Grant{}, nil
	}
	if err := w.asks(); err != nil {
		return driver.Grant{}, err
	}
	return w.Server.Extend(ctx, c)
}

func (w *way) ExtendAll(ctx context.Context, cs []driver.Claim, done func(int, driver.Grant, error)) {
	for i, c := range cs {
		g, err := w.Extend(ctx, c)
		done(i, g, err)
	}
}

func (w *way) Release(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	if err := w.asks(); err != nil {
		return driver.Outcome{}, err
	}
	return w.Server.Release(ctx, c)
}

func (w *way) Undo(ctx context.Context, c driver.Claim) error {
	if err := w.asks(); err != nil {
		return err
	}
	return w.Server.Undo(ctx, c)
}

func (w *way) ForceRelease(ctx context.Context, c driver.Claim) (driver.Outcome, error) {
	if err := w.asks(); err != nil {
		return driver.Outcome{}, err
	}
	return w.Server.ForceRelease(ctx, c)
}

func (w *way) Inspect(ctx context.Context, c driver.Claim) (strategy.Info, error) {
	if held := w.replica(c.Key); w.inspects && !w.left() && held != nil {
		return strategy.Info{Held: true, Token: held.Holder, TTL: held.TTL}, nil
	}
	if err := w.asks(); err != nil {
		return strategy.Info{}, err
	}
	return w.Server.Inspect(ctx, c)
}

func (w *way) Watch(ctx context.Context, c driver.Claim, fn func(driver.Notification)) (func(), error) {
	if err := w.asks(); err != nil {
		return nil, err
	}
	w.mine.Lock()
	w.watchers = append(w.watchers, fn)
	w.mine.Unlock()
	return w.Server.Watch(ctx, c, func(n driver.Notification) {
		if w.left() {
			fn(n)
		}
	})
}

func (w *way) Probe(context.Context, time.Time) uint64 {
	if !w.sleeps && !w.stays && !w.extends && !w.left() {
		w.leave()
	}
	return 0
}
